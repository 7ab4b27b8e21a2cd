// A chart over time. uPlot comes in a file of its own and may fail to load: then the table is there.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import type { Mark } from "../api";
import { minute } from "../words";

export interface Curve { label: string; values: (number | null)[]; colour: string; fill?: boolean; dash?: boolean }

interface Props { title: string; start: string; step: number; curves: Curve[]; format: (value: number) => string; marks?: Mark[] }

/** The colour as the browser resolves it: a canvas cannot read `light-dark()`. */
function resolved(host: HTMLElement, name: string): string {
  const probe = document.createElement("span");
  probe.className = `colour ${name}`;
  host.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const faded = (colour: string, share: number): string => colour.replace(/^rgb\((.*)\)$/, `rgba($1, ${share})`);

function marksOn(plot: uPlot, marks: Mark[], colour: string): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.fillStyle = colour;
  ctx.lineWidth = 1;
  ctx.setLineDash([4, 4]);
  for (const mark of marks) {
    const x = Math.round(plot.valToPos(Date.parse(mark.at) / 1000, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function options(host: HTMLElement, props: Props, marks: () => Mark[]): uPlot.Options {
  const text = resolved(host, "muted");
  const grid = resolved(host, "line");
  const font = "11px system-ui, sans-serif";
  return {
    width: host.clientWidth || 300,
    height: 190,
    padding: [10, 8, 0, 0],
    legend: { live: true },
    cursor: { points: { size: 6 }, drag: { x: false, y: false } },
    scales: { x: { time: true }, y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.08 : 1] } },
    axes: [
      { stroke: text, font, grid: { show: false }, ticks: { show: false }, size: 26, space: 70, values: (_plot, at) => at.map((each) => minute(each * 1000)) },
      { stroke: text, font, grid: { stroke: grid, width: 1 }, ticks: { show: false }, size: 62, space: 34, values: (_plot, at) => at.map((each) => props.format(each)) },
    ],
    series: [
      { label: "Time", value: (_plot, at) => (at === null ? "–" : minute(at * 1000)) },
      ...props.curves.map((curve): uPlot.Series => {
        const colour = resolved(host, curve.colour);
        return {
          label: curve.label, stroke: colour, width: 1.75, points: { show: false }, spanGaps: true,
          value: (_plot, value) => (value === null ? "–" : props.format(value)),
          ...(curve.fill ? { fill: faded(colour, 0.14) } : {}),
          ...(curve.dash ? { dash: [5, 4] } : {}),
        };
      }),
    ],
    hooks: { draw: [(plot) => marksOn(plot, marks(), text)] },
  };
}

export function Chart(props: Props): JSX.Element {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const marks = useRef<Mark[]>([]);
  const [broken, setBroken] = useState(false);
  const [asTable, setAsTable] = useState(false);
  const [theme, setTheme] = useState(0);
  marks.current = props.marks ?? [];
  const first = Date.parse(props.start) / 1000;
  const times = props.curves[0]?.values.map((_value, index) => first + index * props.step * 60) ?? [];
  const data = [times, ...props.curves.map((curve) => curve.values)] as uPlot.AlignedData;
  const latest = useRef(data);
  latest.current = data;
  const shape = props.curves.map((curve) => curve.label).join("|");

  useEffect(() => {
    const again = (): void => setTheme((count) => count + 1);
    const media = matchMedia("(prefers-color-scheme: dark)");
    media.addEventListener("change", again);
    addEventListener("hawser-theme", again);
    return () => { media.removeEventListener("change", again); removeEventListener("hawser-theme", again); };
  }, []);

  useEffect(() => {
    const element = host.current;
    if (asTable || !element) return;
    let wanted = true;
    const sized = new ResizeObserver(() => { if (plot.current && element.clientWidth) plot.current.setSize({ width: element.clientWidth, height: 190 }); });
    void import("uplot").then(({ default: UPlot }) => {
      if (!wanted) return;
      plot.current = new UPlot(options(element, props, () => marks.current), latest.current, element);
      sized.observe(element);
    }).catch(() => { if (wanted) setBroken(true); });
    return () => { wanted = false; sized.disconnect(); plot.current?.destroy(); plot.current = undefined; };
  }, [asTable, shape, theme, props.step]);

  useEffect(() => { plot.current?.setData(data); });

  const table = asTable || broken;
  return (
    <figure class="chart card">
      <figcaption>
        <h2>{props.title}</h2>
        <button type="button" class="small quiet" aria-pressed={table} onClick={() => setAsTable(!asTable)}>{table ? "Show as chart" : "Show as table"}</button>
      </figcaption>
      {table ? (
        <div class="scroll tall" tabIndex={0} role="region" aria-label={`${props.title}, table`}>
          <table>
            <thead><tr><th scope="col">Time</th>{props.curves.map((curve) => <th key={curve.label} scope="col" class="right">{curve.label}</th>)}</tr></thead>
            <tbody>{times.map((at, index) => (
              <tr key={at}><td data-name="Time">{minute(at * 1000)}</td>{props.curves.map((curve) => {
                const value = curve.values[index];
                return <td key={curve.label} data-name={curve.label} class="right">{value === null || value === undefined ? "–" : props.format(value)}</td>;
              })}</tr>
            )).reverse()}</tbody>
          </table>
        </div>
      ) : <div class="plot" ref={host} role="img" aria-label={`${props.title}: ${props.curves.map((curve) => curve.label).join(", ")}`} />}
    </figure>
  );
}
