// Asking the server. Every request goes to the page's own origin.

export class Refused extends Error {
  constructor(status, message, hint) {
    super(message);
    this.status = status;
    this.hint = hint;
  }
}

async function answered(response) {
  const found = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, found.error || `${response.status} ${response.statusText}`, found.hint);
  return found;
}

/** Ask for something; `parameters` without a value are left out. */
export async function get(path, parameters = {}, signal = undefined) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== undefined && value !== ""));
  return answered(await fetch(query.size ? `${path}?${query}` : path, { signal, credentials: "same-origin" }));
}

/** Change something. The header shows that it was this page that asked. */
export async function post(path, data, method = "POST") {
  const headers = { "content-type": "application/json", "x-gpuyard": "1" };
  return answered(await fetch(path, { method, headers, body: JSON.stringify(data), credentials: "same-origin" }));
}

/** Listen to events; a browser connects again by itself and says what it saw last. */
export function listen(handlers, onstate) {
  const source = new EventSource("/api/live/events");
  for (const [name, handler] of Object.entries(handlers)) source.addEventListener(name, (event) => handler(JSON.parse(event.data)));
  source.addEventListener("open", () => onstate(true));
  source.addEventListener("error", () => {
    onstate(false);
    if (source.readyState === EventSource.CLOSED) setTimeout(() => { if (!source.stopped) handlers.again?.(); }, 2000);
  });
  return { close() { source.stopped = true; source.close(); } };
}
