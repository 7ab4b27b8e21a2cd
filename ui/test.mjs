// Tests of the pure parts, by the test runner of Node.js on what esbuild makes of them.
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";

const folder = await mkdtemp(join(process.cwd(), "node_modules", ".test-"));
await build({ entryPoints: ["src/filter.ts", "src/waterfall.ts", "src/series.ts", "src/plot.ts"], outdir: folder, outExtension: { ".js": ".mjs" }, bundle: true, format: "esm" });
const load = (name) => import(pathToFileURL(join(folder, `${name}.mjs`)));
const { readFilter, writeFilter, parametersOf, instantOf } = await load("filter");
const { stretches } = await load("waterfall");
const { isOpen, perSecond } = await load("series");
const { axis, known, timeAxis } = await load("plot");
await rm(folder, { recursive: true });

const ID = "01a1e6cc-f310-7817-8ca0-e0f148cde657";
const NOW = Date.parse("2026-01-01T12:00:00Z");

test("words of a search become a filter, and back", () => {
  const read = readFilter('task:send_email state:dead tag:"two words" since:1h');
  assert.deepEqual(read, { filter: { task: "send_email", state: "dead", tag: "two words", since: "1h" }, wrong: [] });
  assert.equal(writeFilter(read.filter), 'state:dead task:send_email tag:"two words" since:1h');
  assert.deepEqual(readFilter(writeFilter(read.filter)).filter, read.filter);
});

test("a job's id is a job, in whatever company", () => {
  assert.equal(readFilter(`state:dead ${ID.toUpperCase()}`).id, ID);
});

test("an argument that jobs are found by has a name of its own", () => {
  assert.deepEqual(readFilter("arg.user_id:42").filter, { arg: "user_id=42" });
  assert.deepEqual(readFilter(writeFilter({ arg: "shop=a b" })).filter, { arg: "shop=a b" });
  assert.equal(parametersOf({ arg: "user_id=42" }, NOW).argument, "user_id=42");
});

for (const text of ["arg:user_id", "arg.user_id:", "dead", "stat:dead", "state:", "state:lost", "since:yesterday", ":x"]) {
  test(`${text} is told as wrong`, () => assert.equal(readFilter(text).wrong.length, 1));
}

test("ages are instants for the API", () => {
  assert.equal(instantOf("90m", NOW), "2026-01-01T10:30:00.000Z");
  assert.deepEqual(parametersOf({ parent: ID, until: "2026-01-01T00:00Z" }, NOW), { parent_id: ID, argument: undefined, since: undefined, until: "2026-01-01T00:00:00.000Z" });
});

const at = (seconds) => new Date(NOW + seconds * 1000).toISOString();
const job = (fields) => ({ enqueued_at: at(0), run_at: at(0), started_at: null, finished_at: null, state: "ready", attempt: 0, attempts: [], ...fields });
const told = (parts) => parts.map((part) => [part.kind, (part.to - part.from) / 1000, part.outcome ?? null, part.open]);

test("a job that failed and waits has a wait, an attempt and an open backoff", () => {
  const failed = { number: 1, started_at: at(2), ended_at: at(3), outcome: "failed" };
  assert.deepEqual(told(stretches(job({ attempt: 1, run_at: at(33), started_at: at(2), attempts: [failed] }), NOW + 10_000)), [
    ["wait", 2, null, false], ["attempt", 1, "failed", false], ["backoff", 30, null, true],
  ]);
});

test("a job that is done has its last attempt though no record tells of it", () => {
  assert.deepEqual(told(stretches(job({ state: "done", attempt: 1, started_at: at(1), finished_at: at(4) }), NOW + 60_000)), [
    ["wait", 1, null, false], ["attempt", 3, "done", false],
  ]);
});

test("a job that runs has an attempt without an end", () => {
  assert.deepEqual(told(stretches(job({ state: "running", attempt: 1, started_at: at(0) }), NOW + 5_000)), [["attempt", 5, "running", true]]);
});

test("a sleep is told from the wait that it looks like", () => {
  const sleep = { name: "cool-off", kind: "sleep", at: at(2), until: at(62), value: null, lease: 1, event: null };
  assert.deepEqual(told(stretches(job({ run_at: at(62), started_at: at(1) }), NOW + 10_000, [sleep])), [
    ["wait", 2, null, false], ["sleep", 60, null, true],
  ]);
  const over = stretches(job({ state: "done", attempt: 1, run_at: at(62), started_at: at(63), finished_at: at(65) }), NOW + 99_000, [sleep]);
  assert.deepEqual(told(over), [["wait", 2, null, false], ["sleep", 60, null, false], ["wait", 1, null, false], ["attempt", 2, "done", false]]);
});

test("a job that waits for an event waits until now, whatever its due time says", () => {
  const wait = { name: "paid", kind: "wait", event: "payment", at: at(2), until: null, value: null, lease: 1 };
  assert.deepEqual(told(stretches(job({ held: true, run_at: at(9e6), started_at: at(1) }), NOW + 10_000, [wait])), [
    ["wait", 2, null, false], ["sleep", 8, null, true],
  ]);
});

test("the newest minute is divided by what has passed of it, once that says anything", () => {
  const after = (seconds) => ({ start: at(0), at: at(seconds), step: 1 });
  assert.deepEqual(perSecond(after(90), [60, 30]), [1, 1]);
  assert.deepEqual(perSecond(after(69), [60, 5]), [1, null]);
  assert.deepEqual(perSecond(after(500), [60, 30]), [1, 0.5]);
  assert.deepEqual([60, 119, 120, 500].map((seconds) => isOpen(after(seconds), 2)), [true, true, false, false]);
});

test("an axis has round steps and room for every value", () => {
  assert.deepEqual(axis(0), [0, 1]);
  assert.deepEqual(axis(37), [0, 10, 20, 30, 40]);
  assert.deepEqual(axis(1), [0, 0.25, 0.5, 0.75, 1]);
  for (const most of [0.003, 0.7, 12, 99, 1234, 1e7]) { const steps = axis(most); assert.ok(steps.at(-1) >= most && steps.length <= 6, `${most}: ${steps}`); }
});

test("an axis of time has steps that a clock has, each another figure", () => {
  assert.deepEqual(timeAxis(290), [0, 120, 240, 360]);
  assert.deepEqual(timeAxis(1990), [0, 600, 1200, 1800, 2400]);
  assert.deepEqual(timeAxis(0.7), axis(0.7));
  for (const most of [5, 61, 100, 3599, 7300, 90_000, 1e6]) { const steps = timeAxis(most); assert.ok(steps.at(-1) >= most && steps.length <= 6, `${most}: ${steps}`); }
});

test("gaps are left out, and a single value is a line", () => {
  assert.deepEqual(known([null, 1, null, 2]), [[1, 1], [3, 2]]);
  assert.deepEqual(known([null, 5]), [[1, 5], [1, 5]]);
});

test("several states, attempts and workers are words of a search", () => {
  assert.deepEqual(readFilter("state:dead,done attempt:>1 worker:w1@vm1").filter, { state: "dead,done", attempt: ">1", worker: "w1@vm1" });
  assert.equal(parametersOf({ attempt: ">1" }, NOW).attempt_min, "2");
  assert.equal(parametersOf({ attempt: "3" }, NOW).attempt_min, "3");
  assert.equal(readFilter("state:dead,gone").wrong.length, 1);
  assert.equal(readFilter("attempt:many").wrong.length, 1);
});
