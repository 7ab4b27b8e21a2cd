import type { JSX } from "preact";
import { type JobsPage, type JobLine, mayAct, type Overview, type QueueLine, type TaskStats, type Why } from "../api";
import { pauseQueue, resumeQueue, setWeight } from "../actions";
import { now, useLoad } from "../live";
import { Ago, Badge, Bar, Card, Empty, Failed, JobLink, LevelIcon, Loading, Several, Table, TaskLink } from "../parts/basic";
import { Chart } from "../parts/chart";
import { windowed } from "../range";
import { href, Link } from "../router";
import { perSecond } from "../series";
import { number, plural, rate, seconds } from "../words";
import { eta, QueueTable } from "./overview";

const pauseOf = ({ queue, pause }: QueueLine): JSX.Element => (pause
  ? <button type="button" class="small" onClick={() => resumeQueue(queue)}>Resume</button>
  : <button type="button" class="small quiet" onClick={() => pauseQueue(queue)}>Pause</button>);

export function QueuesScreen(): JSX.Element {
  const { data, error } = useLoad<Overview>(`overview?${windowed.value}`);
  if (!data) return error ? <Failed error={error} /> : <Loading />;
  return (
    <>
      <h1>Queues</h1>
      <Card>{data.queues.length ? <QueueTable queues={data.queues} act={mayAct() ? pauseOf : undefined} /> : <Empty title="There is no queue yet">A queue is there from its first job on.</Empty>}</Card>
    </>
  );
}

interface Weight { group: string; weight: number }

/** What a check is called, and where to look further. */
const CHECKS: Record<string, [string, ((queue: string) => string)?]> = {
  paused: ["Paused"], workers: ["Workers", () => href("workers")], lost: ["Lost workers", () => href("workers")], limited: ["Limits, breakers", () => href("limits")],
  run_time: ["Run time", (queue) => href("jobs", { state: "running", queue })], inflow: ["More comes in", (queue) => href("jobs", { state: "ready", queue })],
  failures: ["Failures", (queue) => href("jobs", { state: "dead,retrying", queue })], order: ["Others go first", () => href("queues")], slots: ["Slots", () => href("workers")],
  later: ["Due later", (queue) => href("jobs", { state: "scheduled", queue })],
};

function Checks(props: { why: Why }): JSX.Element {
  const { why } = props;
  const found = why.checks.find((check) => check.verdict === "problem") ?? why.checks.find((check) => check.verdict === "notice");
  return (
    <ol class="checks">
      {why.checks.map((check) => {
        const [name, to] = CHECKS[check.check] ?? [check.check];
        return (
          <li key={check.check} class={`${check.verdict} ${check === found ? "first" : ""}`}>
            <Badge kind={check.verdict}>{name}</Badge>
            <div><p>{check.text}</p>{check.verdict !== "fine" && <p class="muted">{check.advice} {to && <Link to={to(why.queue.queue)}>Look</Link>}</p>}</div>
          </li>
        );
      })}
    </ol>
  );
}

