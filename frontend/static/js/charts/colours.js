// The colours of the design system for canvases, which know no style sheet: read from its tokens, and told anew when the theme changes.

/** Colours that lines have, one after the other: tokens `--series-1` to `--series-8`. */
export const SERIES = 8;
const SHADES = 48;

/** What canvases draw with. */
export const colours = { series: [], shades: [] };

/** A token such as `#17624f` as red, green and blue. */
function parts(token) {
  const hex = /^#([0-9a-f]{6})$/i.exec(token)?.[1] ?? "808080";
  return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function read() {
  const style = getComputedStyle(document.documentElement);
  const token = (name) => style.getPropertyValue(`--${name}`).trim();
  for (const name of ["ink", "ink-soft", "line", "line-strong", "surface", "sunken", "bad", "wait"]) colours[name] = token(name);
  colours.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  colours.series = Array.from({ length: SERIES }, (_, at) => token(`series-${at + 1}`));
  // From little to much by lightness alone, so that colours need not be told apart.
  const [low, high] = [parts(colours.surface), parts(token("accent"))];
  colours.shades = Array.from({ length: SHADES }, (_, at) => {
    const share = 0.07 + (0.93 * at) / (SHADES - 1);
    return `rgb(${low.map((from, n) => Math.round(from + (high[n] - from) * share)).join(" ")})`;
  });
}

/** The shade of a share of what is at the top. */
export const shade = (share) => colours.shades[Math.min(SHADES - 1, Math.max(0, Math.round(share * (SHADES - 1))))];

/** Reads the colours, now and whenever they change, and calls `changed` then. */
export function follow(changed) {
  const again = () => {
    read();
    changed();
  };
  read();
  new MutationObserver(again).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
}
