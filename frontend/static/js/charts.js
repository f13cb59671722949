// The page Charts: what a session or run uses, closely. All charts have one time axis; ranges, comparisons and tables are chosen here.
//
// The element with `data-charts` says as JSON where samples come from, when it began and ended, what happened, and what there is to compare
// with. What the server drew of the same figures gives way to the charts once they have something to show.
import { aligned, charts, GROUPS, groupTitle, joined, MORE, steps, troubles } from "./charts/answer.js";
import { follow } from "./charts/colours.js";
import { Feed, Trouble } from "./charts/feed.js";
import { timeText } from "./charts/figures.js";
import { Panel } from "./charts/panel.js";
import { View } from "./charts/view.js";
import { announce, say } from "./words.js";

const EVERY_MS = 10_000;
/** Samples come for each node; what they tell is fetched once for all. */
const SETTLE_MS = 2000;
/** Marks that figures make. */
const MOST_TROUBLES = 40;
/** Steps that are marked, the last ones. */
const MOST_STEPS = 20;
const TABLES = "eirene-chart-tables";
const CHOSEN = "eirene-chart-groups";

const root = document.querySelector("[data-charts]");
const about = JSON.parse(root.dataset.charts);
const plain = document.querySelector("[data-charts-plain]");
const place = root.querySelector("[data-charts-place]");
const told = root.querySelector("[data-charts-told]");
const shownTime = root.querySelector("[data-charts-time]");
const happened = root.querySelector("[data-charts-happened]");
const compare = root.querySelector("[data-charts-compare]");

// The portal's clock counts: that of the reader may be wrong.
const skew = about.now ? Date.parse(about.now) - Date.now() : 0;
const now = () => Date.now() + skew;
const begins = Date.parse(about.begins);
let over = about.ends !== null;
let ends = over ? Date.parse(about.ends) : 0;
const view = new View(begins, () => (over ? ends : now()));
const own = new Feed(about.samples);
// Groups of many lines, as far as they are chosen.
const more = new Map();
const marks = about.marks.map((mark) => ({ ...mark, at: Date.parse(mark.at) }));
const panels = new Map();
const groups = new Map();
let other = null;
let shown = null;
let cursor = null;
let listed = "";
let turn = 0;
// The round in which all is fetched; 0 while none is.
let loading = 0;
let failed = false;

/** What is chosen under a name, such as the charts that have their table open: kept in this browser. */
function chosen(name, change) {
  try {
    const kept = new Set(JSON.parse(localStorage.getItem(name) ?? "[]"));
    if (change) {
      change(kept);
      localStorage.setItem(name, JSON.stringify([...kept]));
    }
    return kept;
  } catch {
    // Storage may be forbidden, or hold something else; the choice then lasts for this page.
    return new Set();
  }
}

function tell(text, tone = "") {
  told.hidden = !text;
  told.className = tone ? `notice notice-${tone}` : "soft";
  if (told.textContent !== text) told.textContent = text;
}

/** Puts `made` before the first of those that come after it, without moving any: what has the focus keeps it. */
function insert(parent, made, later) {
  parent.insertBefore(made, later.find((one) => one?.isConnected) ?? null);
}

/** The group's section. */
function section(group) {
  const known = groups.get(group);
  if (known) return known;
  const made = document.createElement("section");
  made.className = "card stack";
  const title = document.createElement("h2");
  title.id = `charts-${group}`;
  title.textContent = groupTitle(group);
  made.setAttribute("aria-labelledby", title.id);
  const inner = document.createElement("div");
  inner.className = "plots";
  made.append(title, inner);
  groups.set(group, { made, inner });
  return groups.get(group);
}

const on = {
  range: () => ({ ...shown.range, step: shown.answer.step_s * 1000 }),
  cursor: (at) => {
    cursor = at;
    for (const panel of panels.values()) panel.point(at);
  },
  zoom: (from, to) => {
    if (view.zoom(from, to)) void load(true);
  },
  reset: () => {
    on.cursor(null);
    if (view.span !== "all") choose("all");
  },
  table: (id, open) => chosen(TABLES, (kept) => (open ? kept.add(id) : kept.delete(id))),
};

/** Lines of a chart with those of what it is compared with behind. */
function lines(chart, answer) {
  const mine = chart.lines.map((line, colour) => ({ ...line, name: line.label, colour, dashed: false }));
  const same = other?.charts.find((one) => one.id === chart.id);
  if (!same) return mine;
  const later = begins - Date.parse(other.about.begins);
  const theirs = same.lines.map((line, colour) => ({
    ...line,
    key: `other|${line.key}`,
    name: say("chart_of_other", { what: line.label, name: other.about.name }),
    colour,
    dashed: true,
    values: aligned(line, answer, other.answer, later),
  }));
  return [...mine, ...theirs];
}

