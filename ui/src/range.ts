// The window of all charts, in the address: so many minutes back from now, or a time of one's own.
import { computed } from "@preact/signals";
import { instant } from "./filter";
import { hasOwn, place } from "./router";

export const RANGES: [string, number][] = [["15 min", 15], ["1 h", 60], ["6 h", 360], ["24 h", 1440]];

export const range = computed<number>(() => {
  const given = Number(place.value.query.get("minutes"));
  return RANGES.some(([, minutes]) => minutes === given) ? given : 60;
});

export interface Own { since: string; until: string | undefined }

/** Without an end it goes on to the present. */
export const own = computed<Own | undefined>(() => {
  const { path, query } = place.value;
  const since = instant(query.get("since"));
  return hasOwn(path) && since ? { since, until: instant(query.get("until")) } : undefined;
});

/** The window as the API's query has it. */
export const windowed = computed<string>(() => String(new URLSearchParams(own.value ? { since: own.value.since, ...(own.value.until ? { until: own.value.until } : {}) } : { minutes: String(range.value) })));
