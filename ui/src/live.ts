// Keeps what is on the screen fresh: hints from /events say when to look, a tab looks at most once a second, and one that is hidden
// or paused asks nothing. What no hint tells, such as an age or the progress of a job, is looked at again after a while all the same.
// Tabs of one browser share: one of them has the stream, and what one has read the others need not ask for. A stream that says
// nothing, not even that it lives, is cut. Without the stream a tab looks every five seconds.
import { effect, signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { get, heard, locked, lost, me, ROOT, type Refused } from "./api";

export const paused = signal(false);
export const line = signal<"live" | "polling" | "hidden" | "paused">("hidden");
/** The present time, moved on every second while the page is seen. */
export const now = signal(Date.now());

const POLL_EVERY = 5_000;
/** Milliseconds after which a look is repeated though no hint came. */
const FLOOR = 8_000;
/** The server tells every five seconds that it lives; after so many without a word it is taken for frozen or cut off. */
const SILENT_AFTER = 12_000;
/** Milliseconds between two looks of a tab, whatever is on its screen. */
const PACE = 1_000;
/** A tab that only listens waits so long for what the others read before it asks itself. */
const PATIENCE = 600;

interface Look { path: string; every: number; floor: number; at: number; due: boolean; busy: boolean; show: (data: unknown) => void; fail: (error: Refused) => void }
/** Something changed; nothing did; the stream is cut; a tab is new and asks how things stand; what a path answered. */
type Word = "hint" | "alive" | "cut" | "who" | { path: string; data: unknown };

const looks = new Set<Look>();
const channel = typeof BroadcastChannel === "undefined" ? undefined : new BroadcastChannel(`hawser:${ROOT.pathname}`);
let source: EventSource | undefined;
let poll: number | undefined;
let pump: number | undefined;
let watch: number | undefined;
let last = 0;
let running = false;
let leave: (() => void) | undefined;

const say = (word: Word): void => channel?.postMessage(word);

async function start(look: Look): Promise<void> {
  if (look.busy) { look.due = true; return; }
  look.busy = true;
  look.due = false;
  look.at = performance.now();
  try {
    const data = await get<unknown>(look.path);
    look.show(data);
    if (running) say({ path: look.path, data });
  } catch (error) {
    look.fail(error as Refused);
  } finally {
    look.busy = false;
    next();
  }
}

/** The look that is due first goes next, in its time. */
function next(): void {
  clearTimeout(pump);
  const waiting = [...looks].filter((look) => !look.busy);
  if (!running || !waiting.length) return;
  const ready = (look: Look): number => look.at + (look.due ? look.every : look.floor) + (source ? 0 : PATIENCE * (1 + Math.random()));
  const first = waiting.reduce((a, b) => (ready(a) <= ready(b) ? a : b));
  const wait = Math.max(last + PACE, ready(first)) - performance.now();
  if (wait > 0) { pump = window.setTimeout(next, wait); return; }
  last = performance.now();
  void start(first);
}

/** Look again at everything that is shown, also when paused: after an action its result must be seen. */
export function refresh(): void {
  for (const look of looks) void start(look);
}

function hint(): void {
  for (const look of looks) look.due = true;
  next();
}

if (channel) channel.onmessage = ({ data: word }: MessageEvent<Word>) => {
  if (!running) return;
  if (word === "hint") { alive(); hint(); return; }
  if (word === "alive") { alive(); return; }
  if (word === "cut") { cut(); return; }
  if (word === "who") { if (source?.readyState === EventSource.OPEN) say("hint"); return; }
  heard.value = Date.now();
  for (const look of looks) if (look.path === word.path && !look.busy) { look.at = performance.now(); look.due = false; look.show(word.data); }
};

function close(): void {
  source?.close();
  source = undefined;
  leave?.();
  leave = undefined;
  clearInterval(poll);
  clearTimeout(pump);
  clearTimeout(watch);
  poll = undefined;
  running = false;
}

function polling(): void {
  poll ??= window.setInterval(hint, POLL_EVERY);
}

/** The stream speaks, to this tab or to the one that has it. */
function alive(): void {
  line.value = "live";
  clearInterval(poll);
  poll = undefined;
  listening();
}

function cut(): void {
  line.value = "polling";
  polling();
}

/** From now on a word is expected in time. */
function listening(): void {
  clearTimeout(watch);
  watch = window.setTimeout(() => {
    cut();
    hint();
    if (source) { say("cut"); source.close(); listen(); } else { say("who"); listening(); }
  }, SILENT_AFTER);
}

function listen(): void {
  const stream = new EventSource(new URL("events", ROOT));
  source = stream;
  listening();
  const told = (): void => { alive(); say("hint"); hint(); };
  stream.onopen = told;
  stream.addEventListener("change", told);
  stream.addEventListener("alive", () => { alive(); say("alive"); });
  stream.onerror = () => {
    cut();
    say("cut");
    hint();
    // Refused, not cut: the browser does not try again by itself.
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => { if (source === stream && running) listen(); }, POLL_EVERY);
  };
}

function open(): void {
  close();
  running = true;
  cut();
  // On plain http from another machine browsers have no locks: then every tab has a stream of its own.
  if (!navigator.locks || !channel) { listen(); hint(); return; }
  const stop = new AbortController();
  const done = new Promise<void>((resolve) => { leave = () => { stop.abort(); resolve(); }; });
  navigator.locks.request(`hawser:${ROOT.pathname}`, { signal: stop.signal }, () => { if (running) listen(); return done; }).catch(() => undefined);
  listening();
  say("who");
  hint();
}

const hidden = signal(document.hidden);
document.addEventListener("visibilitychange", () => { hidden.value = document.hidden; });
effect(() => {
  if (paused.value || hidden.value || locked.value || !me.value) {
    close();
    line.value = paused.value ? "paused" : "hidden";
  } else open();
});
setInterval(() => { if (!document.hidden && !paused.value) now.value = Date.now(); }, 1_000);

export interface Loaded<T> { data: T | undefined; error: string | undefined; status: number }

/** What a path of the API answers, kept fresh; what was seen stays on the screen while the server is away. It is
 * asked for at most once in `every` milliseconds when a hint comes, and after `floor` without one. */
export function useLoad<T>(path: string | undefined, every = 2_000, floor = Math.max(every, FLOOR)): Loaded<T> {
  const [state, setState] = useState<Loaded<T> & { path: string | undefined }>({ data: undefined, error: undefined, status: 200, path });
  useEffect(() => {
    if (path === undefined) return;
    let wanted = true;
    const look: Look = {
      path, every, floor, at: 0, due: false, busy: false,
      show: (data) => { if (wanted) setState({ data: data as T, error: undefined, status: 200, path }); },
      fail: ({ message, status }) => { if (wanted) setState((before) => ({ data: before.path === path ? before.data : undefined, error: message, status, path })); },
    };
    looks.add(look);
    void start(look);
    return () => { wanted = false; looks.delete(look); };
  }, [path, every, floor]);
  return state.path === path ? state : { data: undefined, error: undefined, status: 200 };
}

export { lost };
