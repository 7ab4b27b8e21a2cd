import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type Attempt, type Audit, type Job, type JobsPage, type Json, mayAct, parse, post, ROOT, type Step, type TaskStats } from "../api";
import { cancelJob, changeJob, deadLetter, discardJob, retryJob, runNow } from "../actions";
import { now, useLoad } from "../live";
import { Ago, Badge, Card, Copy, Empty, Failed, Fields, JobLink, Loading, QueueLink, shown, Table } from "../parts/basic";
import { Traceback } from "../parts/traceback";
import { attempt as doing } from "../parts/dialog";
import { stringify, Tree } from "../parts/json";
import { go, href, Link, place, set } from "../router";
import { useKeys } from "../keys";
import { instant, plural, seconds, size, tail, time } from "../words";
import { BatchLink } from "./batches";
import { type Stretch, stretches, waited, waits } from "../waterfall";

/** `usual`: seconds that a run of the task takes as a rule, marked on the last attempt. */
function Waterfall(props: { job: Job; steps?: Step[] | undefined; scale?: { length: number } | undefined; usual?: number | null | undefined }): JSX.Element {
  const { job, steps = [], usual } = props;
  const parts = stretches(job, now.value, steps);
  if (!parts.length) return <Empty title="It has not started yet" />;
  const from = parts[0]?.from ?? 0;
  const length = Math.max(1, props.scale?.length ?? (parts.at(-1)?.to ?? from) - from);
  const text = (part: Stretch): string => `${part.kind === "attempt" ? `attempt ${part.label}, ${part.outcome ?? ""}` : part.label}: ${seconds((part.to - part.from) / 1000)}${part.open ? " so far" : ""}`;
  const last = parts.findLast((part) => part.kind === "attempt");
  const due = last && typeof usual === "number" ? (last.from - from + usual * 1000) / length : undefined;
  return (
    <div class="waterfall">
      <div class="track" role="img" aria-label={parts.map(text).join("; ")}>
        {parts.map((part) => (
          <span key={part.from + part.kind} class={`part ${part.kind} ${part.outcome ?? ""} ${part.open ? "open" : ""}`} title={`${text(part)}, from ${time(part.from)}${part.open ? "" : ` to ${time(part.to)}`}`}
            style={{ left: `${((part.from - from) / length) * 100}%`, width: `${Math.max(0.4, ((part.to - part.from) / length) * 100)}%` }}>
            <span>{part.kind === "attempt" && (part.to - part.from) / length > 0.04 ? part.label : ""}</span>
          </span>
        ))}
        {steps.map((step) => <span key={step.name} class="mark" title={`${step.kind} ${step.name}, ${time(step.at)}${waited(step) && step.until ? ` to ${time(step.until)}` : ""}`} style={{ left: `${((Date.parse(step.at) - from) / length) * 100}%` }} />)}
        {due !== undefined && due <= 1 && <span class="usual" title={`a run takes ${seconds(usual)} as a rule (p50)`} style={{ left: `${due * 100}%` }} />}
      </div>
      <div class="ends"><span>{time(from)}</span><span>{seconds(length / 1000)} in all</span></div>
      <ol class="legend">{parts.map((part) => <li key={part.from + part.kind} class={`${part.kind} ${part.outcome ?? ""}`}><span class="swatch" aria-hidden="true" />{text(part)}</li>)}</ol>
    </div>
  );
}

function AttemptCard(props: { attempt: Attempt; last: boolean }): JSX.Element {
  const { attempt } = props;
  const took = attempt.ended_at ? (Date.parse(attempt.ended_at) - Date.parse(attempt.started_at)) / 1000 : null;
  return (
    <details class="attempt" open={props.last}>
      <summary><b>#{attempt.number}</b> <Badge kind={attempt.outcome === "done" ? "done" : "dead"}>{attempt.outcome}</Badge> <span class="bad grow">{attempt.error}</span> <span class="muted">{seconds(took)}, <Ago at={attempt.started_at} /></span></summary>
      <p class="muted">Worker <span class="mono">{attempt.worker}</span>, lease {attempt.lease}, started {instant(attempt.started_at)}</p>
      {attempt.traceback && <Traceback text={attempt.traceback} />}
    </details>
  );
}

