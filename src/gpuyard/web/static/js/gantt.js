// Who held which devices when: a row per device, a bar per job.
import { colour } from "./chart.js";
import { clock, dataTable, h, number, span, table } from "./dom.js";

const LEFT = 62, TOP = 6, BOTTOM = 22;

export class Gantt {
  constructor(label, options = {}) {
    this.label = label;
    this.options = { time: clock, ...options };
    this.canvas = h("canvas", { role: "img", "aria-label": label });
    this.tip = h("div.tip", { hidden: true });
    this.data = dataTable(() => this.asTable());
    this.element = h("div.chart.gantt", {}, this.canvas, this.tip, this.data);
    this.found = { devices: [], spans: [], from: 0, until: 1 };
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.canvas);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", (event) => { const hit = this.hit(event); if (hit) this.options.onpick?.(hit[0]); });
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.scheme.addEventListener("change", this.redraw = () => this.draw());
  }

  /** spans: [job, label, name, rows, start, end]; end 0: it goes on. */
  show(found) {
    this.found = found;
    this.canvas.setAttribute("aria-label", `${this.label}: ${number(found.spans.length)} runs on ${found.devices.length} devices`);
    this.draw();
    this.data.refresh();
  }

  get height() {
    const rows = this.found.devices.length;
    return TOP + BOTTOM + rows * (this.options.row ?? (rows <= 16 ? 22 : rows <= 64 ? 9 : Math.max(600 / rows, 2)));
  }

  draw() {
    const { devices, spans, from, until } = this.found;
    const width = this.canvas.clientWidth, height = Math.max(this.height, 60), scale = devicePixelRatio || 1;
    if (!width) return;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    const draw = this.canvas.getContext("2d");
    draw.scale(scale, scale);
    draw.font = "11px system-ui, sans-serif";
    const row = (height - TOP - BOTTOM) / Math.max(devices.length, 1), line = colour("line"), mute = colour("mute"), card = colour("card");
    this.x = (at) => LEFT + ((at - from) / (until - from || 1)) * (width - LEFT - 4);
    this.row = row;
    draw.textBaseline = "middle";
    const every = Math.max(Math.ceil(13 / row), 1);
    devices.forEach((name, k) => {
      if (k % every === 0) { draw.fillStyle = mute; draw.textAlign = "right"; draw.fillText(name.slice(-10), LEFT - 8, TOP + row * (k + 0.5)); }
      if (row >= 6) { draw.fillStyle = line; draw.globalAlpha = 0.45; draw.fillRect(LEFT, TOP + row * k + 1, width - LEFT - 4, row - 2); draw.globalAlpha = 1; }
    });
    this.bars = [];
    for (const [job, label, name, rows, start, end] of spans) {
      const left = Math.max(this.x(start), LEFT), right = Math.min(this.x(end || until), width - 4);
      if (right < LEFT || left > width - 4) continue;
      const paint = colour(`c${(Math.abs(job) % 6) + 1}`), solid = end ? 0.62 : 0.95;
      draw.fillStyle = paint;
      for (const [low, count] of runs(rows)) {
        const top = TOP + row * low + (row > 6 ? 2 : 0.5), tall = row * count - (row > 6 ? 4 : 1), long = Math.max(right - left - 1, 1.5);
        draw.globalAlpha = solid;
        draw.beginPath();
        draw.roundRect(left, top, long, tall, Math.min(3, tall / 2));
        draw.fill();
        draw.globalAlpha = 1;
        this.bars.push([left, top, left + long, top + tall, job, label, name, start, end]);
        if (long > 34 && tall > 12) {
          draw.save();
          draw.beginPath(); draw.rect(left, top, long - 4, tall); draw.clip();
          draw.fillStyle = inkOn(paint, solid, card); draw.textAlign = "left"; draw.font = "600 11px system-ui, sans-serif";
          draw.fillText(name || label, left + 6, top + tall / 2);
          draw.restore();
          draw.fillStyle = paint;
        }
      }
    }
    this.axis(draw, width, height, mute, line);
  }

  axis(draw, width, height, mute, line) {
    const { from, until } = this.found;
    const steps = [60, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800];
    const step = steps.find((each) => (until - from) / each <= Math.max(width / 110, 2)) ?? 604800;
    const shift = this.options.time === clock ? new Date(until * 1000).getTimezoneOffset() * 60 : 0;
    draw.fillStyle = mute;
    draw.font = "11px system-ui, sans-serif";
    draw.textAlign = "center";
    for (let at = Math.ceil((from - shift) / step) * step + shift; at <= until; at += step) {
      const x = this.x(at);
      draw.fillStyle = line; draw.fillRect(x, TOP, 1, height - TOP - BOTTOM + 3);
      draw.fillStyle = mute; if (x > LEFT + 12 && x < width - 20) draw.fillText(this.options.tick ? this.options.tick(at) : clock(at, at).slice(0, 5), x, height - BOTTOM / 2);
    }
  }

  hit(event) {
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const bar = (this.bars ?? []).findLast(([left, top, right, bottom]) => x >= left && x <= right && y >= top && y <= bottom);
    return bar && [bar[4], bar[5], bar[6], bar[7], bar[8], x, y];
  }

  point(event) {
    const hit = this.hit(event);
    this.tip.hidden = !hit;
    if (!hit) return;
    const [, label, name, start, end, x, y] = hit;
    this.tip.textContent = `${label}${name && name !== label ? ` · ${name}` : ""} · ${span((end || this.found.until) - start)}${end ? "" : ", runs"}`;
    this.tip.style.left = `${Math.min(x + 12, this.canvas.clientWidth - 180)}px`;
    this.tip.style.top = `${y + 14}px`;
  }

  asTable() {
    const { spans, devices, until } = this.found;
    const rows = spans.slice(-200).reverse().map(([, label, name, on, start, end]) => [label, name, on.slice(0, 8).map((k) => devices[k]).join(", ") + (on.length > 8 ? " …" : ""), this.options.time(start, until), end ? this.options.time(end, until) : "runs"]);
    return table(this.label, ["job", "name", "on", "start", "end"], rows, [1, 2]);
  }

  destroy() {
    this.observer.disconnect();
    this.scheme.removeEventListener("change", this.redraw);
  }
}

/** Black or white, whichever reads better on a colour that lies on another one. */
function inkOn(paint, solid, under) {
  const [over, below] = [paint, under].map((text) => [1, 3, 5].map((k) => parseInt(text.slice(k, k + 2), 16)));
  const [red, green, blue] = over.map((value, k) => solid * value + (1 - solid) * below[k]);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 128 ? "#000" : "#fff";
}

/** Neighbouring rows as (first, count). */
function* runs(rows) {
  let first = null, last = null;
  for (const row of [...rows].sort((a, b) => a - b)) {
    if (last !== null && row === last + 1) { last = row; continue; }
    if (first !== null) yield [first, last - first + 1];
    first = last = row;
  }
  if (first !== null) yield [first, last - first + 1];
}
