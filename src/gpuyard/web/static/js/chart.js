// Lines over time or over anything, drawn by uPlot, each with its data as a table beside it.
import { clock, dataTable, fill, h, number, table } from "./dom.js";

const COLOURS = 8;

/** The value of a colour of the palette, light or dark as it is now. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Draw again whatever was drawn when the colours of the system change. */
const drawn = new Set();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const each of drawn) each.restyle(); });

/** A chart of lines. options: {label, unit, format, height, time, most, percent, steps} */
export class LineChart {
  constructor(options) {
    this.options = { height: 190, time: true, format: (value) => number(value), plain: !options.format, ...options };
    this.plot = h("div.plot", { role: "img", "aria-label": options.label });
    this.plot.style.minHeight = `${this.options.height}px`;
    this.key = h("ul.key");
    this.data = dataTable(() => this.asTable());
    this.element = h("div.chart", {}, this.plot, this.key, this.data);
    this.series = [];
    this.x = [];
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.plot);
    drawn.add(this);
  }

  /** Show lines: x, and {name, values, low, high} each. */
  show(x, lines, markers = undefined) {
    const same = this.uplot && lines.length === this.series.length && lines.every((line, k) => line.name === this.series[k].name);
    this.x = x;
    this.series = lines;
    this.markers = markers;
    if (same) this.uplot.setData(this.columns());
    else this.restyle();
    fill(this.key, lines.slice(0, 16).map((line, k) => h("li", {}, h(`i.c${(k % COLOURS) + 1}`), h("span", {}, this.options.brief ? "last" : line.name), h("b", {}, this.last(line)))), this.options.time ? "" : h("li", {}, `over ${this.options.xname}`));
    const words = lines.slice(0, 8).map((line) => `${line.name} ${this.last(line)}`).join(", ");
    this.plot.setAttribute("aria-label", `${this.options.label}${words ? `; now ${words}` : "; no data yet"}`);
    this.data.refresh();
  }

  last(line) {
    const found = line.values.findLast((value) => value !== null && value !== undefined);
    return found === undefined ? "" : this.options.format(found);
  }

  columns() {
    return [this.x, ...this.series.map((line) => line.values)];
  }

  restyle() {
    this.uplot?.destroy();
    this.uplot = undefined;
    if (!window.uPlot) addEventListener("load", () => this.restyle(), { once: true }); // rows come before charts
    if (!this.plot.clientWidth || !window.uPlot) return;
    const grid = { stroke: colour("line"), width: 1 }, text = colour("mute"), font = "12px system-ui, sans-serif";
    const axis = { stroke: text, font, grid, ticks: { show: false }, gap: 6 };
    const wide = this.options.axis ?? 46;
    const steps = this.options.steps ? { paths: window.uPlot.paths.stepped({ align: 1 }) } : {};
    this.uplot = new window.uPlot({
      width: this.plot.clientWidth, height: this.options.height, legend: { show: false }, cursor: { y: false, points: { size: 6 } }, padding: [8, 26, 0, 0],
      scales: {
        x: { time: this.options.time, ...(this.options.log ? { distr: 3 } : {}) },
        y: { dir: this.options.down ? -1 : 1, range: (_, low, high) => this.range(low, high) },
      },
      axes: [
        { ...axis, size: 26, grid: { show: false }, space: 70, values: this.options.time ? this.times() : (_, splits) => splits.map((value) => Math.abs(value) >= 1e5 ? value.toLocaleString("en", { notation: "compact" }) : number(value)) },
        { ...axis, size: wide, space: 34, values: (_, splits) => this.ticks(splits) },
      ],
      series: [{}, ...this.series.map((line, k) => ({ label: line.name, stroke: colour(`c${(k % COLOURS) + 1}`), width: 1.75, points: { show: false }, spanGaps: false, dash: k >= COLOURS ? [6, 3] : undefined, ...(line.fill ? { fill: `${colour(`c${(k % COLOURS) + 1}`)}22` } : {}), ...steps }))],
      hooks: { setCursor: [(u) => this.hover(u)] },
    }, this.columns(), this.plot);
  }

  /** Texts at the ticks of y, with as many digits as tell them apart. */
  ticks(splits) {
    const step = Math.abs((splits[1] ?? 1) - splits[0]) || 1;
    const digits = Math.min(Math.max(Math.ceil(-Math.log10(step) - 1e-9), 0), 8);
    return splits.map((value) => {
      if (this.options.whole && !Number.isInteger(value)) return "";
      return this.options.plain ? value.toLocaleString("en", { maximumFractionDigits: digits }).replace("-", "−") : this.options.format(value);
    });
  }

  range(low, high) {
    if (this.options.most !== undefined) return this.options.down ? [0.5, Math.max(this.options.most, high ?? 1)] : [0, Math.max(this.options.most, high ?? 0)];
    if (low === null || low === undefined) return [0, 1];
    const bottom = this.options.free ? low : Math.min(low, 0), room = (high - bottom || 1) * 0.08;
    return [this.options.free ? bottom - room : bottom, high + room];
  }

  times() {
    return (_, splits, __, ___, step) => splits.map((at) => {
      const there = new Date(at * 1000);
      const two = (value) => String(value).padStart(2, "0");
      return `${two(there.getHours())}:${two(there.getMinutes())}${step < 60 ? `:${two(there.getSeconds())}` : ""}`;
    });
  }

  hover(u) {
    const k = u.cursor.idx;
    const items = [...this.key.children];
    this.series.slice(0, 16).forEach((line, row) => {
      const value = k === null || k === undefined ? undefined : line.values[k];
      items[row].lastChild.textContent = value === undefined || value === null ? this.last(line) : this.options.format(value);
    });
  }

  resize() {
    if (!this.uplot) this.restyle();
    else if (this.plot.clientWidth) this.uplot.setSize({ width: this.plot.clientWidth, height: this.options.height });
  }

  asTable() {
    const every = Math.max(Math.ceil(this.x.length / 60), 1);
    const rows = [];
    for (let k = this.x.length - 1; k >= 0; k -= every) rows.push([this.options.time ? clock(this.x[k]) : number(this.x[k], 4), ...this.series.map((line) => (line.values[k] ?? null) === null ? "" : this.options.format(line.values[k]))]);
    return table(this.options.label, [this.options.xname ?? "time", ...this.series.map((line) => line.name)], rows);
  }

  destroy() {
    this.observer.disconnect();
    this.uplot?.destroy();
    drawn.delete(this);
  }
}