function Steps(props: { steps: Step[] }): JSX.Element {
  return (
    <Card title="Steps" aside={<span class="muted">kept: a later run does not make them again</span>}>
      <Table label="Steps" rows={props.steps} id={(step) => step.name} columns={[
        { name: "Step", cell: (step) => <b>{step.name}</b> },
        { name: "Kind", cell: (step) => <Badge kind={waits(step) ? "held" : step.kind === "sleep" && Date.parse(step.until ?? "") > now.value ? "scheduled" : step.kind === "timeout" ? "warning" : "done"}>{step.kind}</Badge> },
        { name: "Recorded", cell: (step) => <><Ago at={step.at} />{waited(step) && step.until && <> to <Ago at={step.until} /></>}</> },
        { name: "Came to", wide: true, cell: (step) => (waits(step) ? <>{step.event ? <>for event <b>{step.event}</b></> : `for ${plural(Array.isArray(step.value) ? step.value.length : 0, "job")}`}{step.until && <>, at most until <Ago at={step.until} /></>}</> : step.kind === "sleep" ? <>until <Ago at={step.until} /></> : <span class="mono" title={stringify(step.value, 2).slice(0, 2000)}>{stringify(step.value).slice(0, 200)}</span>) },
        { name: "Run", right: true, minor: true, cell: (step) => `lease ${step.lease}` },
      ]} />
    </Card>
  );
}

/** The worker that runs it, or that a dead one had last. The attempt that went well has no record that names its worker. */
const ran = (job: Job): string | null => job.worker ?? (job.state === "dead" ? [...job.attempts].sort((a, b) => Date.parse(a.started_at) - Date.parse(b.started_at)).at(-1)?.worker ?? null : null);

const shell = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

function copies(job: Job): [string, string][] {
  const payload = stringify(job.payload ?? {});
  const body = `{"task":${JSON.stringify(job.task)},"queue":${JSON.stringify(job.queue)},"payload":${payload}}`;
  return [
    ["curl", `curl -X POST ${shell(String(new URL("jobs", ROOT)))} -H 'content-type: application/json' -d ${shell(body)}`],
    ["CLI", `hawser enqueue APP ${job.task} --json ${shell(payload)}`],
    ["Python", `app.enqueue(${JSON.stringify(job.task)}, json.loads(${JSON.stringify(payload)}), queue=${JSON.stringify(job.queue)})`],
  ];
}

function Replay(props: { job: Job; onClose: () => void }): JSX.Element {
  const [text, setText] = useState(stringify(props.job.payload ?? {}, 2));
  let wrong: string | undefined;
  try {
    const value = parse(text);
    if (value === null || typeof value !== "object" || Array.isArray(value)) wrong = "the arguments are an object: {…}";
  } catch (error) {
    wrong = (error as Error).message;
  }
  return (
    <Card title="Edit and replay">
      <p class="muted">A new job takes the place of this one, which counts as discarded and is linked as its parent.{text.includes("•••") && " What is shown as ••• keeps its value."}</p>
      <textarea aria-label="Arguments" rows={Math.min(24, text.split("\n").length + 1)} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      {wrong && <p class="wrong" role="alert">{wrong}</p>}
      <div class="buttons"><button type="button" onClick={props.onClose}>Leave it</button>
        <button type="button" class="primary" disabled={!!wrong} onClick={() => void doing(async () => {
          const { id } = await post<{ id: string }>(`dlq/${props.job.id}/replay`, `{"payload":${text},"confirm":${props.job.confirm_replay}}`);
          go(href(`jobs/${id}`));
          return "The new job is in the queue.";
        })}>Replay as a new job</button></div>
    </Card>
  );
}

function Headline(props: { job: Job }): JSX.Element {
  const { job } = props;
  switch (shown(job)) {
    case "scheduled": case "retrying": case "held": case "ready": return <>{job.why ?? "it waits"}</>;
    case "running": return <>running since <Ago at={job.started_at} />, lease ends <Ago at={job.lease_until} />{job.cancel_asked && ", its worker was asked to stop it"}</>;
    case "done": return <>done <Ago at={job.finished_at} /> at attempt {job.attempt}</>;
    case "dead": return <>dead <Ago at={job.finished_at} /> after {job.attempt} of {job.max_attempts} attempts: {job.error ?? job.reason}</>;
    case "cancelled": return <>cancelled <Ago at={job.finished_at} />{job.reason && `: ${job.reason}`}</>;
  }
}

