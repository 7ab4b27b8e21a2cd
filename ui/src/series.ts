// Series in steps: which of them are over, and counts as rates. Pure.
import type { Series } from "./api";

/** Seconds that the newest step must have for a rate of what has passed of it. */
const LEAST = 10;

/** Whether the last of so many steps is not over by the server's clock: it has its counts so far, and no more. */
export function isOpen(series: { start: string; at: string; step: number }, count: number): boolean {
  return Date.parse(series.start) + count * series.step * 60_000 > Date.parse(series.at);
}

/** Per second. Of a step that is not over the count is divided by the time that has passed of it, once that says anything. */
export function perSecond(series: Series, counts: number[]): (number | null)[] {
  const step = series.step * 60;
  const passed = (Date.parse(series.at) - Date.parse(series.start)) / 1000 - (counts.length - 1) * step;
  return counts.map((count, index) => (index < counts.length - 1 || passed >= step ? count / step : passed < LEAST ? null : count / passed));
}
