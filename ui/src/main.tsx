// The frame of all screens: navigation, status, range, live or paused; and which screen a path means.
import { signal } from "@preact/signals";
import { Component, type ComponentChildren, type ComponentType, type JSX, render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get, heard, locked, lost, type Me, me, type Overview } from "./api";
import { help, useKeys } from "./keys";
import { line, paused, useLoad } from "./live";
import { Empty, Failed, LevelIcon, Loading } from "./parts/basic";
import { Dialogs } from "./parts/dialog";
import { Range } from "./parts/range";
import { Navigation } from "./parts/navigation";
import { palette, Palettes, SCREENS } from "./parts/palette";
import { decoded, go, hasWindow, href, Link, place } from "./router";
import { LoginScreen } from "./screens/login";
import { OverviewScreen } from "./screens/overview";
import { switchZone, time, utc } from "./words";

type Screen = ComponentType<{ id?: string; queue?: string }>;
type Load = () => Promise<Screen>;

/** A screen that is fetched when it is first shown. */
function lazy(load: Load): Screen {
  let found: Screen | undefined;
  return (props) => {
    const [, again] = useState(0);
    const [error, setError] = useState<string | undefined>(undefined);
    useEffect(() => {
      if (!found) load().then((screen) => { found = screen; again((count) => count + 1); }, () => setError("This part of the page could not be loaded: the server may have been updated. Load the page again."));
    }, []);
    const Shown = found;
    return Shown ? <Shown {...props} /> : error ? <Failed error={error} /> : <Loading />;
  };
}

type Others = typeof import("./screens/others");
const other = (name: keyof Others): Screen => lazy(async () => (await import("./screens/others"))[name] as unknown as Screen);

const [Jobs, Job, Dead, Group] = [other("JobsScreen"), other("JobScreen"), other("DeadScreen"), other("GroupScreen")];
const [Batches, Batch, Queues, Queue] = [other("BatchesScreen"), other("BatchScreen"), other("QueuesScreen"), other("QueueScreen")];
const [Tasks, Task, Schedules, Workers] = [other("TasksScreen"), other("TaskScreen"), other("SchedulesScreen"), other("WorkersScreen")];
const [Limits, Audit, System] = [other("LimitsScreen"), other("AuditScreen"), other("SystemScreen")];

function Routed(): JSX.Element {
  const { path } = place.value;
  const [screen = "", ...rest] = path.split("/");
  const name = decoded(rest.join("/"));
  switch (screen) {
    case "": return <OverviewScreen />;
    case "jobs": return name ? <Job key={name} id={name} /> : <Jobs />;
    case "dead": return name ? <Group key={name} id={name} /> : <Dead />;
    case "batches": return name ? <Batch key={name} id={name} /> : <Batches />;
    case "queues": return name ? <Queue key={name} queue={name} /> : <Queues />;
    case "tasks": return name ? <Task key={name} id={name} /> : <Tasks />;
    case "schedules": return <Schedules />;
    case "workers": return <Workers />;
    case "limits": return <Limits />;
    case "audit": return <Audit />;
    case "system": return <System />;
    default: return <Empty title="There is no such screen"><Link to={href("")}>To the overview</Link></Empty>;
  }
}

const THEMES = ["auto", "light", "dark"] as const;
const theme = signal<string>(document.documentElement.dataset["theme"] ?? "auto");

function nextTheme(): void {
  const next = THEMES[(THEMES.indexOf(theme.value as "auto") + 1) % THEMES.length] ?? "auto";
  theme.value = next;
  if (next === "auto") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = next;
  try {
    localStorage.setItem("hawser.theme", next);
  } catch {
    // It holds until the page is loaded again.
  }
  dispatchEvent(new Event("hawser-theme"));
}

/** The worst trouble there is, on every screen but those that begin with it. */
function Trouble(): JSX.Element | null {
  const { status } = useLoad<Overview>("overview?queues=0", 5_000).data ?? {};
  if (status?.level !== "bad" && status?.level !== "warning") return null;
  if (status.queue && place.value.path === `queues/${encodeURIComponent(status.queue)}`) return null;
  return <p class={`trouble ${status.level}`}><LevelIcon level={status.level} /> <Link to={href(status.queue ? `queues/${encodeURIComponent(status.queue)}` : "")} title={status.text}>{status.text}</Link></p>;
}

