import type { JSX } from "preact";
import { type JobsPage, mayAct, type Worker } from "../api";
import { reclaimWorker } from "../actions";
import { now, useLoad } from "../live";
import { Ago, Badge, Bar, Card, Empty, Failed, Loading, QueueLink, Table } from "../parts/basic";
import { href, Link } from "../router";
import { plural } from "../words";
import { Running } from "./queues";

const LOST_AFTER = 30_000;

export function WorkersScreen(): JSX.Element {
  const { data, error } = useLoad<{ workers: Worker[] }>("workers");
  const running = useLoad<JobsPage>("jobs?state=running&sort=started&limit=200&brief=1", 3_000);
  if (!data) return error ? <Failed error={error} /> : <Loading />;
  const jobs = running.data?.jobs ?? [];
  const lost = (worker: Worker): boolean => now.value - Date.parse(worker.seen_at) > LOST_AFTER;
  return (
    <>
      <h1>Workers</h1>
      <Failed error={error} stale />
      <Card class="flush">
        {data.workers.length ? <Table label="Workers" rows={data.workers} id={(worker) => worker.worker} columns={[
          { name: "Worker", breaks: true, cell: (worker) => <><span class="mono">{worker.worker}</span> <span class="muted">{worker.host}, pid {worker.pid}</span></> },
          { name: "State", cell: (worker) => (lost(worker) ? <Badge kind="bad">lost</Badge> : worker.draining ? <Badge kind="notice">draining</Badge> : <Badge kind="good">alive</Badge>) },
          { name: "Slots", cell: (worker) => <><Bar used={worker.running} of={worker.slots} label={`${worker.running} of ${plural(worker.slots, "slot")} busy`} />{worker.stuck ? <> <Badge kind="warning">{worker.stuck} stuck</Badge></> : null}</> },
          { name: "Runs now", breaks: true, cell: (worker) => { const own = jobs.filter((job) => job.worker === worker.worker); return own.length ? <Link to={href("jobs", { state: "running", worker: worker.worker })} title={own.map((job) => job.task).join(", ")}>{own.slice(0, 2).map((job) => job.task).join(", ")}{own.length > 2 ? ` and ${own.length - 2} more` : ""}</Link> : <span class="muted">–</span>; } },
          { name: "Heard", cell: (worker) => <Ago at={worker.seen_at} /> },
          { name: "Queues", minor: true, breaks: true, cell: (worker) => <div class="names">{worker.queues.map((queue) => <QueueLink key={queue} queue={queue} />)}</div> },
          { name: "Version, since", minor: true, breaks: true, cell: (worker) => <><span title={`Hawser ${worker.version}`}>{worker.app_version ?? `Hawser ${worker.version}`}</span>, <Ago at={worker.since} /></> },
          ...(mayAct() ? [{ name: "", right: true, cell: (worker: Worker) => (lost(worker) ? <button type="button" class="small" onClick={() => reclaimWorker(worker.worker)}>Take back its jobs</button> : null) }] : []),
        ]} /> : <Empty title="No worker has been heard of within the hour">Start one: <code>hawser worker APP --queues default</code></Empty>}
      </Card>
      <Card title="What runs now, the longest first" class="flush">
        {running.data?.jobs.length ? <Running jobs={running.data.jobs} /> : <Empty title="No job runs" />}
      </Card>
    </>
  );
}
