import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type Breaker, type Json, type JobsPage, mayAct, me, parse, post, type Schema, type Task, type TaskStats } from "../api";
import { pauseTask, pauseText, resumeTask } from "../actions";
import { useLoad } from "../live";
import { Ago, Badge, Card, Empty, Failed, Fields, JobLink, Loading, QueueLink, Several, shown, Spark, Table } from "../parts/basic";
import { attempt } from "../parts/dialog";
import { stringify } from "../parts/json";
import { range } from "../range";
import { go, href, Link } from "../router";
import { closeBreaker, openBreaker } from "./limits";
import { number, percent, seconds } from "../words";

/** Tasks none of whose jobs start, because their breaker is open. */
function useOpen(): Set<string> {
  const breakers = useLoad<{ breakers: Breaker[] }>("admin/breakers", 5_000).data?.breakers ?? [];
  return new Set(breakers.filter((breaker) => breaker.open).map((breaker) => breaker.task));
}

export function TasksScreen(): JSX.Element {
  const { data, error } = useLoad<TaskStats>(`tasks/stats?minutes=${range.value}`);
  const open = useOpen();
  if (!data) return error ? <Failed error={error} /> : <Loading />;
  return (
    <>
      <h1>Tasks</h1>
      <Failed error={error} stale />
      <Card class="flush">
        {data.tasks.length ? <Table label="Tasks" rows={data.tasks} id={(task) => task.task} columns={[
          { name: "Task", breaks: true, cell: (task) => <><Link class="name" to={href(`tasks/${encodeURIComponent(task.task)}`)}>{task.task}</Link>{task.pause && <> <span title={pauseText(task.pause)}><Badge kind="paused">paused</Badge></span></>}{open.has(task.task) && <> <Badge kind="bad">breaker open</Badge></>}{!task.known && <> <Badge kind="notice">not in this app</Badge></>}</> },
          { name: "Queues", minor: true, breaks: true, cell: (task) => task.queues.map((queue) => <QueueLink key={queue} queue={queue} />) },
          { name: "Waiting", right: true, cell: (task) => number(task.waiting) },
          { name: "Done", right: true, cell: (task) => number(task.done) },
          { name: "Failed, retries", right: true, breaks: true, cell: (task) => <span class={task.failure_share && task.failure_share >= 0.2 ? "bad" : ""}><Several of={[task.failure_share === null ? "–" : percent(task.failure_share), number(Math.max(0, task.failed - task.dead))]} /></span> },
          { name: "Dead", right: true, cell: (task) => (task.dead ? <Link class="bad" to={href("jobs", { state: "dead", task: task.task })}>{number(task.dead)}</Link> : "0") },
          { name: "Wait p50, p95", right: true, minor: true, breaks: true, cell: (task) => <Several of={[task.wait_p50, task.wait_p95].map(seconds)} /> },
          { name: "Run p50, p95, p99", right: true, minor: true, breaks: true, cell: (task) => <Several of={[task.run_p50, task.run_p95, task.run_p99].map(seconds)} /> },
          { name: "Done over time", minor: true, cell: (task) => <Spark values={task.spark} label={`${number(task.done)} done in this window`} /> },
          ...(mayAct() ? [{ name: "", right: true, cell: (task: TaskStats["tasks"][number]) => (!task.known ? null : open.has(task.task) ? <button type="button" class="small" onClick={() => closeBreaker(task.task)}>Close breaker</button> : task.pause ? <button type="button" class="small" onClick={() => resumeTask(task.task)}>Resume</button> : <button type="button" class="small quiet" onClick={() => pauseTask(task.task)}>Pause</button>) }] : []),
        ]} /> : <Empty title="There is no task">Register one: <code>@app.task</code></Empty>}
      </Card>
      {!data.complete && <p class="muted">The busiest {data.tasks.length} are shown.</p>}
    </>
  );
}

const mayEnqueue = (): boolean => !me.value?.read_only && !!me.value?.roles.some((role) => role === "producer" || role === "operator" || role === "admin");

/** What was filled in, as JSON text; numbers and whatever else is no text are taken as they were written. */
function written(schema: Schema, text: string): string {
  if (schema.type === "string" || (schema.enum ?? []).some((each) => each === text)) return JSON.stringify(text);
  try {
    parse(text);
    return text;
  } catch {
    return JSON.stringify(text);
  }
}

