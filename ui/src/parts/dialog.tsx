// Questions before something is done, and what came of it. In proportion: what can be undone asks little.
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { refresh } from "../live";
import { utc } from "../words";

/** Something to fill in. What the browser itself can judge stands in `limits`; the rest is the server's to refuse. */
export interface Entry { name: string; label: string; value?: string; hint?: string; type?: "number" | "datetime-local"; limits?: Record<string, string | number | boolean>; of?: string[] }

export interface Answer { reason: string | undefined; values: Record<string, string> }

interface Question {
  title: string; body?: ComponentChildren; button: string; danger?: boolean; reason?: boolean; typed?: string | undefined;
  entries?: Entry[]; act: (answer: Answer) => Promise<string | void>;
  /** What takes it back, where that is one step. */
  undo?: () => Promise<string>;
}

const asked = signal<Question | undefined>(undefined);
const toasts = signal<{ id: number; text: string; bad: boolean; undo?: () => void }[]>([]);
let count = 0;

export function ask(question: Question): void {
  asked.value = question;
}

export function tell(text: string, bad = false, undo?: () => void): void {
  const id = ++count;
  toasts.value = [...toasts.value, undo ? { id, text, bad, undo } : { id, text, bad }];
  setTimeout(() => dismiss(id), bad || undo ? 12_000 : 6_000);
}

const dismiss = (id: number): void => { toasts.value = toasts.value.filter((each) => each.id !== id); };

/** Do something now, say what came of it, and look again. */
export async function attempt(act: () => Promise<string | void>, undo?: () => void): Promise<boolean> {
  try {
    const text = await act();
    if (text) tell(text, false, undo);
    refresh();
    return true;
  } catch (error) {
    tell((error as Error).message, true);
    return false;
  }
}

function Asked(props: { question: Question }): JSX.Element {
  const { question } = props;
  const dialog = useRef<HTMLDialogElement>(null);
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  const [values, setValues] = useState<Record<string, string>>(Object.fromEntries((question.entries ?? []).map((entry) => [entry.name, entry.value ?? ""])));
  const [busy, setBusy] = useState(false);
  useEffect(() => { dialog.current?.showModal(); }, []);
  const close = (): void => { asked.value = undefined; };
  return (
    <dialog ref={dialog} onClose={close} aria-labelledby="question">
      <form method="dialog" onSubmit={(event) => {
        event.preventDefault();
        setBusy(true);
        void attempt(() => question.act({ reason: reason.trim() || undefined, values: Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value.trim()])) }), question.undo && (() => void attempt(question.undo!))).then((good) => { setBusy(false); if (good) close(); });
      }}>
        <h2 id="question">{question.title}</h2>
        {question.body && <div class="body">{question.body}</div>}
        {question.entries?.map((entry) => (
          <label key={entry.name}>{entry.label}{entry.type === "datetime-local" && utc.value && ", UTC"} <input type={entry.type ?? "text"} placeholder={entry.hint} list={entry.of && `of-${entry.name}`} {...entry.limits} value={values[entry.name]} onInput={(event) => setValues({ ...values, [entry.name]: event.currentTarget.value })} />
            {entry.of && <datalist id={`of-${entry.name}`}>{entry.of.map((each) => <option key={each} value={each} />)}</datalist>}</label>
        ))}
        {question.reason !== false && (
          <label>Reason, for the audit <input type="text" maxLength={500} value={reason} placeholder="optional" onInput={(event) => setReason(event.currentTarget.value)} /></label>
        )}
        {question.typed && (
          <label>Type <code>{question.typed}</code> to go on <input type="text" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} /></label>
        )}
        <div class="buttons">
          <button type="button" onClick={close}>Leave it</button>
          <button type="submit" class={question.danger ? "danger" : "primary"} disabled={busy || (!!question.typed && typed !== question.typed)}>{question.button}</button>
        </div>
      </form>
    </dialog>
  );
}

export function Dialogs(): JSX.Element {
  return (
    <>
      {asked.value && <Asked key={asked.value.title} question={asked.value} />}
      <div class="toasts" aria-live="polite">
        {toasts.value.map((toast) => (
          <div key={toast.id} class={`toast ${toast.bad ? "bad" : ""}`}>
            <span>{toast.text}</span>
            {toast.undo && <button type="button" class="small" onClick={() => { dismiss(toast.id); toast.undo?.(); }}>Undo</button>}
            <button type="button" class="small quiet" aria-label="Dismiss" onClick={() => dismiss(toast.id)}>✕</button>
          </div>
        ))}
      </div>
    </>
  );
}
