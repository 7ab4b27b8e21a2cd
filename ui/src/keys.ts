// Single keys. They do nothing while somebody types, and can be switched off as a whole.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

type Keys = Record<string, () => unknown>;
const layers: { current: Keys }[] = [];

export const keysOn = signal(read());
export const help = signal(false);

function read(): boolean {
  try {
    return localStorage.getItem("hawser.keys") !== "off";
  } catch {
    return true;
  }
}

export function switchKeys(on: boolean): void {
  keysOn.value = on;
  try {
    localStorage.setItem("hawser.keys", on ? "on" : "off");
  } catch {
    // It holds until the page is loaded again.
  }
}

const typing = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && (target as HTMLInputElement).type !== "checkbox");

let before = "";
let beforeAt = 0;

addEventListener("keydown", (event) => {
  if (event.altKey || typing(event.target) || document.querySelector("dialog[open]")) return;
  if (event.ctrlKey || event.metaKey) return;
  if (!keysOn.value) return;
  const pair = event.timeStamp - beforeAt < 1_000 && before === "g" ? `g ${event.key}` : "";
  before = event.key;
  beforeAt = event.timeStamp;
  if (event.key === "Enter" && event.target instanceof HTMLElement && /^(A|BUTTON|SUMMARY)$/.test(event.target.tagName)) return;
  for (let index = layers.length - 1; index >= 0; index--) {
    const keys = layers[index]?.current;
    const act = (pair && keys?.[pair]) || (!pair && keys?.[event.key]);
    if (act) {
      event.preventDefault();
      act();
      return;
    }
  }
});

export function useKeys(keys: Keys): void {
  const layer = useRef(keys);
  layer.current = keys;
  useEffect(() => {
    layers.push(layer);
    return () => { layers.splice(layers.indexOf(layer), 1); };
  }, []);
}
