import type { JSX } from "preact";
import { type Breaker, type Limit, mayAct, type Overview, post, put, remove, type Task } from "../api";
import { now, useLoad } from "../live";
import { Ago, Badge, Bar, Card, Empty, Failed, JobLink, Loading, QueueLink, Table, TaskLink } from "../parts/basic";
import { ask, type Entry } from "../parts/dialog";
import { number, percent, seconds } from "../words";

const at = (kind: string, name: string): string => `admin/limits/${kind}s/${encodeURIComponent(name)}`;
const whole = { min: 0, step: 1 };

/** What was filled in as a number; null is no limit. */
const given = (text: string | undefined): number | null => (text ? Number(text) : null);

function setLimit(kind: string, limit?: Limit, names: string[] = []): void {
  const entries: Entry[] = [
    ...(limit ? [] : [{ name: "name", label: `Name of the ${kind}`, limits: { required: true }, of: names }]),
    { name: "running", label: "Run at once, over all workers", type: "number", value: String(limit?.max_running ?? ""), hint: "no limit", limits: { ...whole, min: 1 } },
    { name: "rate", label: "Starts in a period", value: limit?.rate ?? "", hint: "no limit; 20/s, 100/m, 1000/h" },
    ...(kind === "queue" ? [{ name: "max_depth", type: "number" as const, label: "Jobs that may wait; beyond, enqueue is refused", value: String(limit?.max_depth ?? ""), hint: "no limit", limits: whole }] : []),
  ];
  ask({
    title: limit ? `Limit of ${kind} ${limit.name}` : `Limit a ${kind}`, entries, button: "Set the limit",
    body: "It holds over all workers from the next claim on. What runs already goes on, and counts.",
    act: async ({ reason, values }) => {
      const name = limit?.name ?? values["name"] ?? "";
      const own = kind === "queue" ? { max_depth: given(values["max_depth"]) } : { per_group: limit?.per_group ?? false, ordered: limit?.ordered ?? false };
      const body = { running: given(values["running"]), rate: values["rate"] || null, ...own, reason: reason ?? null };
      const { warning } = await put<{ warning: string | null }>(at(kind, name), body);
      return warning ?? `The limit of ${kind} ${name} is set.`;
    },
  });
}

function clearLimit(limit: Limit): void {
  ask({
    title: `Take back the limit of ${limit.kind} ${limit.name}?`, button: "Take it back",
    body: limit.kind === "task" ? "What the code of the task declares holds again." : "Its jobs run as fast as the workers take them.",
    act: async ({ reason }) => {
      await remove(`${at(limit.kind, limit.name)}${reason ? `?reason=${encodeURIComponent(reason)}` : ""}`);
      return `The limit of ${limit.kind} ${limit.name} is taken back.`;
    },
  });
}

export function openBreaker(tasks: string[], task?: string): void {
  ask({
    title: task ? `Open the breaker of ${task}?` : "Open the breaker of a task", button: "Open", danger: true,
    body: "None of its jobs starts until it is closed by hand. They wait, and lose no attempt.",
    entries: task ? [] : [{ name: "task", label: "Task", limits: { required: true }, of: tasks }],
    act: async ({ reason, values }) => {
      const name = task ?? values["task"] ?? "";
      await post(`admin/breakers/${encodeURIComponent(name)}/open`, { reason: reason ?? null });
      return `The breaker of ${name} is open.`;
    },
  });
}

export function closeBreaker(task: string): void {
  ask({
    title: `Close the breaker of ${task}?`, body: "Its jobs start again at once. What failed before does not count.", button: "Close",
    act: async ({ reason }) => { await post(`admin/breakers/${encodeURIComponent(task)}/close`, { reason: reason ?? null }); return `The breaker of ${task} is closed.`; },
  });
}

const none = <span class="muted">–</span>;

/** What is limited, in words. */
function limitWords(limit: Limit): string {
  const words = [limit.max_running !== null && `${number(limit.max_running)} at once`, limit.rate, limit.max_depth !== null && `${number(limit.max_depth)} may wait`];
  return words.filter(Boolean).join(", ");
}

