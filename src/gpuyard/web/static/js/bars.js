// Means with their intervals, a line each: a dot and a bar on a common scale.
import { h, number } from "./dom.js";

/** lines: {name, mean, low, high, best}; `every`: what else shares their scale. It begins at 0 unless that would hide the differences. */
export function bars(label, lines, format = number, every = lines.flatMap((line) => [line.mean, line.low, line.high])) {
  const known = every.filter((value) => Number.isFinite(value));
  if (!known.length) return h("p.mute", {}, "no values");
  let low = Math.min(...known), high = Math.max(...known);
  if (low > 0 && low < 0.7 * high) low = 0;
  if (high < 0 && high > 0.7 * low) high = 0;
  const room = (high - low || Math.abs(high) || 1) * 0.03;
  low = low === 0 ? 0 : low - room;
  high += room;
  const place = (value) => 3 + (94 * (value - low)) / (high - low);
  return h("div.bars", { role: "list", "aria-label": label }, lines.map((line) => {
    const mark = h(`i.mark${line.best ? ".best" : ""}`), range = h(`i.range${line.best ? ".best" : ""}`), track = h("span.track", { "aria-hidden": true });
    if (Number.isFinite(line.low) && Number.isFinite(line.high)) {
      range.style.left = `${place(line.low)}%`;
      range.style.width = `${Math.max(place(line.high) - place(line.low), 0.5)}%`;
      track.append(range);
    }
    if (Number.isFinite(line.mean)) { mark.style.left = `${place(line.mean)}%`; track.append(mark); }
    const item = h("div", { role: "listitem" }, h("span.name", { title: line.name }, line.name), track, h(`b.num${line.best ? ".good" : ""}`, {}, line.text ?? format(line.mean)));
    return item;
  }));
}
