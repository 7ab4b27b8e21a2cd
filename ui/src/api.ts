// The HTTP API, and nothing else: the dashboard has no way of its own into the store.
import { signal } from "@preact/signals";

/** Where the API is: two folders above this script, whatever prefix a proxy puts in front. */
export const ROOT = new URL("../../", import.meta.url);

export type State = "ready" | "running" | "done" | "dead" | "cancelled";
export type Level = "good" | "warning" | "bad" | "idle";

export interface Pause { since: string; until: string | null; reason: string | null; by: string }
export interface Stats {
  ready: number; scheduled: number; retrying: number; held: number; due: number; running: number; done: number; dead: number; cancelled: number;
  oldest_age_s: number; rates: Record<string, number>; paused: boolean; exact: boolean;
}
export interface QueueLine {
  queue: string; waiting: number; scheduled: number; retrying: number; held: number; running: number; dead: number; behind_s: number;
  in_s: number; out_s: number; failed_s: number; failure_share: number | null; eta_s: number | null; slots: number; busy: number; workers: number;
  pause: Pause | null; spark: number[]; exact: boolean;
}
export interface Series {
  start: string; at: string; step: number; enqueued: number[]; done: number[]; failed: number[]; dead: number[];
  wait_p50: (number | null)[]; wait_p95: (number | null)[]; wait_p99: (number | null)[];
  run_p50: (number | null)[]; run_p95: (number | null)[]; run_p99: (number | null)[]; waiting: number[] | null;
}
export interface Mark { at: string; action: string; target: string }
export interface Group {
  id: string; task: string; fingerprint: string; count: number; first_at: string; last_at: string; sample_id: string; sample_error: string;
  /** The version that works now, when all of them died after it began to. */
  new_since: string | null;
}
export interface Groups { groups: Group[]; grouped: number; ungrouped: number; complete: boolean }
export interface Overview {
  at: string; minutes: number; status: { level: Level; text: string; queue: string | null; more: string[] };
  totals: Stats; durability: string;
  workers: { alive: number; lost: number; draining: number; slots: number; busy: number; stuck: number };
  queues: QueueLine[]; series: Series; dead_in_window: number; groups: Group[];
  schedules: { schedule: string; task: string; next_tick: string | null; words: string; state: string }[];
  marks: Mark[];
}
export interface Check { check: string; verdict: "problem" | "notice" | "fine"; text: string; advice: string | null }
export interface Why {
  queue: QueueLine; level: Level; headline: string; checks: Check[]; series: Series; marks: Mark[];
  tasks: {
    task: string; waiting: number; in_s: number; in_before_s: number; failed_s: number; run_p95: number | null; run_p95_before: number | null;
  }[];
}
export interface TaskLine {
  task: string; queues: string[]; waiting: number; enqueued: number; done: number; failed: number; dead: number; failure_share: number | null;
  wait_p50: number | null; wait_p95: number | null; run_p50: number | null; run_p95: number | null; run_p99: number | null;
  spark: number[]; pause: Pause | null; known: boolean;
}
export interface TaskStats { tasks: TaskLine[]; complete: boolean }
export interface Schema { type?: string; enum?: Json[]; properties?: Record<string, Schema>; required?: string[]; additionalProperties?: boolean; default?: Json }
export interface Task {
  task: string; queue: string; priority: number; max_attempts: number | null; timeout: number; isolate: boolean; confirm_replay: boolean;
  tags: string[]; index: string[]; redact: string[]; payload_schema: Schema; pause: Pause | null;
}
export interface JobLine {
  id: string; task: string; queue: string; payload?: Json; payload_size: number; priority: number; state: State; attempt: number;
  max_attempts: number; timeout: number; lease: number; held: boolean; run_at: string; expires_at: string | null; enqueued_at: string; started_at: string | null;
  finished_at: string | null; lease_until: string | null; worker: string | null; key: string | null; tags: string[]; group: string | null; index: string[];
  parent_id: string | null; batch: string | null; confirm_replay: boolean; schedule: string | null; tick: string | null; cancel_asked: boolean;
  returned: number; crashes: number; reason: string | null; result?: Json; result_size: number | null; progress?: Json; error: string | null;
}
export interface Attempt {
  number: number; lease: number; worker: string; started_at: string; ended_at: string | null; outcome: string; error: string | null;
  traceback: string | null;
}
/** A step that is kept. `until` is the end of a sleep; one of kind wait lasts, for an event or for the jobs of its value. */
export interface Step { name: string; kind: string; value: Json; at: string; lease: number; until: string | null; event: string | null }
export interface Job extends JobLine { attempts: Attempt[]; why: string | null }
export interface JobsPage { jobs: JobLine[]; next: string | null; searched: number; searched_to: string | null }
export interface Worker {
  worker: string; host: string; pid: number; version: string; app_version: string | null; queues: string[]; slots: number; running: number; stuck: number;
  draining: boolean; since: string; seen_at: string;
}
export interface Schedule {
  name: string; task: string; queue: string; words: string; state: string; declared: boolean; pause: { since: string; by: string; reason: string | null } | null;
  next_tick: string | null; last_tick: string | null; last_job_id: string | null; fired: number; missed: number; skipped: number; error: string | null;
}
export interface Audit {
  number: number; at: string; by: string; action: string; target: string; count: number; reason: string | null;
  filter: Record<string, string> | null; operation: string | null; ids: string[];
}
export interface Limit {
  kind: string; name: string; max_running: number | null; rate: string | null; max_depth: number | null; per_group: boolean; ordered: boolean; shut_groups: number; set: boolean; by: string; since: string | null;
  running: number; started: number; opens_at: string | null; shut: boolean; waiting: number | null;
}
export interface Breaker {
  task: string; open: boolean; since: string; by: string; by_hand: boolean; share: number | null; window: number | null; least: number | null;
  probe_every: number | null; failed: number; attempts: number; probe_at: string | null; probe: string | null;
}
export interface Batch {
  id: string; name: string; state: "open" | "running" | "done" | "dead" | "cancelled"; created_at: string; total: number; waiting: number; running: number;
  done: number; dead: number; cancelled: number; closed: boolean; cancel_asked: boolean; reason: string | null; parent: string | null;
  ended_at: string | null; then: string | null; on_success: string | null; on_dead: string | null;
}
export interface Operation { id: string; action: string; state: "running" | "interrupted" | "done" | "stopped" | "failed"; done: number; skipped: number; error: string | null }
export interface Count { count: number; exact: boolean }
export interface Counts { total: Count; states: Record<string, Count>; searched: number; complete: boolean }
export interface Strip {
  source: "history" | "jobs"; start: string; at: string; step_s: number; enqueued: number[]; done: number[]; failed: number[]; dead: number[]; searched: number; complete: boolean;
}
export interface System {
  version: string; python: string; store: string; durability: string; read_ms: number; max_payload: number; retention: Record<string, number>;
  workers: Record<string, number>; keys: { name: string; roles: string[]; used_at: string | null; expires_at: string | null }[] | null;
}
export interface Counted { count: number; exact: boolean; token: string }
export interface Me { name: string; roles: string[]; read_only: boolean; session: boolean; version: string }

