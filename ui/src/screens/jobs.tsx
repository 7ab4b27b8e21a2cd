import type { JSX } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Count, type Counts, get, type Groups, type JobLine, type JobsPage, mayAct, type Operation, path, post, ROOT, type Strip } from "../api";
import { actOnAll, cancelJob, discardJob, retryJob } from "../actions";
import { argument, type Field, type Filter, FIELDS, parametersOf, readFilter, STATES, writeFilter } from "../filter";
import { now, useLoad } from "../live";
import { Ago, Badge, Card, Empty, Failed, JobLink, Loading, QueueLink, shown, Table } from "../parts/basic";
import { Sample } from "../parts/sample";
import { ask, attempt } from "../parts/dialog";
import { Progress } from "../parts/operation";
import { go, href, Link, place } from "../router";
import { useKeys } from "../keys";
import { keep, kept } from "../store";
import { isOpen } from "../series";
import { minute, number, plural, relative, seconds } from "../words";

interface Acted { done: number; asked: number; skipped: number }

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
  // At once, not after the next frame: what is typed by then would be lost.
  useLayoutEffect(() => { setText(said); setWrong([]); }, [said]);
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

function Tabs(props: { filter: Filter; counts: Counts | undefined }): JSX.Element {
  const { counts } = props;
  // Only dead jobs have a kind of error: the way to another state leaves it.
  const { error, ...filter } = props.filter;
  const chosen = error ? ["dead"] : (filter.state ?? "").split(",");
  return (
    <nav class="tabs" aria-label="State">
      {["", ...STATES].map((state) => {
        const count = state ? counts?.states[state] : counts?.total;
        return (
          <Link key={state} to={href("jobs", { ...filter, state: state || undefined })} current={chosen.includes(state)}>
            {state || "all"} {count && (count.count > 0 || count.exact) && <span class="count">{number(count.count)}{count.exact ? "" : "+"}</span>}
          </Link>
        );
      })}
    </nav>
  );
}

/** How many, in words: exactly, or at least so many. */
const many = ({ count, exact }: Count): string => (exact ? `All ${number(count)}` : `${number(count)} or more`);

/** Up to so many waiting jobs are changed together, by their ids. */
const CHANGED_AT_ONCE = 1_000;

/** All waiting jobs that match, when there are no more than that. */
async function allOf(parameters: Record<string, string | undefined>): Promise<JobLine[]> {
  const jobs: JobLine[] = [];
  let after: string | null = null;
  do {
    const page: JobsPage = await get<JobsPage>(path("jobs", { ...parameters, state: "ready", limit: 500, brief: 1, after: after ?? undefined }));
    jobs.push(...page.jobs);
    after = page.next;
    if (jobs.length > CHANGED_AT_ONCE) throw new Error(`More than ${number(CHANGED_AT_ONCE)} jobs match by now; narrow the filter`);
  } while (after !== null);
  return jobs;
}

/** Queue and priority of each as they were. */
async function takeBack(jobs: JobLine[]): Promise<string> {
  const places = new Map<string, JobLine[]>();
  for (const job of jobs) { const at = `${job.priority} ${job.queue}`; places.set(at, [...(places.get(at) ?? []), job]); }
  let count = 0;
  for (const those of places.values()) count += (await post<Acted>("jobs/selected", { action: "change", ids: those.map((job) => job.id), queue: those[0]?.queue, priority: those[0]?.priority })).done;
  return `${plural(count, "job")} as before.`;
}

