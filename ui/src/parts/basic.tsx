// Small parts that every screen uses.
import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import type { JobLine, Level } from "../api";
import { now } from "../live";
import { href, Link } from "../router";
import { instant, number, relative, tail } from "../words";

export type Shown = "ready" | "scheduled" | "retrying" | "held" | "running" | "done" | "dead" | "cancelled";

const ICONS: Record<string, string> = {
  ready: "○", scheduled: "◷", retrying: "↻", held: "⧖", running: "▶", done: "✓", dead: "✕", cancelled: "⊘",
  good: "✓", warning: "!", bad: "✕", idle: "○", paused: "❚❚", active: "✓", retired: "⊘", ended: "⊘", problem: "✕", notice: "!", fine: "✓",
};

export function shown(job: JobLine): Shown {
  if (job.state !== "ready") return job.state;
  if (job.held) return "held";
  if (job.attempt > 0) return "retrying";
  return Date.parse(job.run_at) > now.peek() ? "scheduled" : "ready";
}

export function Badge(props: { kind: string; children?: ComponentChildren }): JSX.Element {
  return <span class={`badge ${props.kind}`}><span class="icon" aria-hidden="true">{ICONS[props.kind] ?? "·"}</span>{props.children ?? props.kind}</span>;
}

export function LevelIcon(props: { level: Level }): JSX.Element {
  return <span class={`level ${props.level}`} role="img" aria-label={props.level}>{ICONS[props.level]}</span>;
}

/** A time as an age, with the instant on hover. */
export function Ago(props: { at: string | null | undefined }): JSX.Element {
  if (!props.at) return <span class="muted">–</span>;
  return <time dateTime={props.at} title={instant(props.at)}>{relative(props.at, now.value)}</time>;
}

export function JobLink(props: { id: string; whole?: boolean }): JSX.Element {
  return <Link to={href(`jobs/${props.id}`)} class="mono" title={props.id}>{props.whole ? props.id : `…${tail(props.id)}`}</Link>;
}

export const QueueLink = (props: { queue: string }): JSX.Element =>
  <Link to={href(`queues/${encodeURIComponent(props.queue)}`)} class="name">{props.queue}</Link>;
export const TaskLink = (props: { task: string }): JSX.Element =>
  <Link to={href("jobs", { task: props.task })} class="name">{props.task}</Link>;

export function Card(props: { title?: ComponentChildren; aside?: ComponentChildren; class?: string; children: ComponentChildren }): JSX.Element {
  return (
    <section class={`card ${props.class ?? ""}`}>
      {props.title && <header><h2>{props.title}</h2>{props.aside && <div class="aside">{props.aside}</div>}</header>}
      {props.children}
    </section>
  );
}

/** What there is none of, why, and the next step. */
export function Empty(props: { title: string; children?: ComponentChildren }): JSX.Element {
  return <div class="empty"><strong>{props.title}</strong>{props.children && <div>{props.children}</div>}</div>;
}

export function Failed(props: { error: string | undefined; stale?: boolean }): JSX.Element | null {
  if (!props.error) return null;
  return <div class="fault" role="status"><LevelIcon level="bad" /> {props.error}{props.stale ? ". What is shown is older." : ""}</div>;
}

export function Loading(): JSX.Element {
  return <div class="loading" role="status">Loading …</div>;
}

/** A few numbers as a line; the words beside it tell the same. */
export function Spark(props: { values: number[]; label: string }): JSX.Element {
  const { values } = props;
  const most = Math.max(1, ...values);
  const points = values.map((value, index) => `${(index / Math.max(1, values.length - 1)) * 100},${22 - (value / most) * 20}`);
  return (
    <svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label={props.label}>
      <polygon points={`0,24 ${points.join(" ")} 100,24`} />
      <polyline points={points.join(" ")} vector-effect="non-scaling-stroke" />
    </svg>
  );
}

/** How much of something is used. */
export function Bar(props: { used: number; of: number; label: string }): JSX.Element {
  const share = props.of ? Math.min(1, props.used / props.of) : 0;
  return (
    <span class="bar" title={props.label}>
      <span class={`fill ${share >= 0.95 ? "full" : ""}`} style={{ width: `${share * 100}%` }} />
      <span class="text">{props.used}/{props.of}</span>
    </span>
  );
}

/** Figures beside each other; where there is no room, a line ends between two of them. */
export const Several = (props: { of: string[] }): JSX.Element =>
  <>{props.of.map((each, index) => <><span key={index} class="whole">{each}{index < props.of.length - 1 ? "," : ""}</span>{" "}</>)}</>;

export function Copy(props: { text: string; label?: string }): JSX.Element {
  const [done, setDone] = useState(false);
  return (
    <button type="button" class="small quiet" onClick={() => {
      void navigator.clipboard?.writeText(props.text).then(() => { setDone(true); setTimeout(() => setDone(false), 1500); }, () => undefined);
    }}>{done ? "Copied" : props.label ?? "Copy"}</button>
  );
}

export function Fields(props: { of: [string, ComponentChildren][] }): JSX.Element {
  return <dl class="fields">{props.of.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;
}

/** A table that becomes a list of cards on a phone: the first cell is the title, every other has the name of its column. */
/** `breaks`: a name that may take more than one line. */
export interface Column<T> { name: string; right?: boolean; wide?: boolean; minor?: boolean; breaks?: boolean; cell: (row: T) => ComponentChildren }

/** Rows that a table draws, and how many more at a time: a refresh of all rows of a large store would hold up the page. */
const ROWS_DRAWN = 50;

export function Table<T>(props: {
  label: string; columns: Column<T>[]; rows: T[]; id: (row: T) => string; chosen?: Set<string>; onChoose?: (id: string, range: boolean) => void;
  onAll?: () => void; cursor?: string | undefined; dim?: (row: T) => boolean;
}): JSX.Element {
  const { chosen } = props;
  const [most, setMost] = useState(ROWS_DRAWN);
  const rows = props.rows.length > most ? props.rows.slice(0, most) : props.rows;
  return (
    <div class="scroll">
      <table aria-label={props.label}>
        <thead><tr>
          {chosen && <th class="check"><input type="checkbox" aria-label="Select all rows" checked={!!props.rows.length && props.rows.every((row) => chosen.has(props.id(row)))} onChange={() => props.onAll?.()} /></th>}
          {props.columns.map((column) => <th key={column.name} class={`${column.right ? "right" : ""} ${column.minor ? "minor" : ""}`} scope="col">{column.name}</th>)}
        </tr></thead>
        <tbody>
          {rows.map((row) => {
            const id = props.id(row);
            return (
              <tr key={id} class={`${props.cursor === id ? "cursor" : ""} ${props.dim?.(row) ? "dim" : ""}`}>
                {chosen && <td class="check"><input type="checkbox" aria-label={`Select ${id}`} checked={chosen.has(id)} onClick={(event) => props.onChoose?.(id, event.shiftKey)} /></td>}
                {props.columns.map((column) => (
                  <td key={column.name} data-name={column.name} class={`${column.right ? "right" : ""} ${column.wide ? "wide" : ""} ${column.breaks ? "breaks" : ""} ${column.minor ? "minor" : ""}`}>{column.cell(row)}</td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
      {rows.length < props.rows.length && <p class="more">The first {number(rows.length)} of {number(props.rows.length)}. <button type="button" class="small" onClick={() => setMost(most + ROWS_DRAWN)}>Show more</button></p>}
    </div>
  );
}
