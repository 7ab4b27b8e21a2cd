import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type JobLine, type JobsPage, mayAct, type Operation, path, post, ROOT, type Stats } from "../api";
import { actOnAll, cancelJob, discardJob, retryJob } from "../actions";
import { argument, type Field, type Filter, FIELDS, parametersOf, readFilter, STATES, writeFilter } from "../filter";
import { now, useLoad } from "../live";
import { Ago, Badge, Card, Empty, Failed, JobLink, Loading, QueueLink, shown, Table } from "../parts/basic";
import { attempt } from "../parts/dialog";
import { Progress } from "../parts/operation";
import { go, href, Link, place } from "../router";
import { useKeys } from "../keys";
import { number, plural, relative, seconds } from "../words";

const PAGE = 50;

function filterOfPlace(): Filter {
  const filter: Filter = {};
  for (const given of place.value.query) {
    const [name, value] = argument(...given);
    if (value && FIELDS.includes(name as Field)) filter[name as Field] = value;
  }
  return filter;
}

function Search(props: { filter: Filter }): JSX.Element {
  const [text, setText] = useState(writeFilter(props.filter));
  const [wrong, setWrong] = useState<string[]>([]);
  const said = writeFilter(props.filter);
  useEffect(() => { setText(said); setWrong([]); }, [said]);
  return (
    <form class="search" role="search" onSubmit={(event) => {
      event.preventDefault();
      const read = readFilter(text);
      if (read.id) { go(href(`jobs/${read.id}`)); return; }
      setWrong(read.wrong);
      if (!read.wrong.length) go(href("jobs", read.filter));
    }}>
      <input id="search" type="search" aria-label="Search jobs" placeholder="task:send_email state:dead since:1h, or a job's id" value={text} onInput={(event) => setText(event.currentTarget.value)} list="words" autocomplete="off" spellcheck={false} />
      <datalist id="words">{[...STATES.map((state) => `state:${state}`), "task:", "queue:", "tag:", "key:", "schedule:", "since:1h"].map((word) => <option key={word} value={word} />)}</datalist>
      <button type="submit">Search</button>
      {said && <button type="button" class="quiet" onClick={() => go(href("jobs"))}>Clear</button>}
      {wrong.map((each) => <p key={each} class="wrong" role="alert">{each}</p>)}
    </form>
  );
}

function Tabs(props: { filter: Filter; stats: Stats | undefined }): JSX.Element {
  const { filter, stats } = props;
  const total = stats && stats.ready + stats.scheduled + stats.retrying + stats.held + stats.running + stats.done + stats.dead + stats.cancelled;
  // The state ready has all that wait; scheduled, retrying and held are parts of it.
  const waiting = stats && stats.ready + stats.scheduled + stats.retrying + stats.held;
  const count = (state: string): number | undefined => (!state ? total : state === "ready" ? waiting : stats?.[state as keyof Stats] as number | undefined);
  return (
    <nav class="tabs" aria-label="State">
      {["", ...STATES].map((state) => (
        <Link key={state} to={href("jobs", { ...filter, state: state || undefined })} current={(filter.state ?? "") === state}>
          {state || "all"} {count(state) !== undefined && <span class="count">{number(count(state) ?? 0)}{stats && !stats.exact && (state === "ready" || !state) ? "+" : ""}</span>}
        </Link>
      ))}
    </nav>
  );
}

/** Rows stay where they are: known ones are brought up to date in place, new ones wait until they are asked for. */
function useRows(key: string, page: JobsPage | undefined, live: boolean): { rows: JobLine[]; fresh: number; gone: Set<string>; show: () => void } {
  const kept = useRef<{ key: string; rows: JobLine[] }>({ key: "", rows: [] });
  const [, again] = useState(0);
  if (page && (kept.current.key !== key || !kept.current.rows.length)) kept.current = { key, rows: page.jobs };
  const byId = new Map(page?.jobs.map((job) => [job.id, job]) ?? []);
  const rows = kept.current.key === key ? kept.current.rows.map((job) => byId.get(job.id) ?? job) : [];
  kept.current = { key: kept.current.key, rows: kept.current.key === key ? rows : kept.current.rows };
  const first = rows[0]?.id ?? "";
  const fresh = live && page ? page.jobs.filter((job) => job.id > first).length : 0;
  const gone = new Set(rows.filter((job) => page && !byId.has(job.id) && fresh === 0).map((job) => job.id));
  return { rows, fresh, gone, show: () => { if (page) kept.current = { key, rows: page.jobs }; again((count) => count + 1); } };
}

