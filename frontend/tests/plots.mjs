// What the plots of the page of charts are made of, for tests that look at their pixels: where they lie, and which colours are where.

// Where a plot of lines lies in its place (static/js/charts/lines.js), CSS pixels.
export const LEFT = 72;
export const RIGHT = 22;
export const TOP = 18;
export const HEIGHT = 220 - TOP - 28;
/** Above the highest value there is so much air. */
export const AIR = 1.04;

/** The place of a chart. */
export const host = (page, chart) => page.locator(`[data-chart="${chart}"]`);

/** A token of the design system, such as `#17624f`. */
export const token = (page, name) => page.evaluate((name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim(), name);

/** Pixels of a chart's canvas that are nearly of this colour, `#rrggbb`; without one, how many colours there are. */
export function pixels(page, chart, colour) {
  return host(page, chart).locator("canvas").evaluate((canvas, colour) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const wanted = colour && [1, 3, 5].map((n) => parseInt(colour.slice(n, n + 2), 16));
    const colours = new Set();
    let found = 0;
    for (let n = 0; n < data.length; n += 4) {
      if (!wanted) colours.add((data[n] << 16) | (data[n + 1] << 8) | data[n + 2] | (data[n + 3] << 24));
      else if (data[n + 3] > 200 && wanted.every((value, part) => Math.abs(value - data[n + part]) < 12)) found += 1;
    }
    return wanted ? found : colours.size;
  }, colour);
}

/** The pixels of a column of a chart that have a colour: their distances from the top, CSS pixels. */
export function column(page, chart, share, colour) {
  return host(page, chart).locator("canvas").evaluate(
    (canvas, { share, colour, LEFT, RIGHT }) => {
      const ratio = canvas.width / canvas.clientWidth;
      const x = Math.round((LEFT + share * (canvas.clientWidth - LEFT - RIGHT)) * ratio);
      const { data } = canvas.getContext("2d").getImageData(x, 0, 1, canvas.height);
      const wanted = [1, 3, 5].map((n) => parseInt(colour.slice(n, n + 2), 16));
      const rows = [...Array(canvas.height).keys()];
      return rows.filter((y) => data[4 * y + 3] > 200 && wanted.every((value, part) => Math.abs(value - data[4 * y + part]) < 12)).map((y) => y / ratio);
    },
    { share, colour, LEFT, RIGHT },
  );
}
