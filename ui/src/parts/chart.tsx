// A chart over time, as SVG: colours are those of the theme, and there is nothing to load.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Mark, Series } from "../api";
import { axis, known, points, timeAxis } from "../plot";
import { hasOwn, place, set } from "../router";
import { isOpen } from "../series";
import { date, minute, seconds } from "../words";

/** `level`: it tells how things stood at the end of a step, not what happened in it; of a step that is not over it tells of now. */
export interface Curve { label: string; values: (number | null)[]; colour: string; fill?: boolean; dash?: boolean; level?: boolean }

interface Props { title: string; series: Series; curves: Curve[]; format: (value: number) => string; marks?: Mark[] | undefined }

const [LEFT, RIGHT, TOP, HEIGHT] = [62, 8, 16, 140];

const said = (mark: Mark): string => `${mark.action.replaceAll("_", " ")} ${mark.target.replace(/^\w+:/, "")}`;

interface Plotted extends Props {
  times: number[];
  /** The step that is not over; beyond the last one when there is none. */
  open: number;
}

/** A line up to the last step that is over, dots from there to what is told so far of the next: it would look like a drop. */
function Line(props: { curve: Curve; open: number; x: (index: number) => number; y: (value: number) => number; ground: number }): JSX.Element {
  const { curve, x, y, ground } = props;
  const open = curve.level ? curve.values.length : props.open;
  const place = ([index, value]: [number, number]): [number, number] => [x(index), y(value)];
  const places = known(curve.values.slice(0, open)).map(place);
  const line = points(places);
  const [from, soFar] = [places.at(-1), curve.values[open]];
  const to = soFar === null || soFar === undefined ? undefined : place([open, soFar]);
  return (
    <g class={curve.colour}>
      {curve.fill && !!places.length && <polygon points={`${places[0]?.[0]},${ground} ${line} ${from?.[0]},${ground}`} />}
      {places.length === 1 ? <circle cx={places[0]?.[0]} cy={places[0]?.[1]} r="3" /> : <polyline class={curve.dash ? "dash" : ""} points={line} />}
      {to && (from ? <polyline class="open" points={points([from, to])} /> : <circle class="open" cx={to[0]} cy={to[1]} r="3" />)}
    </g>
  );
}

