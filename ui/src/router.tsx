// Where we are: the path below /ui/ and its query. All that a screen shows is in the address, so a link shows the same.
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";

const BASE = new URL("../", import.meta.url);

export interface Place { path: string; query: URLSearchParams }

function read(): Place {
  const at = location.pathname.startsWith(BASE.pathname) ? location.pathname.slice(BASE.pathname.length) : "";
  return { path: at.replace(/\/+$/, ""), query: new URLSearchParams(location.search) };
}

export const place = signal<Place>(read());

/** A part of a path as it was before it was encoded; hand-written addresses may be encoded badly. */
export function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

addEventListener("popstate", () => { place.value = read(); });

/** Screens whose charts have a window: it stays the same on the way from one to another. */
export const hasWindow = (path: string): boolean => ["", "queues", "tasks"].includes(path.split("/")[0] ?? "");

/** Those among them whose charts can also be of a time of one's own. */
export const hasOwn = (path: string): boolean => ["", "queues"].includes(path.split("/")[0] ?? "");

export function href(path: string, query?: Record<string, string | undefined>): string {
  const to = new URL(path, BASE);
  const minutes = place.value.query.get("minutes");
  if (minutes && hasWindow(path)) to.searchParams.set("minutes", minutes);
  if (hasOwn(path) && hasOwn(place.value.path)) for (const name of ["since", "until"]) { const own = place.value.query.get(name); if (own) to.searchParams.set(name, own); }
  for (const [name, value] of Object.entries(query ?? {})) if (value) to.searchParams.set(name, value);
  return to.pathname + to.search;
}

export function go(to: string, replace = false): void {
  history[replace ? "replaceState" : "pushState"](null, "", to);
  place.value = read();
  if (!replace) scrollTo(0, 0);
}

/** Change parameters of the present screen, which stays where it is; an empty one goes. */
export function set(changes: Record<string, string | undefined>, replace = false): void {
  const query = new URLSearchParams(place.value.query);
  for (const [name, value] of Object.entries(changes)) value ? query.set(name, value) : query.delete(name);
  const text = query.toString();
  history[replace ? "replaceState" : "pushState"](null, "", `${location.pathname}${text ? `?${text}` : ""}`);
  place.value = read();
}

export function Link(props: { to: string; class?: string; title?: string; label?: string; children: ComponentChildren; current?: boolean }): JSX.Element {
  return (
    <a href={props.to} class={props.class} title={props.title} aria-label={props.label} aria-current={props.current ? "page" : undefined} onClick={(event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
      event.preventDefault();
      go(props.to);
    }}>{props.children}</a>
  );
}
