// A traceback with the frames of the reader's own code.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Copy } from "./basic";

/** Lines of the reader's own code stay; what libraries add between them is folded. */
export function Traceback(props: { text: string }): JSX.Element {
  const [whole, setWhole] = useState(false);
  const lines = props.text.split("\n");
  const folded: string[] = [];
  let hidden = 0;
  let skipping = false;
  for (const line of lines) {
    if (/^\s+File "/.test(line)) skipping = /site-packages|\/lib\/python\d|importlib|[\\/]hawser[\\/]worker[\\/]/.test(line);
    else if (!/^\s/.test(line)) skipping = false;
    if (skipping) hidden++;
    else {
      if (hidden && folded.at(-1) !== "    …") folded.push("    …");
      folded.push(line);
      hidden = 0;
    }
  }
  const foldable = folded.length < lines.length && folded.some((line) => /^\s+File "/.test(line));
  return (
    <div class="traceback">
      <div class="tools">{foldable && <button type="button" class="small quiet" aria-pressed={whole} onClick={() => setWhole(!whole)}>{whole ? "Own frames" : "All frames"}</button>}<Copy text={props.text} /></div>
      <pre tabIndex={0} aria-label="Traceback">{whole || !foldable ? props.text : folded.join("\n")}</pre>
    </div>
  );
}
