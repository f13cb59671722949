// A window on a list of any length: entries come a page at a time while one scrolls, and rows far from what is seen give way to one empty
// row of their height. Each page is a `<tbody>`, so a table stays a table.

const AHEAD = 1500;
const PAGE = 200;
const MOST = 1000;

/** Rows in `table`; `draw(item, index)` makes one, `fetchPage(cursor, limit)` gives `{items, next}`, `changed()` is told after each change. */
export class Rows {
  items = [];
  next = null;
  failed = null;
  #table;
  #draw;
  #fetchPage;
  #changed;
  #tail;
  #chunks = new Map();
  #near;
  #turn = 0;
  #busy = false;

  constructor({ table, tail, draw, fetchPage, changed }) {
    this.#table = table;
    this.#draw = draw;
    this.#fetchPage = fetchPage;
    this.#changed = changed;
    this.#tail = tail;
    this.#near = new IntersectionObserver((seen) => seen.forEach((one) => this.#show(one.target, one.isIntersecting)), { rootMargin: `${AHEAD}px 0px` });
    // By where the end is, not by when it comes into sight: who scrolls as fast as rows come never lets it out of sight.
    for (const moved of ["scroll", "resize"]) addEventListener(moved, () => this.#look(), { passive: true });
  }

  /** Begins with this page. */
  begin({ items, next }) {
    this.#turn += 1;
    this.#near.disconnect();
    this.#chunks.clear();
    for (const body of [...this.#table.tBodies]) body.remove();
    this.items = [];
    this.#append(items, next);
    this.#look();
  }

  /** Fetches anew what is there, as far as it was. */
  async reload() {
    const turn = (this.#turn += 1);
    const page = await this.#fetchPage(null, Math.min(MOST, Math.max(PAGE, this.items.length)));
    if (turn === this.#turn) this.begin(page);
  }

  /** Fetches the next page, if there is one and nobody does so already. */
  async more() {
    if (this.#busy || this.next === null) return;
    const turn = this.#turn;
    this.#busy = true;
    try {
      const page = await this.#fetchPage(this.next, PAGE);
      this.failed = null;
      if (turn === this.#turn) this.#append(page.items, page.next);
    } catch (error) {
      this.failed = error;
      this.#changed();
    } finally {
      this.#busy = false;
    }
    this.#look();
  }

  /** Fetches more where the end of what is there is near; what failed is tried again by hand alone. */
  #look() {
    if (!this.failed && this.#tail.getBoundingClientRect().top < innerHeight + AHEAD) void this.more();
  }

  /** The entry that an element of a row is about. */
  of(element) {
    const row = element.closest("tr[data-index]");
    return row && this.items[Number(row.dataset.index)];
  }

  /** Draws again what is drawn, for instance because other rows are picked. */
  redraw() {
    for (const [body, chunk] of this.#chunks) if (chunk.shown) this.#fill(body, chunk);
  }

  #append(items, next) {
    const body = document.createElement("tbody");
    const chunk = { from: this.items.length, to: this.items.length + items.length, shown: true };
    this.items.push(...items);
    this.next = next;
    this.#chunks.set(body, chunk);
    this.#fill(body, chunk);
    this.#table.append(body);
    this.#near.observe(body);
    this.#changed();
  }

  #fill(body, chunk) {
    const rows = [];
    for (let index = chunk.from; index < chunk.to; index += 1) {
      const row = this.#draw(this.items[index], index);
      row.dataset.index = index;
      row.setAttribute("aria-rowindex", index + 2);
      rows.push(row);
    }
    body.replaceChildren(...rows);
  }

  #show(body, near) {
    const chunk = this.#chunks.get(body);
    if (!chunk || chunk.shown === near || (!near && body.contains(document.activeElement))) return;
    chunk.shown = near;
    if (near) return this.#fill(body, chunk);
    const space = document.createElement("tr");
    space.className = "spacer";
    space.setAttribute("aria-hidden", "true");
    // A rule of the page's own script; the policy is about what stands in HTML.
    space.style.height = `${body.getBoundingClientRect().height}px`;
    space.append(document.createElement("td"));
    body.replaceChildren(space);
  }
}
