// A plot of many lines: a row each, darker where more is used.
import { colours, shade } from "./colours.js";
import { tickText, timeTicks } from "./figures.js";
import { BOTTOM, LEFT, RIGHT } from "./lines.js";
import * as marks from "./marks.js";

/** Height of all rows together that is wished for, and of one, CSS pixels. */
const WISHED = 320;
const ROW = { least: 5, most: 20 };
/** Between the rows and those they are compared with. */
const GAP = 22;
const WORD = 13;

/** As much of `text` as has room. */
function cut(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let end = text.length - 1;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > room) end -= 1;
  return `${text.slice(0, end)}…`;
}

/** Rows in `place`. */
export class Strip {
  #place;
  #canvas = document.createElement("canvas");
  #now;
  #row = ROW.least;

  constructor(place) {
    this.#place = place;
    this.#canvas.className = "strip";
    place.append(this.#canvas);
  }

  get #gap() {
    return this.#now.lines.some((line) => line.dashed) ? GAP : 0;
  }

  get box() {
    const height = this.#now.lines.length * this.#row + this.#gap;
    return { left: LEFT, top: marks.ROOM, width: Math.max(40, this.#place.clientWidth - LEFT - RIGHT), height };
  }

  get height() {
    return this.box.height + marks.ROOM + BOTTOM;
  }

  /** Where a row begins, from the top of the place. */
  top(row) {
    return marks.ROOM + row * this.#row + (this.#now.lines[row]?.dashed ? this.#gap : 0);
  }

  /** Height of a row. */
  get row() {
    return this.#row;
  }

  /** The row that is so far from the top of the place. */
  rowAt(y) {
    const { lines } = this.#now;
    for (let row = lines.length - 1; row > 0; row -= 1) if (y >= this.top(row)) return row;
    return 0;
  }

  /** Draws `{chart, lines, times, from, to, marks, hidden, step, top}`. */
  show(now) {
    this.#now = now;
    this.#row = Math.min(ROW.most, Math.max(ROW.least, Math.floor(WISHED / now.lines.length)));
    this.redraw();
  }

  redraw() {
    const ratio = devicePixelRatio || 1;
    const [width, height] = [this.#place.clientWidth, this.height];
    this.#canvas.width = Math.round(width * ratio);
    this.#canvas.height = Math.round(height * ratio);
    this.#canvas.style.width = `${width}px`;
    this.#canvas.style.height = `${height}px`;
    const context = this.#canvas.getContext("2d");
    context.scale(ratio, ratio);
    this.#rows(context);
    this.#axis(context);
    marks.draw(context, this.#now.marks, this.#now.from, this.#now.to, this.box);
  }

  destroy() {
    this.#canvas.remove();
  }

  #rows(context) {
    const { lines, times, from, to, step, top } = this.#now;
    const box = this.box;
    const along = (at) => box.left + ((at - from) / (to - from)) * box.width;
    const air = this.#row >= 8 ? 1 : 0;
    context.save();
    context.font = colours.font;
    context.textBaseline = "middle";
    for (const [row, line] of lines.entries()) {
      const y = this.top(row);
      context.fillStyle = colours.sunken;
      context.fillRect(box.left, y, box.width, this.#row - air);
      for (const [at, value] of line.values.entries()) {
        if (value === null) continue;
        const begin = Math.max(box.left, along(times[at] - step / 2));
        const end = Math.min(box.left + box.width, along(times[at] + step / 2));
        if (end <= begin) continue;
        context.fillStyle = shade(value / top);
        // To whole pixels, or thin rules show between spans.
        context.fillRect(Math.floor(begin), y, Math.ceil(end) - Math.floor(begin), this.#row - air);
      }
    }
    this.#words(context, box);
    context.restore();
  }

  /** Names beside the rows: those of nodes where a node has several, and as many as have room. */
  #words(context, box) {
    const { lines, other } = this.#now;
    context.textAlign = "right";
    const room = LEFT - 12;
    let free = -Infinity;
    for (let row = 0; row < lines.length; ) {
      let end = row + 1;
      while (end < lines.length && lines[end].node === lines[row].node && lines[end].dashed === lines[row].dashed) end += 1;
      const [top, bottom] = [this.top(row), this.top(end - 1) + this.#row];
      const single = end - row === 1 || this.#row >= WORD;
      const words = single && end - row > 1 ? Array.from({ length: end - row }, (_, n) => [lines[row + n].label, this.top(row + n) + this.#row / 2]) : [[end - row === 1 ? lines[row].label : lines[row].node, (top + bottom) / 2]];
      for (const [text, y] of words) {
        if (y - WORD / 2 < free) continue;
        context.fillStyle = colours["ink-soft"];
        context.fillText(cut(context, text, room), box.left - 8, y);
        free = y + WORD / 2;
      }
      // A rule between two nodes, where a node has several.
      if (row > 0 && end - row > 1 && lines[row].dashed === lines[row - 1].dashed) {
        context.fillStyle = colours.surface;
        context.fillRect(box.left, top - 1, box.width, 1);
      }
      row = end;
    }
    const second = lines.findIndex((line) => line.dashed);
    if (second < 0) return;
    context.textAlign = "left";
    context.fillStyle = colours.ink;
    context.fillText(cut(context, other, box.width), box.left, this.top(second) - GAP / 2);
  }

  #axis(context) {
    const { from, to } = this.#now;
    const box = this.box;
    const { times, step } = timeTicks(from, to, box.width);
    const bottom = box.top + box.height;
    context.save();
    context.font = colours.font;
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const at of times) {
      const x = Math.round(box.left + ((at - from) / (to - from)) * box.width) + 0.5;
      context.fillStyle = colours.line;
      context.fillRect(x - 0.5, bottom, 1, 5);
      context.fillStyle = colours["ink-soft"];
      context.fillText(tickText(at, step), x, bottom + 10);
    }
    context.restore();
  }
}
