// Trainings: a list, and the curves of one as they grow.
import { LineChart } from "./chart.js";
import { card, fill, h, number, say, several, span, table } from "./dom.js";
import { get } from "./net.js";

const EVERY = 3000; // ms
const FIRST = ["score", "validation", "return", "best", "loss", "entropy"];
const WORDS = { running: "under way", stopped: "at rest", damaged: "cannot be read" };

/** `validation/bsld` → Validation: bsld; `time/collect` → Seconds to collect. */
const title = (name) => { const text = name.replace(/^time\//, "seconds to ").replace("/", ": ").replaceAll("_", " "); return text.charAt(0).toUpperCase() + text.slice(1); };

export class TrainingPage {
  title = "Training";

  constructor() {
    this.content = h("div.stack", {}, h("p.mute", {}, "Looking for trainings …"));
    this.element = h("div", {}, this.content);
    this.charts = new Map();
    this.name = new URLSearchParams(location.search).get("show");
    this.show();
    this.timer = setInterval(() => { if (!document.hidden) this.show(); }, EVERY);
  }

  async show() {
    try {
      if (this.name && /^[0-9a-f]{16}$/.test(this.name)) this.one(await get(`/api/training/${this.name}`));
      else this.list(await get("/api/training"));
    } catch (error) {
      fill(this.content, h("p.note.bad", {}, error.message));
    }
  }

  list({ trainings, now }) {
    const told = JSON.stringify(trainings);
    if (told === this.told) return;
    this.told = told;
    const items = trainings.map((each) => h("li.entry", {}, h("div", {},
      each.problem ? h("b", {}, each.folder) : h("a.title", { href: `/training?show=${each.name}`, "data-page": true }, each.folder), h("p.small.mute", {}, each.problem || each.about)),
      h("span.small.num", {}, h(`i.dot.${each.state}`), WORDS[each.state], each.updates ? `, ${several(each.updates, "update")}` : "", this.best(each.last), h("span.mute", {}, ` · ${span(now - each.changed)} ago`))));
    fill(this.content, h("div.head", {}, h("div", {}, h("h1", {}, trainings.length ? several(trainings.length, "training") : "No trainings here yet"),
      trainings.length ? "" : h("p.mute", {}, "Start one with ", h("span.code", {}, "gpuyard train"), ", or say where they are: ", h("span.code", {}, "gpuyard serve --results DIR")))),
    trainings.length ? h("div.card", {}, h("ul.list", {}, items)) : "");
  }

  best(last) {
    const name = Object.keys(last ?? {}).find((each) => FIRST.slice(0, 3).some((first) => each.startsWith(first)));
    return name ? `, ${title(name).toLowerCase()} ${number(last[name])}` : "";
  }

  one(found) {
    if (!this.made) {
      this.headline = h("h1");
      this.state = h("p.mute", { role: "status" });
      this.grid = h("div.two");
      this.made = true;
      fill(this.content, h("div.head", {}, h("div", {}, h("p.place", {}, h("a", { href: "/training", "data-page": true }, "Training")), this.headline, this.state)), this.grid,
        card("Settings", h("details.data", {}, h("summary", {}, several(found.settings.length, "setting")), table("Settings", ["setting", "value"], found.settings, [1]))));
    }
    say(this.headline, found.about || "A training");
    say(this.state, `${WORDS[found.state]} · ${several(found.updates, "update")}${found.last.steps ? ` · ${number(found.last.steps)} steps` : ""}`);
    const order = (name) => { const k = FIRST.findIndex((each) => name.startsWith(each)); return name.startsWith("time") ? 99 : k < 0 ? FIRST.length : k; };
    const curves = found.curves.filter((each) => each.values.some((value) => value !== null)).sort((a, b) => order(a.name) - order(b.name)).slice(0, 16);
    for (const each of curves) {
      if (!this.charts.has(each.name)) {
        const chart = new LineChart({ label: `${title(each.name)} over steps`, time: false, xname: "steps", free: true, axis: 60, brief: true });
        this.charts.set(each.name, chart);
        this.grid.append(card(title(each.name), chart.element));
      }
    }
    requestAnimationFrame(() => {
      for (const each of curves) {
        const kept = each.values.map((value, k) => [found.x[k], value]).filter(([, value]) => value !== null && value !== undefined);
        this.charts.get(each.name)?.show(kept.map(([x]) => x), [{ name: each.name, values: kept.map(([, value]) => value) }]);
      }
    });
  }

  destroy() {
    clearInterval(this.timer);
    for (const each of this.charts.values()) each.destroy();
  }
}
