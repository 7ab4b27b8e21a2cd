import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get, type Group, type Groups, type Job, type JobLine, type JobsPage, type Json, mayAct, type Operation, post } from "../api";
import { actOnAll } from "../actions";
import { refresh, useLoad } from "../live";
import { Ago, Badge, Card, Empty, Failed, JobLink, Loading, shown, Table, TaskLink } from "../parts/basic";
import { ask, attempt, tell } from "../parts/dialog";
import { stringify, Tree } from "../parts/json";
import { Traceback } from "../parts/traceback";
import { Progress } from "../parts/operation";
import { go, href, Link } from "../router";
import { useKeys } from "../keys";
import { number, percent, plural } from "../words";

export function DeadScreen(): JSX.Element {
  const { data, error } = useLoad<Groups>("dlq/groups");
  if (!data) return error ? <Failed error={error} /> : <Loading />;
  return (
    <>
      <div class="title"><div><h1>Dead letters</h1><p class="muted">{plural(data.grouped, "job")} in {plural(data.groups.length, "group")}, by task and kind of error{data.ungrouped ? `; ${number(data.ungrouped)} more will be grouped soon` : ""}</p></div>
        <div class="buttons"><Link class="button" to={href("jobs", { state: "dead" })}>One by one</Link></div></div>
      <Failed error={error} stale />
      <Card class="flush">
        {data.groups.length ? <Table label="Groups of dead letters" rows={data.groups} id={(group) => group.id} columns={[
          { name: "Jobs", right: true, cell: (group) => <b class="bad">{number(group.count)}</b> },
          { name: "Task", cell: (group) => <TaskLink task={group.task} /> },
          { name: "Error", wide: true, cell: (group) => <Link to={href(`dead/${encodeURIComponent(group.id)}`)}>{group.sample_error}</Link> },
          { name: "First", minor: true, cell: (group) => <Ago at={group.first_at} /> },
          { name: "Last", cell: (group) => <Ago at={group.last_at} /> },
          { name: "Sample", minor: true, cell: (group) => <JobLink id={group.sample_id} /> },
        ]} /> : <Empty title="There are no dead letters">A job comes here when it has used up its attempts, or said that trying again is of no use.</Empty>}
      </Card>
    </>
  );
}

interface Common { name: string; value: string; share: number }

/** What most of these jobs have in common: arguments, workers, tags. */
function common(jobs: JobLine[]): Common[] {
  const counts = new Map<string, { name: string; value: string; count: number }>();
  const add = (name: string, value: string): void => {
    const key = `${name}\0${value}`;
    const found = counts.get(key) ?? { name, value, count: 0 };
    found.count++;
    counts.set(key, found);
  };
  for (const job of jobs) {
    if (job.worker) add("worker", job.worker);
    add("queue", job.queue);
    for (const tag of job.tags) add("tag", tag);
    const payload = job.payload;
    if (payload && typeof payload === "object" && !Array.isArray(payload)) for (const [name, value] of Object.entries(payload)) { const text = stringify(value as Json); if (text.length < 200) add(`argument ${name}`, text); }
  }
  return [...counts.values()].map((each) => ({ name: each.name, value: each.value, share: each.count / jobs.length })).filter((each) => each.share >= 0.8 && jobs.length > 1).sort((a, b) => b.share - a.share);
}

type Trial = { id: string; state: "watching" | "worked" | "failed"; error: string | null };
const WATCHED = 50;
const WORST = 0.2;

