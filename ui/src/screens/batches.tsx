import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type Batch, type Job, mayAct, type Operation, path, post } from "../api";
import { actOnAll } from "../actions";
import { useLoad } from "../live";
import { Ago, Badge, Card, Copy, Empty, Failed, Fields, JobLink, Loading, shown, Table } from "../parts/basic";
import { ask } from "../parts/dialog";
import { Progress } from "../parts/operation";
import { href, Link, place } from "../router";
import { number, plural } from "../words";

const STATES = ["open", "running", "done", "dead", "cancelled"];
const PARTS = ["done", "dead", "cancelled", "running", "waiting"] as const;
const live = (batch: Batch): boolean => batch.state === "open" || batch.state === "running";

export const BatchLink = (props: { id: string; name?: string }): JSX.Element =>
  <Link to={href(`batches/${props.id}`)} class={props.name ? "name" : "mono"} title={props.id}>{props.name ?? props.id}</Link>;

const State = (props: { batch: Batch }): JSX.Element => <Badge kind={props.batch.state === "open" ? "warning" : props.batch.state}>{props.batch.state}</Badge>;

/** How its jobs stand, as one bar; the words tell the same. */
function Parts(props: { batch: Batch; long?: boolean }): JSX.Element {
  const { batch } = props;
  const text = PARTS.filter((part) => batch[part]).map((part) => `${number(batch[part])} ${part}`).join(", ") || "no jobs yet";
  return <span class={`parts ${props.long ? "long" : ""}`} role="img" aria-label={text} title={text}>
    {PARTS.map((part) => batch[part] > 0 && <i key={part} class={part} style={{ width: `${(batch[part] / batch.total) * 100}%` }} />)}
  </span>;
}

function end(batch: Batch, action: "close" | "cancel"): void {
  const cancel = action === "cancel";
  ask({
    title: cancel ? `Cancel batch ${batch.name}?` : `Close batch ${batch.name}?`, button: cancel ? "Cancel the batch" : "Close the batch", danger: cancel,
    body: cancel ? "What waits of its jobs is cancelled, what runs is asked to stop, also in batches inside it. What follows when all have ended still runs."
      : "Only when its producer is gone. It ends when all its jobs have ended, and takes no more then.",
    act: async ({ reason }) => { await post(`batches/${batch.id}/${action}`, { reason: reason ?? null }); return `Batch ${batch.name} is ${cancel ? "cancelled" : "closed"}.`; },
  });
}

export function BatchesScreen(): JSX.Element {
  const query = place.value.query;
  const [state, after] = [query.get("state") ?? undefined, query.get("after") ?? undefined];
  const { data, error } = useLoad<{ batches: Batch[]; next: string | null }>(path("batches", { state, after, limit: 50 }));
  return (
    <>
      <h1>Batches</h1>
      <nav class="tabs" aria-label="State">{["", ...STATES].map((each) => <Link key={each} to={href("batches", { state: each || undefined })} current={(state ?? "") === each}>{each || "all"}</Link>)}</nav>
      <Failed error={error} stale={!!data} />
      <Card class="flush">
        {!data ? !error && <Loading /> : data.batches.length ? <Table label="Batches" rows={data.batches} id={(batch) => batch.id} columns={[
          { name: "Batch", cell: (batch) => <BatchLink id={batch.id} name={batch.name} /> },
          { name: "State", cell: (batch) => <State batch={batch} /> },
          { name: "Jobs", cell: (batch) => <><Parts batch={batch} /> <span class="muted">{number(batch.total - batch.waiting - batch.running)} of {number(batch.total)} ended</span></> },
          { name: "Dead", right: true, cell: (batch) => (batch.dead ? <Link class="bad" to={href("jobs", { batch: batch.id, state: "dead" })}>{number(batch.dead)}</Link> : "0") },
          { name: "Opened", minor: true, cell: (batch) => <Ago at={batch.created_at} /> },
          { name: "Ended", minor: true, cell: (batch) => <Ago at={live(batch) ? null : batch.ended_at} /> },
        ]} /> : state || after ? <Empty title="No batch matches"><Link to={href("batches")}>All batches</Link></Empty>
          : <Empty title="There is no batch yet">Open one: <code>with app.batch("import", then=report.job()) as batch: batch.add(…)</code></Empty>}
      </Card>
      <div class="pages">{after && <Link class="button" to={href("batches", { state })}>Newest</Link>}{data?.next && <Link class="button" to={href("batches", { state, after: data.next })}>Older</Link>}</div>
    </>
  );
}

