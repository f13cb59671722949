// Elements of what somebody wrote: all that comes from outside is put in as text nodes.

/** An element of these nodes and texts. */
export function filled(name, className, parts) {
  const made = document.createElement(name);
  if (className) made.className = className;
  for (const part of parts) made.append(part);
  return made;
}

/** An element of a text. */
export const element = (name, className, text = "") => filled(name, className, text ? [text] : []);

/** Text as it stands; keys scroll it where it is long. */
export function pre(text) {
  const made = element("pre", "preview-text", text);
  made.tabIndex = 0;
  return made;
}

/** A table of rows of cells, each a list of nodes and texts; the first `heads` rows say what the columns are. */
export function table(rows, heads = 0) {
  const drawn = rows.map((cells, at) =>
    filled("tr", "", cells.map((cell) => {
      // A head that says nothing is none to those who hear it.
      if (at >= heads || cell.every((part) => part === "")) return filled("td", "wrap", cell);
      const head = filled("th", "wrap", cell);
      head.scope = "col";
      return head;
    })),
  );
  const parts = [filled("tbody", "", drawn.slice(heads))];
  if (heads > 0) parts.unshift(filled("thead", "", drawn.slice(0, heads)));
  const wrap = filled("div", "table-wrap", [filled("table", "", parts)]);
  wrap.tabIndex = 0;
  return wrap;
}