export function GroupScreen(props: { id: string }): JSX.Element {
  const groups = useLoad<Groups>("dlq/groups");
  const list = useLoad<JobsPage>(`dlq?group=${encodeURIComponent(props.id)}&limit=${WATCHED}`, 3_000);
  const [trial, setTrial] = useState<Trial | undefined>(undefined);
  const [operation, setOperation] = useState<Operation | undefined>(undefined);
  const found = groups.data?.groups;
  const group = found?.find((each) => each.id === props.id);
  const next = found?.[(found.findIndex((each) => each.id === props.id) + 1) % (found.length || 1)];
  useKeys({ n: () => next && next.id !== props.id && go(href(`dead/${encodeURIComponent(next.id)}`)) });

  useEffect(() => {
    if (trial?.state !== "watching") return;
    const timer = setInterval(() => {
      get<Job>(`jobs/${trial.id}`).then((job) => {
        if (job.state === "done") setTrial({ id: job.id, state: "worked", error: null });
        else if (job.state === "dead" || job.state === "cancelled") setTrial({ id: job.id, state: "failed", error: job.error });
      }, () => undefined);
    }, 700);
    return () => clearInterval(timer);
  }, [trial]);

  const jobs = list.data?.jobs ?? [];
  const sample = jobs[0];
  if (!list.data) return list.error ? <Failed error={list.error} /> : <Loading />;
  const shared = common(jobs);
  const task = group?.task ?? sample?.task ?? props.id.split(":")[0] ?? "";
  const tryOne = (job: JobLine): void => {
    const act = async (): Promise<string> => {
      await post(`dlq/${job.id}/requeue`, { confirm: job.confirm_replay, reason: "try one of its group" });
      setTrial({ id: job.id, state: "watching", error: null });
      return "One job runs again; watch what comes of it.";
    };
    if (!job.confirm_replay) void attempt(act);
    else ask({ title: "Run one of them again?", body: "Its task is marked as one that must not run twice by accident. Make sure that its work was not done.", button: "Run one", danger: true, reason: false, act });
  };
  const onAll = (action: "requeue" | "discard"): void => void actOnAll(action, { group: props.id }, `All dead jobs of ${task} with this kind of error`, setOperation);
  return (
    <>
      <div class="title"><div><p class="crumb"><Link to={href("dead")}>Dead letters</Link></p><h1>{task}</h1></div>
        <div class="buttons">{next && next.id !== props.id && <Link class="button quiet" to={href(`dead/${encodeURIComponent(next.id)}`)}>Next group (n)</Link>}</div></div>
      <div class={`status ${group ? "bad" : "good"}`}><Badge kind={group ? "dead" : "done"}>{group ? plural(group.count, "job") : "none left"}</Badge>
        <p class="sentence">{group?.sample_error ?? "No dead job is left in this group."}{group && <span class="muted"> first <Ago at={group.first_at} />, last <Ago at={group.last_at} /></span>}</p></div>
      {operation && <Watched operation={operation} group={props.id} before={group?.count ?? 0} onClose={() => setOperation(undefined)} />}
      {trial && <div class={`operation ${trial.state}`} role="status"><span class="grow">
        {trial.state === "watching" ? <>Job <JobLink id={trial.id} /> runs again …</> : trial.state === "worked" ? <>Job <JobLink id={trial.id} /> worked. The others may, too.</> : <>Job <JobLink id={trial.id} /> died again: {trial.error}</>}
      </span><button type="button" class="small quiet" onClick={() => setTrial(undefined)}>Close</button></div>}
      {mayAct() && sample && (
        <div class="steps">
          <button type="button" class={trial?.state === "worked" ? "" : "primary"} disabled={trial?.state === "watching"} onClick={() => tryOne(sample)}>Try one</button>
          <button type="button" class={trial?.state === "worked" ? "primary" : ""} onClick={() => onAll("requeue")}>{trial?.state === "worked" ? "Replay the others" : "Replay all"} …</button>
          <Link class="button" to={href(`jobs/${sample.id}`)}>Edit and replay one</Link>
          <button type="button" class="danger" onClick={() => onAll("discard")}>Discard all …</button>
        </div>
      )}
      {sample && <div class="pair">
        <Card title="What they have in common" aside={<span class="muted">of the {plural(jobs.length, "newest job")}</span>}>
          {shared.length ? <Table label="What they have in common" rows={shared} id={(each) => each.name + each.value} columns={[
            { name: "What", cell: (each) => each.name }, { name: "Value", wide: true, cell: (each) => <span class="mono">{each.value}</span> }, { name: "Share", right: true, cell: (each) => percent(each.share) },
          ]} /> : <Empty title={jobs.length > 1 ? "No argument, worker or tag is shared by four in five of them" : "There is only one"} />}
        </Card>
        <Sample job={sample} />
      </div>}
      <Card title="Newest jobs of the group" aside={<Link to={href("jobs", { error: props.id })}>All</Link>} class="flush">
        {jobs.length ? <Table label="Jobs of the group" rows={jobs.slice(0, 20)} id={(job) => job.id} columns={[
          { name: "Job", cell: (job) => <JobLink id={job.id} /> }, { name: "State", cell: (job) => <Badge kind={shown(job)} /> }, { name: "Died", cell: (job) => <Ago at={job.finished_at} /> },
          { name: "Error", wide: true, minor: true, cell: (job) => job.error },
        ]} /> : <Empty title="None is left" />}
      </Card>
    </>
  );
}

function Sample(props: { job: JobLine }): JSX.Element {
  const { data } = useLoad<Job>(`jobs/${props.job.id}`, 30_000);
  const last = data?.attempts.at(-1);
  return (
    <Card title={<>A sample, <JobLink id={props.job.id} /></>}>
      <Tree value={props.job.payload ?? null} label="Arguments" />
      {last?.traceback && <Traceback text={last.traceback} />}
    </Card>
  );
}

/** A replay that stops by itself when too many of the first die again. */
function Watched(props: { operation: Operation; group: string; before: number; onClose: () => void }): JSX.Element {
  const [stopped, setStopped] = useState(false);
  const { operation } = props;
  useEffect(() => {
    if (operation.action !== "requeue" || operation.state !== "running" || stopped) return;
    const timer = setInterval(() => {
      Promise.all([get<Operation>(`operations/${operation.id}`), get<Groups>("dlq/groups")]).then(async ([at, groups]) => {
        if (at.state !== "running") { clearInterval(timer); return; }
        const left = groups.groups.find((each: Group) => each.id === props.group)?.count ?? 0;
        // Those that came back are in the group again: fewer have left it than were run.
        const again = at.done - (props.before - left);
        if (at.done >= 10 && again / Math.min(at.done, WATCHED) > WORST) {
          clearInterval(timer);
          await post(`operations/${operation.id}/stop`);
          setStopped(true);
          tell(`Stopped: ${plural(again, "job")} of ${number(at.done)} died again with the same error.`, true);
          refresh();
        }
      }).catch(() => undefined);
    }, 1_000);
    return () => clearInterval(timer);
  }, [operation, stopped]);
  return <>{stopped && <div class="operation failed" role="status">It was stopped: too many of the first jobs died again.</div>}<Progress start={operation} onClose={props.onClose} /></>;
}