export function JobScreen(props: { id: string }): JSX.Element {
  // While it runs, progress, steps and output come without a hint.
  const [moves, setMoves] = useState(false);
  const soon = (milliseconds: number): number | undefined => (moves ? milliseconds : undefined);
  const { data: job, error, status } = useLoad<Job>(`jobs/${encodeURIComponent(props.id)}`, 1_000, soon(3_000));
  useEffect(() => setMoves(job?.state === "running"), [job?.state]);
  const other = place.value.query.get("with") ?? undefined;
  const audit = useLoad<{ audit: Audit[] }>(job && mayAct() ? `audit?target=${job.id}&limit=10` : undefined, 10_000, 60_000);
  const children = useLoad<JobsPage>(job ? `jobs?parent_id=${job.id}&limit=20&brief=1` : undefined, 5_000);
  const stats = useLoad<TaskStats>(job ? "tasks/stats" : undefined, 30_000);
  const good = useLoad<JobsPage>(job?.state === "dead" || job?.state === "done" ? `jobs?state=done&task=${encodeURIComponent(job.task)}&limit=2&brief=1` : undefined, 60_000);
  const { data: kept } = useLoad<{ steps: Step[] }>(job ? `jobs/${job.id}/steps` : undefined, 3_000);
  const written = useLoad<{ chunks: { value: Json }[] }>(job ? `jobs/${job.id}/output` : undefined, 1_000, soon(5_000)).data?.chunks ?? [];
  const [editing, setEditing] = useState(false);
  useKeys(job && mayAct() ? {
    r: () => (job.state === "dead" || job.state === "cancelled") && retryJob(job), c: () => (job.state === "ready" || job.state === "running") && cancelJob(job),
    e: () => job.state === "dead" && setEditing(true),
  } : {});
  if (!job) return status === 404 ? <Empty title="There is no such job"><p>It may have been removed after its retention: done jobs are kept for 7 days, dead ones for 30, unless set otherwise.</p><Link to={href("jobs")}>All jobs</Link></Empty> : error ? <Failed error={error} /> : <Loading />;
  const usual = stats.data?.tasks.find((each) => each.task === job.task);
  const worked = good.data?.jobs.find((each) => each.id !== job.id);
  return (
    <>
      <div class="title">
        <div><p class="crumb"><Link to={href("jobs")}>Jobs</Link> <Link to={href("jobs", { task: job.task })}>{job.task}</Link></p><h1>{job.task} <span class="mono muted">…{tail(job.id)}</span></h1></div>
        <div class="buttons">
          {mayAct() && (job.state === "dead" || job.state === "cancelled") && <button type="button" class="primary" onClick={() => retryJob(job)}>Run again</button>}
          {mayAct() && job.state === "dead" && <button type="button" onClick={() => setEditing(!editing)}>Edit and replay</button>}
          {mayAct() && job.state === "dead" && <button type="button" class="danger" onClick={() => discardJob(job)}>Discard</button>}
          {mayAct() && job.state === "ready" && <>
            {!job.held && Date.parse(job.run_at) > now.value && <button type="button" class="primary" onClick={() => runNow(job)}>Run now</button>}
            <button type="button" onClick={() => changeJob(job)}>Change</button>
            <button type="button" class="danger" onClick={() => deadLetter(job)}>End as dead</button>
          </>}
          {mayAct() && (job.state === "ready" || job.state === "running") && <button type="button" class="danger" onClick={() => cancelJob(job)}>Cancel</button>}
        </div>
      </div>
      <Failed error={error} stale />
      <div class={`status ${{ dead: "bad", retrying: "warning", done: "good" }[shown(job) as string] ?? "idle"}`}><Badge kind={shown(job)} /><p class="sentence"><Headline job={job} /></p></div>
      {editing && job.state === "dead" && <Replay job={job} onClose={() => setEditing(false)} />}
      <Card title="Timeline" aside={typeof usual?.run_p50 === "number" && <span class="muted">usual for {job.task}: {seconds(usual.run_p50)} (p50), {seconds(usual.run_p95)} (p95)</span>}>
        <Waterfall job={job} steps={kept?.steps} usual={usual?.run_p50} />
        {worked && !other && <p><button type="button" class="small" onClick={() => set({ with: worked.id })}>Compare with {job.state === "done" ? "another" : "the last one"} that worked</button></p>}
      </Card>
      {other && <Compare job={job} id={other} />}
      {!!kept?.steps.length && <Steps steps={kept.steps} />}
      {!!written.length && <Card title="Output" aside={<span class="muted">{plural(written.length, "chunk")}</span>}><pre tabIndex={0}>{written.map(({ value }) => (typeof value === "string" ? value : `${stringify(value)}\n`)).join("")}</pre></Card>}
      <div class="pair">
        <Card title="Arguments" aside={<span class="muted">{size(job.payload_size)}</span>}><Tree value={job.payload ?? null} label="Arguments" /></Card>
        <Card title="Facts"><Fields of={[
          ["Id", <><span class="mono">{job.id}</span> <Copy text={job.id} /></>],
          ["Queue", <QueueLink queue={job.queue} />],
          ["Priority", job.priority],
          ["Attempts", `${job.attempt} of ${job.max_attempts}${job.returned ? `, ${job.returned} handed back` : ""}${job.crashes ? `, ${job.crashes} crashed` : ""}`],
          ["Enqueued", <Ago at={job.enqueued_at} />],
          ["Due", job.held ? "held" : <Ago at={job.run_at} />],
          ["Worker", ran(job) ? <span class="mono">{ran(job)}</span> : "–"],
          ["Timeout", seconds(job.timeout)],
          ...(job.key ? [["Key", <span class="mono">{job.key}</span>] as [string, JSX.Element]] : []),
          ...(job.tags.length ? [["Tags", <>{job.tags.map((tag) => <Link key={tag} class="tag" to={href("jobs", { tag })}>{tag}</Link>)}</>] as [string, JSX.Element]] : []),
          ...(job.index.length ? [["Found by", <>{job.index.map((each) => <Link key={each} class="tag" to={href("jobs", { arg: each })}>{each}</Link>)}</>] as [string, JSX.Element]] : []),
          ...(job.group ? [["Group", <Link to={href("jobs", { queue: job.queue, group: job.group })}>{job.group}</Link>] as [string, JSX.Element]] : []),
          ...(job.parent_id ? [["Parent", <JobLink id={job.parent_id} />] as [string, JSX.Element]] : []),
          ...(job.batch ? [["Batch", <BatchLink id={job.batch} />] as [string, JSX.Element]] : []),
          ...(job.schedule ? [["Schedule", <><Link to={href("schedules", { name: job.schedule })}>{job.schedule}</Link> <Ago at={job.tick} /></>] as [string, JSX.Element]] : []),
          ["Copy as", <>{copies(job).map(([name, text]) => <Copy key={name} text={text} label={name} />)}</>],
        ]} /></Card>
        {job.result !== null && job.result !== undefined && <Card title="Result"><Tree value={job.result as Json} label="Result" /></Card>}
        {job.progress !== null && job.progress !== undefined && <Card title="Progress"><Tree value={job.progress as Json} label="Progress" /></Card>}
      </div>
      <Card title="Attempts">
        {job.attempts.length ? [...job.attempts].reverse().map((each, index) => <AttemptCard key={`${each.number}.${each.lease}`} attempt={each} last={index === 0} />) : <Empty title={job.state === "done" ? "It went well the first time" : "No attempt has ended yet"} />}
      </Card>
      {!!audit.data?.audit.length && <Card title="What operators did to it" aside={<Link to={href("audit", { target: job.id })}>Audit</Link>}><Table label="Audit of the job" rows={audit.data.audit} id={(record) => String(record.number)} columns={[
        { name: "When", cell: (record) => <Ago at={record.at} /> }, { name: "Who", cell: (record) => record.by }, { name: "What", cell: (record) => record.action.replaceAll("_", " ") }, { name: "Why", wide: true, cell: (record) => record.reason ?? "" },
      ]} /></Card>}
      {!!children.data?.jobs.length && <Card title="Jobs that followed from it"><Table label="Children" rows={children.data.jobs} id={(each) => each.id} columns={[
        { name: "Job", cell: (each) => <JobLink id={each.id} /> }, { name: "Task", cell: (each) => each.task }, { name: "State", cell: (each) => <Badge kind={shown(each)} /> }, { name: "Enqueued", cell: (each) => <Ago at={each.enqueued_at} /> },
      ]} /></Card>}
    </>
  );
}

