// What buttons do. Each is one call of the API, which leaves an audit record.
import { type Counted, get, type JobLine, type JobsPage, mayAct, type Operation, patch, path as pathOf, type Pause, post, put, remove } from "./api";
import { ask, attempt, type Entry, tell } from "./parts/dialog";
import { Sample } from "./parts/sample";
import { date, filledIn, local, number, plural, tail } from "./words";

export function pauseQueue(queue: string): void {
  pauseAt(`admin/queues/${encodeURIComponent(queue)}`, `Queue ${queue}`);
}

export function pauseTask(task: string): void {
  pauseAt(`admin/job-types/${encodeURIComponent(task)}`, `Task ${task}`);
}

function pauseAt(path: string, what: string): void {
  ask({
    title: `Pause ${what.toLowerCase().slice(0, 5)} ${what.slice(6)}?`.replace("  ", " "),
    body: "No worker starts its jobs any more; those that run go on, and nothing is lost.",
    button: "Pause", entries: [{ name: "until", label: "Until; left empty: until it is resumed", type: "datetime-local" }],
    act: async ({ reason, values: { until } }) => { await post(`${path}/pause`, { reason: reason ?? null, ...(until ? { until: filledIn(until) } : {}) }); return `${what} is paused${until ? ` until ${date(filledIn(until))}` : ""}.`; },
    undo: async () => { await post(`${path}/resume`); return `${what} goes on.`; },
  });
}

export const resumeQueue = (queue: string): void => resume(`admin/queues/${encodeURIComponent(queue)}`, `Queue ${queue}`);
export const resumeTask = (task: string): void => resume(`admin/job-types/${encodeURIComponent(task)}`, `Task ${task}`);

function resume(path: string, what: string): void {
  void attempt(async () => { await post(`${path}/resume`); return `${what} goes on.`; }, () => void attempt(async () => {
    await post(`${path}/pause`, { reason: null });
    return `${what} is paused again.`;
  }));
}

export const pauseText = (pause: Pause): string => `paused by ${pause.by}${pause.reason ? `: ${pause.reason}` : ""}`;

export function retryJob(job: JobLine): void {
  const act = async (reason?: string): Promise<string> => {
    await post(`jobs/${job.id}/retry`, { reason: reason ?? null, confirm: job.confirm_replay });
    return `Job …${tail(job.id)} runs again.`;
  };
  if (!job.confirm_replay) { void attempt(() => act()); return; }
  ask({
    title: `Run ${job.task} …${tail(job.id)} again?`,
    body: "Its task is marked as one that must not run twice by accident. Make sure that its work was not done.",
    button: "Run again", danger: true, act: ({ reason }) => act(reason),
  });
}

export function cancelJob(job: JobLine): void {
  ask({
    title: `Cancel ${job.task} …${tail(job.id)}?`,
    body: job.state === "running" ? "It runs: its worker is asked to stop it." : "It waits: it ends at once, as cancelled. It can be run again later.",
    button: "Cancel the job", danger: true,
    act: async ({ reason }) => {
      const { acted } = await post<{ acted: string }>(`jobs/${job.id}/cancel`, { reason: reason ?? null });
      return acted === "asked" ? "Its worker was asked to stop it." : "The job is cancelled.";
    },
  });
}

export function discardJob(job: JobLine): void {
  ask({
    title: `Discard ${job.task} …${tail(job.id)}?`,
    body: "It leaves the dead letters and counts as cancelled. It can be run again while it is kept.",
    button: "Discard", danger: true,
    act: async ({ reason }) => {
      await remove(`dlq/${job.id}${reason ? `?reason=${encodeURIComponent(reason)}` : ""}`);
      return "The job is discarded.";
    },
  });
}

export const runNow = (job: JobLine): void => void attempt(async () => { await post(`jobs/${job.id}/run-now`); return `Job …${tail(job.id)} is due now.`; });

export function changeJob(job: JobLine): void {
  const due = local(job.run_at);
  ask({
    title: `Change ${job.task} …${tail(job.id)}`, button: "Change", body: "It waits. What is left as it is stays.",
    entries: [
      { name: "queue", label: "Queue", value: job.queue, limits: { required: true } },
      { name: "priority", label: "Priority, 9 goes first", type: "number", value: String(job.priority), limits: { min: 0, max: 9, step: 1, required: true } },
      { name: "due", label: "Due", type: "datetime-local", value: due, limits: { required: true } },
    ],
    act: async ({ reason, values }) => {
      const { queue, priority, due: chosen } = values;
      await patch(`jobs/${job.id}`, {
        ...(queue !== job.queue ? { queue } : {}), ...(Number(priority) !== job.priority ? { priority: Number(priority) } : {}),
        ...(chosen && chosen !== due ? { run_at: filledIn(chosen) } : {}), reason: reason ?? null,
      });
      return `Job …${tail(job.id)} is changed.`;
    },
    undo: async () => { await patch(`jobs/${job.id}`, { queue: job.queue, priority: job.priority, run_at: job.run_at }); return `Job …${tail(job.id)} is as it was.`; },
  });
}

