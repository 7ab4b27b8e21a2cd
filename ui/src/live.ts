// Keeps what is on the screen fresh: hints from /events say when to look, every look is rate-limited, and a tab that is hidden
// or paused asks nothing. Without the stream it looks every five seconds.
import { effect, signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { get, locked, lost, me, ROOT, type Refused } from "./api";

export const paused = signal(false);
export const line = signal<"live" | "polling" | "hidden" | "paused">("hidden");
/** The present time, moved on every second while the page is seen. */
export const now = signal(Date.now());

const POLL_EVERY = 5_000;

interface Look { run: () => Promise<void>; every: number; at: number; timer: number | undefined; busy: boolean; again: boolean }
const looks = new Set<Look>();
let source: EventSource | undefined;
let poll: number | undefined;
let running = false;

async function start(look: Look): Promise<void> {
  if (look.busy) { look.again = true; return; }
  look.busy = true;
  look.at = performance.now();
  try {
    await look.run();
  } finally {
    look.busy = false;
    if (look.again) { look.again = false; soon(look); }
  }
}

function soon(look: Look): void {
  if (look.timer !== undefined) return;
  look.timer = window.setTimeout(() => {
    look.timer = undefined;
    if (running && looks.has(look)) void start(look);
  }, Math.max(0, look.every - (performance.now() - look.at)));
}

/** Look again at everything that is shown, also when paused: after an action its result must be seen. */
export function refresh(): void {
  for (const look of looks) void start(look);
}

function hint(): void {
  for (const look of looks) soon(look);
}

function close(): void {
  source?.close();
  source = undefined;
  clearInterval(poll);
  poll = undefined;
  running = false;
}

function polling(): void {
  poll ??= window.setInterval(hint, POLL_EVERY);
}

function open(): void {
  close();
  running = true;
  const stream = new EventSource(new URL("events", ROOT));
  source = stream;
  stream.onopen = () => {
    clearInterval(poll);
    poll = undefined;
    line.value = "live";
    hint();
  };
  stream.addEventListener("change", hint);
  stream.onerror = () => {
    line.value = "polling";
    polling();
    hint();
    // Refused, not cut: the browser does not try again by itself.
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => { if (source === stream && running) open(); }, POLL_EVERY);
  };
  polling();
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

/** What a path of the API answers, kept fresh; what was seen stays on the screen while the server is away. */
export function useLoad<T>(path: string | undefined, every = 2_000): Loaded<T> {
  const [state, setState] = useState<Loaded<T> & { path: string | undefined }>({ data: undefined, error: undefined, status: 200, path });
  useEffect(() => {
    if (path === undefined) return;
    let wanted = true;
    const look: Look = {
      every, at: 0, timer: undefined, busy: false, again: false,
      run: async () => {
        try {
          const data = await get<T>(path);
          if (wanted) setState({ data, error: undefined, status: 200, path });
        } catch (error) {
          const { message, status } = error as Refused;
          if (wanted) setState((before) => ({ data: before.path === path ? before.data : undefined, error: message, status, path }));
        }
      },
    };
    looks.add(look);
    void start(look);
    return () => { wanted = false; clearTimeout(look.timer); looks.delete(look); };
  }, [path, every]);
  return state.path === path ? state : { data: undefined, error: undefined, status: 200 };
}

export { lost };
