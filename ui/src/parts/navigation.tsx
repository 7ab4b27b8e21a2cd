// The way from screen to screen: a column beside the content, on a phone a bar below it with the rest behind "More".
import type { JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { me } from "../api";
import { href, Link } from "../router";
import { SCREENS } from "./palette";

/** Screens that a phone has room for: those that an incident leads through. */
const FIRST = 4;

export function Navigation(props: { screen: string }): JSX.Element {
  const nav = useRef<HTMLElement>(null);
  const [open, setOpen] = useState(false);
  // With the menu, not after the next frame: who presses Escape at once is heard.
  useLayoutEffect(() => {
    if (!open) return;
    const elsewhere = (event: PointerEvent): void => { if (!nav.current?.contains(event.target as Node)) setOpen(false); };
    const escaped = (event: KeyboardEvent): void => { if (event.key === "Escape") setOpen(false); };
    addEventListener("pointerdown", elsewhere);
    addEventListener("keydown", escaped);
    return () => { removeEventListener("pointerdown", elsewhere); removeEventListener("keydown", escaped); };
  }, [open]);
  const operator = me.value?.roles.some((role) => role === "operator" || role === "admin");
  const screens = SCREENS.filter(([, path]) => path !== "audit" || operator);
  const later = screens.slice(FIRST);
  const item = ([name, path]: [string, string, string]): JSX.Element => <Link key={path} to={href(path)} current={props.screen === path} class="item">{name}</Link>;
  const beyond = later.find(([, path]) => path === props.screen)?.[0];
  return (
    <nav ref={nav} class="side" aria-label="Screens">
      <Link to={href("")} class="brand"><span class="logo" aria-hidden="true">H</span> Hawser</Link>
      {screens.slice(0, FIRST).map(item)}
      <button type="button" class={`item further ${beyond ? "current" : ""}`} aria-expanded={open} aria-label={beyond ? `${beyond}, more screens` : "More screens"} onClick={() => setOpen(!open)}>{beyond ?? "More"} <span aria-hidden="true">{open ? "▾" : "▴"}</span></button>
      <div class={`later ${open ? "open" : ""}`} onClick={() => setOpen(false)}>{later.map(item)}</div>
      {me.value && <p class="who">{me.value.read_only ? "read-only" : me.value.name}</p>}
    </nav>
  );
}