/** What matches over time; a stretch that is drawn over, or a column that is chosen, becomes the time of the filter. */
function Over(props: { strip: Strip; filter: Filter }): JSX.Element | null {
  const { strip, filter } = props;
  const [from, setFrom] = useState<number | undefined>(undefined);
  const [to, setTo] = useState(0);
  const most = Math.max(...strip.enqueued.map((count, index) => Math.max(count, (strip.done[index] ?? 0) + (strip.failed[index] ?? 0))));
  if (!most) return null;
  const at = (index: number): number => Date.parse(strip.start) + index * strip.step_s * 1000;
  const [low, high] = from === undefined ? [-1, -1] : [Math.min(from, to), Math.max(from, to)];
  const narrow = (first: number, last: number): void => go(href("jobs", { ...filter, since: new Date(at(first)).toISOString(), until: new Date(at(last + 1)).toISOString() }));
  const open = isOpen({ ...strip, step: strip.step_s / 60 }, strip.enqueued.length) ? strip.enqueued.length - 1 : strip.enqueued.length;
  const share = (count: number): string => `${(count / most) * 100}%`;
  return (
    <div class="over card" role="group" aria-label="Over time" onPointerUp={() => { if (from !== undefined) narrow(low, high); setFrom(undefined); }} onPointerLeave={() => setFrom(undefined)}>
      <div class="columns">{strip.enqueued.map((count, index) => {
        const [done = 0, failed = 0] = [strip.done[index], strip.failed[index]];
        const text = `${minute(at(index))}${index === open ? ", so far" : ""}: ${number(count)} enqueued, ${number(done)} done, ${number(failed)} failed, ${number(strip.dead[index] ?? 0)} dead`;
        return (
          <button key={at(index)} type="button" class={`${index >= low && index <= high ? "on" : ""} ${index === open ? "open" : ""}`} title={text} aria-label={text} onPointerDown={() => { setFrom(index); setTo(index); }} onPointerEnter={() => setTo(index)} onKeyDown={(event) => { if (event.key === "Enter") narrow(index, index); }}>
            <span class="in" style={{ height: share(count) }} /><span class="good" style={{ height: share(done) }} /><span class="bad" style={{ height: share(failed) }} />
          </button>
        );
      })}</div>
      <div class="ends"><span>{minute(strip.start)}</span><span>{strip.source === "history" ? "enqueued, done, failed" : `of the jobs themselves, by when they were enqueued${strip.complete ? "" : `; the newest ${number(strip.searched)}`}`}<span class="tip">. Draw over a stretch to narrow.</span></span><span>{minute(at(strip.enqueued.length))}</span></div>
    </div>
  );
}

const VIEWS = "hawser.views";

