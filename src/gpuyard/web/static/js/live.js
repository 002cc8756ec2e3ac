// The cluster now.
import { LineChart } from "./chart.js";
import { card, clock, dataTable, fill, h, number, say, several, span, table, tabs } from "./dom.js";
import { Gantt } from "./gantt.js";
import { JobGrid } from "./grid.js";
import { JobSheet } from "./job.js";
import { get } from "./net.js";

const MEASURES = [["utilisation", "Utilisation"], ["memory", "Memory"], ["power", "Power"], ["temperature", "Temperature"]];
const FORMATS = { utilisation: (v) => `${Math.round(v * 100)} %`, memory: (v) => `${number(v)} GB`, power: (v) => `${number(v)} W`, temperature: (v) => `${number(v)} °C` };
const SLOW = 5000; // ms between looks at what changes slowly

export class LivePage {
  title = "Live";

  constructor(about) {
    this.sheet = new JobSheet(about);
    this.place = h("p.place");
    this.headline = h("h1", {}, "Looking at the cluster …");
    this.note = h("div", { role: "status" });
    this.tiles = ["Devices busy", "Jobs that run", "Jobs that wait", "Jobs that ended"].map((label) => {
      const value = h("p.value"), meter = h("i");
      return { value, meter, element: h("div.card.tile", {}, h("p.label", {}, label), value, label === "Devices busy" ? h("div.meter", {}, meter) : "", h("p.small.mute")) };
    });
    this.gpus = h("div.gpus");
    this.gpuCard = card("Devices", this.gpus);
    this.kinds = h("span.small.mute");
    this.gpuCard.firstChild.append(this.kinds);
    this.grid = new JobGrid((number) => this.sheet.open(number));
    this.charts();
    this.lists();
    this.element = h("div", {},
      h("div.head", {}, h("div", {}, this.place, this.headline)), this.note,
      h("div.stack", {}, h("div.tiles", {}, this.tiles.map((each) => each.element)), this.gpuCard, h("div.two", {}, this.busyCard, this.measureCard), this.ganttCard, this.jobsCard(), h("div.two", {}, this.rankCard, this.decisionCard)),
      this.sheet.element);
    this.seen = {};
    this.slow = setInterval(() => this.refresh(), SLOW);
  }

  charts() {
    this.span = "minutes";
    this.measure = "utilisation";
    this.busy = new LineChart({ label: "Waiting and running jobs over time", whole: true });
    this.use = new LineChart({ label: "Utilisation of each GPU over time", format: FORMATS.utilisation, most: 1 });
    const choose = (value) => { this.span = value; this.lines(); };
    this.busyCard = card("Jobs over time", this.busy.element);
    this.busyCard.firstChild.append(h("span.push", {}, tabs("Span of time", [["minutes", "10 min"], ["hours", "12 h"]], "minutes", choose)));
    this.measureCard = card("GPUs over time", this.use.element);
    this.measureCard.firstChild.append(h("span.push", {}, tabs("Measure", MEASURES, "utilisation", (value) => { this.measure = value; this.lines(true); })));
    this.gantt = new Gantt("Who held which devices", { onpick: (job) => this.sheet.open(job) });
    this.hours = 1;
    this.ganttCard = card("Who held which devices", this.gantt.element);
    this.ganttCard.firstChild.append(h("span.push", {}, tabs("Hours", [["0.25", "15 min"], ["1", "1 h"], ["3", "3 h"], ["12", "12 h"]], "1", (value) => { this.hours = Number(value); this.chosenHours = true; this.bars(); })));
    this.ranks = new LineChart({ label: "Place in the queue over time, 1 is next", whole: true, down: true, most: 5, axis: 30, height: 220 });
    this.rankKind = "place";
    this.rankCard = card("What the policy thinks", h("p.small.mute", {}, ""), this.ranks.element);
    this.rankNote = this.rankCard.children[1];
    this.rankCard.firstChild.append(h("span.push", {}, tabs("Show", [["place", "Place"], ["key", "Score"]], "place", (value) => { this.rankKind = value; this.rankChart(); })));
  }

  lists() {
    this.log = h("ul.log", { tabindex: 0, "aria-label": "Decisions, the newest first" });
    this.decisionData = dataTable(() => table("Decisions", ["when", "job", "what", "why"], (this.decisions ?? []).map((each) => [clock(each.at, this.seen.now), each.job, each.action, each.reason]), [1, 2, 3]));
    this.decisionCard = card("What was decided, and why", this.log);
  }