export function JobsScreen(): JSX.Element {
  const filter = filterOfPlace();
  const after = place.value.query.get("after") ?? undefined;
  const said = writeFilter(filter);
  const parameters = useMemo(() => parametersOf(filter, now.peek()), [said]);
  const dead = filter.error !== undefined;
  const { error: letters, group, state, ...common } = parameters;
  const key = path(dead ? "dlq" : "jobs", { ...common, ...(dead ? { group: letters } : { group, state }), after, limit: PAGE, brief: 1 });
  const { data, error } = useLoad<JobsPage>(key);
  const countable = Object.keys(filter).every((name) => name === "queue" || name === "state");
  const stats = useLoad<Stats>(countable ? path("stats", { queue: filter.queue }) : undefined, 3_000);
  const { rows, fresh, gone, show } = useRows(key, data, !after);
  const [chosen, setChosen] = useState(new Set<string>());
  const [cursor, setCursor] = useState<string | undefined>(undefined);
  const [operation, setOperation] = useState<Operation | undefined>(undefined);
  const last = useRef<string | undefined>(undefined);
  useEffect(() => { setChosen(new Set()); setCursor(undefined); }, [key]);

  const choose = (id: string, ranged: boolean): void => {
    const next = new Set(chosen);
    const from = rows.findIndex((job) => job.id === last.current);
    const to = rows.findIndex((job) => job.id === id);
    if (ranged && from >= 0 && to >= 0) for (const job of rows.slice(Math.min(from, to), Math.max(from, to) + 1)) next.add(job.id);
    else if (!next.delete(id)) next.add(id);
    last.current = id;
    setChosen(next);
  };
  const all = (): void => setChosen(rows.every((job) => chosen.has(job.id)) ? new Set() : new Set(rows.map((job) => job.id)));
  const move = (by: number): void => {
    const at = rows.findIndex((job) => job.id === cursor);
    const to = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
    setCursor(to?.id);
    if (to) document.querySelector("tr.cursor")?.scrollIntoView({ block: "nearest" });
  };
  const current = rows.find((job) => job.id === cursor);
  useKeys({
    j: () => move(1), k: () => move(-1), x: () => cursor && choose(cursor, false), X: () => cursor && choose(cursor, true), a: all,
    o: () => cursor && go(href(`jobs/${cursor}`)), Enter: () => cursor && go(href(`jobs/${cursor}`)),
    ...(mayAct() ? { r: () => current && retryJob(current), c: () => current && cancelJob(current), d: () => current && discardJob(current) } : {}),
  });

  const exported = (kind: string): string => String(new URL(path(`jobs/export.${kind}`, { ...common, group: letters, group_name: group, state }), ROOT));
  const selected = rows.filter((job) => chosen.has(job.id));
  const act = (action: "retry" | "cancel" | "discard"): void => void attempt(async () => {
    const answer = await post<{ done: number; asked: number; skipped: number }>("jobs/selected", { action, ids: selected.map((job) => job.id) });
    setChosen(new Set());
    return `${plural(answer.done, "job")} changed${answer.asked ? `, ${number(answer.asked)} asked to stop` : ""}${answer.skipped ? `, ${number(answer.skipped)} skipped` : ""}.`;
  });
  const whole = !filter.parent && !filter.schedule && !group;
  const bulk = { ...common, group: letters };
  const onAll = (action: "requeue" | "discard" | "cancel"): void => void actOnAll(action, bulk, said ? `All that match ${said}` : "All jobs", setOperation);

  return (
    <>
      <h1>Jobs</h1>
      <Search filter={filter} />
      {!dead && <Tabs filter={filter} stats={countable ? stats.data : undefined} />}
      <Failed error={error} stale={!!data} />
      {operation && <Progress start={operation} onClose={() => setOperation(undefined)} />}
      {fresh > 0 && <button type="button" class="fresh" onClick={show}>{fresh >= PAGE ? `${PAGE} or more` : number(fresh)} new, show</button>}
      <Card class="flush">
        {!data && !rows.length ? (error ? null : <Loading />) : rows.length ? (
          <Table label="Jobs" rows={rows} id={(job) => job.id} cursor={cursor} dim={(job) => gone.has(job.id)} {...(mayAct() ? { chosen, onChoose: choose, onAll: all } : {})} columns={[
            { name: "Job", cell: (job) => <JobLink id={job.id} /> },
            { name: "Task", cell: (job) => <Link to={href("jobs", { ...filter, task: job.task })} class="name">{job.task}</Link> },
            { name: "State", cell: (job) => <Badge kind={shown(job)} /> },
            { name: "Queue", minor: true, cell: (job) => <QueueLink queue={job.queue} /> },
            { name: "Attempt", right: true, minor: true, cell: (job) => `${job.attempt}/${job.max_attempts}` },
            { name: "Enqueued", minor: true, cell: (job) => <Ago at={job.enqueued_at} /> },
            { name: "Ran", right: true, minor: true, cell: (job) => (job.started_at && job.finished_at ? seconds((Date.parse(job.finished_at) - Date.parse(job.started_at)) / 1000) : job.state === "running" && job.started_at ? seconds(Math.max(0, Math.round((now.value - Date.parse(job.started_at)) / 1000))) : "–") },
            { name: "Said", wide: true, minor: true, cell: (job) => <span class={job.state === "dead" || shown(job) === "retrying" ? "bad" : "muted"}>{job.error ?? job.reason ?? (shown(job) === "scheduled" ? `due ${relative(job.run_at, now.value)}` : "")}</span> },
          ]} />
        ) : data?.next ? <Empty title={`None among the ${number(data.searched)} newest jobs`}>The search stops after a fifth of a second. <Link to={href("jobs", { ...filter, after: data.next })}>Go on</Link></Empty>
          : said ? <Empty title="No job matches"><Link to={href("jobs")}>Clear the filter</Link></Empty>
            : <Empty title="There is no job yet">Enqueue one: <code>hawser enqueue APP TASK --json '{"{…}"}'</code>, or watch the shop: <code>hawser demo</code></Empty>}
      </Card>
      <div class="pages">
        {after && <Link class="button" to={href("jobs", filter)}>Newest</Link>}
        {data?.next && <Link class="button" to={href("jobs", { ...filter, after: data.next })}>Older</Link>}
        <a class="button quiet" href={exported("csv")} download>CSV</a>
        <a class="button quiet" href={exported("ndjson")} download>NDJSON</a>
      </div>
      {mayAct() && (selected.length > 0 || (whole && rows.length > 0 && (state === "dead" || state === "ready" || dead))) && (
        <div class="selection" role="region" aria-label="Actions">
          {selected.length > 0 ? (
            <>
              <span>{plural(selected.length, "job")} selected</span>
              {selected.some((job) => job.state === "dead" || job.state === "cancelled") && <button type="button" onClick={() => act("retry")}>Run again</button>}
              {selected.some((job) => job.state === "ready" || job.state === "running") && <button type="button" class="danger" onClick={() => act("cancel")}>Cancel</button>}
              {selected.some((job) => job.state === "dead") && <button type="button" class="danger" onClick={() => act("discard")}>Discard</button>}
              <button type="button" class="quiet" onClick={() => setChosen(new Set())}>Select none</button>
            </>
          ) : state === "ready" ? <><span>All that match</span><button type="button" class="danger" onClick={() => onAll("cancel")}>Cancel all …</button></>
            : <><span>All that match</span><button type="button" onClick={() => onAll("requeue")}>Run all again …</button><button type="button" class="danger" onClick={() => onAll("discard")}>Discard all …</button></>}
        </div>
      )}
    </>
  );
}

