// Comparing schedulers: choose, wait, read, play back in time.
import { bars } from "./bars.js";
import { LineChart } from "./chart.js";
import { card, fill, h, number, say, several, span, table } from "./dom.js";
import { Gantt } from "./gantt.js";
import { go } from "./main.js";
import { get, post } from "./net.js";

const EVERY = 600; // ms
const WORDS = { waiting: "waits for the one before it", running: "under way", done: "done", failed: "failed", cancelled: "cancelled" };
const amount = (value, unit) => unit === "s" ? span(value) : unit === "1" || unit === "" ? number(value) : `${number(value)} ${unit}`;

export class ComparePage {
  title = "Compare";

  constructor() {
    this.asked = Number(new URLSearchParams(location.search).get("number")) || 0;
    this.content = h("div.stack");
    this.element = h("div", {}, h("div.head", {}, h("div", {}, this.headline = h("h1", {}, "Which scheduler would do better?"), this.sub = h("p.mute", {}, "Choose jobs, a cluster and schedulers. They are simulated on the same jobs, in a process of their own; nothing on this machine is changed."))), this.content);
    this.charts = [];
    if (this.asked) this.follow();
    else this.form();
  }

  async form() {
    const [choices, { comparisons }] = await Promise.all([get("/api/comparisons/choices"), get("/api/comparisons")]);
    const list = (id, texts) => h("datalist", { id }, texts.map((text) => h("option", { value: text.text ?? text }, text.title ?? "")));
    const workload = h("input", { id: "workload", name: "workload", value: "demo", list: "workloads", required: true, maxlength: 200 });
    const cluster = h("input", { id: "cluster", name: "cluster", value: "16x8:a100", list: "clusters", maxlength: 200 });
    const seeds = h("input", { id: "seeds", name: "seeds", type: "number", min: 1, max: 20, value: 8, required: true });
    const more = h("input", { id: "more", name: "more", list: "schedulers", placeholder: "such as edf/best/easy, las/fewest/easy/las", maxlength: 600 });
    const chip = ({ text, title, usual }) => h("label", { title: text }, h("input", { type: "checkbox", name: "scheduler", value: text, checked: usual }), title);
    const usual = choices.schedulers.filter((each) => each.usual || each.text.startsWith("learned:gpu") || each.text === "learned:hpc");
    const rest = choices.schedulers.filter((each) => !usual.includes(each));
    const said = h("p.bad", { role: "alert" });
    const send = async (event) => {
      event.preventDefault();
      const chosen = [...form.querySelectorAll("[name=scheduler]:checked")].map((each) => each.value);
      const typed = split(more.value);
      try {
        const made = await post("/api/comparisons", { workload: workload.value.trim(), cluster: cluster.value.trim(), schedulers: [...new Set([...chosen, ...typed])], seeds: Number(seeds.value) });
        go(`/compare?number=${made.number}`);
      } catch (error) {
        say(said, error.hint ? `${error.message} (${error.hint})` : error.message);
      }
    };
    const form = h("form.card.form", { onsubmit: send },
      h("div", {}, h("label", { for: "workload" }, "Jobs"), workload, h("p.small.mute", {}, "A generator, with its parameters: demo:jobs=500, family:shape=bursty")),
      h("div", {}, h("label", { for: "cluster" }, "Cluster"), cluster, h("p.small.mute", {}, "Nodes x GPUs : type, or a preset; empty: what goes with the jobs")),
      h("fieldset.wide.chips", {}, h("legend", {}, "Schedulers"), usual.map(chip)),
      h("details.data.wide", {}, h("summary", {}, `${rest.length} more schedulers`), h("div.chips", {}, rest.map(chip))),
      h("div", {}, h("label", { for: "more" }, "Others, with commas between"), more),
      h("div", {}, h("label", { for: "seeds" }, "Samples of the jobs (seeds); below 5 nothing can be claimed"), seeds),
      h("div.wide.row", {}, h("button.plain.strong", { type: "submit" }, "Compare"), said), list("workloads", choices.workloads), list("clusters", choices.clusters), list("schedulers", choices.schedulers));
    fill(this.content, form, comparisons.length ? card("Compared so far", h("ul.list", {}, comparisons.map((each) => h("li.row", {}, h("a.title", { href: `/compare?number=${each.number}`, "data-page": true }, `${each.asked.workload} on ${each.asked.cluster || "its cluster"}, ${each.asked.schedulers.length} schedulers`), h("span.small.push", {}, h(`i.dot.${each.state}`), WORDS[each.state]))))) : "");
  }

