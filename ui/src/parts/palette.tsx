// Go anywhere by typing: screens, queues, tasks, a job by its id. And the list of all keys.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Overview, TaskStats } from "../api";
import { readFilter } from "../filter";
import { help, keysOn, switchKeys } from "../keys";
import { useLoad } from "../live";
import { go, href } from "../router";

export const palette = signal(false);

interface Entry { text: string; hint: string; to: string }

export const SCREENS: [string, string, string][] = [
  ["Overview", "", "o"], ["Queues", "queues", "q"], ["Jobs", "jobs", "j"], ["Dead letters", "dead", "d"], ["Tasks", "tasks", "t"],
  ["Schedules", "schedules", "s"], ["Workers", "workers", "w"], ["Batches", "batches", "b"], ["Limits", "limits", "l"], ["Audit", "audit", "a"], ["System", "system", "y"],
];

addEventListener("keydown", (event) => {
  if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    palette.value = !palette.value;
  }
});

function Palette(): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const overview = useLoad<Overview>("overview", 60_000);
  const tasks = useLoad<TaskStats>("tasks/stats", 60_000);
  useEffect(() => { dialog.current?.showModal(); }, []);
  const close = (): void => { palette.value = false; };
  const all: Entry[] = [
    ...SCREENS.map(([name, path]) => ({ text: name, hint: "screen", to: href(path) })),
    ...(overview.data?.queues ?? []).map((queue) => ({ text: queue.queue, hint: "queue: why?", to: href(`queues/${encodeURIComponent(queue.queue)}`) })),
    ...(tasks.data?.tasks ?? []).map((task) => ({ text: task.task, hint: "jobs of the task", to: href("jobs", { task: task.task }) })),
    ...["running", "retrying", "dead"].map((state) => ({ text: `${state} jobs`, hint: "state", to: href("jobs", { state }) })),
  ];
  const { id, filter, wrong } = readFilter(text.trim());
  const words = text.toLowerCase().split(/\s+/);
  const found: Entry[] = [
    ...(id ? [{ text: `Job ${id}`, hint: "open", to: href(`jobs/${id}`) }] : []),
    ...(!wrong.length && Object.keys(filter).length ? [{ text: `Search ${text.trim()}`, hint: "jobs", to: href("jobs", filter) }] : []),
    ...all.filter((entry) => words.every((word) => `${entry.text} ${entry.hint}`.toLowerCase().includes(word))),
  ].slice(0, 12);
  const chosen = Math.min(at, found.length - 1);
  const open = (entry: Entry | undefined): void => { if (entry) { close(); go(entry.to); } };
  return (
    <dialog ref={dialog} class="palette" onClose={close} aria-label="Go to">
      <input type="text" role="combobox" aria-expanded="true" aria-controls="found" aria-activedescendant={found.length ? `found-${chosen}` : undefined} aria-label="Go to" placeholder="A screen, queue, task, state:dead, or a job's id" value={text}
        onInput={(event) => { setText(event.currentTarget.value); setAt(0); }}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") { event.preventDefault(); setAt(Math.min(chosen + 1, found.length - 1)); }
          if (event.key === "ArrowUp") { event.preventDefault(); setAt(Math.max(chosen - 1, 0)); }
          if (event.key === "Enter") { event.preventDefault(); open(found[chosen]); }
        }} />
      <ul id="found" role="listbox" aria-label="Found">
        {found.map((entry, index) => (
          <li key={entry.to + entry.text} id={`found-${index}`} role="option" aria-selected={index === chosen} onClick={() => open(entry)}><span>{entry.text}</span><span class="muted">{entry.hint}</span></li>
        ))}
        {!found.length && <li class="muted" role="option" aria-selected="false" aria-disabled="true">Nothing found</li>}
      </ul>
    </dialog>
  );
}

const KEYS: [string, string][] = [
  ["⌘K, Ctrl K", "go to anything"], ["/", "search jobs"], ["p", "pause updates, or go on"], ["t", "theme"], ["u", "times in UTC, or local"], ["?", "this list"],
  ["g then o j d b q t s w l a y", "overview, jobs, dead letters, batches, queues, tasks, schedules, workers, limits, audit, system"],
  ["j, k", "next row, row before"], ["x, X", "select the row, up to the row"], ["a", "select all rows"], ["Enter", "open the row"],
  ["r, c, d", "run again, cancel, discard"], ["e", "edit and replay, on a dead job"], ["n", "next group of dead letters"],
];

function Help(): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => { dialog.current?.showModal(); }, []);
  return (
    <dialog ref={dialog} onClose={() => { help.value = false; }} aria-labelledby="keys">
      <h2 id="keys">Keys</h2>
      <dl class="keys">{KEYS.map(([key, what]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{what}</dd></div>)}</dl>
      <label><input type="checkbox" checked={keysOn.value} onChange={(event) => switchKeys(event.currentTarget.checked)} /> Single keys are on</label>
      <div class="buttons"><button type="button" onClick={() => dialog.current?.close()}>Close</button></div>
    </dialog>
  );
}

export function Palettes(): JSX.Element {
  return <>{palette.value && <Palette />}{help.value && <Help />}</>;
}
