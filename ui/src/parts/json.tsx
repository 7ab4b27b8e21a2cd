// JSON as a tree of text nodes: nothing of a payload is ever taken for markup.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Json } from "../api";
import { Copy } from "./basic";

/** JSON text; whole numbers beyond 2^53 as they came. */
export function stringify(value: Json, indent = 0): string {
  if (typeof value === "bigint") return value.toString();
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const pad = indent ? `\n${" ".repeat(indent)}` : "";
  const end = indent ? `\n${" ".repeat(indent - 2)}` : "";
  const inner = indent ? indent + 2 : 0;
  const parts = Array.isArray(value)
    ? value.map((each) => stringify(each, inner))
    : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}:${indent ? " " : ""}${stringify(each, inner)}`);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  return parts.length ? `${open}${pad}${parts.join(`,${pad}`)}${end}${close}` : `${open}${close}`;
}

const MOST = 100;

function Node(props: { value: Json; depth: number }): JSX.Element {
  const { value, depth } = props;
  if (value === null || typeof value !== "object") {
    const kind = typeof value === "string" ? "string" : typeof value === "number" || typeof value === "bigint" ? "number" : "word";
    const text = stringify(value);
    return <span class={kind}>{text.length > 2000 ? `${text.slice(0, 2000)}… (${text.length} characters)` : text}</span>;
  }
  const entries: [string, Json][] = Array.isArray(value) ? value.map((each, index) => [String(index), each]) : Object.entries(value);
  if (!entries.length) return <span class="word">{Array.isArray(value) ? "[]" : "{}"}</span>;
  return (
    <details open={depth < 2}>
      <summary>{Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`}</summary>
      <ul>
        {entries.slice(0, MOST).map(([name, each]) => <li key={name}><span class="key">{name}</span> <Node value={each} depth={depth + 1} /></li>)}
        {entries.length > MOST && <li class="muted">{entries.length - MOST} more: see the raw text</li>}
      </ul>
    </details>
  );
}

export function Tree(props: { value: Json; label: string }): JSX.Element {
  const [raw, setRaw] = useState(false);
  const text = stringify(props.value, 2);
  return (
    <div class="json">
      <div class="tools">
        <button type="button" class="small quiet" aria-pressed={raw} onClick={() => setRaw(!raw)}>{raw ? "Tree" : "Raw"}</button>
        <Copy text={text} />
      </div>
      {raw ? <pre tabIndex={0} aria-label={`${props.label}, raw`}>{text}</pre> : <div class="tree"><Node value={props.value} depth={0} /></div>}
    </div>
  );
}