function Header(): JSX.Element {
  const screen = place.value.path.split("/")[0] ?? "";
  return (
    <header class="top">
      <button type="button" class="find" onClick={() => { palette.value = true; }}><span>Go to or search</span> <kbd>⌘K</kbd></button>
      <span class="grow" />
      {hasWindow(screen) && <Range />}
      <button type="button" class={`live ${paused.value ? "paused" : line.value}`} aria-pressed={paused.value} onClick={() => { paused.value = !paused.value; }} title={paused.value ? "Updates are paused; go on (p)" : "Pause updates (p)"}>
        <span class="dot" aria-hidden="true" />{paused.value ? "Paused" : { live: "Live", polling: "Polling", hidden: "Connecting", paused: "Paused" }[line.value]}
      </button>
      <button type="button" class="quiet" aria-pressed={utc.value} onClick={switchZone} aria-label={`Times: ${utc.value ? "UTC" : "local"}`} title={`Times: ${utc.value ? "UTC" : "local"} (u)`}>{utc.value ? "UTC" : "Local"}</button>
      <button type="button" class="quiet" onClick={nextTheme} aria-label={`Theme: ${theme.value}`} title={`Theme: ${theme.value} (t)`}>{{ auto: "Auto", light: "Light", dark: "Dark" }[theme.value] ?? "Auto"}</button>
      <button type="button" class="quiet help" onClick={() => { help.value = true; }} aria-label="Keys" title="Keys (?)">?</button>
    </header>
  );
}

/** A fault of one screen leaves the frame, and the way to other screens. */
class Guard extends Component<{ at: string; children: ComponentChildren }, { error: string | undefined; at: string }> {
  override state = { error: undefined as string | undefined, at: this.props.at };
  static getDerivedStateFromError(error: Error): { error: string } {
    return { error: error.message };
  }
  static getDerivedStateFromProps(props: { at: string }, state: { at: string }): { error?: undefined; at: string } | null {
    return props.at === state.at ? null : { error: undefined, at: props.at };
  }
  override componentDidCatch(error: Error): void {
    console.error(error);
  }
  override render(): ComponentChildren {
    return this.state.error ? <Failed error={`This screen has a fault: ${this.state.error}`} /> : this.props.children;
  }
}

function App(): JSX.Element {
  useEffect(() => {
    if (locked.value || me.value) return;
    let timer: number | undefined;
    const look = (): void => void get<Me>("me").then((who) => { me.value = who; }, () => { timer = window.setTimeout(look, 3_000); });
    look();
    return () => clearTimeout(timer);
  }, [locked.value]);
  useKeys({
    "/": () => { if (document.getElementById("search")) document.getElementById("search")?.focus(); else { go(href("jobs")); setTimeout(() => document.getElementById("search")?.focus(), 300); } },
    p: () => { paused.value = !paused.value; }, t: nextTheme, u: switchZone, "?": () => { help.value = true; },
    ...Object.fromEntries(SCREENS.map(([, path, key]) => [`g ${key}`, () => go(href(path))])),
  });
  const screen = place.value.path.split("/")[0] ?? "";
  const title = SCREENS.find(([, path]) => path === screen)?.[0] ?? "Hawser";
  useEffect(() => { document.title = `${title} – Hawser`; }, [title]);
  if (locked.value) return <LoginScreen />;
  return (
    <div class="frame">
      <a class="skip" href="#main">To the content</a>
      <Navigation screen={screen} />
      <div class="body">
        <Header />
        {screen && me.value && <Trouble />}
        {lost.value && <div class="lost" role="alert">{lost.value}. What is shown is of {time(heard.value)}; it goes on by itself when the server is back.</div>}
        <main id="main" tabIndex={-1}><Guard at={place.value.path}>{me.value ? <Routed /> : <Loading />}</Guard></main>
      </div>
      <Dialogs />
      <Palettes />
    </div>
  );
}

render(<App />, document.getElementById("app")!);
