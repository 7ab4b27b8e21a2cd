// The search of the list of jobs: words like `state:dead task:send_email since:1h`, and back. Pure.

export const FIELDS = ["state", "task", "queue", "tag", "key", "parent", "batch", "schedule", "group", "arg", "error", "worker", "attempt", "since", "until"] as const;
export type Field = (typeof FIELDS)[number];
export type Filter = Partial<Record<Field, string>>;

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i;
const SPAN = /^(\d+(?:\.\d+)?)(s|m|h|d)$/;
const UNIT: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86400 };
export const STATES = ["ready", "scheduled", "retrying", "held", "running", "done", "dead", "cancelled"];

export interface Read { filter: Filter; id?: string; wrong: string[] }

const isField = (name: string): name is Field => (FIELDS as readonly string[]).includes(name);

/** `arg.user_id` with 42 is an argument that jobs are found by: `arg` with user_id=42. */
export const argument = (name: string, value: string): [string, string] => (name.startsWith("arg.") && value ? ["arg", `${name.slice(4)}=${value}`] : [name, value]);

/** What was typed: a job's id, or words `name:value`; a value with spaces stands in quotes. */
export function readFilter(text: string): Read {
  const filter: Filter = {};
  const wrong: string[] = [];
  for (const [word] of text.matchAll(/(?:[^\s"]|"[^"]*")+/g)) {
    if (UUID.test(word)) return { filter: {}, id: word.toLowerCase(), wrong: [] };
    const at = word.indexOf(":");
    const text = word.slice(at + 1).replace(/^"(.*)"$/, "$1");
    const [name, value] = argument(word.slice(0, at), text);
    if (at < 1 || !isField(name)) wrong.push(`“${word}”: write name:value with one of ${FIELDS.join(", ")}, or a job's id`);
    else if (!value) wrong.push(`“${word}”: there is no value behind the colon`);
    else if (name === "state" && !value.split(",").every((each) => STATES.includes(each))) wrong.push(`“${word}”: a state is one of ${STATES.join(", ")}`);
    else if ((name === "since" || name === "until") && !SPAN.test(value) && Number.isNaN(Date.parse(value))) wrong.push(`“${word}”: write an age like 15m, 2h, 1d, or a time like 2026-01-31T12:00Z`);
    else if (name === "attempt" && !/^>?\d+$/.test(value)) wrong.push(`“${word}”: write attempt:2 for started at least twice, or attempt:>1`);
    else if (name === "arg" && !/^[^=]+=./.test(value)) wrong.push(`“${word}”: write arg.user_id:42, with an argument that the task declares as indexed`);
    else filter[name] = value;
  }
  return { filter, wrong };
}

export function writeFilter(filter: Filter): string {
  return FIELDS.filter((name) => filter[name]).map((name) => `${name}:${/\s/.test(filter[name] ?? "") ? `"${filter[name]}"` : filter[name]}`).join(" ");
}

/** An age as the instant it means now; anything else is an instant already. */
export function instantOf(value: string | undefined, now: number): string | undefined {
  if (!value) return undefined;
  const found = SPAN.exec(value);
  if (found) return new Date(now - Number(found[1]) * (UNIT[found[2] ?? "s"] ?? 1) * 1000).toISOString();
  return instant(value);
}

/** A time as the API has it; none of a text that is no time. */
export function instant(text: string | null | undefined): string | undefined {
  const at = Date.parse(text ?? "");
  return Number.isNaN(at) ? undefined : new Date(at).toISOString();
}

/** As the API's query has it. `error` is a group of dead letters, which has a list of its own. */
export function parametersOf(filter: Filter, now: number): Record<string, string | undefined> {
  const { parent, since, until, arg, attempt, ...rest } = filter;
  const least = attempt?.startsWith(">") ? String(Number(attempt.slice(1)) + 1) : attempt;
  return { ...rest, ...(least ? { attempt_min: least } : {}), parent_id: parent, argument: arg, since: instantOf(since, now), until: instantOf(until, now) };
}