function Limits(props: { limits: Limit[] }): JSX.Element {
  return <Table label="Limits" rows={props.limits} id={(limit) => `${limit.kind} ${limit.name}`} columns={[
    { name: "On", breaks: true, cell: (limit) => <>{limit.kind} {limit.kind === "queue" ? <QueueLink queue={limit.name} /> : limit.kind === "task" ? <TaskLink task={limit.name} /> : <b>{limit.name}</b>}{limit.per_group && <span class="muted"> per group{limit.ordered && ", in order"}</span>}</> },
    { name: "Limit", breaks: true, cell: limitWords },
    { name: "State", cell: (limit) => (limit.shut_groups ? <Badge kind="warning">keeps {limit.shut_groups} groups back</Badge> : limit.shut ? <Badge kind="warning">keeps jobs back</Badge> : <Badge kind="good">has room</Badge>) },
    { name: "Running", cell: (limit) => (limit.max_running === null ? (limit.kind === "queue" ? number(limit.running) : none) : limit.per_group ? <>{limit.running}, {limit.max_running} each</> : <Bar used={limit.running} of={limit.max_running} label={`${limit.running} of ${limit.max_running} run`} />) },
    { name: "Started", cell: (limit) => (limit.rate === null ? none : limit.per_group ? <>{limit.rate} each</> : <><Bar used={limit.started} of={parseInt(limit.rate)} label={`${limit.started} of ${limit.rate} started`} />{limit.opens_at && Date.parse(limit.opens_at) - now.value >= 1000 && <span class="muted"> next <Ago at={limit.opens_at} /></span>}</>) },
    { name: "Waiting", cell: (limit) => (limit.waiting === null ? none : limit.max_depth === null ? number(limit.waiting) : <Bar used={limit.waiting ?? 0} of={limit.max_depth} label={`${limit.waiting} of ${limit.max_depth} wait`} />) },
    { name: "Set by", minor: true, breaks: true, cell: (limit) => (limit.set ? <>{limit.by}, <Ago at={limit.since} /></> : "the code") },
    ...(mayAct() ? [{ name: "", right: true, cell: (limit: Limit) => (limit.kind !== "queue" && limit.kind !== "task" ? null : <div class="row-buttons">
      <button type="button" class="small quiet" onClick={() => setLimit(limit.kind, limit)}>Change</button>
      {limit.set && <button type="button" class="small quiet" onClick={() => clearLimit(limit)}>Take back</button>}
    </div>) }] : []),
  ]} />;
}

function Breakers(props: { breakers: Breaker[] }): JSX.Element {
  return <Table label="Breakers" rows={props.breakers} id={(breaker) => breaker.task} columns={[
    { name: "Task", cell: (breaker) => <TaskLink task={breaker.task} /> },
    { name: "State", cell: (breaker) => <>{breaker.open ? <Badge kind="bad">open</Badge> : <Badge kind="good">closed</Badge>} <span class="muted"><Ago at={breaker.since} /> by {breaker.by}</span></> },
    { name: "Opens at", minor: true, breaks: true, cell: (breaker) => (breaker.share === null ? "by hand only" : `${percent(breaker.share)} of ${breaker.least} or more attempts fail within ${seconds(breaker.window)}`) },
    { name: "Opened on", right: true, cell: (breaker) => (breaker.open && breaker.attempts ? `${breaker.failed} of ${breaker.attempts} failed` : none) },
    { name: "Next probe", cell: (breaker) => (!breaker.open ? none : breaker.by_hand ? "none: close it by hand" : <><Ago at={breaker.probe_at} />{breaker.probe && <> last <JobLink id={breaker.probe} /></>}</>) },
    ...(mayAct() ? [{ name: "", right: true, cell: (breaker: Breaker) => (breaker.open ? <button type="button" class="small" onClick={() => closeBreaker(breaker.task)}>Close</button> : <button type="button" class="small quiet" onClick={() => openBreaker([], breaker.task)}>Open</button>) }] : []),
  ]} />;
}

export function LimitsScreen(): JSX.Element {
  const limits = useLoad<{ limits: Limit[] }>("admin/limits");
  const breakers = useLoad<{ breakers: Breaker[] }>("admin/breakers");
  const known = useLoad<{ tasks: Task[] }>(mayAct() ? "tasks" : undefined, 60_000);
  const overview = useLoad<Overview>(mayAct() ? "overview" : undefined, 60_000);
  const tasks = known.data?.tasks.map((task) => task.task) ?? [];
  const error = limits.error ?? breakers.error;
  if (!limits.data || !breakers.data) return error ? <Failed error={error} /> : <Loading />;
  return (
    <>
      <div class="title"><div><h1>Limits and breakers</h1><p class="muted">They hold over all workers, exactly.</p></div>
        {mayAct() && <div class="buttons">
          <button type="button" onClick={() => setLimit("queue", undefined, overview.data?.queues.map((queue) => queue.queue))}>Limit a queue</button>
          <button type="button" onClick={() => setLimit("task", undefined, tasks)}>Limit a task</button>
          <button type="button" class="danger" onClick={() => openBreaker(tasks)}>Open a breaker</button>
        </div>}</div>
      <Failed error={error} stale />
      <Card title="Limits" class="flush">
        {limits.data.limits.length ? <Limits limits={limits.data.limits} /> : <Empty title="There is no limit">Declare one on a task: <code>@app.task(limit=Limit(running=5, rate="20/s"))</code>, or set one: <code>hawser limits set --queue mail --running 5</code></Empty>}
      </Card>
      <Card title="Breakers" class="flush">
        {breakers.data.breakers.length ? <Breakers breakers={breakers.data.breakers} /> : <Empty title="There is no breaker">Declare one on a task: <code>@app.task(breaker=Breaker(share=0.8, probe_every=60))</code></Empty>}
      </Card>
    </>
  );
}