  async follow() {
    let told;
    try {
      told = await get(`/api/comparisons/${this.asked}`);
    } catch (error) {
      fill(this.content, h("p.note.bad", {}, error.message), h("p", {}, h("a", { href: "/compare", "data-page": true }, "Make a comparison")));
      return;
    }
    if (this.gone) return;
    const { asked } = told;
    say(this.sub, `${asked.workload} on ${asked.cluster || "its cluster"}, ${asked.schedulers.length} schedulers, ${asked.seeds} samples`);
    if (told.state === "done") { await this.result(); return; }
    if (told.state === "failed" || told.state === "cancelled") {
      say(this.headline, `The comparison ${told.state === "failed" ? "failed" : "was cancelled"}`);
      fill(this.content, told.error ? h("p.note.bad", {}, told.error, told.hint ? ` (${told.hint})` : "") : "", h("p", {}, h("a", { href: "/compare", "data-page": true }, "Make another")));
      return;
    }
    if (!this.bar) {
      this.bar = h("progress", { max: told.total, "aria-label": "Simulations that are done" });
      this.words = h("p.num", { role: "status" });
      fill(this.content, h("div.card", {}, this.words, this.bar, h("p"), h("button.plain", { type: "button", onclick: () => post(`/api/comparisons/${this.asked}`, {}, "DELETE") }, "Cancel")));
    }
    this.bar.value = told.done;
    const left = told.done ? ((told.now - told.begun) / told.done) * (told.total - told.done) : 0;
    say(this.headline, "Comparing …");
    say(this.words, told.state === "waiting" ? "It waits for the one before it." : `${told.done} of ${told.total} simulations${left > 2 ? `, about ${span(left)} left` : ""}. It goes on if you leave this page.`);
    this.timer = setTimeout(() => this.follow(), EVERY);
  }

  async result() {
    const found = await get(`/api/comparisons/${this.asked}/result`);
    const unit = found.units[found.primary], name = (scheduler) => found.names[scheduler] ?? scheduler;
    const sign = found.better[found.primary] === "higher" ? -1 : 1;
    const lines = [...found.schedulers].sort((a, b) => sign * ((a.metrics[found.primary].mean ?? 0) - (b.metrics[found.primary].mean ?? 0)));
    const metrics = Object.keys(lines[0].metrics);
    say(this.headline, found.answer[0] ? sentence(found.in_short?.[0] || found.answer[0]) : "The comparison is done");
    const shown = (line, metric) => amount(line.metrics[metric].mean, found.units[metric]);
    const rows = lines.map((line) => ({ mark: line.metrics[found.primary].best ? "best" : "", cells: [
      h("span", {}, name(line.scheduler), h("small.code", {}, line.scheduler)), ...metrics.map((metric) => h("span", {}, shown(line, metric), line.metrics[metric].low === null ? "" : h("small", {}, `${amount(line.metrics[metric].low, found.units[metric])} – ${amount(line.metrics[metric].high, found.units[metric])}`))),
      line.scheduler === found.baseline ? "baseline" : line.difference ? clearly(line, sign) : ""] }));
    const title = found.titles[found.primary];
    fill(this.content,
      card(`${title[0].toUpperCase()}${title.slice(1)}, mean and 95 % interval`, bars(title, lines.map((line) => ({ name: name(line.scheduler), ...line.metrics[found.primary], text: shown(line, found.primary) })), { format: (value) => amount(value, unit) })),
      card("Side by side", table("Schedulers side by side", ["scheduler", ...metrics.map((metric) => found.titles[metric]), `against ${name(found.baseline)}`], rows)),
      this.player(name), [...found.answer.slice(1), ...found.notes].length ? card("Notes", h("ul", {}, [...found.answer, ...found.notes].map((each) => h("li", {}, each)))) : "",
      h("p", {}, h("a", { href: "/compare", "data-page": true }, "Make another comparison")));
    this.load(name);
  }

