import type { JSX } from "preact";
import { type JobsPage, mayAct, type Worker } from "../api";
import { reclaimWorker } from "../actions";
import { now, useLoad } from "../live";
import { Ago, Badge, Bar, Card, Empty, Failed, Loading, QueueLink, Table } from "../parts/basic";
import { plural } from "../words";
import { Running } from "./queues";

const LOST_AFTER = 30_000;

export function WorkersScreen(): JSX.Element {
  const { data, error } = useLoad<{ workers: Worker[] }>("workers");
  const running = useLoad<JobsPage>("jobs?state=running&limit=200&brief=1", 3_000);
  if (!data) return error ? <Failed error={error} /> : <Loading />;
  const lost = (worker: Worker): boolean => now.value - Date.parse(worker.seen_at) > LOST_AFTER;
  return (
    <>
      <h1>Workers</h1>
      <Failed error={error} stale />
      <Card class="flush">
        {data.workers.length ? <Table label="Workers" rows={data.workers} id={(worker) => worker.worker} columns={[
          { name: "Worker", cell: (worker) => <span class="mono">{worker.worker}</span> },
          { name: "State", cell: (worker) => (lost(worker) ? <Badge kind="bad">lost</Badge> : worker.draining ? <Badge kind="notice">draining</Badge> : <Badge kind="good">alive</Badge>) },
          { name: "Slots", cell: (worker) => <><Bar used={worker.running} of={worker.slots} label={`${worker.running} of ${plural(worker.slots, "slot")} busy`} />{worker.stuck ? <> <Badge kind="warning">{worker.stuck} stuck</Badge></> : null}</> },
          { name: "Heard", cell: (worker) => <Ago at={worker.seen_at} /> },
          { name: "Queues", minor: true, cell: (worker) => worker.queues.map((queue) => <QueueLink key={queue} queue={queue} />) },
          { name: "Host", minor: true, cell: (worker) => <>{worker.host} <span class="muted">pid {worker.pid}</span></> },
          { name: "Version", minor: true, cell: (worker) => worker.version },
          { name: "Since", minor: true, cell: (worker) => <Ago at={worker.since} /> },
          ...(mayAct() ? [{ name: "", right: true, cell: (worker: Worker) => (lost(worker) ? <button type="button" class="small" onClick={() => reclaimWorker(worker.worker)}>Take back its jobs</button> : null) }] : []),
        ]} /> : <Empty title="No worker has been heard of within the hour">Start one: <code>hawser worker APP --queues default</code></Empty>}
      </Card>
      <Card title="What runs now, the longest first" class="flush">
        {running.data?.jobs.length ? <Running jobs={running.data.jobs} /> : <Empty title="No job runs" />}
      </Card>
    </>
  );
}
