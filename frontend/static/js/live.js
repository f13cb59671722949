// Keeps a page true without reloading: one event stream while the page is looked at, parts fetched again when something changed.
//
// A part is an element with `data-live` (where its HTML comes from) and `data-live-on` (which event) or `data-live-every`
// (seconds). The stream is closed while the tab is hidden, because browsers allow few connections to one host.
import { announce, say } from "./words.js";
import { localise } from "./times.js";

const SETTLE_MS = 120;
const RETRY_MS = 2000;
// A blink of the network is nobody's business.
const PATIENCE_MS = 3000;

const source = document.body.dataset.events;
const parts = [...document.querySelectorAll("[data-live]")];
const waiting = new Map();
const shown = new WeakMap();
let stream = null;
let seen = "";
let lost = null;
let worry = 0;

function states(root) {
  return new Map([...root.querySelectorAll("[data-session]")].map((e) => [e.dataset.session, e]));
}

/** Puts fresh HTML in place of a part's content and keeps the focus where it was. */
function replace(part, html) {
  if (shown.get(part) === html) return;
  shown.set(part, html);
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  const before = states(part);
  for (const [id, element] of states(fresh.content)) {
    const old = before.get(id);
    if (old && element.dataset.announce && old.dataset.announce !== element.dataset.announce) announce(element.dataset.announce);
  }
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const key = focused && (focused.id || focused.getAttribute("href"));
  // What was opened stays open.
  const open = new Set([...part.querySelectorAll("details[open] > summary")].map((e) => e.textContent));
  for (const summary of fresh.content.querySelectorAll("details > summary")) if (open.has(summary.textContent)) summary.parentElement.open = true;
  part.replaceChildren(fresh.content);
  localise(part);
  if (key) [...part.querySelectorAll("a[href], button, [tabindex]")].find((e) => e.id === key || e.getAttribute("href") === key)?.focus();
  const go = part.querySelector("[data-go]");
  if (go) location.replace(go.dataset.go);
}

async function refresh(part) {
  try {
    const answer = await fetch(part.dataset.live, { headers: { accept: "text/html" }, redirect: "manual" });
    // The log-in is over, or the thing is gone: the page itself says which.
    if (answer.type === "opaqueredirect" || answer.status === 401 || answer.status === 404) return location.reload();
    if (answer.status !== 200) throw new Error(String(answer.status));
    replace(part, await answer.text());
    connection(true);
  } catch {
    connection(false);
  }
}

function soon(part) {
  clearTimeout(waiting.get(part));
  waiting.set(part, setTimeout(() => refresh(part), SETTLE_MS));
}

function on(kind) {
  for (const part of parts) if (part.dataset.liveOn === kind) soon(part);
}

/** Says when the connection is lost, and takes it back when it is there again. */
function connection(good) {
  if (good) {
    clearTimeout(worry);
    worry = 0;
    lost?.remove();
    lost = null;
  } else if (!worry) {
    worry = setTimeout(() => {
      lost = document.createElement("p");
      lost.className = "notice notice-doubt offline";
      lost.setAttribute("role", "status");
      lost.textContent = say("offline");
      document.querySelector("main").append(lost);
    }, PATIENCE_MS);
  }
}

function open() {
  if (!source || stream) return;
  const address = new URL(source, location.href);
  if (seen) address.searchParams.set("last_id", seen);
  stream = new EventSource(address);
  stream.addEventListener("open", () => {
    connection(true);
    // Whatever happened between the page and the stream is in the parts by now.
    for (const kind of ["state", "space", "operation", "alert"]) on(kind);
  });
  stream.addEventListener("state", (event) => {
    seen = event.lastEventId || seen;
    on("state");
  });
  stream.addEventListener("nodes", () => on("state"));
  stream.addEventListener("scratch", () => on("state"));
  stream.addEventListener("space", () => on("space"));
  stream.addEventListener("alert", (event) => {
    seen = event.lastEventId || seen;
    on("alert");
    on("state");
  });
  stream.addEventListener("operation", (event) => {
    seen = event.lastEventId || seen;
    on("operation");
  });
  // Time is nearly over, or files are to be removed: the parts say so, and a screen reader says it for what is on this page.
  stream.addEventListener("notice", (event) => {
    seen = event.lastEventId || seen;
    on("state");
    const notice = JSON.parse(event.data);
    if (notice.text && (!notice.session || states(document).get(notice.session)?.dataset.announce)) announce(notice.text);
  });
  stream.addEventListener("error", () => {
    connection(false);
    if (stream?.readyState !== EventSource.CLOSED) return;
    stream = null;
    setTimeout(() => document.hidden || resume(), RETRY_MS);
  });
}

function resume() {
  open();
  for (const part of parts) soon(part);
}

if (parts.length > 0) {
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) return resume();
    stream?.close();
    stream = null;
  });
  addEventListener("pagehide", () => stream?.close());
  addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    stream = null;
    resume();
  });
  // A waiting page must notice that its session is ready even while another tab is in front.
  const patient = parts.filter((part) => part.querySelector("[data-state]") && location.pathname.endsWith("/open"));
  setInterval(() => document.hidden && patient.forEach(refresh), 5000);
  for (const part of parts) {
    const every = Number(part.dataset.liveEvery);
    if (every > 0) setInterval(() => document.hidden || refresh(part), every * 1000);
  }
  if (!document.hidden) open();
}