function Compare(props: { job: Job; id: string }): JSX.Element {
  const { data: other, error } = useLoad<Job>(`jobs/${encodeURIComponent(props.id)}`, 60_000);
  if (!other) return <Card title="Compare">{error ? <Failed error={error} /> : <Loading />}</Card>;
  const length = Math.max(...[props.job, other].map((job) => { const parts = stretches(job, now.peek()); return (parts.at(-1)?.to ?? 0) - (parts[0]?.from ?? 0); }));
  const names = [...new Set([...Object.keys((props.job.payload ?? {}) as object), ...Object.keys((other.payload ?? {}) as object)])].sort();
  const value = (job: Job, name: string): string => { const found = (job.payload as Record<string, Json> | null)?.[name]; return found === undefined ? "(not given)" : stringify(found); };
  const rows = names.map((name) => ({ name, here: value(props.job, name), there: value(other, name) }));
  return (
    <Card title={<>Compared with <JobLink id={other.id} />, {other.state}</>} aside={<button type="button" class="small quiet" onClick={() => set({ with: undefined })}>Close</button>}>
      <Waterfall job={props.job} scale={{ length }} /><Waterfall job={other} scale={{ length }} />
      <Table label="Arguments compared" rows={rows} id={(row) => row.name} dim={(row) => row.here === row.there} columns={[
        { name: "Argument", cell: (row) => <span class="mono">{row.name}</span> }, { name: "This job", wide: true, cell: (row) => <span class="mono">{row.here}</span> },
        { name: "The other", wide: true, cell: (row) => <span class="mono">{row.there}</span> }, { name: "", cell: (row) => (row.here === row.there ? "same" : <Badge kind="warning">differs</Badge>) },
      ]} />
    </Card>
  );
}
