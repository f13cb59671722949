// Samples from the portal: all of a time at once, and then only what came since.
import { append } from "./answer.js";
import { text } from "./view.js";
import { say } from "../words.js";

/** Points of a line: a phone has fewer. */
const POINTS = { desk: 300, phone: 160 };
const PHONE = 700;
const MINUTE_S = 60;

/** Why there is no answer, in words that say what to do next. */
export class Trouble extends Error {}

/** Samples of what stands at `address`. */
export class Feed {
  answer = null;
  #address;
  #group;
  #points = 0;
  #control = null;

  /** Of one group, or without it of all but those that are many. */
  constructor(address, group = "") {
    this.#address = address;
    this.#group = group;
  }

  /** Fetches all between `from` and `to`. What was asked before and has not come yet is not waited for. */
  async load(from, to) {
    this.#points = innerWidth < PHONE ? POINTS.phone : POINTS.desk;
    this.answer = await this.#ask({ from: text(from), to: text(to), points: this.#points });
    return this.answer;
  }

  /** Fetches what came since, or all again where that does not fit behind what is there. */
  async grow(from, to) {
    const old = this.answer;
    if (!old || old.spans === 0 || old.spans > this.#points * 1.25) return this.load(from, to);
    const step = old.step_s * 1000;
    // So many spans that the portal chooses the same length for them as before.
    const back = Math.max(3, Math.ceil(old.step_s / (old.step_s > MINUTE_S ? MINUTE_S : 5)) + 1);
    const begin = Math.max(Date.parse(old.from), Date.parse(old.from) + (old.spans - back) * step);
    const points = Math.max(1, Math.ceil((to - begin) / step));
    if (points > this.#points) return this.load(from, to);
    const fresh = await this.#ask({ from: text(begin), to: text(to), points });
    this.answer = append(old, fresh, from);
    return this.answer ?? this.load(from, to);
  }

  async #ask(query) {
    this.#control?.abort();
    const control = (this.#control = new AbortController());
    const address = new URL(this.#address, location.href);
    for (const [name, value] of Object.entries(query)) address.searchParams.set(name, value);
    if (this.#group) address.searchParams.set("group", this.#group);
    let answer;
    try {
      answer = await fetch(address, { headers: { accept: "application/json" }, redirect: "manual", signal: control.signal });
    } catch (error) {
      throw error.name === "AbortError" ? error : new Trouble(say("offline"));
    }
    if (answer.type === "opaqueredirect" || answer.status === 401) throw new Trouble(say("chart_signed_out"));
    if (answer.status === 404) throw new Trouble(say("chart_gone"));
    if (answer.status === 503) throw new Trouble(say("chart_away"));
    if (!answer.ok) throw new Trouble(say("chart_no_answer"));
    try {
      return await answer.json();
    } catch (error) {
      throw error.name === "AbortError" ? error : new Trouble(say("chart_no_answer"));
    }
  }
}