/** Puts what is known into the panels; those that have nothing to show any more go. */
function draw() {
  const { answer, range } = shown;
  const found = charts(answer, about.cpus);
  const step = answer.step_s * 1000;
  const times = Array.from({ length: answer.spans }, (_, at) => Date.parse(answer.from) + (at + 0.5) * step);
  const all = [...marks, ...steps(answer, MOST_STEPS), ...troubles(answer, MOST_TROUBLES)].sort((a, b) => a.at - b.at);
  const kept = new Set(found.map((chart) => chart.id));
  for (const [id, panel] of panels) {
    if (kept.has(id)) continue;
    panel.destroy();
    panels.delete(id);
  }
  const open = chosen(TABLES);
  for (const [at, chart] of found.entries()) {
    const { made, inner } = section(chart.group);
    if (!made.isConnected) insert(place, made, GROUPS.slice(GROUPS.indexOf(chart.group) + 1).map((group) => groups.get(group)?.made));
    const panel = panels.get(chart.id) ?? new Panel(chart.id, `${chart.group}-${panels.size}-${turn}`, on, open.has(chart.id));
    const later = found.slice(at + 1).filter((one) => one.group === chart.group);
    if (!panel.root.isConnected) insert(inner, panel.root, later.map((one) => panels.get(one.id)?.root));
    panels.set(chart.id, panel);
    panel.show({ chart, lines: lines(chart, answer), times, step, marks: all, other: other?.about.name ?? "", ...range });
    panel.point(cursor);
  }
  for (const { made, inner } of groups.values()) {
    if (inner.childElementCount === 0) made.remove();
    // A chart alone takes half of the width, but not one of many rows.
    made.classList.toggle("half", inner.childElementCount === 1 && !inner.querySelector(".wide"));
  }
  plain.hidden = found.length > 0;
  tellAbout(found, answer);
  list(all);
}

function tellAbout(found, answer) {
  shownTime.textContent = say("chart_range", { from: timeText(shown.range.from), to: timeText(shown.range.to) });
  const has = (group, all) => all.some((chart) => chart.group === group);
  const missing = [...more.keys()].filter((group) => !has(group, found)).map(groupTitle);
  const absent = [...more.keys()].filter((group) => other && !has(group, other.charts)).map(groupTitle);
  // Where the page says above why there is nothing, nothing is promised.
  const refused = !over && document.querySelector("[data-charts-refused]");
  if (found.length === 0 && refused) tell("");
  else if (found.length === 0) tell(answer.spans > 0 && view.span === "all" ? (over ? say("chart_none") : say("chart_soon")) : say("chart_none_here"));
  else if (other && other.charts.length === 0) tell(say("chart_other_none", { name: other.about.name }));
  else if (missing.length > 0) tell(say("chart_more_none", { what: missing.join(", ") }));
  else if (absent.length > 0) tell(say("chart_other_more_none", { name: other.about.name, what: absent.join(", ") }));
  else tell(answer.unreadable > 0 ? say("chart_broken", { n: answer.unreadable }) : "", answer.unreadable > 0 ? "doubt" : "");
  document.querySelector("[data-charts-tools]").hidden = false;
  for (const one of root.querySelectorAll("[data-charts-last]")) one.setAttribute("aria-pressed", String(one.dataset.chartsLast === view.span));
}

/** What happened, as words: also what lies outside the time that is looked at. */
function list(all) {
  const made = JSON.stringify(all);
  // What stands there already may be being read.
  if (listed === made) return;
  listed = made;
  happened.replaceChildren(
    ...all.map((mark) => {
      const item = document.createElement("li");
      if (mark.tone) item.className = `happened-${mark.tone}`;
      const time = document.createElement("time");
      time.dateTime = new Date(mark.at).toISOString();
      time.textContent = timeText(mark.at);
      item.append(time, ` ${mark.text}`);
      return item;
    }),
  );
}

/** Fetches what is looked at: all of it, with what it is compared with, or only what came since. */
async function load(whole) {
  // What goes on with the time waits for what somebody has asked for.
  if (!whole && loading > 0) return;
  const mine = (turn += 1);
  const { range } = view;
  loading = whole ? mine : 0;
  try {
    const fetched = [own, ...more.values()].map((feed) => (whole ? feed.load(range.from, range.to) : feed.grow(range.from, range.to)));
    const [first, ...others] = await Promise.all(fetched);
    const answer = joined(first, others);
    const compared = whole ? await loadOther(range) : other;
    if (mine !== turn) return;
    failed = false;
    other = compared;
    shown = { answer, range };
    draw();
  } catch (error) {
    if (error.name === "AbortError" || mine !== turn) return;
    // What is there stays, and the next round tries again.
    failed = true;
    tell(error instanceof Trouble ? error.message : say("chart_no_answer"), "doubt");
    if (!(error instanceof Trouble)) throw error;
  } finally {
    if (loading === mine) loading = 0;
  }
}

/** What it is compared with, at the same distance from its beginning; of groups of many lines those that are chosen, too. */
async function loadOther(range) {
  const found = about.others.find((one) => one.of === view.other);
  if (!found) return null;
  const later = begins - Date.parse(found.begins);
  const samples = `/live/${found.of}/samples`;
  const feeds = [new Feed(samples), ...[...more.keys()].map((group) => new Feed(samples, group))];
  const [first, ...others] = await Promise.all(feeds.map((feed) => feed.load(range.from - later, range.to - later)));
  const answer = joined(first, others);
  return { about: found, answer, charts: charts(answer, about.cpus) };
}

