// Which jobs an action is about: how many of each task, when they were enqueued, and a few of them.
import type { ComponentChildren, JSX } from "preact";
import type { JobLine } from "../api";
import { date, number, tail } from "../words";

const SHOWN = 3;

/** Of the jobs themselves, or of the newest of a crowd. */
export function Sample(props: { jobs: JobLine[]; newestOf?: boolean; children?: ComponentChildren }): JSX.Element {
  const { jobs, newestOf } = props;
  const line = (job: JobLine): JSX.Element => <li key={job.id}><span class="mono">…{tail(job.id)}</span> {job.task}, enqueued {date(job.enqueued_at)} <span class="muted">{job.error ?? job.reason ?? ""}</span></li>;
  if (newestOf) return <><p>The newest:</p><ul class="sample">{jobs.map(line)}</ul></>;
  const counts = new Map<string, number>();
  for (const job of jobs) counts.set(job.task, (counts.get(job.task) ?? 0) + 1);
  const times = jobs.map((job) => job.enqueued_at).sort();
  return (
    <>
      {!!jobs.length && <p>{[...counts].map(([task, count]) => `${number(count)} of ${task}`).join(", ")}, enqueued {date(times[0] ?? "") === date(times.at(-1) ?? "") ? date(times[0] ?? "") : `from ${date(times[0] ?? "")} to ${date(times.at(-1) ?? "")}`}.</p>}
      <ul class="sample">{jobs.slice(0, SHOWN).map(line)}{jobs.length > SHOWN && <li class="muted">and {number(jobs.length - SHOWN)} more</li>}</ul>
      {props.children}
    </>
  );
}
