// The life of a job as stretches of time: waits, attempts, and what lies between them. Pure.
import type { Job, Step } from "./api";

export interface Stretch { kind: "wait" | "attempt" | "backoff" | "sleep"; from: number; to: number; label: string; outcome?: string; open: boolean; number?: number }

/** Milliseconds below which a stretch beside a sleep is not worth a word. */
const MOMENT = 50;

export function stretches(job: Job, now: number, steps: Step[] = []): Stretch[] {
  const found: Stretch[] = [];
  const due = Date.parse(job.run_at);
  let at = Date.parse(job.enqueued_at);
  const attempts = [...job.attempts].sort((a, b) => Date.parse(a.started_at) - Date.parse(b.started_at)).map((each) => ({
    number: each.number, from: Date.parse(each.started_at), to: each.ended_at ? Date.parse(each.ended_at) : undefined, outcome: each.outcome,
  }));
  const started = job.started_at ? Date.parse(job.started_at) : undefined;
  // The attempt that went well, or that runs, has no record of its own.
  if (started !== undefined && (job.state === "running" || job.state === "done") && !attempts.some((each) => each.from >= started)) {
    attempts.push({ number: job.attempt, from: started, to: job.finished_at ? Date.parse(job.finished_at) : undefined, outcome: job.state });
  }
  attempts.forEach((each, index) => {
    if (each.from > at) found.push({ kind: index ? "backoff" : "wait", from: at, to: each.from, label: index ? "backoff" : "wait", open: false });
    const end = each.to ?? now;
    found.push({ kind: "attempt", from: each.from, to: Math.max(end, each.from), label: `#${each.number}`, outcome: each.outcome, open: each.to === undefined, number: each.number });
    at = Math.max(at, end);
  });
  if (job.state === "ready") {
    const until = job.held ? now : Math.max(now, due);
    if (until > at) found.push({ kind: attempts.length ? "backoff" : "wait", from: at, to: until, label: attempts.length ? "backoff" : "wait", open: true });
  }
  return steps.reduce(withSleep, found);
}

/** A wait that lasts, or may go on. */
export const waits = (step: Step): boolean => step.kind === "wait" || step.kind === "woken";

/** A wait that came to something: it lasted from `at` to `until`. */
export const waited = (step: Step): boolean => step.kind === "event" || step.kind === "timeout" || step.kind === "gather";

/** A run that slept, or waited, has no record of its own: that lies within what looks like a wait for a slot, or a backoff. */
function withSleep(found: Stretch[], step: Step): Stretch[] {
  if (!waits(step) && !((step.kind === "sleep" || waited(step)) && step.until)) return found;
  const at = Date.parse(step.at);
  const end = waits(step) || !step.until ? Infinity : Date.parse(step.until);
  return found.flatMap((part) => {
    const [from, to] = [Math.max(part.from, at), Math.min(part.to, end)];
    if (part.kind === "attempt" || from >= to) return [part];
    const sleep: Stretch = { kind: "sleep", from, to, label: step.kind === "sleep" ? `sleep ${step.name}` : `wait for ${step.event ?? "jobs"}`, open: part.open && to === part.to };
    return [{ ...part, to: from, label: "earlier runs", open: false }, sleep, { ...part, from: to }].filter((each) => each.to - each.from >= MOMENT);
  });
}
