// A plot of a few lines, drawn by uPlot. The time axis is the page's, so that all plots have the same.
import uPlot from "../../vendor/uPlot/uPlot.esm.js";
import { colours, SERIES } from "./colours.js";
import { figure, tickText, ticks, timeTicks } from "./figures.js";
import * as marks from "./marks.js";

/** Where the plot begins and ends within its place, CSS pixels: the same for all, so that times lie above each other. */
export const LEFT = 72;
export const RIGHT = 22;
export const BOTTOM = 28;
const HEIGHT = 220;
const DASH = [6, 4];

/** Values that stand alone between gaps: a line has nothing to draw there. */
function alone(values) {
  const lonely = [];
  for (const [at, value] of values.entries()) {
    if (value !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null) lonely.push(at);
  }
  return lonely;
}

/** Lines in `place`. */
export class Lines {
  height = HEIGHT;
  #place;
  #now;
  #plot = null;
  #made = "";

  constructor(place) {
    this.#place = place;
  }

  /** Where the plot lies in its place. */
  get box() {
    return { left: LEFT, top: marks.ROOM, width: Math.max(40, this.#place.clientWidth - LEFT - RIGHT), height: HEIGHT - marks.ROOM - BOTTOM };
  }

  /** Draws `{chart, lines, times, from, to, marks, hidden}`; `lines` are all, those to compare with behind. */
  show(now) {
    this.#now = now;
    const made = JSON.stringify([now.chart.kind, now.lines.map((line) => [line.colour, line.dashed])]);
    const data = [now.times, ...now.lines.map((line) => line.values)];
    if (made !== this.#made) {
      this.destroy();
      this.#made = made;
      this.#plot = new uPlot(this.#options(), data, this.#place);
    } else {
      this.#plot.setData(data, false);
    }
    this.#plot.batch(() => {
      for (const [at, line] of now.lines.entries()) {
        const show = !now.hidden.has(line.key);
        if (this.#plot.series[at + 1].show !== show) this.#plot.setSeries(at + 1, { show });
      }
      this.#plot.setScale("x", { min: now.from, max: now.to });
    });
  }

  /** Draws again, with other colours or another width. */
  redraw() {
    const width = this.#place.clientWidth;
    if (width > 0 && width !== this.#plot.width) this.#plot.setSize({ width, height: HEIGHT });
    else this.#plot.redraw(false, true);
  }

  destroy() {
    this.#plot?.destroy();
    this.#plot = null;
    this.#made = "";
  }

  /** From the least to the greatest that has to be seen: nothing is always seen, and what there may be at most. */
  #values() {
    const { chart, lines, hidden } = this.#now;
    let [least, top] = [0, chart.limit ?? 0];
    for (const line of lines) {
      if (hidden.has(line.key)) continue;
      for (const value of line.values) if (value !== null) [least, top] = [Math.min(least, value), Math.max(top, value)];
    }
    if (top <= least) top = least + 1;
    const air = (top - least) * 0.04;
    return [least < 0 ? least - air : least, top + air];
  }

  #options() {
    const time = () => timeTicks(this.#now.from, this.#now.to, this.box.width);
    const { kind } = this.#now.chart;
    const axis = { stroke: () => colours["ink-soft"], font: colours.font, border: { show: false } };
    const grid = { stroke: () => colours.line, width: 1 };
    const series = this.#now.lines.map((line) => ({
      stroke: () => colours.series[line.colour % SERIES],
      width: 2,
      dash: line.dashed ? DASH : undefined,
      points: { show: false, size: 5, fill: () => colours.series[line.colour % SERIES], filter: (plot, at) => alone(plot.data[at]) },
    }));
    return {
      width: Math.max(120, this.#place.clientWidth),
      height: HEIGHT,
      ms: 1,
      padding: [marks.ROOM, RIGHT, 0, 0],
      cursor: { show: false },
      legend: { show: false },
      select: { show: false },
      scales: { x: { time: true, auto: false, range: () => [this.#now.from, this.#now.to] }, y: { range: () => this.#values() } },
      axes: [
        { ...axis, size: BOTTOM, grid: { ...grid, show: false }, ticks: { ...grid, size: 5 }, splits: () => time().times, values: (plot, all) => all.map((at) => tickText(at, time().step)) },
        { ...axis, size: LEFT, grid, ticks: { show: false }, gap: 8, splits: (plot, at, least, top) => ticks(kind, least, top), values: (plot, all) => all.map((value) => figure(kind, value)) },
      ],
      series: [{}, ...series],
      hooks: { draw: [(plot) => this.#over(plot.ctx)] },
    };
  }

  /** What stands above the lines: the most there may be, and marks. */
  #over(context) {
    const { chart, from, to, marks: all } = this.#now;
    const box = this.box;
    context.save();
    context.scale(uPlot.pxRatio, uPlot.pxRatio);
    if (chart.limit !== undefined) {
      const y = Math.round(this.#plot.valToPos(chart.limit, "y") + box.top) + 0.5;
      context.strokeStyle = colours["line-strong"];
      context.setLineDash([4, 4]);
      context.beginPath();
      context.moveTo(box.left, y);
      context.lineTo(box.left + box.width, y);
      context.stroke();
      context.setLineDash([]);
    }
    marks.draw(context, all, from, to, box);
    context.restore();
  }
}