/** Fetches a group of many lines too, or no longer. */
function toggle(button) {
  const group = button.dataset.chartsMore;
  if (!more.delete(group)) more.set(group, new Feed(about.samples, group));
  button.setAttribute("aria-pressed", String(more.has(group)));
  chosen(CHOSEN, (kept) => (more.has(group) ? kept.add(group) : kept.delete(group)));
  void load(true);
}

function choose(span) {
  view.last(span);
  void load(true);
}

/** What something to compare with is called in the list of all. */
function called(one) {
  const values = { name: one.name, time: timeText(Date.parse(one.begins)) };
  return one.of.startsWith("runs/") ? say("chart_run", values) : say("chart_session", values);
}

/** Buttons of the page: everything a key or a mouse does, too. */
function tools() {
  for (const one of root.querySelectorAll("[data-charts-last]")) one.addEventListener("click", () => choose(one.dataset.chartsLast));
  for (const group of chosen(CHOSEN)) if (MORE.includes(group)) more.set(group, new Feed(about.samples, group));
  for (const one of root.querySelectorAll("[data-charts-more]")) {
    one.setAttribute("aria-pressed", String(more.has(one.dataset.chartsMore)));
    one.addEventListener("click", () => toggle(one));
  }
  for (const one of root.querySelectorAll("[data-charts-zoom]")) {
    one.addEventListener("click", () => {
      const { from, to } = view.range;
      const middle = cursor ?? (from + to) / 2;
      const by = one.dataset.chartsZoom === "in" ? 0.5 : 2;
      on.zoom(middle - (middle - from) * by, middle + (to - middle) * by);
    });
  }
  for (const one of about.others) compare.append(new Option(called(one), one.of, false, one.of === view.other));
  compare.closest(".field").hidden = about.others.length === 0;
  compare.addEventListener("change", () => {
    view.compare(compare.value);
    void load(true);
    if (compare.value) announce(say("chart_compared", { name: compare.selectedOptions[0].textContent }));
  });
}

// How often it was put back into the queue, and whether it is there again.
let restarts = about.restarts ?? 0;
let waits = about.waits ?? false;

/** Marks what happened while one looks. */
function add(mark) {
  marks.push(mark);
  if (shown) draw();
}

/** Marks that it was put back into the queue, and that it was started again after that. */
function requeued({ restart_count: count = restarts, started_at: started }) {
  if (count > restarts) {
    restarts = count;
    waits = true;
    add({ at: now(), text: say("mark_requeued"), tone: "wait" });
  }
  if (!waits || !started) return;
  waits = false;
  add({ at: Date.parse(started), text: say("mark_started_again"), tone: "" });
}

let stream = null;
// The last event that was heard, or that was there before the page was made: what is told while nobody looks is told again.
let seen = String(about.last_event);
let soon = 0;

/** Marks an alert; it is told again when somebody knows of it, and when it is over. */
function warn(alert) {
  if (marks.some((mark) => mark.alert === alert.id)) return;
  add({ at: Date.parse(alert.started_at), text: about.rules[alert.rule] ?? alert.text, tone: alert.severity === "critical" ? "bad" : "wait", alert: alert.id });
  announce(alert.text);
}

/** Goes on with the time: when samples come, and every ten seconds whatever comes. */
function live() {
  if (over || stream || document.hidden) return;
  const address = new URL(about.events, location.href);
  address.searchParams.set("last_id", seen);
  stream = new EventSource(address);
  stream.addEventListener("sample", () => {
    if (!soon && view.follows) soon = setTimeout(() => ((soon = 0), void load(other !== null)), SETTLE_MS);
  });
  stream.addEventListener("alert", (event) => {
    seen = event.lastEventId || seen;
    warn(JSON.parse(event.data));
  });
  stream.addEventListener("state", (event) => {
    seen = event.lastEventId || seen;
    const session = JSON.parse(event.data);
    const { state, reason, started_at: started, ended_at: at } = session;
    requeued(session);
    // It has begun: all times are from its first start on.
    if (started && restarts === 0 && panels.size === 0 && Date.parse(started) !== begins) return location.reload();
    if (state !== "ended" && state !== "failed") return;
    over = true;
    ends = at ? Date.parse(at) : now();
    // What was to come after it does not come any more.
    const end = reason?.code === "out_of_memory" ? { at: ends, text: say("mark_killed"), tone: "bad" } : { at: ends, text: say("mark_ended"), tone: "" };
    marks.splice(0, marks.length, ...marks.filter((mark) => mark.at < ends), end);
    still();
    void load(true);
  });
}

function still() {
  stream?.close();
  stream = null;
  clearTimeout(soon);
  soon = 0;
}

tools();
follow(() => panels.forEach((panel) => panel.redraw()));
void load(true);
live();
setInterval(() => !document.hidden && !soon && (failed || (!over && view.follows)) && void load(failed || other !== null), EVERY_MS);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return still();
  live();
  if (failed || (!over && view.follows)) void load(failed || other !== null);
});
addEventListener("pagehide", still);
addEventListener("pageshow", (event) => event.persisted && live());
