// Experiments: a list, one in full, or two side by side.
import { LineChart } from "./chart.js";
import { bars } from "./bars.js";
import { card, fill, h, number, several, span, table } from "./dom.js";
import { go } from "./main.js";
import { get } from "./net.js";

const STATES = { complete: "complete", running: "under way", stopped: "not complete", damaged: "cannot be read" };
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const percent = (share) => {
  if (share === null || share === undefined) return "";
  const size = Math.abs(100 * share);
  return size < 0.05 ? "0 %" : `${share > 0 ? "+" : "−"}${number(size, 2)} %`;
};

export class ResultsPage {
  title = "Results";

  constructor() {
    this.content = h("div.stack", {}, h("p.mute", {}, "Looking for experiments …"));
    this.element = h("div", {}, this.content);
    this.charts = [];
    this.show();
  }

  async show() {
    const asked = new URLSearchParams(location.search).getAll("show").filter((name) => /^[0-9a-f]{16}$/.test(name)).slice(0, 2);
    try {
      if (!asked.length) fill(this.content, this.list(await get("/api/results")));
      else {
        const found = await Promise.all(asked.map((name) => get(`/api/results/${name}`)));
        fill(this.content, found.length === 2 ? this.pair(found) : this.one(found[0]));
      }
    } catch (error) {
      fill(this.content, h("p.note.bad", {}, error.message, error.hint ? ` (${error.hint})` : ""), h("p", {}, h("a", { href: "/results", "data-page": true }, "All experiments")));
    }
  }

  list({ experiments, now }) {
    const chosen = new Set();
    const button = h("button.plain", { type: "button", disabled: true, onclick: () => go(`/results?${[...chosen].map((name) => `show=${name}`).join("&")}`) }, "Show the two side by side");
    const pick = (name) => (event) => {
      if (event.target.checked) chosen.add(name); else chosen.delete(name);
      button.disabled = chosen.size !== 2;
    };
    const items = experiments.map((each) => h("li.entry.pick", {},
      each.state === "complete" ? h("input", { type: "checkbox", "aria-label": `Choose ${each.title} to be shown beside another`, onchange: pick(each.name) }) : h("span"),
      h("div", {}, each.state === "complete" ? h("a.title", { href: `/results?show=${each.name}`, "data-page": true }, each.title) : h("b", {}, each.title),
        h("p.small.mute", {}, each.question, " ", h("span.code", {}, each.folder))),
      h("span.small", {}, h(`i.dot.${each.state}`), STATES[each.state], each.parts ? `, ${several(each.parts, "part")}` : "", each.changed ? h("span.mute", {}, ` · ${span(now - each.changed)} ago`) : "")));
    return [h("div.head", {}, h("div", {}, h("h1", {}, experiments.length ? several(experiments.length, "experiment") : "No experiments here yet"),
      experiments.length ? "" : h("p.mute", {}, "Run one, such as ", h("span.code", {}, "gpuyard run core --quick --out results/core"), ", or say where they are: ", h("span.code", {}, "gpuyard serve --results DIR"))),
      experiments.length > 1 ? button : ""), experiments.length ? h("div.card", {}, h("ul.list", {}, items)) : ""];
  }

  head(found) {
    return h("div.head", {}, h("div", {}, h("p.place", {}, h("a", { href: "/results", "data-page": true }, "Results"), ` · ${several(found.runs, "Run")}`), h("h1", {}, found.title), h("p.mute", {}, found.question), h("p", {}, found.answer)));
  }

  one(found) {
    return [this.head(found), ...found.tables.map((each) => this.comparison(each)),
      found.charts.length ? h("div.flow", {}, found.charts.map((each) => this.chart(found, each))) : "",
      this.words(found), this.made(found)];
  }

  words(found) {
    const list = (texts) => h("ul", {}, texts.map((each) => h("li", {}, each)));
    if (!found.findings.length && !found.notes.length) return "";
    return card("Notes", found.notes.length ? list(found.notes) : "", found.findings.length ? h("details.data", {}, h("summary", {}, "Every finding, with intervals"), list(found.findings)) : "");
  }

  comparison(each) {
    const unit = each.unit ? ` (${each.unit})` : "";
    const rows = each.lines.map((line) => ({ mark: line.best ? "best" : "", cells: [
      h("span", {}, line.title, line.title === line.scheduler ? "" : h("small.code", {}, line.scheduler)), number(line.mean),
      line.low === null ? "" : `${number(line.low)} – ${number(line.high)}`,
      line.share === undefined ? "baseline" : h("span", { class: line.better === true ? "good" : line.better === false ? "bad" : "mute" }, percent(line.share)),
      line.share === undefined || line.share_low === null ? "" : `${percent(line.share_low)} – ${percent(line.share_high)}`,
      ...Object.values(line.others).map((value) => number(value))] }));
    const others = Object.keys(each.lines[0]?.others ?? {});
    return card(`${capital(each.title)}${unit}, ${each.better} is better`,
      bars(each.title, each.lines.slice(0, 12).map((line) => ({ name: line.title, mean: line.mean, low: line.low, high: line.high, best: line.best }))),
      h("details.data", { open: each.lines.length <= 8 }, h("summary", {}, "As a table"), table(each.title, ["scheduler", `mean${unit}`, "95 % interval", `against ${each.baseline}`, "95 % interval", ...others], rows)),
      each.left_out ? h("p.small.mute", {}, `${several(each.left_out, "more scheduler")} not shown.`) : "");
  }

