// The window of all charts, in the address.
import { computed } from "@preact/signals";
import { place } from "./router";

export const RANGES: [string, number][] = [["15 min", 15], ["1 h", 60], ["6 h", 360], ["24 h", 1440]];

export const range = computed<number>(() => {
  const given = Number(place.value.query.get("minutes"));
  return RANGES.some(([, minutes]) => minutes === given) ? given : 60;
});
