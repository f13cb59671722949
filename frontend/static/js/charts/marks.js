// Marks on the time axis: what happened when, as a line with words at its top.
import { colours } from "./colours.js";

/** Room for the words above a plot, CSS pixels. */
export const ROOM = 18;
const GAP = 10;

/** Colour of a mark. */
const colour = (mark) => (mark.tone === "bad" ? colours.bad : mark.tone === "wait" ? colours.wait : colours["ink-soft"]);

/** What has to be seen first: what is bad, what may become so, the rest. */
const rank = (mark) => (mark.tone === "bad" ? 0 : mark.tone === "wait" ? 1 : 2);

/** A line down the plot, with a dot at its top. */
function line(context, x, box) {
  context.lineWidth = 1;
  context.setLineDash([2, 3]);
  context.beginPath();
  context.moveTo(x, box.top - 4);
  context.lineTo(x, box.top + box.height);
  context.stroke();
  context.beginPath();
  context.arc(x, box.top - 4, 2.5, 0, 2 * Math.PI);
  context.fill();
}

/**
 * Draws those of `marks` that lie between `from` and `to`, into a plot at `box` (CSS pixels). Words that would lie upon others are left out, of
 * those that are less bad before the others, and of the same from left to right.
 */
export function draw(context, marks, from, to, box) {
  const seen = marks.filter((mark) => mark.at >= from && mark.at <= to).sort((a, b) => rank(a) - rank(b));
  const along = (mark) => Math.round(box.left + ((mark.at - from) / (to - from)) * box.width) + 0.5;
  context.save();
  context.font = colours.font;
  context.textAlign = "left";
  context.textBaseline = "middle";
  // What is drawn last lies above.
  for (const mark of [...seen].reverse()) {
    context.strokeStyle = context.fillStyle = colour(mark);
    line(context, along(mark), box);
  }
  const taken = [];
  for (const mark of seen) {
    // To the right of its line, or to the left where the plot ends.
    const x = along(mark);
    const width = context.measureText(mark.text).width;
    const right = x + 6 + width <= box.left + box.width;
    const left = right ? x + 6 : x - 6 - width;
    const end = right ? left + width : x;
    if (left < box.left || taken.some((other) => left < other.end + GAP && other.left < end + GAP)) continue;
    taken.push({ left, end });
    context.fillStyle = colours.surface;
    context.fillRect(left - 2, box.top - ROOM, width + 4, ROOM - 2);
    context.fillStyle = colour(mark);
    context.fillText(mark.text, left, box.top - ROOM / 2 - 2);
  }
  context.restore();
}
