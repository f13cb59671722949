// One chart of the page: its plot, what its lines are called and what they are at the cursor, and the same as a table.
import { SERIES } from "./colours.js";
import { figure, timeText } from "./figures.js";
import { highest } from "./answer.js";
import { Lines } from "./lines.js";
import { Pointer } from "./pointer.js";
import { Strip } from "./strip.js";
import { fill } from "./table.js";
import { announce, say } from "../words.js";

/** So many are drawn as lines; more are rows of a strip. */
export const MOST_LINES = SERIES;
/** Who walks along with the arrow keys hears where they stop. */
const SPEAK_MS = 250;
const SVG = "http://www.w3.org/2000/svg";

function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

function button(text) {
  return Object.assign(element("button", "button button-small", text), { type: "button" });
}

/** How a line is drawn, small. */
function key(line) {
  const picture = document.createElementNS(SVG, "svg");
  const drawn = document.createElementNS(SVG, "line");
  picture.setAttribute("class", "key");
  picture.setAttribute("viewBox", "0 0 28 4");
  picture.setAttribute("aria-hidden", "true");
  drawn.setAttribute("class", `series-${(line.colour % SERIES) + 1}${line.dashed ? " dashed" : ""}`);
  for (const [name, value] of Object.entries({ x1: 0, x2: 28, y1: 2, y2: 2 })) drawn.setAttribute(name, value);
  picture.append(drawn);
  return picture;
}

