// A table of any number of jobs, of which only those in sight are there. Sorting, filtering and cutting into pages is the server's work.
import { clock, fill, h, number, say, span } from "./dom.js";
import { get } from "./net.js";

const ROW = 34, PAGE = 100, KEPT = 40;

/** Columns: [key, title, cell, class, starts descending]. */
const COLUMNS = [
  ["rank", "Queue", (job) => job.rank ? number(job.rank) : "", "wide"],
  ["number", "Job", null, "text"],
  ["name", "Name", (job) => job.name || "", "text"],
  ["state", "State", null, "text"],
  ["user", "User", (job) => job.user, "text wide"],
  ["gpus", "Devices", (job) => job.gpus ? number(job.gpus) : "", "wide", true],
  ["wait", "Waited", (job, now) => job.submit ? span((job.start || job.end || now) - job.submit) : "", "wide", true],
  ["ran", "Ran", (job, now) => job.start ? span((job.end || now) - job.start) : "", "wide", true],
  ["reason", "Why", (job, now) => why(job, now), "text wide"],
];
const WIDTHS = ["5rem", "4.5rem", "auto", "6.6rem", "7rem", "5.6rem", "7rem", "6.4rem", "26%"];
const WORDS = { RUNNING: "running", STARTING: "starting", PENDING: "waiting", DONE: "done", FAILED: "failed", KILLED: "killed", LOST: "lost", GONE: "left the queue" };

export const stateWord = (state) => WORDS[state] ?? state.toLowerCase();

function why(job, now) {
  if (job.reason) return job.reason;
  if (job.state === "PENDING") return job.rank === 1 ? "it is next" : job.rank ? `${number(job.rank - 1)} ahead of it` : "";
  if (job.state === "RUNNING" && job.estimate > now - job.start) return `about ${span(job.estimate - (now - job.start))} left`;
  return job.end ? clock(job.end, now) : "";
}

