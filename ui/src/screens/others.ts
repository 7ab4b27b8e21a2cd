// All screens but the first, fetched together: small files compress badly one by one.
export { AuditScreen } from "./audit";
export { BatchesScreen, BatchScreen } from "./batches";
export { DeadScreen, GroupScreen } from "./dead";
export { JobScreen } from "./job";
export { JobsScreen } from "./jobs";
export { LimitsScreen } from "./limits";
export { QueueScreen, QueuesScreen } from "./queues";
export { SchedulesScreen } from "./schedules";
export { SystemScreen } from "./system";
export { TaskScreen, TasksScreen } from "./tasks";
export { WorkersScreen } from "./workers";