function Plot(props: Plotted): JSX.Element {
  const { times, curves, format, open } = props;
  const host = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(600);
  const [at, setAt] = useState<number | undefined>(undefined);
  /** Where a stretch began that is being drawn over. */
  const [began, setBegan] = useState<number | undefined>(undefined);
  useEffect(() => {
    const sized = new ResizeObserver(([entry]) => { if (entry?.contentRect.width) setWidth(Math.round(entry.contentRect.width)); });
    if (host.current) sized.observe(host.current);
    return () => sized.disconnect();
  }, []);
  const [from, to] = [times[0] ?? 0, times.at(-1) ?? 1];
  const steps = (format === seconds ? timeAxis : axis)(Math.max(0, ...curves.flatMap((curve) => curve.values.map((value) => value ?? 0))));
  const most = steps.at(-1) ?? 1;
  const x = (time: number): number => LEFT + ((time - from) / Math.max(1, to - from)) * (width - LEFT - RIGHT);
  const y = (value: number): number => TOP + HEIGHT - (value / most) * HEIGHT;
  const count = Math.max(2, Math.min(7, Math.floor((width - LEFT) / 90)));
  const ticks = Array.from({ length: count }, (_none, index) => from + ((to - from) * index) / (count - 1));
  const when = (time: number): string => (to - from > 90_000_000 ? date(time) : minute(time));
  const shown = at ?? (curves.every((curve) => curve.level) ? times.length - 1 : Math.max(0, Math.min(open, times.length) - 1));
  const marks = (props.marks ?? []).filter((mark) => { const time = Date.parse(mark.at); return time >= from && time <= to + props.series.step * 60_000; });
  const under = (event: { clientX: number; currentTarget: SVGElement }): number => {
    const share = (event.clientX - event.currentTarget.getBoundingClientRect().left - LEFT) / (width - LEFT - RIGHT);
    return Math.max(0, Math.min(times.length - 1, Math.round(share * (times.length - 1))));
  };
  /** The stretch becomes the time of all charts; one that ends at the newest step goes on to the present. */
  const narrow = (last: number): void => {
    if (began === undefined || began === last) return;
    const [low, high] = [Math.min(began, last), Math.max(began, last)];
    const end = (times[high] ?? 0) + props.series.step * 60_000;
    const newest = high === times.length - 1;
    set({ since: new Date(times[low] ?? 0).toISOString(), until: newest ? place.value.query.get("until") ?? undefined : new Date(end).toISOString(), minutes: undefined });
  };
  const drawn = began !== undefined && at !== undefined && began !== at ? [x(times[Math.min(began, at)] ?? 0), x(times[Math.max(began, at)] ?? 0)] as const : undefined;
  let free = -1;
  return (
    <div class="plot" ref={host}>
      <svg role="img" aria-label={`${props.title}: ${curves.map((curve) => curve.label).join(", ")}`} onPointerLeave={() => { setAt(undefined); setBegan(undefined); }} onPointerMove={(event) => setAt(under(event))}
        onPointerDown={(event) => { if (!event.button && hasOwn(place.value.path)) { event.currentTarget.setPointerCapture(event.pointerId); setBegan(under(event)); } }} onPointerUp={(event) => { narrow(under(event)); setBegan(undefined); }} onPointerCancel={() => setBegan(undefined)}>
        {drawn && <rect class="drawn" x={drawn[0]} width={drawn[1] - drawn[0]} y={TOP} height={HEIGHT} />}
        {steps.filter((value, index) => !index || format(value) !== format(steps[index - 1] ?? 0)).map((value) => <g key={value}><line x1={LEFT} x2={width - RIGHT} y1={y(value)} y2={y(value)} /><text x={LEFT - 8} y={y(value) + 4} text-anchor="end">{format(value)}</text></g>)}
        {ticks.map((time, index) => <text key={time} x={x(time)} y={TOP + HEIGHT + 18} text-anchor={index === 0 ? "start" : index === count - 1 ? "end" : "middle"}>{when(time)}</text>)}
        {[...marks].sort((a, b) => Date.parse(a.at) - Date.parse(b.at)).map((mark) => {
          const place = Math.min(x(Date.parse(mark.at)), width - RIGHT);
          const length = said(mark).length * 5.6 + 6;
          // To the left where there is no room to the right. A name that would stand on the one before is left to the title.
          const left = place + length > width;
          const named = (left ? place - length : place) > free;
          if (named) free = left ? place : place + length;
          return <g class="at" key={mark.at + mark.target}><title>{`${said(mark)}, ${minute(mark.at)}`}</title><line x1={place} x2={place} y1={TOP} y2={TOP + HEIGHT} />{named && <text x={place} y={TOP - 4} text-anchor={left ? "end" : "start"}>{said(mark)}</text>}</g>;
        })}
        {curves.map((curve) => <Line key={curve.label} curve={curve} open={open} x={(index) => x(times[index] ?? 0)} y={y} ground={y(0)} />)}
        {at !== undefined && <line x1={x(times[at] ?? 0)} x2={x(times[at] ?? 0)} y1={TOP} y2={TOP + HEIGHT} />}
      </svg>
      <ul class="legend"><li>{when(times[shown] ?? 0)}{shown === open && ", so far"}</li>{curves.map((curve) => {
        const value = curve.values[shown];
        return <li key={curve.label} class={curve.colour}><span class="swatch" aria-hidden="true" /><b>{curve.label} {value === null || value === undefined ? "–" : format(value)}</b></li>;
      })}</ul>
    </div>
  );
}

export function Chart(props: Props): JSX.Element {
  const [table, setTable] = useState(false);
  const first = Date.parse(props.series.start);
  const times = props.curves[0]?.values.map((_value, index) => first + index * props.series.step * 60_000) ?? [];
  const open = isOpen(props.series, times.length) ? times.length - 1 : times.length;
  return (
    <figure class="chart card">
      <figcaption>
        <h2>{props.title}</h2>
        <button type="button" class="small quiet" aria-pressed={table} onClick={() => setTable(!table)}>{table ? "Show as chart" : "Show as table"}</button>
      </figcaption>
      {table ? (
        <div class="scroll tall" tabIndex={0} role="region" aria-label={`${props.title}, table`}>
          <table>
            <thead><tr><th scope="col">Time</th>{props.curves.map((curve) => <th key={curve.label} scope="col" class="right">{curve.label}</th>)}</tr></thead>
            <tbody>{times.map((at, index) => (
              <tr key={at}><td data-name="Time">{minute(at)}{index === open && ", so far"}</td>{props.curves.map((curve) => {
                const value = curve.values[index];
                return <td key={curve.label} data-name={curve.label} class="right">{value === null || value === undefined ? "–" : props.format(value)}</td>;
              })}</tr>
            )).reverse()}</tbody>
          </table>
        </div>
      ) : <Plot {...props} times={times} open={open} />}
    </figure>
  );
}
