// Screens about single jobs, fetched together.
export { DeadScreen, GroupScreen } from "./dead";
export { JobScreen } from "./job";
export { JobsScreen } from "./jobs";