export type Json = null | boolean | number | bigint | string | Json[] | { [name: string]: Json };

/** The server refused, and said why. */
export class Refused extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

/** Who we are; undefined until the server has said it. */
export const me = signal<Me | undefined>(undefined);
/** The server asks for a key. */
export const locked = signal(false);
/** When the server answered last, and since when it does not. */
export const heard = signal(Date.now());
export const lost = signal<string | undefined>(undefined);

export const mayAct = (): boolean => !me.value?.read_only && !!me.value?.roles.some((role) => role === "operator" || role === "admin");

type Source = { source?: string };

/** Whole numbers beyond 2^53 stay exact where the browser can tell their text. A text without so long a one is read by the browser alone. */
export function parse(text: string): unknown {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, ((_name: string, value: unknown, context?: Source) => {
    if (typeof value !== "number" || Number.isSafeInteger(value) || !context?.source || !/^-?\d+$/.test(context.source)) return value;
    return BigInt(context.source);
  }) as (name: string, value: unknown) => unknown);
}

/** Milliseconds after which a question, and an action, count as not answered: a server that is frozen, or a network that swallows all. */
const ANSWERS_WITHIN = 10_000;
const ACTS_WITHIN = 60_000;

async function send<T>(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<T> {
  const request: RequestInit = { method, credentials: "same-origin", signal: AbortSignal.timeout(method === "GET" ? ANSWERS_WITHIN : ACTS_WITHIN), headers: { accept: "application/json", ...headers } };
  if (body !== undefined) {
    request.body = typeof body === "string" ? body : JSON.stringify(body);
    request.headers = { ...request.headers, "content-type": "application/json" };
  }
  let answer: Response;
  let text: string;
  try {
    answer = await fetch(new URL(path, ROOT), request);
    text = await answer.text();
  } catch {
    lost.value ??= "The server does not answer";
    throw new Refused(0, method === "GET" ? "the server does not answer" : "the server does not answer: look whether it was done before you repeat it");
  }
  // Whether the store takes writes is a question of its own: what is shown can be fresh all the same.
  if (path !== "readyz") lost.value = { 502: "The server does not answer", 503: "The store does not answer", 504: "The server does not answer" }[answer.status];
  if (answer.status < 500) heard.value = Date.now();
  let found: unknown;
  try {
    found = text ? parse(text) : null;
  } catch {
    throw new Refused(answer.status, `the server answered something that is not JSON (${answer.status})`);
  }
  if (!answer.ok) {
    if (answer.status === 401) locked.value = true;
    const { detail, title } = (found ?? {}) as { detail?: string; title?: string };
    throw new Refused(answer.status, detail ?? title ?? answer.statusText);
  }
  return found as T;
}

export const get = <T,>(path: string): Promise<T> => send<T>("GET", path);
export const post = <T,>(path: string, body: unknown = {}): Promise<T> => send<T>("POST", path, body);
export const put = <T,>(path: string, body: unknown): Promise<T> => send<T>("PUT", path, body);
export const patch = <T,>(path: string, body: unknown): Promise<T> => send<T>("PATCH", path, body);
export const remove = <T,>(path: string): Promise<T> => send<T>("DELETE", path);

export async function logIn(key: string): Promise<void> {
  await send("POST", "session", {}, { authorization: `Bearer ${key}` });
  locked.value = false;
  me.value = await get<Me>("me");
}

export async function logOut(): Promise<void> {
  await remove("session");
  me.value = undefined;
  locked.value = true;
}

/** A path of the API with what is set of its parameters. */
export function path(base: string, parameters: Record<string, string | number | undefined>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value !== undefined && value !== "") query.set(name, String(value));
  const text = query.toString();
  return text ? `${base}?${text}` : base;
}
