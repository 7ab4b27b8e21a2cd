import type { JSX } from "preact";
import { mayAct, type TaskStats } from "../api";
import { pauseTask, pauseText, resumeTask } from "../actions";
import { useLoad } from "../live";
import { Badge, Card, Empty, Failed, Loading, QueueLink, Spark, Table, TaskLink } from "../parts/basic";
import { range } from "../range";
import { href, Link } from "../router";
import { number, percent, seconds } from "../words";

export function TasksScreen(): JSX.Element {
  const { data, error } = useLoad<TaskStats>(`tasks/stats?minutes=${range.value}`);
  if (!data) return error ? <Failed error={error} /> : <Loading />;
  return (
    <>
      <h1>Tasks</h1>
      <Failed error={error} stale />
      <Card class="flush">
        {data.tasks.length ? <Table label="Tasks" rows={data.tasks} id={(task) => task.task} columns={[
          { name: "Task", cell: (task) => <><TaskLink task={task.task} />{task.pause && <> <span title={pauseText(task.pause)}><Badge kind="paused">paused</Badge></span></>}{!task.known && <> <Badge kind="notice">not in this app</Badge></>}</> },
          { name: "Queues", minor: true, cell: (task) => task.queues.map((queue) => <QueueLink key={queue} queue={queue} />) },
          { name: "Waiting", right: true, cell: (task) => number(task.waiting) },
          { name: "Done", right: true, cell: (task) => number(task.done) },
          { name: "Failed", right: true, cell: (task) => <span class={task.failure_share && task.failure_share >= 0.2 ? "bad" : ""}>{task.failure_share === null ? "–" : percent(task.failure_share)}</span> },
          { name: "Dead", right: true, cell: (task) => (task.dead ? <Link class="bad" to={href("jobs", { state: "dead", task: task.task })}>{number(task.dead)}</Link> : "0") },
          { name: "Wait p50, p95", right: true, minor: true, cell: (task) => `${seconds(task.wait_p50)}, ${seconds(task.wait_p95)}` },
          { name: "Run p50, p95, p99", right: true, minor: true, cell: (task) => `${seconds(task.run_p50)}, ${seconds(task.run_p95)}, ${seconds(task.run_p99)}` },
          { name: "Done over time", minor: true, cell: (task) => <Spark values={task.spark} label={`${number(task.done)} done in this window`} /> },
          ...(mayAct() ? [{ name: "", right: true, cell: (task: TaskStats["tasks"][number]) => (!task.known ? null : task.pause ? <button type="button" class="small" onClick={() => resumeTask(task.task)}>Resume</button> : <button type="button" class="small quiet" onClick={() => pauseTask(task.task)}>Pause</button>) }] : []),
        ]} /> : <Empty title="There is no task">Register one: <code>@app.task</code></Empty>}
      </Card>
      {!data.complete && <p class="muted">The busiest {data.tasks.length} are shown.</p>}
    </>
  );
}