export function QueueScreen(props: { queue: string }): JSX.Element {
  const name = encodeURIComponent(props.queue);
  const { data, error } = useLoad<Why>(`queues/${name}/why?${windowed.value}`);
  const running = useLoad<JobsPage>(`jobs?state=running&sort=started&queue=${name}&limit=20&brief=1`, 3_000);
  const weights = useLoad<{ groups: Weight[] }>(`queues/${name}/groups`, 10_000);
  if (!data) return error ? <Failed error={error} /> : <Loading />;
  const { queue, series } = data;
  const rates = (counts: number[]): (number | null)[] => perSecond(series, counts);
  return (
    <>
      <div class="title">
        <div><p class="crumb"><Link to={href("queues")}>Queues</Link></p><h1>{props.queue}</h1></div>
        {mayAct() && <div class="buttons">{queue.pause ? <button type="button" class="primary" onClick={() => resumeQueue(props.queue)}>Resume</button> : <button type="button" onClick={() => pauseQueue(props.queue)}>Pause</button>}<button type="button" class="quiet" onClick={() => setWeight(props.queue)}>Weight of a group</button></div>}
      </div>
      <Failed error={error} stale />
      <div class={`status ${data.level}`}>
        <LevelIcon level={data.level} />
        <div><p class="sentence">{data.headline}</p>{queue.pause && <p>Paused <Ago at={queue.pause.since} />{queue.pause.until && <>; ends <Ago at={queue.pause.until} /></>}</p>}</div>
      </div>
      <div class="figures">
        <Link class="figure" to={href("jobs", { state: "ready", queue: props.queue })}><span class="what">Waiting</span><span class="value">{number(queue.waiting)}{queue.exact ? "" : "+"}</span><span class="hint">{number(queue.scheduled)} due later</span></Link>
        <div class="figure"><span class="what">Behind</span><span class="value">{seconds(queue.behind_s < 1 ? 0 : queue.behind_s)}</span><span class="hint">oldest due job</span></div>
        <div class="figure"><span class="what">In</span><span class="value">{rate(queue.in_s)}</span><span class="hint">{rate(queue.out_s)} go out</span></div>
        <div class="figure"><span class="what">Empty in</span><span class="value">{eta(queue)}</span><span class="hint">as things go</span></div>
        <div class="figure"><span class="what">Slots</span><span class="value"><Bar used={queue.busy} of={queue.slots} label="slots busy" /></span><span class="hint">{plural(queue.workers, "worker")}</span></div>
        <Link class="figure" to={href("jobs", { state: "dead", queue: props.queue })}><span class="what">Dead</span><span class="value">{number(queue.dead)}</span><span class="hint">{number(queue.retrying)} retrying</span></Link>
      </div>
      <Card title="Why? Possible reasons, in the order to look at them"><Checks why={data} /></Card>
      <div class="pair">
        <Chart title="In and out" series={series} format={rate} marks={data.marks} curves={[
          { label: "in", values: rates(series.enqueued), colour: "blue" },
          { label: "done", values: rates(series.done), colour: "green", fill: true },
          { label: "failed", values: rates(series.failed), colour: "red" },
        ]} />
        <Chart title="Wait before start" series={series} format={seconds} marks={data.marks} curves={[
          { label: "p95", values: series.wait_p95, colour: "amber", fill: true }, { label: "p50", values: series.wait_p50, colour: "blue" },
        ]} />
        <Chart title="Run time" series={series} format={seconds} marks={data.marks} curves={[
          { label: "p95", values: series.run_p95, colour: "amber", fill: true }, { label: "p50", values: series.run_p50, colour: "blue" },
        ]} />
        <Card title="By task">
          {data.tasks.length ? <Table label="Tasks of the queue" rows={data.tasks} id={(task) => task.task} columns={[
            { name: "Task", breaks: true, cell: (task) => <TaskLink task={task.task} /> },
            { name: "Waiting", right: true, cell: (task) => number(task.waiting) },
            { name: "In now, before", right: true, breaks: true, cell: (task) => <Several of={[task.in_s, task.in_before_s].map(rate)} /> },
            { name: "Run p95 now, before", right: true, minor: true, breaks: true, cell: (task) => <Several of={[task.run_p95, task.run_p95_before].map(seconds)} /> },
            { name: "Failed", right: true, minor: true, cell: (task) => rate(task.failed_s) },
          ]} /> : <Empty title="Nothing happened in the last hour" />}
        </Card>
      </div>
      {!!weights.data?.groups.length && <Card title="Weights of groups" aside={<span class="muted">places in a turn; every other group has 1</span>}>
        <Table label="Weights of groups" rows={weights.data.groups} id={(each) => each.group} columns={[
          { name: "Group", cell: (each) => <Link class="name" to={href("jobs", { queue: props.queue, group: each.group })}>{each.group}</Link> },
          { name: "Places", right: true, cell: (each) => number(each.weight) },
          ...(mayAct() ? [{ name: "", right: true, cell: (each: Weight) => <button type="button" class="small quiet" onClick={() => setWeight(props.queue, each.group, each.weight)}>Change</button> }] : []),
        ]} />
      </Card>}
      <Card title="Running now, the longest first" aside={<Link to={href("jobs", { state: "running", queue: props.queue })}>All</Link>}>
        {running.data?.jobs.length ? <Running jobs={running.data.jobs} /> : <Empty title="No job of this queue runs" />}
      </Card>
    </>
  );
}

/** Seconds beyond p99 that are no news: a row is as old as the last look at it. */
const GRACE = 2;

/** Those that run for longest first, each beside what its task usually takes. */
export function Running(props: { jobs: JobLine[] }): JSX.Element {
  const usual = useLoad<TaskStats>("tasks/stats", 30_000).data?.tasks;
  const p99 = (job: JobLine): number | null => usual?.find((each) => each.task === job.task)?.run_p99 ?? null;
  const runs = (job: JobLine): number => Math.max(0, (now.value - Date.parse(job.started_at ?? "")) / 1000);
  return <Table label="Running jobs" rows={props.jobs} id={(job) => job.id} columns={[
    { name: "Job", cell: (job) => <JobLink id={job.id} /> },
    { name: "Task", breaks: true, cell: (job) => <TaskLink task={job.task} /> },
    { name: "Started", cell: (job) => <><Ago at={job.started_at} />{job.cancel_asked && <> <Badge kind="warning">cancel asked</Badge></>}</> },
    { name: "Usual (p99)", right: true, cell: (job) => { const most = p99(job); return <span class={most !== null && runs(job) > most + GRACE ? "warning" : ""}>{seconds(most)}</span>; } },
    { name: "Attempt", right: true, minor: true, cell: (job) => `${job.attempt} of ${job.max_attempts}` },
    { name: "Worker", minor: true, breaks: true, cell: (job) => <span class="mono">{job.worker}</span> },
  ]} />;
}
