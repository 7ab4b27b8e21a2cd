// Counts of a series as rates. Pure.
import type { Series } from "./api";

/** Per second. The newest step is not over: its count is divided by the time that has passed of it. */
export function perSecond(series: Series, counts: number[], now: number): number[] {
  const step = series.step * 60;
  const begun = Date.parse(series.start) / 1000 + (counts.length - 1) * step;
  const passed = Math.min(step, Math.max(10, now / 1000 - begun));
  return counts.map((count, index) => count / (index === counts.length - 1 ? passed : step));
}
