import type { JSX } from "preact";
import { mayAct, path, post, type Schedule, type State } from "../api";
import { useLoad } from "../live";
import { Ago, Badge, Card, Empty, Failed, Loading, Table } from "../parts/basic";
import { ask, attempt } from "../parts/dialog";
import { href, Link, place, set } from "../router";
import { date, minute, number, plural, seconds, time } from "../words";

interface Page { schedules: Schedule[]; next: string | null }
interface Ticks { words: string; ticks: string[] }
interface Past { tick: string; job_id: string | null; state: State | null; late_s: number | null; left_out: "missed" | "skipped" | "paused" | null }

const at = (name: string): string => `schedules/${encodeURIComponent(name)}`;
/** Ticks that are looked at; a picture of a week needs a day of them at least. */
const TICKS = 100;
const DAY = 86_400_000;
const DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/** When the next ticks come: an hour of the week is the darker the more fall into it. */
function Planned(props: { schedule: Schedule }): JSX.Element {
  const { data, error } = useLoad<Ticks>(`${at(props.schedule.name)}/ticks?count=${TICKS}`, 60_000);
  if (!data) return error ? <Failed error={error} /> : <Loading />;
  if (!data.ticks.length) return <Empty title="It has no more ticks" />;
  const counts = new Map<string, number>();
  for (const tick of data.ticks) {
    // The wall clock of the schedule's own zone stands in the text.
    const day = (new Date(`${tick.slice(0, 10)}T00:00:00Z`).getUTCDay() + 6) % 7;
    const key = `${day}.${Number(tick.slice(11, 13))}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  const most = Math.max(...counts.values());
  const until = data.ticks.at(-1) ?? "";
  const reach = Date.parse(until) - Date.now();
  return (
    <>
      <p><b>{data.words}</b></p>
      <p class="muted">Next: {data.ticks.slice(0, 5).map((tick) => (Date.parse(tick) - Date.now() < 43_200_000 ? time(tick) : date(tick))).join(" · ")}</p>
      {data.ticks.length >= TICKS && reach < 7 * DAY && <p class="muted">The next {TICKS} ticks, until {reach < DAY ? minute(until) : date(until)}.</p>}
      {(data.ticks.length < TICKS || reach >= DAY) && <div class="heatmap" role="img" aria-label={`The next ${data.ticks.length} ticks by weekday and hour of its zone`}>
        <span /> {Array.from({ length: 24 }, (_each, hour) => <span key={hour} class="hour">{hour % 3 ? "" : hour}</span>)}
        {DAYS.map((day, index) => (
          <>
            <span key={day} class="day">{day}</span>
            {Array.from({ length: 24 }, (_each, hour) => {
              const count = counts.get(`${index}.${hour}`) ?? 0;
              return <span key={`${day}${hour}`} class={count ? "cell on" : "cell"} style={count ? { opacity: 0.35 + 0.65 * (count / most) } : {}} title={count ? `${day} ${hour} h: ${plural(count, "tick")}` : undefined} />;
            })}
          </>
        ))}
      </div>}
    </>
  );
}

const LATE = 60;
/** Schedules on a page of the list. */
const PAGE = 100;

function became(tick: Past): string {
  if (!tick.state) return tick.left_out ?? "job not kept";
  return tick.state === "done" && (tick.late_s ?? 0) > LATE ? "late" : tick.state;
}

/** What became of the last ticks, the newest at the right. */
function Strip(props: { schedule: Schedule }): JSX.Element | null {
  const { data, error } = useLoad<{ ticks: Past[] }>(`${at(props.schedule.name)}/past?count=50`, 5_000);
  if (!data) return error ? <Failed error={error} /> : <Loading />;
  if (!data.ticks.length) return <p class="muted">No tick has come yet.</p>;
  const counts = new Map<string, number>();
  for (const tick of data.ticks) counts.set(became(tick), (counts.get(became(tick)) ?? 0) + 1);
  return (
    <>
      <p class="muted">The last {plural(data.ticks.length, "tick")}: {[...counts].map(([what, count]) => `${number(count)} ${what}`).join(", ")}.</p>
      <div class="strip">{[...data.ticks].reverse().map((tick) => {
        const said = `${date(tick.tick)}: ${became(tick)}${tick.late_s === null ? "" : `, started after ${seconds(tick.late_s)}`}`;
        return tick.job_id ? <Link key={tick.tick} class={`tick ${became(tick)}`} to={href(`jobs/${tick.job_id}`)} title={said} label={said}>{{ dead: "✕", late: "!" }[became(tick)]}</Link> : <span key={tick.tick} class={`tick ${tick.left_out ?? ""}`} role="img" aria-label={said} title={said}>{{ missed: "?", skipped: "–", paused: "‖" }[tick.left_out as string]}</span>;
      })}</div>
    </>
  );
}

function Buttons(props: { schedule: Schedule }): JSX.Element {
  const { schedule } = props;
  const act = (verb: string, said: string) => (): void => void attempt(async () => { await post(`${at(schedule.name)}/${verb}`); return said; });
  return (
    <div class="row-buttons">
      <button type="button" class="small quiet" onClick={() => ask({ title: `Run ${schedule.name} now?`, body: "It makes one job beside its ticks.", button: "Run now", act: async ({ reason }) => { await post(`${at(schedule.name)}/run`, { reason: reason ?? null }); return "The job is in the queue."; } })}>Run now</button>
      {schedule.state === "active" && <button type="button" class="small quiet" onClick={act("skip", "The next tick is left out.")}>Skip next</button>}
      {schedule.state === "paused" ? <button type="button" class="small" onClick={act("resume", `${schedule.name} goes on.`)}>Resume</button>
        : schedule.state === "active" && <button type="button" class="small quiet" onClick={() => ask({ title: `Pause ${schedule.name}?`, body: "No job is made until it is resumed. What happens to the ticks in between is what the schedule says of missed ones.", button: "Pause", act: async ({ reason }) => { await post(`${at(schedule.name)}/pause`, { reason: reason ?? null }); return `${schedule.name} is paused.`; } })}>Pause</button>}
    </div>
  );
}

export function SchedulesScreen(): JSX.Element {
  const [open, after] = [place.value.query.get("name") ?? undefined, place.value.query.get("after") ?? undefined];
  const { data, error } = useLoad<Page>(path("schedules", { limit: PAGE, after }));
  const listed = data?.schedules.find((each) => each.name === open);
  // It may stand on another page of the list.
  const elsewhere = useLoad<Schedule>(data && open && !listed ? at(open) : undefined).data;
  if (!data) return error ? <Failed error={error} /> : <Loading />;
  const chosen = listed ?? elsewhere ?? (data.schedules.length === 1 ? data.schedules[0] : undefined);
  return (
    <>
      <h1>Schedules</h1>
      <Failed error={error} stale />
      <Card class="flush">
        {data.schedules.length ? <Table label="Schedules" rows={data.schedules} id={(schedule) => schedule.name} columns={[
          { name: "Schedule", breaks: true, cell: (schedule) => <button type="button" class="link" aria-expanded={schedule.name === open} onClick={() => set({ name: schedule.name === open ? undefined : schedule.name }, true)}>{schedule.name}</button> },
          { name: "When", breaks: true, cell: (schedule) => schedule.words },
          { name: "State", cell: (schedule) => <span title={schedule.pause ? `paused by ${schedule.pause.by}${schedule.pause.reason ? `: ${schedule.pause.reason}` : ""}` : undefined}><Badge kind={schedule.state} /></span> },
          { name: "Next", cell: (schedule) => <Ago at={schedule.state === "active" ? schedule.next_tick : null} /> },
          { name: "Last", minor: true, cell: (schedule) => (schedule.last_job_id ? <Link to={href(`jobs/${schedule.last_job_id}`)}><Ago at={schedule.last_tick} /></Link> : <Ago at={schedule.last_tick} />) },
          { name: "Task", minor: true, breaks: true, cell: (schedule) => <Link to={href("jobs", { schedule: schedule.name })} class="name">{schedule.task}</Link> },
          { name: "Fired, missed, skipped", right: true, minor: true, cell: (schedule) => <span class={schedule.missed ? "warning" : ""}>{number(schedule.fired)}, {number(schedule.missed)}, {number(schedule.skipped)}</span> },
          ...(mayAct() ? [{ name: "", right: true, cell: (schedule: Schedule) => <Buttons schedule={schedule} /> }] : []),
        ]} /> : <Empty title="There is no schedule">Declare one on a task: <code>@app.task(schedule=Cron("0 2 * * *"))</code>, or make one: <code>hawser schedules put …</code></Empty>}
      </Card>
      {(after || data.next) && <div class="pages">{after && <Link class="button" to={href("schedules", { name: open })}>First</Link>}{data.next && <Link class="button" to={href("schedules", { name: open, after: data.next })}>Next</Link>}</div>}
      {chosen?.error && <Failed error={chosen.error} />}
      {chosen && <div class="pair">
        <Card title={`${chosen.name}: the last ticks`}><Strip key={chosen.name} schedule={chosen} /></Card>
        <Card title={`${chosen.name}: the next ticks`}><Planned key={chosen.name} schedule={chosen} /></Card>
      </div>}
    </>
  );
}
