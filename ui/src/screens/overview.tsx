import type { JSX } from "preact";
import { type Overview, type QueueLine } from "../api";
import { useLoad } from "../live";
import { Ago, Badge, Bar, Card, Empty, Failed, LevelIcon, Loading, QueueLink, Spark, Table } from "../parts/basic";
import { Chart } from "../parts/chart";
import { windowed } from "../range";
import { href, Link } from "../router";
import { perSecond } from "../series";
import { number, percent, plural, rate, seconds } from "../words";

function Figure(props: { name: string; value: string; hint?: string; to: string; level?: string }): JSX.Element {
  return (
    <Link to={props.to} class={`figure ${props.level ?? ""}`}>
      <span class="what">{props.name}</span><span class="value">{props.value}</span><span class="hint">{props.hint ?? " "}</span>
    </Link>
  );
}

export const eta = (queue: QueueLine): string =>
  queue.eta_s !== null ? seconds(queue.eta_s) : queue.waiting && queue.in_s >= queue.out_s && queue.in_s > 0 ? "never" : "–";

/** `act`: the button of a row. */
export function QueueTable(props: { queues: QueueLine[]; act?: ((queue: QueueLine) => JSX.Element) | undefined }): JSX.Element {
  return (
    <Table label="Queues" rows={props.queues} id={(queue) => queue.queue} columns={[
      { name: "Queue", breaks: true, cell: (queue) => <><QueueLink queue={queue.queue} />{queue.pause && <> <Badge kind="paused">paused</Badge></>}{!queue.workers && <> <Badge kind="warning">no worker</Badge></>}{queue.failure_share !== null && queue.failure_share >= 0.5 && <> <Badge kind="bad">{percent(queue.failure_share)} fail</Badge></>}</> },
      { name: "Behind", right: true, cell: (queue) => <span class={queue.behind_s >= 60 ? "bad" : queue.behind_s >= 10 ? "warning" : ""}>{seconds(queue.behind_s < 1 ? 0 : queue.behind_s)}</span> },
      { name: "Waiting", right: true, cell: (queue) => `${number(queue.waiting)}${queue.exact ? "" : "+"}` },
      { name: "In", right: true, minor: true, cell: (queue) => rate(queue.in_s) },
      { name: "Out", right: true, minor: true, cell: (queue) => rate(queue.out_s) },
      { name: "Empty in", right: true, minor: true, cell: eta },
      { name: "Slots", minor: true, cell: (queue) => <Bar used={queue.busy} of={queue.slots} label={`${queue.busy} of ${plural(queue.slots, "slot")} busy`} /> },
      { name: "Retrying", right: true, minor: true, cell: (queue) => number(queue.retrying) },
      { name: "Dead", right: true, cell: (queue) => (queue.dead ? <Link to={href("jobs", { state: "dead", queue: queue.queue })} class="bad">{number(queue.dead)}</Link> : "0") },
      { name: "Done, 30 min", minor: true, cell: (queue) => <Spark values={queue.spark} label={`${number(queue.spark.reduce((sum, each) => sum + each, 0))} done in 30 minutes`} /> },
      ...(props.act ? [{ name: "", right: true, cell: props.act }] : []),
    ]} />
  );
}

/** Queues that the overview lists, those that are furthest behind. */
const SHOWN = 12;