export class JobGrid {
  constructor(onpick) {
    this.onpick = onpick;
    this.query = { group: "all", sort: "rank", descending: false, search: "" };
    this.pages = new Map();
    this.asked = new Map();
    this.total = 0;
    this.version = -1;
    this.head = COLUMNS.map(([key, title, , classes]) => h(`th${classes ? `.${classes.replaceAll(" ", ".")}` : ""}`, { scope: "col" },
      h("button", { type: "button", onclick: () => this.sort(key) }, title)));
    this.body = h("tbody");
    this.grid = h("table", { "aria-rowcount": 1, "aria-colcount": COLUMNS.length },
      h("caption.hidden", {}, "Jobs"), h("colgroup", {}, COLUMNS.map(([, , , classes]) => h(`col${classes.includes("wide") ? ".wide" : ""}`))), h("thead", {}, h("tr", { "aria-rowindex": 1 }, this.head)), this.body);
    [...this.grid.querySelector("colgroup").children].forEach((col, k) => { col.style.width = WIDTHS[k]; });
    this.element = h("div.jobs", { tabindex: 0, role: "region", "aria-label": "Jobs; scroll for more", onscroll: () => this.scrolled() }, this.grid);
    this.count = h("p.small.mute.num", { role: "status" });
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.element);
    this.marks();
  }

  set(changes) {
    Object.assign(this.query, changes);
    this.element.scrollTop = 0;
    this.pages.clear();
    this.abort();
    this.draw();
  }

  sort(key) {
    const descending = this.query.sort === key ? !this.query.descending : Boolean(COLUMNS.find((each) => each[0] === key)[4]);
    this.set({ sort: key, descending });
    this.marks();
  }

  marks() {
    COLUMNS.forEach(([key], k) => this.head[k].setAttribute("aria-sort", key !== this.query.sort ? "none" : this.query.descending ? "descending" : "ascending"));
  }

  /** Take in that the jobs have changed; what is in sight is asked for again. */
  changed(version, now) {
    this.now = now;
    if (version !== this.version) {
      this.version = version;
      if (!document.hidden) this.draw(true);
    }
  }

  abort() {
    for (const each of this.asked.values()) each.abort();
    this.asked.clear();
  }

  scrolled() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }

  /** Ask for a page unless it is known or asked for. */
  async need(page, again) {
    const known = this.pages.get(page);
    if (this.asked.has(page) || (known && (!again || known.version === this.version))) return;
    const stop = new AbortController();
    this.asked.set(page, stop);
    try {
      const found = await this.fetch(page, stop.signal);
      this.pages.set(page, found);
      if (this.pages.size > KEPT) this.pages.delete(this.pages.keys().next().value);
      this.total = found.total;
      this.now = found.now || this.now;
    } catch (error) {
      if (error.name === "AbortError") return;
    } finally {
      if (this.asked.get(page) === stop) this.asked.delete(page);
    }
    this.paint();
  }

  /** A page; the server sends fewer rows where they are long, so that it may take several requests. */
  async fetch(page, signal) {
    const rows = [];
    let found;
    do {
      found = await get("/api/live/jobs", { ...this.query, first: page * PAGE + rows.length, count: PAGE - rows.length }, signal);
      rows.push(...found.rows.map((row) => Object.fromEntries(found.columns.map((name, k) => [name, row[k]]))));
    } while (found.rows.length && rows.length < PAGE && page * PAGE + rows.length < found.total);
    return { rows, total: found.total, version: found.version, now: found.now };
  }

  sight() {
    const top = this.element.scrollTop, tall = this.element.clientHeight || 400;
    return [Math.max(Math.floor(top / ROW) - 6, 0), Math.ceil((top + tall) / ROW) + 6];
  }

  draw(again = false) {
    const [first, last] = this.sight();
    for (let page = Math.floor(first / PAGE); page <= Math.floor(Math.min(last, Math.max(this.total - 1, 0)) / PAGE); page += 1) this.need(page, again);
    this.paint();
  }

  paint() {
    const [low, high] = this.sight(), first = Math.min(low, this.total), last = Math.min(high, this.total);
    const focused = document.activeElement?.closest?.("tr[data-number]")?.dataset.number;
    const rows = [];
    for (let k = first; k < last; k += 1) rows.push(this.row(k, this.pages.get(Math.floor(k / PAGE))?.rows[k % PAGE]));
    const pad = (count) => { const made = h("tr.pad", { "aria-hidden": true }, h("td")); made.firstChild.style.height = `${count * ROW}px`; return made; };
    fill(this.body, first ? pad(first) : null, rows, last < this.total ? pad(this.total - last) : null);
    this.grid.setAttribute("aria-rowcount", this.total + 1);
    say(this.count, this.total ? `${number(this.total)} job${this.total === 1 ? "" : "s"}` : this.asked.size ? "" : "no jobs");
    if (focused) this.body.querySelector(`tr[data-number="${focused}"] button`)?.focus({ preventScroll: true });
  }

  row(k, job) {
    if (!job) return h("tr.blank", { "aria-rowindex": k + 2 }, h("th", { scope: "row" }, "…"));
    const cells = COLUMNS.map(([key, , cell, classes]) => {
      const name = classes ? `.${classes.replaceAll(" ", ".")}` : "";
      if (key === "number") return h("th.text", { scope: "row" }, h("button", { type: "button" }, job.label));
      if (key === "state") return h("td.text", {}, h(`i.dot.${job.state}`), stateWord(job.state));
      const text = cell(job, this.now);
      return h(`td${name}`, { title: text.length > 12 && name.includes("text") ? text : undefined }, text);
    });
    return h("tr", { "aria-rowindex": k + 2, "data-number": job.number, onclick: () => this.onpick(job.number) }, cells);
  }

  destroy() {
    this.abort();
    this.observer.disconnect();
  }
}