  jobsCard() {
    const search = h("input", { type: "search", placeholder: "Name, user, reason …", "aria-label": "Search jobs", maxlength: 100 });
    search.addEventListener("input", () => { clearTimeout(this.typing); this.typing = setTimeout(() => this.grid.set({ search: search.value }), 200); });
    const made = card("Jobs", this.grid.element);
    made.firstChild.append(tabs("Which jobs", [["all", "All"], ["running", "Running"], ["waiting", "Waiting"], ["ended", "Ended"]], "all", (group) => this.grid.set({ group })), h("span.push.row", {}, this.grid.count, search));
    this.grid.count.style.margin = "0";
    return made;
  }

  /** An event of the server: once a second or so. */
  tick(seen) {
    this.seen = seen;
    this.problems(seen);
    if (seen.now === undefined) return;
    const counts = seen.counts, runs = (counts.RUNNING ?? 0) + (counts.STARTING ?? 0), waits = counts.PENDING ?? 0;
    const unit = seen.unit, plural = seen.total === 1 ? unit : `${unit}s`;
    say(this.place, [seen.title, seen.scheduler && `scheduler ${seen.scheduler}`, clock(seen.now)].filter(Boolean).join(" · "));
    say(this.headline, seen.total ? `${number(seen.busy)} of ${number(seen.total)} ${plural} ${seen.busy === 1 ? "is" : "are"} busy, ${several(waits, "job")} ${waits === 1 ? "waits" : "wait"}` : `${several(waits, "job")} wait`);
    const [busy, running, waiting, ended] = this.tiles;
    fill(busy.value, number(seen.busy), h("small", {}, ` of ${number(seen.total)} ${plural}`));
    busy.meter.style.width = `${(100 * seen.busy) / (seen.total || 1)}%`;
    say(busy.element.lastChild, seen.watts === null ? "" : `${number(Math.round(seen.watts))} W in all`);
    say(running.value, number(runs));
    say(running.element.lastChild, counts.STARTING ? `${number(counts.STARTING)} being started` : "");
    say(waiting.value, number(waits));
    say(waiting.element.lastChild, counts.PENDING ? "" : "nobody waits");
    say(ended.value, number(seen.ended));
    const bad = (counts.FAILED ?? 0) + (counts.LOST ?? 0);
    say(ended.element.lastChild, bad ? `${number(bad)} failed or lost` : "");
    this.devices(seen);
    this.grid.changed(seen.version, seen.now);
    if (!this.lastLook || performance.now() - this.lastLook > SLOW - 500) this.refresh();
    else if (seen.decided !== this.decided) this.decide(seen);
  }

  problems(seen) {
    const lines = [];
    if (seen.problem) lines.push(h("p.note.bad", {}, h("b", {}, "The cluster cannot be seen: "), seen.problem, seen.now ? ` Last seen ${clock(seen.now)}.` : ""));
    if (seen.trouble) lines.push(h("p.note.bad", {}, seen.trouble));
    if (seen.loading) lines.push(h("p.note", {}, `Reading jobs; ${number(seen.loading)} numbers to go.`));
    for (const each of (seen.notes ?? []).slice(0, 3)) lines.push(h("p.note", {}, each));
    const text = lines.map((each) => each.textContent).join("\n");
    if (text !== this.noted) { this.noted = text; fill(this.note, lines); }
    if (seen.problem && seen.now === undefined) say(this.headline, "No cluster to see yet");
  }

  devices(seen) {
    const kinds = new Map();
    for (const each of seen.gpus) kinds.set(each[1], (kinds.get(each[1]) ?? 0) + 1);
    say(this.kinds, [...kinds].slice(0, 4).map(([kind, count]) => `${count} × ${kind}`).join(", "));
    this.gpuCard.hidden = !seen.gpus.length;
    this.measureCard.hidden = !seen.gpus.some((each) => each[4] !== null);
    if (seen.gpus.length === this.gpus.children.length && this.cards) { seen.gpus.forEach((each, k) => this.cards[k](each)); return; }
    this.cards = [];
    this.gpus.classList.toggle("many", seen.gpus.length > 16);
    fill(this.gpus, seen.gpus.map((each) => this.device(each, seen.gpus.length > 16)));
  }

  device(given, dense) {
    const name = h("b"), state = h("span"), kind = h("p"), bars = {}, list = h("dl");
    const measured = !dense && given[4] !== null;
    if (measured) for (const [key, label] of [["use", "use"], ["memory", "mem"]]) {
      const meter = h("i"), text = h("dd");
      bars[key] = [meter, text];
      list.append(h("dt", {}, label), h("div.meter", { "aria-hidden": true }, meter), text);
    }
    const heat = h("p.num"), element = h(`div.gpu${dense ? ".dense" : ""}`, {}, h("header", {}, name, state), measured ? list : "", measured ? heat : "", kind);
    const update = ([label, type, now, jobs, use, used, total, watts, celsius]) => {
      say(name, label);
      if (state.dataset.state !== now) { state.dataset.state = now; fill(state, h(`i.dot.${now}`), { "gpu-lost": "lost", "gpu-foreign": "used by others" }[now] ?? now); }
      if (measured) {
        bars.use[0].style.width = `${100 * (use ?? 0)}%`; say(bars.use[1], FORMATS.utilisation(use ?? 0));
        bars.memory[0].style.width = `${(100 * (used ?? 0)) / (total || 1)}%`; say(bars.memory[1], `${number(used)} GB`);
        say(heat, `${number(watts)} W · ${number(celsius)} °C`);
      }
      const held = jobs.length ? `job ${jobs.slice(0, 4).join(", ")}${jobs.length > 4 ? " …" : ""}` : measured ? "no job" : type;
      say(kind, held);
      element.title = `${label}, ${type}: ${now}, ${held}`;
    };
    update(given);
    this.cards.push(update);
    return element;
  }

