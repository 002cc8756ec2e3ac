// Begins: who may look, which page, and the stream of events that all pages share.
import { fill, h, say } from "./dom.js";
import { get, listen, post } from "./net.js";

const PAGES = {
  "/": async () => (await import("./live.js")).LivePage,
  "/results": async () => (await import("./results.js")).ResultsPage,
  "/training": async () => (await import("./training.js")).TrainingPage,
  "/compare": async () => (await import("./compare.js")).ComparePage,
};
const pageOf = (path) => (PAGES[path] ?? PAGES["/"])();
const main = document.getElementById("main"), link = document.getElementById("link");
const UNSEEN = 3000; // ms
let about, page, events, leaving, turn = 0;

async function begin() {
  pageOf(location.pathname).catch(() => {}); // its modules come while we ask who may look
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    history.replaceState(null, "", location.pathname + location.search);
    await post("/api/login", { token: given }).catch(() => {});
  }
  try {
    about = await get("/api/about");
  } catch {
    connected(false);
    setTimeout(begin, 2000);
    return;
  }
  if (!about.admitted) { askForToken(); return; }
  connect();
  await show();
}

/** A browser has six connections for each server: a page that nobody sees gives its own back. */
function connect() {
  events?.close();
  events = undefined;
  if (document.hidden) return;
  events = listen({ tick: (data) => page?.tick?.(data), done: (data) => page?.done?.(data), reset: () => page?.reset?.(), again: () => begin() }, connected);
}

function connected(is) {
  link.className = `link ${is ? "on" : "off"}`;
  say(link, is ? "connected" : "no connection; trying again");
}

function askForToken() {
  const field = h("input", { id: "token", type: "password", autocomplete: "current-password", required: true });
  const said = h("p.bad", { role: "alert" });
  const send = async (event) => {
    event.preventDefault();
    try {
      await post("/api/login", { token: field.value });
      begin();
    } catch (error) { said.textContent = error.message; }
  };
  document.title = "gpuyard";
  fill(main, h("form.card", { onsubmit: send }, h("h1", {}, "The token, please"), h("p.mute", {}, "It is in the file that was given to gpuyard serve --token; the address that it printed has it too."),
    h("label", { for: "token" }, "Token"), h("div.row", {}, field, h("button.plain.strong", { type: "submit" }, "Look")), said));
  field.focus();
}

async function show(focus = false) {
  const path = location.pathname, mine = (turn += 1);
  for (const each of document.querySelectorAll("nav a")) {
    if (each.getAttribute("href") === path) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  const Page = await pageOf(path);
  if (mine !== turn) return;
  page?.destroy();
  const made = page = new Page(about);
  document.title = `${page.title} · gpuyard`;
  fill(main, page.element);
  if (focus) { main.focus(); scrollTo(0, 0); }
  if (path === "/") get("/api/live").then((seen) => { if (page === made) made.tick(seen); }).catch(() => {});
}

/** Go to another page, or another view of this one, without loading the document again. */
export function go(address, focus = true) {
  history.pushState(null, "", address);
  show(focus);
}

document.addEventListener("click", (event) => {
  const found = event.target.closest?.("a[data-page]");
  if (!found || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  go(found.getAttribute("href"));
});
addEventListener("popstate", () => show());
document.addEventListener("visibilitychange", () => {
  clearTimeout(leaving);
  if (document.hidden) leaving = setTimeout(() => { events?.close(); events = undefined; }, UNSEEN);
  else if (about?.admitted && !events) { connect(); page?.back?.(); }
});
begin();
