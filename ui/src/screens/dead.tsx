import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type Group, type Groups, type Job, type JobLine, type JobsPage, type Json, mayAct, type Operation, post } from "../api";
import { actOnAll } from "../actions";
import { now, useLoad } from "../live";
import { Ago, Badge, Card, Empty, Failed, JobLink, Loading, shown, Table, TaskLink } from "../parts/basic";
import { ask, attempt } from "../parts/dialog";
import { stringify, Tree } from "../parts/json";
import { Traceback } from "../parts/traceback";
import { Progress } from "../parts/operation";
import { go, href, Link } from "../router";
import { useKeys } from "../keys";
import { keep, kept } from "../store";
import { number, percent, plural } from "../words";

const MUTED = "hawser.muted";

/** All of its jobs died after the last deploy, or within the hour. */
function New(props: { group: Group }): JSX.Element | null {
  const { new_since, first_at } = props.group;
  if (new_since) return <> <Badge kind="warning">new since {new_since}</Badge></>;
  return now.value - Date.parse(first_at) < 3_600_000 ? <> <Badge kind="warning">new</Badge></> : null;
}

export function DeadScreen(): JSX.Element {
  const { data, error } = useLoad<Groups>("dlq/groups");
  /** Groups that this browser hides, each until a newer job dies. */
  const [muted, setMuted] = useState<Record<string, string>>(() => kept(MUTED, {}));
  const [all, setAll] = useState(false);
  if (!data) return error ? <Failed error={error} /> : <Loading />;
  const hidden = data.groups.filter((group) => (muted[group.id] ?? "") >= group.last_at);
  const rows = all ? data.groups : data.groups.filter((group) => !hidden.includes(group));
  const mute = (group: Group): void => {
    const { [group.id]: was, ...others } = muted;
    const next = was && was >= group.last_at ? others : { ...others, [group.id]: group.last_at };
    setMuted(next);
    keep(MUTED, next);
  };
  return (
    <>
      <div class="title"><div><h1>Dead letters</h1><p class="muted">{plural(data.grouped, "job")} in {plural(data.groups.length, "group")}, by task and kind of error{data.ungrouped ? `; ${number(data.ungrouped)} more will be grouped soon` : ""}</p></div>
        <div class="buttons">{!!hidden.length && <button type="button" class="quiet" onClick={() => setAll(!all)}>{all ? "Hide the muted ones" : `${plural(hidden.length, "muted group")}, show`}</button>}<Link class="button" to={href("jobs", { state: "dead" })}>One by one</Link></div></div>
      <Failed error={error} stale />
      <Card class="flush">
        {data.groups.length ? <Table label="Groups of dead letters" rows={rows} dim={(group) => hidden.includes(group)} id={(group) => group.id} columns={[
          { name: "Jobs", right: true, cell: (group) => <b class="bad">{number(group.count)}</b> },
          { name: "Task", cell: (group) => <TaskLink task={group.task} /> },
          { name: "Error", wide: true, cell: (group) => <Link to={href(`dead/${encodeURIComponent(group.id)}`)}>{group.sample_error}</Link> },
          { name: "First", minor: true, cell: (group) => <><Ago at={group.first_at} /><New group={group} /></> },
          { name: "Last", cell: (group) => <Ago at={group.last_at} /> },
          { name: "", right: true, minor: true, cell: (group) => <button type="button" class="small quiet" title="Hide it here until another job of it dies" onClick={() => mute(group)}>{hidden.includes(group) ? "Show again" : "Mute"}</button> },
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

export function GroupScreen(props: { id: string }): JSX.Element {
  const groups = useLoad<Groups>("dlq/groups");
  const list = useLoad<JobsPage>(`dlq?group=${encodeURIComponent(props.id)}&limit=${WATCHED}`, 3_000);
  const [trial, setTrial] = useState<Trial | undefined>(undefined);
  const [operation, setOperation] = useState<Operation | undefined>(undefined);
  const found = groups.data?.groups;
  const group = found?.find((each) => each.id === props.id);
  const next = found?.[(found.findIndex((each) => each.id === props.id) + 1) % (found.length || 1)];
  useKeys({ n: () => next && next.id !== props.id && go(href(`dead/${encodeURIComponent(next.id)}`)) });

  const watched = useLoad<Job>(trial?.state === "watching" ? `jobs/${trial.id}` : undefined, 1_000, 1_000).data;
  useEffect(() => {
    if (!watched || watched.id !== trial?.id || trial.state !== "watching") return;
    if (watched.state === "done") setTrial({ id: watched.id, state: "worked", error: null });
    else if (watched.state === "dead" || watched.state === "cancelled") setTrial({ id: watched.id, state: "failed", error: watched.error });
  }, [watched, trial]);

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
        <p class="sentence">{group?.sample_error ?? "No dead job is left in this group."}{group && <span class="muted"> first <Ago at={group.first_at} />, last <Ago at={group.last_at} /><New group={group} /></span>}</p></div>
      {operation && <Progress start={operation} onClose={() => setOperation(undefined)} />}
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
