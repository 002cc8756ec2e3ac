// Means with their intervals, a line each: a dot and a bar on a common scale.
import { h, number } from "./dom.js";

/** Where a value lies on a scale that is linear up to `bend`, and logarithmic on both sides beyond it; 0: all linear. */
const bent = (value, bend) => { const size = Math.abs(value) / (bend || 1); return bend && size > 1 ? Math.sign(value) * (1 + Math.log10(size)) : bend ? value / bend : value; };

/**
 * lines: {name, mean, low, high, best, text}. options: `format`, `bend`, `every` (what else shares their scale), `scaled` (its ends are shown).
 * The scale begins at 0 unless that would hide the differences.
 */
export function bars(label, lines, { format = number, every = lines.flatMap((line) => [line.mean, line.low, line.high]), scaled = true, bend = 0 } = {}) {
  const known = every.filter((value) => Number.isFinite(value));
  if (!known.length) return h("p.mute", {}, "no values");
  let low = Math.min(...known), high = Math.max(...known);
  if (low > 0 && low < 0.7 * high) low = 0;
  if (high < 0 && high > 0.7 * low) high = 0;
  const ends = [low, high], from = bent(low, bend), room = bent(high, bend) - from || Math.abs(from) || 1;
  const place = (value) => 4 + (92 * (bent(value, bend) - from)) / room;
  const at = (name, value, text) => { const made = h(name, {}, text); made.style.left = `${place(value)}%`; return made; };
  const made = lines.map((line) => {
    const best = line.best ? ".best" : "", track = h("span.track", { "aria-hidden": true });
    if (low < 0 && high > 0) track.append(at("i.zero", 0));
    if (Number.isFinite(line.low) && Number.isFinite(line.high)) {
      const range = at(`i.range${best}`, line.low);
      range.style.width = `${Math.max(place(line.high) - place(line.low), 0.5)}%`;
      track.append(range);
    }
    if (Number.isFinite(line.mean)) track.append(at(`i.mark${best}`, line.mean));
    return h("div", { role: "listitem" }, h("span.name", { title: line.name }, line.name), track, h(`b.num${line.best ? ".good" : ""}`, {}, line.text ?? format(line.mean)));
  });
  const scale = scaled && low !== high ? h("div", { role: "presentation", "aria-hidden": true }, h("span"), h("span.scale", {}, ends.map((value) => at("small", value, format(value)))), h("span")) : "";
  return h("div.bars", { role: "list", "aria-label": label }, made, scale);
}
