// Shows times in the reader's own time zone and counts down the time left.
import { say } from "./words.js";

const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const fine = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });

function shown(at) {
  const now = new Date();
  if (at.toDateString() !== now.toDateString()) return day.format(at);
  return Math.abs(at - now) < 90_000 ? fine.format(at) : clock.format(at);
}

function left(until) {
  const minutes = Math.floor((until - Date.now()) / 60_000);
  if (minutes < 0) return say("over");
  const [d, h, m] = [Math.floor(minutes / 1440), Math.floor((minutes % 1440) / 60), minutes % 60];
  const time = d > 0 ? say("days", { d, h }) : h > 0 ? say("hours", { h, m }) : say("minutes", { m });
  return say("left", { time });
}

/** Rewrites all times below `root`. */
export function localise(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.valueOf())) continue;
    element.textContent = shown(at);
    element.title = full.format(at);
  }
  countDown(root);
}

function countDown(root) {
  for (const element of root.querySelectorAll("[data-countdown]")) {
    const text = left(new Date(element.dataset.countdown));
    if (element.textContent !== text) element.textContent = text;
  }
}

localise(document);
setInterval(() => countDown(document), 10_000);
