// One job in full, in a dialog.
import { clock, fill, h, number, span } from "./dom.js";
import { stateWord } from "./grid.js";
import { get, post } from "./net.js";

const WORDS = { cancel: "Cancel", hold: "Hold", release: "Release", top: "Put first" };

export class JobSheet {
  constructor(about) {
    this.about = about;
    this.content = h("div");
    this.element = h("dialog", { "aria-labelledby": "job-title", onclick: (event) => { if (event.target === this.element) this.element.close(); } }, this.content);
  }

  async open(jobNumber) {
    this.number = jobNumber;
    fill(this.content, h("h2", { id: "job-title" }, "…"));
    if (!this.element.open) this.element.showModal();
    try {
      this.show(await get(`/api/live/jobs/${jobNumber}`));
    } catch (error) {
      fill(this.content, this.top(`Job ${jobNumber}`), h("p", {}, error.message));
    }
  }

  top(title) {
    return h("div.top", {}, h("h2", { id: "job-title" }, title), h("button.plain.push", { type: "button", onclick: () => this.element.close() }, "Close"));
  }

  show(job) {
    const { detail, now } = job, facts = h("dl.facts");
    const fact = (name, value) => { if (value !== undefined && value !== null && value !== "") facts.append(h("dt", {}, name), h("dd", {}, value)); };
    const waits = job.state === "PENDING";
    fact("state", h("span", {}, h(`i.dot.${job.state}`), stateWord(job.state)));
    fact(waits ? "why it waits" : "about it", detail.why || job.reason);
    fact("place in the queue", detail.position || job.rank ? number(detail.position || job.rank) : "");
    if (waits && detail.start) fact("should start", `about ${clock(detail.start, now)}${detail.latest > detail.earliest ? `; four of five such jobs between ${clock(detail.earliest, now)} and ${clock(detail.latest, now)}` : ""}`);
    fact("user", job.user);
    fact("asks for", job.gpus ? `${number(job.gpus)} device${job.gpus === 1 ? "" : "s"}` : "");
    fact("on", job.place);
    fact("partition", job.partition);
    fact("submitted", clock(job.submit, now));
    fact("waited", !job.submit ? "" : span((job.start || job.end || now) - job.submit));
    fact("started", clock(job.start, now));
    fact("ran", job.start ? span((job.end || now) - job.start) : "");
    fact("estimated to take", job.estimate ? span(job.estimate) : "");
    fact("ended", clock(job.end, now));
    fact("exit code", detail.exit_code);
    fact("energy", detail.energy ? `${number(detail.energy / 3600)} Wh` : "");
    fact("command", detail.command ? h("span.code", {}, detail.command) : "");
    fact("folder", detail.cwd ? h("span.code", {}, detail.cwd) : "");
    for (const each of detail.history ?? []) fact("before", each);
    this.said = h("p.small", { role: "status" });
    fill(this.content, this.top(`Job ${job.label}${job.name ? ` · ${job.name}` : ""}`), facts, job.actions && !job.end ? this.actions(job) : "", this.said, this.output(job));
  }

  actions(job) {
    const waits = job.state === "PENDING", held = job.detail.held || job.reason === "it is held";
    const offered = waits ? ["top", held ? "release" : "hold", "cancel"] : ["cancel"];
    return h("div.row", {}, offered.map((action) => h("button.plain", { type: "button", "data-action": action, onclick: () => this.act(action, job) }, WORDS[action])));
  }

  async act(action, job) {
    if (action === "cancel" && !confirm(`Cancel job ${job.label}?`)) return;
    try {
      await post("/api/live/actions", { action, number: job.number });
      await this.open(job.number);
      this.said.textContent = "Done.";
    } catch (error) {
      this.said.textContent = error.message;
    }
  }

  output(job) {
    if (!this.about.token || job.state === "PENDING" || job.detail.command === undefined) return "";
    const place = h("div");
    return h("details.data", { ontoggle: async (event) => {
      if (!event.target.open) return;
      try {
        const { text } = await get(`/api/live/jobs/${job.number}/output`);
        fill(place, h("pre", { tabindex: 0, "aria-label": "The end of its output" }, text || "It has written nothing."));
      } catch (error) {
        fill(place, h("p", {}, error.message));
      }
    } }, h("summary", {}, "The end of its output"), place);
  }
}