  /** What changes slowly, or costs more. */
  async refresh() {
    if (document.hidden || this.seen.now === undefined) return;
    this.lastLook = performance.now();
    await Promise.allSettled([this.lines(), this.bars(), this.decide(this.seen), this.order()]);
  }

  async lines(measureOnly = false) {
    const wanted = this.measure, span = this.span;
    if (!measureOnly) {
      const jobs = await get("/api/live/lines/queue", { span });
      this.busy.show(jobs.times, jobs.lines.map((line) => ({ ...line, fill: line.name === "running" })));
    }
    if (!this.measureCard.hidden) {
      const found = await get(`/api/live/lines/${wanted}`, { span });
      if (wanted !== this.measure) return;
      Object.assign(this.use.options, { format: FORMATS[wanted], most: wanted === "utilisation" ? 1 : undefined, label: `${MEASURES.find(([key]) => key === wanted)[1]} of each GPU over time`, axis: wanted === "utilisation" ? 46 : 58 });
      this.use.show(found.times, found.lines);
      if (measureOnly) this.use.restyle();
    }
  }

  async bars() {
    const found = await get("/api/live/gantt", { hours: this.hours });
    const young = this.hours === 1 && !this.chosenHours && found.spans.length && found.spans[0][4] > found.until - 850;
    if (young) { this.ganttCard.querySelector('[data-value="0.25"]').click(); return; }
    this.gantt.show(found);
    this.ganttCard.hidden = !this.gantt.found.devices.length;
  }

  async decide(seen) {
    this.decided = seen.decided;
    this.decisions = (await get("/api/live/decisions", { count: 60 })).decisions;
    if (this.log.contains(document.activeElement)) return;
    fill(this.log, this.decisions.length ? this.decisions.map((each) => h("li", {}, h("time", {}, clock(each.at, seen.now)), h("span", {}, h("b", {}, each.action), ` job ${each.job} `, h("span.mute", {}, each.reason)))) : h("li", {}, h("span"), h("span.mute", {}, seen.scheduler ? "nothing to decide so far" : "no scheduler is asked")));
  }

  async order() {
    this.found = await get("/api/live/ranks");
    this.rankChart();
  }

  rankChart() {
    const jobs = this.found?.jobs ?? [], keyed = this.rankKind === "key";
    const times = [...new Set(jobs.flatMap((job) => job.line.map(([at]) => at)))].sort((a, b) => a - b);
    const lines = jobs.slice(0, 8).map((job) => {
      const known = new Map(job.line.map(([at, place, key]) => [at, keyed ? key : place]));
      return { name: `${job.label} ${job.name}`.trim(), values: times.map((at) => known.get(at) ?? null) };
    });
    const scored = jobs.some((job) => job.line.some(([, , key]) => key !== null));
    this.rankCard.hidden = !jobs.length;
    say(this.rankNote, keyed ? (scored ? `Scores by which ${this.found.scheduler} orders jobs; the lowest goes first. For a network it is minus the value that it gives a job.` : "This scheduler orders jobs without scores.") : `The head of the queue in the order of ${this.found?.scheduler || "submission"}.`);
    Object.assign(this.ranks.options, keyed ? { down: false, most: undefined, free: true, whole: false, axis: 64, label: "Score over time, the lowest goes first" } : { down: true, most: Math.max(5, ...jobs.map((job) => job.line.at(-1)?.[1] ?? 0)), free: false, whole: true, axis: 34, label: "Place in the queue over time, 1 is next" });
    this.ranks.show(times, lines);
    if (this.drawnKind !== this.rankKind) { this.drawnKind = this.rankKind; this.ranks.restyle(); }
  }

  /** Somebody looks again. */
  back() {
    this.grid.draw(true);
    this.refresh();
  }

  /** The server was away, or forgot us: begin again. */
  reset() {
    this.grid.set({});
    this.refresh();
  }

  destroy() {
    clearInterval(this.slow);
    for (const each of [this.busy, this.use, this.ranks, this.gantt, this.grid]) each.destroy();
  }
}

export { span };
