// Which time is looked at, and what it is compared with. Both are in the page's address, so that a link shows the same.

/** The shortest time that is looked at: a few samples. */
const SHORTEST_MS = 30_000;
const LAST = { "15m": 15 * 60_000, "1h": 60 * 60_000 };

/** What is looked at of something that began at `begins`; `end()` is when it was over, or now. */
export class View {
  /** `all`, one of `LAST`, or none: then `from` and `to` are fixed. */
  span = "all";
  /** What it is compared with, such as `runs/…`; empty for nothing. */
  other = "";
  #from = 0;
  #to = 0;
  #begins;
  #end;

  constructor(begins, end) {
    this.#begins = begins;
    this.#end = end;
    const asked = new URLSearchParams(location.search);
    this.other = asked.get("with") ?? "";
    const [from, to] = ["from", "to"].map((name) => Date.parse(asked.get(name) ?? ""));
    if (Object.hasOwn(LAST, asked.get("last") ?? "")) this.span = asked.get("last");
    else if (from < to) this.#fix(from, to);
  }

  /** Whether it goes on with the time. */
  get follows() {
    return this.span !== "";
  }

  /** The time that is looked at, milliseconds since 1970. */
  get range() {
    const end = Math.max(this.#end(), this.#begins + SHORTEST_MS);
    if (this.span === "all") return { from: this.#begins, to: end };
    if (this.span) return { from: Math.max(this.#begins, end - LAST[this.span]), to: end };
    return { from: this.#from, to: this.#to };
  }

  /** Looks at one of the spans. */
  last(span) {
    this.span = span;
    this.#keep();
  }

  /** Looks at this time, as far as there is any; at all when that is all. Whether anything has changed. */
  zoom(from, to) {
    const before = this.range;
    const all = { from: this.#begins, to: Math.max(this.#end(), this.#begins + SHORTEST_MS) };
    const length = Math.min(Math.max(to - from, SHORTEST_MS), all.to - all.from);
    const begin = Math.min(Math.max((from + to - length) / 2, all.from), all.to - length);
    if (length >= all.to - all.from) this.span = "all";
    else this.#fix(begin, begin + length);
    this.#keep();
    return before.from !== this.range.from || before.to !== this.range.to;
  }

  /** Compares with something else, or with nothing. */
  compare(other) {
    this.other = other;
    this.#keep();
  }

  #fix(from, to) {
    this.span = "";
    // Whole seconds make shorter links.
    this.#from = Math.floor(from / 1000) * 1000;
    this.#to = Math.ceil(to / 1000) * 1000;
  }

  #keep() {
    const address = new URL(location.href);
    for (const name of ["last", "from", "to", "with"]) address.searchParams.delete(name);
    if (Object.hasOwn(LAST, this.span)) address.searchParams.set("last", this.span);
    if (!this.span) {
      address.searchParams.set("from", text(this.#from));
      address.searchParams.set("to", text(this.#to));
    }
    if (this.other) address.searchParams.set("with", this.other);
    history.replaceState(history.state, "", address);
  }
}

/** A time as the API takes it. */
export const text = (at) => new Date(at).toISOString();
