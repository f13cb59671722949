// The hand on a plot: a cursor that follows the mouse, a finger or the arrow keys, and a stretch of time drawn out to look closer.
//
// It knows only where the plot lies and what its time is; what is said or shown is the panel's.

/** So far a pointer moves before it draws out a stretch, CSS pixels. */
const DRAG = 6;
/** Spans that a key moves with Shift. */
const LEAP = 10;
/** How much closer or farther a key looks. */
const ZOOM = 2;

function part(name) {
  const element = document.createElement("div");
  element.className = name;
  element.hidden = true;
  return element;
}

/** A hand on `host`. `on` has `box()`, `range()` (`{from, to, step}`), `move(at, y)`, `rows(by)`, `zoom(from, to)`, `reset()` and `leave()`. */
export class Pointer {
  at = null;
  #host;
  #on;
  #cursor = part("plot-cursor");
  #row = part("plot-row");
  #stretch = part("plot-stretch");
  #down = null;

  constructor(host, on) {
    this.#host = host;
    this.#on = on;
    host.append(this.#row, this.#cursor, this.#stretch);
    host.addEventListener("pointermove", (event) => this.#move(event));
    host.addEventListener("pointerdown", (event) => this.#begin(event));
    host.addEventListener("pointerup", (event) => this.#end(event));
    host.addEventListener("pointercancel", () => this.#drop());
    // A finger that is taken away has not gone elsewhere: what it pointed at stays.
    host.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.#down === null && on.leave());
    host.addEventListener("dblclick", () => on.reset());
    host.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Puts the cursor at a time; none takes it away. `row` is `{top, height}` of what is meant, if it is one of many. */
  point(at, row) {
    this.at = at;
    const { from, to } = this.#on.range();
    const box = this.#on.box();
    const seen = at !== null && at >= from && at <= to;
    this.#cursor.hidden = !seen;
    this.#row.hidden = !seen || !row;
    if (!seen) return;
    place(this.#cursor, { left: box.left + ((at - from) / (to - from)) * box.width, top: box.top, width: 0, height: box.height });
    if (row) place(this.#row, { left: box.left, top: row.top - 1, width: box.width, height: row.height + 2 });
  }

  /** The time under a pointer, and how far from the top it is. */
  #where(event) {
    const box = this.#on.box();
    const { from, to } = this.#on.range();
    const around = this.#host.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - around.left - this.#host.clientLeft - box.left) / box.width));
    return { at: from + share * (to - from), x: box.left + share * box.width, y: event.clientY - around.top - this.#host.clientTop };
  }

  #begin(event) {
    if (event.button !== 0) return;
    this.#down = this.#where(event);
    this.#on.move(this.#down.at, this.#down.y);
    // A finger that moves up or down scrolls the page; then the browser takes it back.
    this.#host.setPointerCapture(event.pointerId);
  }

  #move(event) {
    const here = this.#where(event);
    this.#on.move(here.at, here.y);
    if (this.#down === null || Math.abs(here.x - this.#down.x) < DRAG) return;
    const box = this.#on.box();
    this.#stretch.hidden = false;
    place(this.#stretch, { left: Math.min(here.x, this.#down.x), top: box.top, width: Math.abs(here.x - this.#down.x), height: box.height });
  }

  #end(event) {
    const [down, here] = [this.#down, this.#where(event)];
    const drawn = !this.#stretch.hidden;
    this.#drop();
    if (down && drawn) this.#on.zoom(Math.min(down.at, here.at), Math.max(down.at, here.at));
  }

  #drop() {
    this.#down = null;
    this.#stretch.hidden = true;
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { from, to, step } = this.#on.range();
    const steps = (event.shiftKey ? LEAP : 1) * step;
    const at = this.at ?? to;
    const keys = {
      ArrowLeft: () => this.#on.move(Math.max(from, at - steps)),
      ArrowRight: () => this.#on.move(Math.min(to, at + steps)),
      ArrowUp: () => this.#on.rows(-1),
      ArrowDown: () => this.#on.rows(1),
      Home: () => this.#on.move(from),
      End: () => this.#on.move(to),
      "+": () => this.#closer(1 / ZOOM),
      "=": () => this.#closer(1 / ZOOM),
      "-": () => this.#closer(ZOOM),
      Escape: () => {
        this.#drop();
        this.#on.reset();
      },
    };
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  }

  #closer(by) {
    const { from, to } = this.#on.range();
    const middle = this.at ?? (from + to) / 2;
    this.#on.zoom(middle - (middle - from) * by, middle + (to - middle) * by);
  }
}

/** Rules of the page's own script; the policy is about what stands in HTML. */
function place(element, { left, top, width, height }) {
  Object.assign(element.style, { transform: `translate(${left}px, ${top}px)`, width: `${width}px`, height: `${height}px` });
}
