// Elements and texts. What comes from outside becomes text, never markup.

/** Make an element: h("p.note", {hidden: true}, "text", other). Attributes that begin with "on" are listeners. */
export function h(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const made = document.createElement(tag || "div");
  if (classes.length) made.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || (value === false && !key.startsWith("aria-"))) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true && !key.startsWith("aria-") ? "" : String(value));
  }
  made.append(...children.flat().filter((each) => each !== null && each !== undefined && each !== false));
  return made;
}

/** Put these children into an element, in place of what it has. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

/** Change a text only where it differs, so that nothing is announced or laid out again. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

/** A span of time for people: 2 h 5 min. */
export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "";
  if (seconds < 1) return seconds > 0 ? "<1 s" : "0 s";
  const first = UNITS.findIndex(([, size]) => seconds >= size);
  const [unit, size] = UNITS[first];
  const next = UNITS[first + 1];
  if (!next || seconds >= 10 * size) return `${Math.round(seconds / size)} ${unit}`;
  const parts = Math.round(seconds / next[1]), each = size / next[1];
  const whole = Math.floor(parts / each), rest = parts % each;
  return rest ? `${whole} ${unit} ${rest} ${next[0]}` : `${whole} ${unit}`;
}

/** An instant for people: the time of day, with the date if that is another day than `now`. */
export function clock(at, now) {
  if (!at) return "";
  const there = new Date(at * 1000), here = new Date((now || Date.now() / 1000) * 1000);
  const time = there.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  return there.toDateString() === here.toDateString() ? time : `${there.toLocaleDateString([], { month: "short", day: "numeric" })} ${time.slice(0, 5)}`;
}

/** A number with three significant digits and thousands apart. */
export function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const text = Number.isInteger(value) ? value.toLocaleString("en") : Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits });
  return text.replace("-", "−");
}

/** `1 job`, `2 jobs`. */
export const several = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

/** A row of buttons of which one is pressed. */
export function tabs(label, choices, chosen, onchange) {
  const buttons = choices.map(([value, text]) =>
    h("button", { type: "button", "aria-pressed": value === chosen, "data-value": value, onclick: () => press(value) }, text));
  function press(value) {
    for (const each of buttons) each.setAttribute("aria-pressed", each.dataset.value === value);
    onchange(value);
  }
  return h("div.tabs", { role: "group", "aria-label": label }, buttons);
}

/** A table of plain cells; the first of each row is its header. `left`: columns of text. */
export function table(caption, headers, rows, left = []) {
  const cell = (tag, text, k) => h(`${tag}${k === 0 || left.includes(k) ? ".text" : ""}`, tag === "th" ? { scope: "col" } : {}, text instanceof Node ? text : String(text ?? ""));
  return h("div.box", { tabindex: 0, role: "region", "aria-label": caption },
    h("table", {}, h("caption.hidden", {}, caption), h("thead", {}, h("tr", {}, headers.map((text, k) => cell("th", text, k)))),
      h("tbody", {}, rows.map((row) => h("tr", { class: row.mark }, (row.cells ?? row).map((text, k) =>
        k === 0 ? h("th.text", { scope: "row" }, text instanceof Node ? text : String(text ?? "")) : cell("td", text, k)))))));
}

/** A chart's data as a table, closed until somebody opens it; made when it is opened. */
export function dataTable(make) {
  const place = h("div");
  const details = h("details.data", {}, h("summary", {}, "As a table"), place);
  details.addEventListener("toggle", () => { if (details.open) fill(place, make()); else fill(place); });
  details.refresh = () => { if (details.open && !place.contains(document.activeElement)) fill(place, make()); };
  return details;
}

/** A card with a heading. */
export function card(title, ...children) {
  const id = `h-${Math.random().toString(36).slice(2, 9)}`;
  return h("section.card", { "aria-labelledby": id }, h("div.top", {}, h("h2", { id }, title)), ...children);
}
