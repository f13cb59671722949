// How figures and times of charts are written, and where the lines behind a chart lie so that they are round.
import { size } from "../shown.js";
import { say } from "../words.js";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/** Steps between marks of a time axis. */
const TIME_STEPS = [5, 10, 15, 30].map((n) => n * SECOND).concat(
  [1, 2, 5, 10, 15, 30].map((n) => n * MINUTE),
  [1, 2, 3, 6, 12].map((n) => n * HOUR),
  [1, 2, 7, 14, 30, 90].map((n) => n * DAY),
);
/** Width that a time needs on the axis, CSS pixels. */
const TIME_ROOM = 76;
const ROUND = [1, 2, 2.5, 5, 10];

const short = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 4 });
const exact = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 6 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const fine = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const full = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** A figure of this kind in words. */
export function figure(kind, value) {
  if (value == null) return say("chart_unknown");
  if (kind === "bytes") return size(Math.round(value));
  if (kind === "rate") return say("chart_per_second", { n: size(Math.round(value)) });
  if (kind === "share") return say("chart_percent", { n: short.format(Math.round(value * 1000) / 10) });
  if (kind === "watts") return say("chart_watts", { n: short.format(value) });
  if (kind === "celsius") return say("chart_celsius", { n: short.format(value) });
  return kind === "cores" ? short.format(Math.round(value * 100) / 100) : exact.format(value);
}

/** Round values from `least` to `top`, five or so; sizes are round in their own unit, and there is no part of a byte. */
export function ticks(kind, least, top) {
  const room = Math.max(top - least, Number.MIN_VALUE);
  const isSize = kind === "bytes" || kind === "rate";
  const unit = isSize ? 1024 ** Math.max(0, Math.floor(Math.log(room) / Math.log(1024))) : 1;
  const raw = room / unit / 4.5;
  const power = 10 ** Math.floor(Math.log10(raw));
  const round = ROUND.find((n) => n * power >= raw * 0.999) * power * unit;
  const step = isSize ? Math.max(1, round) : round;
  const all = [];
  for (let n = Math.ceil(least / step - 1e-9); n * step <= top * (1 + 1e-9) && all.length < 20; n += 1) all.push(n * step || 0);
  return all;
}

/** Times between `from` and `to` (milliseconds since 1970) that are round where the reader is, and how far they are apart. */
export function timeTicks(from, to, width) {
  const wished = ((to - from) * TIME_ROOM) / Math.max(width, TIME_ROOM);
  const step = TIME_STEPS.find((one) => one >= wished) ?? TIME_STEPS.at(-1);
  const zone = new Date(from).getTimezoneOffset() * MINUTE;
  const times = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to && times.length < 50; at += step) times.push(at);
  return { times, step };
}

/** A time on the axis; a new day says which. */
export function tickText(at, step) {
  const date = new Date(at);
  if (step >= DAY || (date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0)) return day.format(date);
  return (step < MINUTE ? fine : clock).format(date);
}

/** A point in time, to the second. */
export const timeText = (at) => full.format(new Date(at));