/** A form from the arguments that a task declares. The server judges what is sent. */
function NewJob(props: { task: Task }): JSX.Element {
  const { task } = props;
  const fields = Object.entries(task.payload_schema.properties ?? {});
  const [values, setValues] = useState<Record<string, string>>({});
  const needed = task.payload_schema.required ?? [];
  return (
    <Card title="New job">
      <form onSubmit={(event) => {
        event.preventDefault();
        const payload = fields.filter(([name]) => values[name] !== undefined && values[name] !== "").map(([name, schema]) => `${JSON.stringify(name)}:${written(schema, values[name] ?? "")}`).join(",");
        void attempt(async () => {
          const { id } = await post<{ id: string }>("jobs", `{"task":${JSON.stringify(task.task)},"payload":{${payload}}}`);
          go(href(`jobs/${id}`));
          return "The job is in the queue.";
        });
      }}>
        {fields.map(([name, schema]) => (
          <label key={name}>{name} <span class="muted">{schema.enum?.map((each) => stringify(each as Json)).join(", ") ?? schema.type ?? "JSON"}{needed.includes(name) ? "" : ", optional"}</span>
            <input type={(task.redact.includes(name) ? "password" : "text") as "text"} autocomplete="off" required={needed.includes(name)} placeholder={schema.default === undefined ? "" : stringify(schema.default)} value={values[name] ?? ""} onInput={(event) => setValues({ ...values, [name]: event.currentTarget.value })} />
          </label>
        ))}
        <button type="submit" class="primary">Enqueue</button>
      </form>
    </Card>
  );
}

export function TaskScreen(props: { id: string }): JSX.Element {
  const known = useLoad<{ tasks: Task[] }>("tasks", 60_000);
  const stats = useLoad<TaskStats>(`tasks/stats?minutes=${range.value}`);
  const open = useOpen();
  const list = useLoad<JobsPage>(`jobs?task=${encodeURIComponent(props.id)}&limit=20&brief=1`, 3_000);
  if (!known.data || !stats.data) return known.error ?? stats.error ? <Failed error={known.error ?? stats.error} /> : <Loading />;
  const task = known.data.tasks.find((each) => each.task === props.id);
  const figures = stats.data.tasks.find((each) => each.task === props.id);
  if (!task && !figures) return <Empty title="There is no such task"><Link to={href("tasks")}>All tasks</Link></Empty>;
  return (
    <>
      <div class="title"><div><p class="crumb"><Link to={href("tasks")}>Tasks</Link></p><h1>{props.id}</h1></div>
        {mayAct() && task && <div class="buttons">{task.pause ? <button type="button" class="primary" onClick={() => resumeTask(props.id)}>Resume</button> : <button type="button" onClick={() => pauseTask(props.id)}>Pause</button>}{open.has(props.id) ? <button type="button" onClick={() => closeBreaker(props.id)}>Close its breaker</button> : <button type="button" class="danger" onClick={() => openBreaker([], props.id)}>Open its breaker</button>}</div>}</div>
      <Failed error={stats.error} stale />
      {open.has(props.id) && <div class="status bad"><Badge kind="bad">breaker open</Badge><p class="sentence">None of its jobs starts. <Link to={href("limits")}>Limits and breakers</Link></p></div>}
      {task?.pause && <div class="status warning"><Badge kind="paused">paused</Badge><p class="sentence">{pauseText(task.pause)}</p></div>}
      <div class="pair">
        <Card title="In this window"><Fields of={figures ? [
          ["Waiting", number(figures.waiting)], ["Done", number(figures.done)], ["Failed attempts", figures.failure_share === null ? "–" : `${number(figures.failed)}, ${percent(figures.failure_share)}`],
          ["Dead", <Link to={href("jobs", { state: "dead", task: props.id })}>{number(figures.dead)}</Link>], ["Wait", `${seconds(figures.wait_p50)} (p50), ${seconds(figures.wait_p95)} (p95)`],
          ["Run", `${seconds(figures.run_p50)} (p50), ${seconds(figures.run_p95)} (p95), ${seconds(figures.run_p99)} (p99)`],
        ] : [["Jobs", "none"]]} /></Card>
        {task && <Card title="Declared"><Fields of={[
          ["Queue", <QueueLink queue={task.queue} />], ["Priority", task.priority], ["Attempts", task.max_attempts ?? "as its queue says"], ["Timeout", seconds(task.timeout)],
          ["Isolated", task.isolate ? "yes" : "no"], ["Found by", task.index.join(", ") || "–"], ["Not shown", task.redact.join(", ") || "–"],
        ]} /></Card>}
        {task && mayEnqueue() && <NewJob task={task} />}
      </div>
      <Card title="Newest jobs" aside={<Link to={href("jobs", { task: props.id })}>All</Link>} class="flush">
        {list.data?.jobs.length ? <Table label="Newest jobs" rows={list.data.jobs} id={(job) => job.id} columns={[
          { name: "Job", cell: (job) => <JobLink id={job.id} /> }, { name: "State", cell: (job) => <Badge kind={shown(job)} /> }, { name: "Enqueued", cell: (job) => <Ago at={job.enqueued_at} /> },
          { name: "Said", wide: true, minor: true, cell: (job) => <span class="bad">{job.error ?? job.reason}</span> },
        ]} /> : <Empty title="There is no job of it" />}
      </Card>
    </>
  );
}
