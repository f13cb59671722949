// The figures of a chart as a table: a row for each span of time, a column for each line.
import { figure, timeText } from "./figures.js";
import { say } from "../words.js";

/** Most rows: more would be slow, and nobody reads them. */
export const ROWS = 200;

function cell(name, text, scope) {
  const element = document.createElement(name);
  element.textContent = text;
  if (scope) element.scope = scope;
  return element;
}

/** A table of `{chart, lines, times, from, to}` in `place`, named by the element `title`. */
export function fill(place, { chart, lines, times, from, to }, title) {
  const shown = [...times.keys()].filter((at) => times[at] >= from && times[at] <= to && lines.some((line) => line.values[at] !== null));
  const rows = shown.slice(-ROWS);
  const table = document.createElement("table");
  const caption = document.createElement("caption");
  caption.textContent = rows.length < shown.length ? say("chart_table_part", { title, n: ROWS }) : title;
  const head = document.createElement("thead");
  const names = document.createElement("tr");
  names.append(cell("th", say("chart_time"), "col"), ...lines.map((line) => cell("th", line.name, "col")));
  head.append(names);
  const body = document.createElement("tbody");
  for (const at of rows) {
    const row = document.createElement("tr");
    row.append(cell("th", timeText(times[at]), "row"));
    for (const line of lines) {
      const value = cell("td", figure(chart.kind, line.values[at]));
      value.className = "number";
      row.append(value);
    }
    body.append(row);
  }
  table.append(caption, head, body);
  const scrolled = [place.scrollLeft, place.scrollTop];
  place.replaceChildren(table);
  [place.scrollLeft, place.scrollTop] = scrolled;
}