function Following(props: { id: string }): JSX.Element {
  const { data: job, status } = useLoad<Job>(`jobs/${props.id}`);
  return <><JobLink id={props.id} /> {job ? <>{job.task} <Badge kind={shown(job)} /></> : status === 404 && <span class="muted">has ended, and is not kept</span>}</>;
}

export function BatchScreen(props: { id: string }): JSX.Element {
  const { data: batch, error, status } = useLoad<Batch>(`batches/${encodeURIComponent(props.id)}`, 1_000);
  const [operation, setOperation] = useState<Operation | undefined>(undefined);
  if (!batch) return status === 404 ? <Empty title="There is no such batch"><Link to={href("batches")}>All batches</Link></Empty> : error ? <Failed error={error} /> : <Loading />;
  const left = batch.waiting + batch.running;
  return (
    <>
      <div class="title">
        <div><p class="crumb"><Link to={href("batches")}>Batches</Link></p><h1>{batch.name}</h1></div>
        <div class="buttons">
          <Link class="button" to={href("jobs", { batch: batch.id })}>Its jobs</Link>
          {mayAct() && batch.dead > 0 && <button type="button" class="primary" onClick={() => void actOnAll("requeue", { batch: batch.id }, `The dead jobs of batch ${batch.name}`, setOperation)}>Retry the {number(batch.dead)} failed …</button>}
          {mayAct() && !batch.closed && <button type="button" onClick={() => end(batch, "close")}>Close</button>}
          {mayAct() && live(batch) && <button type="button" class="danger" onClick={() => end(batch, "cancel")}>Cancel</button>}
        </div>
      </div>
      <Failed error={error} stale />
      {operation && <Progress start={operation} onClose={() => setOperation(undefined)} />}
      <div class={`status ${{ dead: "bad", open: "warning", done: "good" }[batch.state as string] ?? "idle"}`}><State batch={batch} /><p class="sentence">
        {batch.state === "open" ? "Its producer has not closed it: it does not end before. Close it when the producer is gone." : live(batch) ? `${plural(left, "job")} of ${number(batch.total)} have not ended.` : <>All {plural(batch.total, "job")} have ended, <Ago at={batch.ended_at} />.</>}
        {batch.cancel_asked && ` It was cancelled${batch.reason ? `: ${batch.reason}` : ""}.`}
      </p></div>
      <Card title="Jobs"><Parts batch={batch} long />
        <Fields of={PARTS.map((part) => [part[0]?.toUpperCase() + part.slice(1), part === "waiting" || !batch[part] ? number(batch[part]) : <Link to={href("jobs", { batch: batch.id, state: part })}>{number(batch[part])}</Link>])} /></Card>
      <Card title="Facts"><Fields of={[
        ["Id", <><span class="mono">{batch.id}</span> <Copy text={batch.id} /></>],
        ["Opened", <Ago at={batch.created_at} />],
        ...(batch.parent ? [["Counts in", <BatchLink id={batch.parent} />] as [string, JSX.Element]] : []),
        ...([["When all have ended", batch.then], ["When all are done", batch.on_success], ["At the first death", batch.on_dead]] as [string, string | null][])
          .map(([word, id]) => [word, id ? <Following id={id} /> : "nothing"] as [string, JSX.Element | string]),
      ]} /></Card>
    </>
  );
}