  chart(found, each) {
    const made = card(each.title);
    if (each.kind === "lines") {
      const x = [...new Set(each.lines.flatMap((line) => line.x))].filter((value) => value !== null).sort((a, b) => a - b);
      const chart = new LineChart({ label: each.title, time: false, xname: each.x.title, log: each.x.log && x[0] > 0, steps: each.steps, format: each.y.percent ? (v) => percent(v) : (v) => number(v), axis: 60 });
      this.charts.push(chart);
      made.append(chart.element, h("p.small.mute", {}, `${each.y.title} over ${each.x.title}.`));
      requestAnimationFrame(() => chart.show(x, each.lines.map((line) => { const at = new Map(line.x.map((value, k) => [value, line.values[k]])); return { name: line.name, values: x.map((value) => at.get(value) ?? null) }; })));
    } else if (each.kind === "points") {
      const format = each.value.percent ? percent : number;
      const every = each.marks.flatMap((mark) => [...mark.mean, ...mark.low, ...mark.high]);
      const rows = each.rows.slice(0, 12).map((row, k) => [row, each.marks.filter((mark) => mark.mean[k] !== null).map((mark) => ({ name: mark.name, mean: mark.mean[k], low: mark.low[k], high: mark.high[k] }))]);
      const shown = rows.every(([, lines]) => lines.length === 1) ? [["", rows.map(([row, [line]]) => ({ ...line, name: row }))]] : rows.slice(0, 6);
      const options = { format, every, bend: each.value.bend };
      shown.forEach(([row, lines], k) => made.append(row ? h("h3.row-title", {}, row) : "", bars(row || each.title, lines, { ...options, scaled: k === shown.length - 1 })));
      made.append(h("p.small.mute", {}, each.value.title), h("details.data", {}, h("summary", {}, "As a table"), table(each.title, ["", ...each.rows], each.marks.map((mark) => [mark.name, ...mark.mean.map((value) => format(value))]))));
    } else if (each.kind === "picture") {
      const image = h("img", { src: `/api/results/${found.name}/charts/${each.number}.svg`, alt: each.title, loading: "lazy" });
      image.addEventListener("error", () => image.replaceWith(h("p.small.mute", {}, "This chart needs matplotlib: pip install 'gpuyard[plots]'.")));
      made.append(h("figure", {}, image));
    }
    made.append(h("p.small.mute", {}, each.caption));
    return made;
  }

  made(found) {
    const about = h("dl.facts", {}, Object.entries(found.about).filter(([, value]) => value && JSON.stringify(value) !== "{}").flatMap(([key, value]) => [h("dt", {}, key), h("dd", {}, typeof value === "object" ? JSON.stringify(value).slice(0, 2000) : String(value))]));
    const place = h("div");
    const manifests = h("details.data", { ontoggle: async (event) => {
      if (!event.target.open) return;
      const { manifests: some, total } = await get(`/api/results/${found.name}/manifests`, { count: 5 });
      fill(place, h("p.small.mute", {}, `The first ${some.length} of ${number(total)}.`), some.map((each) => h("pre", { tabindex: 0, "aria-label": "A manifest" }, JSON.stringify(each, null, 1))));
    } }, h("summary", {}, "Manifests of its Runs"), place);
    return card("How it was made", about, manifests);
  }

  /** Two experiments: the tables of what both measure, scheduler by scheduler, and how each was made. */
  pair([a, b]) {
    const tables = a.tables.flatMap((mine) => {
      const other = b.tables.find((each) => each.objective === mine.objective);
      if (!other) return [];
      const theirs = new Map(other.lines.map((line) => [line.scheduler, line]));
      const all = [...new Set([...mine.lines, ...other.lines].map((line) => line.scheduler))], both = (name) => theirs.has(name) && mine.lines.some((line) => line.scheduler === name);
      const names = [...all.filter(both), ...all.filter((name) => !both(name))];
      const rows = names.map((name) => {
        const left = mine.lines.find((line) => line.scheduler === name), right = theirs.get(name);
        const change = left && right && left.mean ? (right.mean - left.mean) / Math.abs(left.mean) : null;
        return [name, left ? number(left.mean) : "–", right ? number(right.mean) : "–", percent(change)];
      });
      return [card(`${capital(mine.title)}${mine.unit ? ` (${mine.unit})` : ""}`, table(mine.title, ["scheduler", "A", "B", "B against A"], rows))];
    });
    const apart = a.tables.length && !tables.length ? [h("p.note", {}, "These two measure different things.")] : [];
    return [h("div.head", {}, h("div", {}, h("p.place", {}, h("a", { href: "/results", "data-page": true }, "Results")), h("h1", {}, "Two experiments side by side"))),
      h("div.two", {}, [a, b].map((each, k) => card(`${"AB"[k]}: ${each.title}`, h("p.mute", {}, each.question), h("p", {}, each.answer)))), ...apart, ...tables,
      ...a.tables.map((mine) => [mine, b.tables.find((each) => each.objective === mine.objective)]).filter(([, other]) => other).map(([mine, other]) => {
        const [left, right] = [mine, other].map((found) => found.lines.slice(0, 12).map((line) => ({ name: line.title, mean: line.mean, low: line.low, high: line.high, best: line.best })));
        const every = [...left, ...right].flatMap((line) => [line.mean, line.low, line.high]); // one scale for both
        return h("div.two", {}, card(`A: ${mine.title}`, bars(mine.title, left, { every })), card(`B: ${other.title}`, bars(other.title, right, { every })));
      }),
      h("div.two", {}, [a, b].map((each) => this.made(each)))];
  }

  destroy() {
    for (const each of this.charts) each.destroy();
  }
}