const last = (values) => values.findLast((value) => value !== null) ?? null;
const mean = (values) => (values.length > 0 ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

/** A chart in a frame. `on` has `range()`, `cursor(at)`, `zoom(from, to)`, `reset()` and `table(id, shown)`. */
export class Panel {
  #id;
  #on;
  #now = null;
  #plot = null;
  #made = "";
  #hidden = new Set();
  #row = 0;
  #spoken = 0;
  #title = element("h3");
  #said = element("p", "small number soft plot-said");
  #host = element("div", "plot-host");
  #legend = element("ul", "plot-legend");
  #remark = element("p", "soft small");
  #toggle = button(say("chart_table"));
  #table = element("div", "table-wrap plot-table");
  #pointer;
  // A neighbour that comes or goes changes the width, too.
  #width = new ResizeObserver(() => this.#now && this.redraw());

  constructor(id, place, on, withTable) {
    this.#id = id;
    this.#on = on;
    this.root = element("article", "plot");
    this.#title.id = `chart-${place}`;
    this.#toggle.id = `chart-table-${place}`;
    this.#toggle.setAttribute("aria-pressed", String(withTable));
    this.#toggle.setAttribute("aria-describedby", this.#title.id);
    this.#host.tabIndex = 0;
    this.#host.dataset.chart = id;
    // A slider along the time: screen readers then hand the arrow keys on, and say the time.
    for (const [name, value] of [["role", "slider"], ["aria-labelledby", this.#title.id], ["aria-describedby", "chart-keys"]]) this.#host.setAttribute(name, value);
    this.#legend.setAttribute("aria-labelledby", this.#title.id);
    for (const [name, value] of [["role", "region"], ["aria-labelledby", this.#title.id]]) this.#table.setAttribute(name, value);
    this.#table.tabIndex = 0;
    this.#table.hidden = !withTable;
    this.#toggle.addEventListener("click", () => this.#showTable());
    this.root.append(element("div", "picture-title", this.#title, this.#toggle), this.#said, this.#host, this.#legend, this.#remark, this.#table);
    this.#pointer = new Pointer(this.#host, {
      box: () => this.#plot.box,
      range: () => this.#on.range(),
      move: (at, y) => this.#move(at, y),
      rows: (by) => this.#rows(by),
      zoom: (from, to) => this.#on.zoom(from, to),
      reset: () => this.#on.reset(),
      leave: () => this.#on.cursor(null),
    });
    this.#width.observe(this.#host);
  }

  /** Shows `{chart, lines, times, from, to, step, marks, other}`: own lines first, behind them those to compare with. */
  show(now) {
    const { chart, lines } = now;
    const strip = lines.filter((line) => !line.dashed).length > MOST_LINES || lines.filter((line) => line.dashed).length > MOST_LINES;
    const shown = lines.filter((line) => !this.#hidden.has(line.key)).map((line) => line.values);
    this.#now = { ...now, strip, hidden: strip ? new Set() : this.#hidden, top: Math.max(chart.limit ?? 0, highest(strip ? lines.map((line) => line.values) : shown), Number.MIN_VALUE) };
    const made = `${strip} ${JSON.stringify(lines.map((line) => [line.key, line.name]))}`;
    if (this.#made !== made) this.#make(strip);
    this.#made = made;
    this.#title.textContent = chart.title;
    this.#remark.textContent = chart.remark;
    this.#remark.hidden = !chart.remark;
    this.#host.setAttribute("aria-valuemin", Math.round(now.from));
    this.#host.setAttribute("aria-valuemax", Math.round(now.to));
    this.#plot.show(this.#now);
    this.#host.style.height = `${this.#plot.height}px`;
    this.point(this.#pointer.at);
    if (!this.#table.hidden) fill(this.#table, this.#now, chart.title);
  }

  /** Draws again: other colours, or another width. */
  redraw() {
    this.#plot.redraw();
    this.point(this.#pointer.at);
  }

  /** Shows the cursor at a time and what the lines are there; without one, what they were last. */
  point(at) {
    const index = this.#index(at);
    const row = this.#now.strip && index !== null ? { top: this.#plot.top(this.#row), height: this.#plot.row } : null;
    this.#pointer.point(at, row);
    const spoken = at === null ? say("chart_no_cursor") : timeText(at);
    this.#host.setAttribute("aria-valuenow", Math.round(at ?? this.#now.to));
    this.#host.setAttribute("aria-valuetext", spoken);
    this.#said.textContent = this.#now.strip ? this.#summary(index) : this.#moment(at);
    if (this.#now.strip) return;
    for (const [n, value] of [...this.#legend.querySelectorAll(".plot-value")].entries()) {
      const { values } = this.#now.lines[n];
      value.textContent = figure(this.#now.chart.kind, index === null ? last(values) : (values[index] ?? null));
    }
  }

  destroy() {
    clearTimeout(this.#spoken);
    this.#width.disconnect();
    this.#plot?.destroy();
    this.root.remove();
  }

  #make(strip) {
    this.#plot?.destroy();
    this.root.classList.toggle("wide", strip);
    this.#plot = strip ? new Strip(this.#host) : new Lines(this.#host);
    this.#row = Math.min(this.#row, this.#now.lines.length - 1);
    this.#legend.replaceChildren(...(strip ? this.#shades() : this.#now.lines.map((line) => this.#line(line))));
  }

  #line(line) {
    const toggle = element("button", "plot-line", key(line), element("span", "wrap", line.name), element("span", "plot-value number"));
    toggle.type = "button";
    toggle.setAttribute("aria-pressed", String(!this.#hidden.has(line.key)));
    toggle.addEventListener("click", () => {
      if (!this.#hidden.delete(line.key)) this.#hidden.add(line.key);
      toggle.setAttribute("aria-pressed", String(!this.#hidden.has(line.key)));
      this.show(this.#now);
    });
    return element("li", "", toggle);
  }

  /** What the shades of a strip mean. */
  #shades() {
    const scale = element("span", "plot-scale");
    for (const at of [0, 1, 2, 3, 4]) scale.append(element("span", `plot-shade plot-shade-${at}`));
    const [least, top] = [0, this.#now.top].map((value) => element("span", "number", figure(this.#now.chart.kind, value)));
    return [element("li", "plot-ends soft small", least, scale, top), element("li", "soft small", say("chart_nothing_known"))];
  }

  #index(at) {
    const { times, step } = this.#now;
    if (at === null || times.length === 0) return null;
    const index = Math.floor((at - (times[0] - step / 2)) / step);
    return Math.min(times.length - 1, Math.max(0, index));
  }

  #moment(at) {
    const { chart } = this.#now;
    if (at !== null) return timeText(at);
    return chart.limit === undefined ? "" : say("chart_limit", { value: figure(chart.kind, chart.limit) });
  }

  /** All rows of a strip in a sentence, and the one at the cursor. */
  #summary(index) {
    const { chart, lines, times } = this.#now;
    const value = (line) => (index === null ? last(line.values) : line.values[index]);
    const known = lines.filter((line) => !line.dashed && value(line) !== null).sort((a, b) => value(a) - value(b));
    const words = (one) => figure(chart.kind, one);
    if (known.length === 0) return say("chart_unknown");
    const [least, most] = [known[0], known.at(-1)];
    const all = say("chart_all", { n: known.length, mean: words(mean(known.map(value))), least: words(value(least)), which: least.name, most: words(value(most)), other: most.name });
    if (index === null) return all;
    const line = lines[this.#row];
    return say("chart_one", { time: timeText(times[index]), what: line.name, value: words(value(line)), all });
  }

  #move(at, y) {
    const index = this.#index(at);
    if (index === null) return;
    if (y !== undefined && this.#now.strip) this.#row = this.#plot.rowAt(y);
    // To the middle of a span: what is said is what is there.
    const { from, to } = this.#on.range();
    this.#on.cursor(Math.min(to, Math.max(from, this.#now.times[index])));
    if (y === undefined) this.#speak(index);
  }

  #rows(by) {
    if (!this.#now.strip) return;
    this.#row = Math.min(this.#now.lines.length - 1, Math.max(0, this.#row + by));
    this.#move(this.#pointer.at ?? this.#on.range().to);
  }

  /** Says what is at the cursor once it stands still. */
  #speak(index) {
    clearTimeout(this.#spoken);
    const { chart, lines, strip, hidden } = this.#now;
    const told = (strip ? [lines[this.#row]] : lines.filter((line) => !hidden.has(line.key))).map((line) => say("chart_value", { what: line.name, value: figure(chart.kind, line.values[index]) }));
    this.#spoken = setTimeout(() => announce(told.join("; ")), SPEAK_MS);
  }

  #showTable() {
    this.#table.hidden = !this.#table.hidden;
    this.#toggle.setAttribute("aria-pressed", String(!this.#table.hidden));
    this.#on.table(this.#id, !this.#table.hidden);
    if (!this.#table.hidden) fill(this.#table, this.#now, this.#now.chart.title);
    else this.#table.replaceChildren();
  }
}
