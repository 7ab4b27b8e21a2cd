// The choice of the time that the charts are of.
import type { JSX } from "preact";
import { type Own, own, range, RANGES } from "../range";
import { hasOwn, place, set } from "../router";
import { date, filledIn, local, minute } from "../words";
import { ask } from "./dialog";

/** Milliseconds that figures are kept. */
const KEPT = 24 * 3_600_000;

/** Beyond it a point in time needs its day to be told. */
const TODAY = 20 * 3_600_000;

function words({ since, until }: Own): string {
  const form = Date.now() - Date.parse(since) > TODAY ? date : minute;
  return `${form(since)} – ${until ? form(until) : "now"}`;
}

function choose(): void {
  const first = own.value?.since ?? new Date(Date.now() - range.value * 60_000).toISOString();
  ask({
    title: "Show a time of your own", body: "Figures are kept for 24 hours. The address has the time: a link shows the same.", button: "Show", reason: false,
    entries: [
      { name: "since", label: "From", type: "datetime-local", value: local(first), limits: { required: true } },
      { name: "until", label: "Until; left empty: up to now", type: "datetime-local", value: own.value?.until ? local(own.value.until) : "" },
    ],
    act: async ({ values }) => {
      const [since, until] = ["since", "until"].map((name) => (values[name] ? filledIn(values[name]) : undefined));
      if (!since || Date.parse(since) > Date.now()) throw new Error("From: it lies in the future; choose a time that has been");
      if (Date.parse(until ?? "") < Date.now() - KEPT) throw new Error("Until: figures of that time are no longer kept; choose one within 24 hours");
      if (until && until <= since) throw new Error("Until: it is not after From; choose a later one");
      set({ since, until, minutes: undefined });
    },
  });
}

export function Range(): JSX.Element {
  const chosen = own.value;
  return (
    <div class="range" role="group" aria-label="Window of the charts">
      {RANGES.map(([name, minutes]) => (
        <button key={minutes} type="button" aria-pressed={!chosen && range.value === minutes} onClick={() => set({ minutes: minutes === 60 ? undefined : String(minutes), since: undefined, until: undefined }, !chosen)}>{name}</button>
      ))}
      {hasOwn(place.value.path) && <button type="button" aria-pressed={!!chosen} onClick={choose} title="A time of your own; or draw over a chart">{chosen ? words(chosen) : "Own"}</button>}
    </div>
  );
}
