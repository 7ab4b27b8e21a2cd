// Numbers and times as the reader writes them.
import { signal } from "@preact/signals";
import { keep, kept } from "./store";

/** The language of the browser; one that was started without a locale names one that its own Intl refuses. */
function language(): string {
  try {
    return Intl.getCanonicalLocales(navigator.language)[0] ?? "en";
  } catch {
    return "en";
  }
}

const numbers = new Intl.NumberFormat(language(), { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat(language(), { maximumFractionDigits: 1 });

const UTC = "hawser.utc";

/** Times are told, and taken, in UTC, as logs have them; else as the reader's clock has them. */
export const utc = signal(kept(UTC, false));

export function switchZone(): void {
  utc.value = !utc.value;
  keep(UTC, utc.value);
}

const forms = (zone: { timeZone?: string }): Record<"clock" | "short" | "whole" | "day", Intl.DateTimeFormat> => ({
  clock: new Intl.DateTimeFormat(language(), { hour: "2-digit", minute: "2-digit", second: "2-digit", ...zone }),
  short: new Intl.DateTimeFormat(language(), { hour: "2-digit", minute: "2-digit", ...zone }),
  whole: new Intl.DateTimeFormat(language(), { dateStyle: "medium", timeStyle: "medium", ...zone }),
  day: new Intl.DateTimeFormat(language(), { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", ...zone }),
});
const [here, there] = [forms({}), forms({ timeZone: "UTC" })];
const form = (): typeof here => (utc.value ? there : here);

export const number = (value: number): string => numbers.format(value);
export const time = (value: string | number): string => form().clock.format(new Date(value));
export const minute = (value: string | number): string => form().short.format(new Date(value));
export const date = (value: string | number): string => form().day.format(new Date(value));
export const instant = (value: string): string => `${form().whole.format(new Date(value))} (${value})`;
export const percent = (value: number): string => `${value > 0 && value < 0.01 ? "<1" : numbers.format(value * 100)} %`;

export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 s";
  if (value < 0.0095) return `${tenths.format(value * 1000)} ms`;
  if (value < 0.9995) return `${numbers.format(value * 1000)} ms`;
  if (value < 10) return `${tenths.format(value)} s`;
  if (value < 120) return `${numbers.format(value)} s`;
  if (value < 7200) return `${numbers.format(value / 60)} min`;
  return value < 172800 ? `${tenths.format(value / 3600)} h` : `${numbers.format(value / 86400)} d`;
}

export function rate(perSecond: number): string {
  if (perSecond === 0) return "0";
  if (perSecond >= 10) return `${numbers.format(perSecond)}/s`;
  return perSecond >= 1 ? `${tenths.format(perSecond)}/s` : `${tenths.format(perSecond * 60)}/min`;
}

export function size(bytes: number): string {
  return bytes < 1000 ? `${bytes} B` : bytes < 1_000_000 ? `${tenths.format(bytes / 1000)} kB` : `${tenths.format(bytes / 1_000_000)} MB`;
}

export function plural(count: number, word: string): string {
  return `${number(count)} ${word}${count === 1 ? "" : "s"}`;
}

/** How long ago, or in how long. */
export function relative(at: string, now: number): string {
  const away = (now - new Date(at).getTime()) / 1000;
  if (Math.abs(away) < 1) return "now";
  const text = away < 1 ? seconds(Math.round(-away)) : seconds(Math.round(away));
  return away > 0 ? `${text} ago` : `in ${text}`;
}

/** The end of a UUIDv7: its beginning is the time, and the same for all jobs of a minute. */
export const tail = (id: string): string => id.slice(-8);

/** An instant as a field of the browser has it: without a zone. */
export const local = (at: string): string => {
  const there = new Date(at);
  return new Date(there.getTime() - (utc.value ? 0 : there.getTimezoneOffset()) * 60_000).toISOString().slice(0, 16);
};

/** The instant that such a field means. */
export const filledIn = (text: string): string => new Date(utc.value ? `${text}Z` : text).toISOString();
