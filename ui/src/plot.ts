// Where things stand on a chart. Pure.

/** Round values from 0 to the first one that no value exceeds. */
export function axis(most: number): number[] {
  if (!(most > 0)) return [0, 1];
  const rough = most / 4;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * unit).find((each) => each >= rough * 0.999) ?? unit * 10;
  const count = Math.ceil(most / step - 0.001);
  return Array.from({ length: count + 1 }, (_none, index) => Number((index * step).toPrecision(12)));
}

/** Steps of time that a clock has, in seconds: what lies between seven of them and eight is no figure to read. */
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

/** As `axis`, in seconds: from a few of them on in round minutes, hours and days. */
export function timeAxis(most: number): number[] {
  const [step, longest] = [STEPS.find((each) => each >= (most / 4) * 0.999), 86400];
  if (most <= 4 || step === undefined) return most <= 4 ? axis(most) : axis(most / longest).map((each) => each * longest);
  return Array.from({ length: Math.ceil(most / step - 0.001) + 1 }, (_none, index) => index * step);
}

export const points = (places: [number, number][]): string => places.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");

/** The values that are there, each with its place. One alone is told twice, so that it is a line. */
export function known(values: (number | null)[]): [number, number][] {
  const found = values.flatMap((value, index): [number, number][] => (value === null ? [] : [[index, value]]));
  return found.length === 1 ? [...found, ...found] : found;
}