export function deadLetter(job: JobLine): void {
  ask({
    title: `End ${job.task} …${tail(job.id)} as dead?`, body: "It goes to the dead letters, and can be run again from there.", button: "End as dead", danger: true,
    act: async ({ reason }) => { await post(`jobs/${job.id}/dead-letter`, { reason: reason ?? null }); return `Job …${tail(job.id)} is dead.`; },
  });
}

export function reclaimWorker(worker: string): void {
  ask({
    title: `Take back the jobs of ${worker}?`, button: "Take back", danger: true,
    body: "Only when its process is known to be dead: its jobs start elsewhere without waiting for their leases. A process that lives can write nothing of them any more.",
    act: async ({ reason }) => `${plural((await post<{ reclaimed: number }>(`workers/${encodeURIComponent(worker)}/reclaim`, { reason: reason ?? null })).reclaimed, "job")} taken back.`,
  });
}

export function setWeight(queue: string, group?: string, weight = 1): void {
  ask({
    title: group ? `Weight of ${group}` : `Weight of a group of ${queue}`, button: "Set the weight", body: "How many places the group is offered in a turn, as against 1 of the others.",
    entries: [
      ...(group ? [] : [{ name: "group", label: "Group", limits: { required: true } }]),
      { name: "weight", label: "Places", type: "number", value: String(weight), limits: { min: 1, step: 1, required: true } },
    ],
    act: async ({ reason, values }) => {
      const name = group ?? values["group"] ?? "";
      await put(`queues/${encodeURIComponent(queue)}/groups/${encodeURIComponent(name)}`, { weight: Number(values["weight"]), reason: reason ?? null });
      return `${name} is offered ${plural(Number(values["weight"]), "place")} a turn.`;
    },
  });
}

type Bulk = "requeue" | "discard" | "cancel";
const BULK: Record<Bulk, { path: string; title: string; button: string; done: string }> = {
  requeue: { path: "dlq/requeue", title: "Run again", button: "Run again", done: "run again" },
  discard: { path: "dlq/discard", title: "Discard", button: "Discard", done: "discarded" },
  cancel: { path: "jobs/cancel", title: "Cancel", button: "Cancel the jobs", done: "cancelled" },
};

export const ended = (operation: Operation): string =>
  `${plural(operation.done, "job")} ${operation.state === "running" ? "so far" : "in all"}${operation.skipped ? `, ${number(operation.skipped)} skipped` : ""}`;

const STOP: Entry = { name: "stop", label: "Stop by itself when more than so many percent die again", type: "number", value: "20", hint: "never", limits: { min: 1, max: 99 } };

/** On all jobs that match: counted first, and nothing newer than the count is touched. */
export async function actOnAll(action: Bulk, filter: Record<string, string | undefined>, what: string, onStart: (operation: Operation) => void): Promise<void> {
  if (!mayAct()) return;
  const { path, title, button, done } = BULK[action];
  let counted: Counted;
  try {
    counted = await post<Counted>(path, { filter, dry_run: true });
  } catch (error) {
    tell((error as Error).message, true);
    return;
  }
  if (!counted.count) { tell(`No job matches ${what} any more.`); return; }
  const newest = await get<JobsPage>(pathOf(action === "cancel" ? "jobs" : "dlq", { ...filter, ...(action === "cancel" ? { state: "ready" } : {}), limit: 3, brief: 1 })).catch(() => undefined);
  const count = counted.exact ? plural(counted.count, "job") : `${number(counted.count)} or more jobs`;
  ask({
    title: `${title} ${count}?`,
    body: <><p>{what}. Jobs that come in from now on are left alone. Tasks that ask for a confirmation are skipped.</p>{!!newest?.jobs.length && <Sample jobs={newest.jobs} newestOf />}</>,
    button, danger: action !== "requeue", entries: [...(action === "requeue" ? [STOP] : []), { name: "rate", label: "At most this many a second", type: "number", value: "50", limits: { min: 0.1, max: 10000, step: "any", required: true } }], typed: counted.count > 1000 || !counted.exact ? action : undefined,
    act: async ({ reason, values }) => {
      const operation = await post<Operation>(path, { filter, token: counted.token, rate: Number(values["rate"]), reason: reason ?? null, ...(Number(values["stop"]) ? { stop_if: { dead_share: Number(values["stop"]) / 100 } } : {}) });
      onStart(operation);
      return operation.state === "running" ? undefined : `${plural(operation.done, "job")} ${done}${operation.skipped ? `, ${number(operation.skipped)} skipped` : ""}.`;
    },
  });
}