  player() {
    this.slider = h("input", { type: "range", min: 0, max: 1000, value: 1000, "aria-label": "Time", oninput: () => { this.stop(); this.seek(); } });
    this.button = h("button.plain", { type: "button", onclick: () => (this.playing ? this.stop() : this.play()) }, "Play");
    this.at = h("p.num.small.mute");
    this.runs = h("div.two");
    return card("Played back in time", h("p.small.mute", {}, "One sample of the jobs under each scheduler: the same instant, side by side."), h("div.row", {}, this.button, this.at), this.slider, this.runs);
  }

  async load(name) {
    const found = await get(`/api/comparisons/${this.asked}/play`);
    if (this.gone) return;
    this.found = found;
    this.parts = found.runs.map((run) => {
      const gantt = new Gantt(`Who held which devices under ${name(run.scheduler)}`, { time: (at) => span(at), tick: (at) => span(at), row: found.devices.length > 32 ? Math.max(220 / found.devices.length, 2) : 10 });
      const chart = new LineChart({ label: `Jobs that wait under ${name(run.scheduler)}`, time: false, height: 110, xname: "hours", format: (value) => number(Math.round(value)), most: Math.max(...found.runs.flatMap((each) => each.queue)), axis: 62 });
      const now = h("p.num.small");
      this.charts.push(gantt, chart);
      fill(this.runs, [...this.runs.children], h("div", {}, h("h3", {}, name(run.scheduler)), now, gantt.element, chart.element));
      return { run, gantt, chart, now };
    });
    if (found.left_out) this.runs.after(h("p.small.mute", {}, `${number(found.left_out)} more devices are not drawn.`));
    requestAnimationFrame(() => this.seek());
  }

  seek() {
    const { from, until, devices } = this.found, at = from + ((until - from) * this.slider.value) / 1000;
    say(this.at, `${span(at)} after the first job`);
    this.slider.setAttribute("aria-valuetext", span(at));
    for (const { run, gantt, chart, now } of this.parts) {
      gantt.show({ devices, from, until, spans: run.spans.filter((each) => each[4] <= at).map((each) => each[5] > at ? [...each.slice(0, 5), at] : each) });
      const k = Math.max(run.times.findLastIndex((time) => time <= at), 0);
      chart.show(run.times.map((time) => time / 3600), [{ name: "waiting", values: run.queue.map((value, j) => (j <= k ? value : null)), fill: true }]);
      say(now, `${number(Math.round(run.queue[k] ?? 0))} wait, ${several(Math.round(run.busy[k] ?? 0), "GPU")} busy, ${number(run.ended[k] ?? 0)} of ${number(run.jobs)} jobs done`);
    }
  }

  play() {
    if (Number(this.slider.value) >= 1000) this.slider.value = 0;
    this.playing = setInterval(() => {
      this.slider.value = Number(this.slider.value) + 5;
      this.seek();
      if (Number(this.slider.value) >= 1000) this.stop();
    }, 80);
    say(this.button, "Pause");
  }

  stop() {
    clearInterval(this.playing);
    this.playing = 0;
    if (this.button) say(this.button, "Play");
  }

  destroy() {
    this.gone = true;
    clearTimeout(this.timer);
    this.stop();
    for (const each of this.charts) each.destroy();
  }
}

/** The first sentence, begun with a capital. */
const sentence = (text) => { const first = text.split(/(?<=[.:;]) /)[0].replace(/[.:;]$/, ""); return first[0].toUpperCase() + first.slice(1); };

function clearly(line, sign) {
  const { low, high } = line.difference, better = sign * high < 0 && sign * low < 0, worse = sign * low > 0 && sign * high > 0;
  return h("span", { class: better ? "good" : worse ? "bad" : "mute" }, better ? "clearly better" : worse ? "clearly worse" : "not told apart");
}

/** Split at commas that are not inside brackets. */
function split(text) {
  const found = [""];
  let deep = 0;
  for (const letter of text) {
    deep += letter === "(" ? 1 : letter === ")" ? -1 : 0;
    if (letter === "," && !deep) found.push(""); else found[found.length - 1] += letter;
  }
  return found.map((each) => each.trim()).filter(Boolean);
}
