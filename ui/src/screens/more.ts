// Screens about what surrounds the jobs, fetched together: small files compress badly one by one.
export { AuditScreen } from "./audit";
export { QueueScreen, QueuesScreen } from "./queues";
export { SchedulesScreen } from "./schedules";
export { SystemScreen } from "./system";
export { TasksScreen } from "./tasks";
export { WorkersScreen } from "./workers";