/** Filters with a name, kept in this browser. */
function Views(props: { said: string }): JSX.Element {
  const [views, setViews] = useState<Record<string, string>>(() => kept(VIEWS, {}));
  const save = (next: Record<string, string>): void => { setViews(next); keep(VIEWS, next); };
  const found = Object.entries(views);
  const known = found.find(([, text]) => text === props.said)?.[0];
  return (
    <div class="views">
      {found.map(([name, text]) => <Link key={name} class="tag" current={text === props.said} to={href("jobs", readFilter(text).filter)}>{name}</Link>)}
      {known ? <button type="button" class="small quiet" onClick={() => save(Object.fromEntries(found.filter(([name]) => name !== known)))}>Forget “{known}”</button>
        : props.said && <button type="button" class="small quiet" onClick={() => ask({ title: "Save this view", button: "Save", reason: false, entries: [{ name: "name", label: "Name", limits: { required: true, maxLength: 40 } }], act: async ({ values }) => save({ ...views, [values["name"] ?? ""]: props.said }) })}>Save this view</button>}
    </div>
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
  const longest = !dead && state === "running" && place.value.query.get("sort") === "started";
  const key = path(dead ? "dlq" : "jobs", { ...common, ...(dead ? { group: letters } : { group, state }), after, limit: PAGE, brief: 1, ...(longest ? { sort: "started" } : {}) });
  const { data, error } = useLoad<JobsPage>(key);
  const counted = dead ? undefined : { ...common, group };
  const byState = useLoad<Counts>(counted && path("jobs/counts", counted), 5_000).data;
  // Of a queue and a task the history knows all; of anything else the jobs themselves are looked at, and then their state matters.
  const simple = Object.keys(filter).every((name) => ["queue", "task", "state", "since", "until"].includes(name));
  const strip = useLoad<Strip>(counted && path("jobs/strip", { ...counted, ...(simple ? {} : { state }), steps: 36 }), 10_000).data;
  const list = useRows(key, data, !after);
  const { rows, fresh, gone, show } = longest ? { ...list, rows: data?.jobs ?? [], fresh: 0, gone: new Set<string>() } : list;
  const kind = useLoad<Groups>(dead ? "dlq/groups" : undefined, 5_000).data?.groups.find((each) => each.id === letters);
  // Of a kind of error alone its group has the count; of a part of it nobody has.
  const ofKind: Count | undefined = kind && Object.keys(filter).every((name) => name === "error" || name === "state") ? { count: kind.count, exact: true } : undefined;
  const counts: Counts | undefined = dead ? (ofKind && { total: ofKind, states: { dead: ofKind }, searched: 0, complete: true }) : byState;
  const [chosen, setChosen] = useState(new Set<string>());
  const [cursor, setCursor] = useState<string | undefined>(undefined);
  const [operation, setOperation] = useState<Operation | undefined>(undefined);
  const last = useRef<string | undefined>(undefined);
  useLayoutEffect(() => { setChosen(new Set()); setCursor(undefined); }, [key]);

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

  const { worker, attempt_min, ...told } = common;
  const exported = (kind: string): string => String(new URL(path(`jobs/export.${kind}`, { ...told, group: letters, group_name: group, state }), ROOT));
  const selected = rows.filter((job) => chosen.has(job.id));
  const done = (answer: Acted): string => {
    setChosen(new Set());
    return `${plural(answer.done, "job")} changed${answer.asked ? `, ${number(answer.asked)} asked to stop` : ""}${answer.skipped ? `, ${number(answer.skipped)} skipped` : ""}.`;
  };
  const act = (action: "retry" | "cancel" | "discard"): void => {
    const { title, states } = { retry: { title: "Run again", states: ["dead", "cancelled"] }, cancel: { title: "Cancel", states: ["ready", "running"] }, discard: { title: "Discard", states: ["dead"] } }[action];
    const concerned = selected.filter((job) => states.includes(job.state));
    ask({
      title: `${title} ${plural(concerned.length, "job")}?`, button: title === "Cancel" ? "Cancel the jobs" : title, danger: action !== "retry",
      body: <Sample jobs={concerned}>{concerned.length < selected.length && <p>{plural(selected.length - concerned.length, "job")} of those selected are in another state, and left alone.</p>}{action === "retry" && concerned.some((job) => job.confirm_replay) && <p>Tasks that ask for a confirmation are skipped.</p>}</Sample>,
      act: async ({ reason }) => done(await post<Acted>("jobs/selected", { action, ids: concerned.map((job) => job.id), reason: reason ?? null })),
    });
  };
  const change = (jobs: JobLine[]): void => {
    const ids = jobs.map((job) => job.id);
    ask({
      title: `Change ${plural(ids.length, "waiting job")}?`, undo: () => takeBack(jobs), body: "What is left empty stays as it is.", button: "Change",
      entries: [{ name: "queue", label: "Queue", hint: "as it is" }, { name: "priority", label: "Priority, 0 to 9", type: "number", hint: "as it is", limits: { min: 0, max: 9 } }],
      act: async ({ reason, values: { queue, priority } }) => done(await post<Acted>("jobs/selected", { action: "change", ids, reason: reason ?? null, queue: queue || null, priority: priority ? Number(priority) : null })),
    });
  };
  const whole = !filter.parent && !filter.schedule && !group && !filter.worker && !filter.attempt && !state?.includes(",");
  const bulk = { ...told, group: letters };
  const onAll = (action: "requeue" | "discard" | "cancel"): void => void actOnAll(action, bulk, said ? `All that match ${said}` : "All jobs", setOperation);

  const matching = state === "ready" || state === "dead" ? counts?.states[state] : dead ? counts?.states["dead"] : undefined;
  const sorted = longest ? { sort: undefined } : { sort: "started" };
  const bulky = whole && rows.length > 0 && (state === "dead" || state === "ready" || dead);

  return (
    <>
      <h1>Jobs</h1>
      <Search filter={filter} />
      <Views said={said} />
      <Tabs filter={filter} counts={counts} />
      {strip && <Over strip={strip} filter={filter} />}
      <Failed error={error} stale={!!data} />
      {operation && <Progress start={operation} onClose={() => setOperation(undefined)} />}
      {fresh > 0 && <button type="button" class="fresh" onClick={show}>{fresh >= PAGE ? `${PAGE} or more` : number(fresh)} new, show</button>}
      <Card class="flush">
        {!data && !rows.length ? (error ? null : <Loading />) : rows.length ? (
          <Table label="Jobs" rows={rows} id={(job) => job.id} cursor={cursor} dim={(job) => gone.has(job.id)} {...(mayAct() ? { chosen, onChoose: choose, onAll: all } : {})} columns={[
            { name: "Job", cell: (job) => <JobLink id={job.id} /> },
            { name: "Task", breaks: true, cell: (job) => <Link to={href("jobs", { ...filter, task: job.task })} class="name">{job.task}</Link> },
            { name: "State", cell: (job) => <><Badge kind={shown(job)} />{job.state === "running" && job.cancel_asked && <> <Badge kind="warning">cancel asked</Badge></>}</> },
            { name: "Queue", breaks: true, cell: (job) => <QueueLink queue={job.queue} /> },
            { name: "Attempt", right: true, minor: true, cell: (job) => `${job.attempt}/${job.max_attempts}` },
            { name: "Enqueued", cell: (job) => <Ago at={job.enqueued_at} /> },
            { name: "Ran", right: true, minor: true, cell: (job) => (job.started_at && job.finished_at ? seconds((Date.parse(job.finished_at) - Date.parse(job.started_at)) / 1000) : job.state === "running" && job.started_at ? seconds(Math.max(0, Math.floor((now.value - Date.parse(job.started_at)) / 1000))) : "–") },
            { name: "Said", wide: true, minor: true, cell: (job) => <span class={job.state === "dead" || shown(job) === "retrying" ? "bad" : "muted"}>{job.error ?? job.reason ?? (shown(job) === "scheduled" ? `due ${relative(job.run_at, now.value)}` : "")}</span> },
          ]} />
        ) : data?.next ? <Empty title={`None among the ${number(data.searched)} newest jobs`}>The search stops after a moment. <Link to={href("jobs", { ...filter, after: data.next })}>Go on</Link></Empty>
          : said ? <Empty title="No job matches"><Link to={href("jobs")}>Clear the filter</Link></Empty>
            : <Empty title="There is no job yet">Enqueue one: <code>hawser enqueue APP TASK --json '{"{…}"}'</code>, or watch the shop: <code>hawser demo</code></Empty>}
      </Card>
      <div class="pages">
        {after && <Link class="button" to={href("jobs", filter)}>Newest</Link>}
        {data?.next && <Link class="button" to={href("jobs", { ...filter, after: data.next })}>Older</Link>}
        {state === "running" && <Link class="button" to={href("jobs", { ...filter, ...sorted })}>{longest ? "Newest first" : "Longest first"}</Link>}
        {!worker && !attempt_min && <><a class="button quiet" href={exported("csv")} download>CSV</a><a class="button quiet" href={exported("ndjson")} download>NDJSON</a></>}
      </div>
      {mayAct() && (selected.length > 0 || bulky) && (
        <div class="selection" role="region" aria-label="Actions">
          {selected.length > 0 ? (
            <>
              <span>{plural(selected.length, "job")} selected</span>
              {selected.some((job) => job.state === "dead" || job.state === "cancelled") && <button type="button" onClick={() => act("retry")}>Run again</button>}
              {selected.some((job) => job.state === "ready" || job.state === "running") && <button type="button" class="danger" onClick={() => act("cancel")}>Cancel</button>}
              {selected.some((job) => job.state === "dead") && <button type="button" class="danger" onClick={() => act("discard")}>Discard</button>}
              {selected.some((job) => job.state === "ready") && <button type="button" onClick={() => change(selected.filter((job) => job.state === "ready"))}>Change …</button>}
              <button type="button" class="quiet" onClick={() => setChosen(new Set())}>Select none</button>
              {bulky && matching && matching.count > selected.length && rows.every((job) => chosen.has(job.id)) && <button type="button" class="quiet" onClick={() => setChosen(new Set())}>{many(matching)} that match</button>}
            </>
          ) : state === "ready" ? <><span>{matching ? `${many(matching)} that match` : "All that match"}</span><button type="button" class="danger" onClick={() => onAll("cancel")}>Cancel all …</button>
            {matching?.exact && matching.count <= CHANGED_AT_ONCE && <button type="button" onClick={() => void attempt(async () => change(await allOf(common)))}>Change all …</button>}</>
            : <><span>{matching ? `${many(matching)} that match` : "All that match"}</span><button type="button" onClick={() => onAll("requeue")}>Run all again …</button><button type="button" class="danger" onClick={() => onAll("discard")}>Discard all …</button></>}
        </div>
      )}
    </>
  );
}