export function OverviewScreen(): JSX.Element {
  const { data, error } = useLoad<Overview>(`overview?${windowed.value}&queues=${SHOWN}`, 1_000);
  if (!data) return error ? <Failed error={error} /> : <Loading />;
  const { totals, workers, series, status } = data;
  const behind = Math.max(0, ...data.queues.map((queue) => queue.behind_s));
  const rates = (counts: number[]): (number | null)[] => perSecond(series, counts);
  return (
    <>
      <div class={`status ${status.level}`}>
        <LevelIcon level={status.level} />
        <div><p class="sentence">{status.queue ? <Link to={href(`queues/${encodeURIComponent(status.queue)}`)}>{status.text}</Link> : status.text}</p>
          {status.more.map((text) => <p key={text}>{text}</p>)}
          {status.level === "idle" && !data.queues.length && <p>Enqueue the first one from Python, <code>send_email.enqueue(…)</code>, or watch the shop: <code>hawser demo</code></p>}</div>
      </div>
      <div class="figures">
        <Figure name="Waiting" value={`${number(totals.due)}${totals.exact ? "" : "+"}`} hint={totals.scheduled ? `${number(totals.scheduled)} due later` : "due now"} to={href("jobs", { state: "ready" })} />
        <Figure name="Running" value={number(totals.running)} hint={`of ${plural(workers.slots, "slot")}`} to={href("jobs", { state: "running" })} />
        <Figure name="Retrying" value={number(totals.retrying)} hint={`${rate(totals.rates["failed"] ?? 0)} fail`} to={href("jobs", { state: "retrying" })} />
        <Figure name="Dead" value={number(totals.dead)} hint={`${number(data.dead_in_window)} in this window`} to={href("dead")} level={data.dead_in_window ? "bad" : ""} />
        <Figure name="Behind" value={seconds(behind < 1 ? 0 : behind)} hint="oldest due job" to={href("queues")} level={behind >= 60 ? "bad" : behind >= 10 ? "warning" : ""} />
        <Figure name="Workers" value={number(workers.alive)} hint={workers.lost ? `${number(workers.lost)} lost` : workers.stuck ? `${number(workers.stuck)} stuck` : "all well"} to={href("workers")} level={workers.lost || workers.stuck || !workers.alive ? "warning" : ""} />
      </div>
      <div class="pair">
        <Chart title="Throughput" series={series} format={rate} marks={data.marks} curves={[
          { label: "in", values: rates(series.enqueued), colour: "blue" },
          { label: "done", values: rates(series.done), colour: "green", fill: true },
          { label: "failed", values: rates(series.failed), colour: "red" },
        ]} />
        {series.waiting && <Chart title="Waiting" series={series} format={number} marks={data.marks} curves={[{ label: "waiting", values: series.waiting, colour: "amber", fill: true, level: true }]} />}
      </div>
      <Card title="Queues" aside={<Link to={href("queues")}>All queues</Link>}>
        {data.queues.length ? <QueueTable queues={data.queues} /> : <Empty title="There is no queue yet">A queue is there from its first job on.</Empty>}
      </Card>
      <div class="pair">
        <Chart title="Wait before start" series={series} format={seconds} marks={data.marks} curves={[
          { label: "p99", values: series.wait_p99, colour: "red", dash: true },
          { label: "p95", values: series.wait_p95, colour: "amber", fill: true },
          { label: "p50", values: series.wait_p50, colour: "blue" },
        ]} />
        <Chart title="Run time" series={series} format={seconds} marks={data.marks} curves={[
          { label: "p99", values: series.run_p99, colour: "red", dash: true }, { label: "p95", values: series.run_p95, colour: "amber", fill: true }, { label: "p50", values: series.run_p50, colour: "blue" },
        ]} />
      </div>
      <div class="pair">
        <Card title="Why jobs died" aside={<Link to={href("dead")}>Dead letters</Link>}>
          {data.groups.length ? (
            <ul class="lines">{data.groups.map((group) => (
              <li key={group.id}><span class="count bad">{number(group.count)}</span><span class="grow"><Link to={href(`dead/${encodeURIComponent(group.id)}`)}><b>{group.task}</b> {group.sample_error}</Link></span><span class="muted"><Ago at={group.last_at} /></span></li>
            ))}</ul>
          ) : <Empty title="No job died in this window" />}
        </Card>
        <Card title="Next" aside={<Link to={href("schedules")}>Schedules</Link>}>
          {data.schedules.length ? (
            <ul class="lines">{data.schedules.map((tick) => (
              <li key={tick.schedule}><span class="grow"><Link to={href("schedules", { name: tick.schedule })}><b>{tick.schedule}</b></Link> <span class="muted">{tick.words}</span></span>{tick.state === "active" ? <Ago at={tick.next_tick} /> : <Badge kind={tick.state} />}</li>
            ))}</ul>
          ) : <Empty title="There is no schedule">Declare one on a task: <code>@app.task(schedule=Cron("0 2 * * *"))</code></Empty>}
        </Card>
      </div>
    </>
  );
}
