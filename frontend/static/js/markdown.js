// Markdown of notebooks as elements. What is no mark of it is text, HTML too; nothing leads anywhere and nothing is loaded: where a link leads is
// said beside it. Whatever is written, it takes time in proportion to its length: no expression here looks at the same characters again and again.
import { element, filled, pre, table } from "./parts.js";
import { say } from "./words.js";

/** Lists and quotes within each other; what is deeper is text. */
const MOST_DEPTH = 8;

const HEADING = /^ {0,3}(#{1,6})(?:[ \t]([^]*))?$/;
const FENCE = /^ {0,3}(`{3,}|~{3,})(?![`~])[^`]*$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:[ \t]+|$)/;
const UNDERLINE = /^ {0,3}(=+|-+)[ \t]*$/;

const TARGET = String.raw`\( ?(<[^\s<>]*>|(?:[^\s()<>]|\([^\s()<>]*\))*)(?: {1,3}(?:"[^"\n]*"|'[^'\n]*'))? ?\)`;
/** What a text is made of: an escape, a run of backticks, marks of emphasis, a picture, a link, an address, a formula, text. */
const TOKEN = new RegExp(
  [
    String.raw`\\([!-/:-@[-\`{-~\n])`,
    "(`+)",
    String.raw`(\*+|_+|~~)`,
    String.raw`!\[([^[\]]*)\]${TARGET}`,
    String.raw`\[([^[\]]+)\]${TARGET}`,
    String.raw`<(https?://[^\s<>]*)>`,
    String.raw`\$[^$\n]+\$`,
    String.raw`[^\\\`*_~![<$]+`,
    "[^]",
  ].join("|"),
  "y",
);
const EMPHASIS = { "*": "em", _: "em", "**": "strong", __: "strong", "~~": "s" };
const WORD = /[\p{L}\p{N}_]/u;

/** Where the code ends that begins at a run of backticks: the next run of as many. */
function codeEnds(text) {
  const later = new Map();
  const ends = new Map();
  for (const { 0: run, index } of [...text.matchAll(/`+/g)].reverse()) {
    ends.set(index, later.get(run.length));
    later.set(run.length, index);
  }
  return ends;
}

/** Whether it may be said where a link leads: to the web, or to somewhere beside the notebook. */
const leads = (target) => /^https?:\/\//i.test(target) || !/^[^/?#]*:/.test(target);

/** The marks within a line, as nodes and texts. */
function inline(text) {
  const ends = codeEnds(text);
  // What has begun and not ended, each mark once: what never ends is put back as text.
  const open = [{ mark: "", parts: [] }];
  const put = (part) => {
    const { parts } = open.at(-1);
    if (typeof part === "string" && typeof parts.at(-1) === "string") parts[parts.length - 1] += part;
    else parts.push(part);
  };
  const putBack = () => {
    const { mark, parts } = open.pop();
    put(mark);
    parts.forEach(put);
  };
  const close = (mark) => {
    while (open.at(-1).mark !== mark) putBack();
    const { parts } = open.pop();
    put(filled(EMPHASIS[mark], "", parts));
  };
  const emphasis = (run, before, after) => {
    const within = run[0] === "_";
    const begins = /\S/.test(after) && !(within && WORD.test(before));
    const closes = /\S/.test(before) && !(within && WORD.test(after));
    let left = run.length;
    if (left > 3) return put(run);
    while (left > 0) {
      const begun = closes && open.findLast(({ mark }) => mark[0] === run[0] && (mark.length === left || left === 3));
      const mark = begun ? begun.mark : run.slice(0, Math.min(2, left));
      if (begun) close(mark);
      else if (begins && !open.some((one) => one.mark === mark)) open.push({ mark, parts: [] });
      else put(mark);
      left -= mark.length;
    }
  };
  for (let at = 0; at < text.length; ) {
    TOKEN.lastIndex = at;
    const [whole, escaped, ticks, run, picture, source, label, bracketed, address] = TOKEN.exec(text);
    const end = ticks && ends.get(at);
    const target = bracketed?.replace(/^<|>$/g, "");
    const next = end === undefined || !ticks ? at + whole.length : end + ticks.length;
    if (escaped === "\n") put(element("br"));
    else if (escaped) put(escaped);
    else if (ticks && end !== undefined) put(element("code", "", text.slice(at + ticks.length, end).replaceAll("\n", " ").trim()));
    else if (run) emphasis(run, text[at - 1] ?? "", text[at + run.length] ?? "");
    else if (source !== undefined) put(element("em", "soft", say("preview_picture", { what: picture || (leads(source) ? source : source.split(":", 1)[0]) })));
    else if (label && leads(target)) {
      inline(label).forEach(put);
      if (target && target !== label) put(element("span", "soft wrap", ` (${target})`));
    } else put(address ?? whole);
    at = next;
  }
  while (open.length > 1) putBack();
  return open[0].parts;
}

/** A heading below the last one, never two steps at once: what is read aloud has an order. None where it says nothing. */
function heading(level, text, paper) {
  if (!text) return [];
  paper.level = Math.min(6, level + 2, paper.level + 1);
  return [filled(`h${paper.level}`, "", inline(text))];
}

/** What a heading says, without the marks that may end it. */
function titled(text) {
  let end = text.length;
  while (text[end - 1] === "#") end -= 1;
  return end === 0 || /[ \t]/.test(text[end - 1]) ? text.slice(0, end).trim() : text.trim();
}

const cellsOf = (line) =>
  line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));

/** Whether lines begin a table: heads, and below them as many times dashes. */
function isTable(head, below) {
  if (!head.includes("|") || !below?.includes("-")) return false;
  const dashes = cellsOf(below);
  return dashes.length === cellsOf(head).length && dashes.every((cell) => /^:?-+:?$/.test(cell));
}

const isItem = (line) => ITEM.test(line) && !RULE.test(line);
/** Whether a line ends the paragraph above it. */
const begins = (line) => HEADING.test(line) || FENCE.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);
const indent = (line) => line.length - line.trimStart().length;

/** The list that begins at a line, and the line behind it. */
function list(lines, at, depth, paper) {
  const [, { length: base }, first] = ITEM.exec(lines[at]);
  const isOrdered = (mark) => /\d/.test(mark);
  const made = element(isOrdered(first) ? "ol" : "ul");
  if (isOrdered(first)) made.start = Number.parseInt(first, 10);
  while (at < lines.length && isItem(lines[at])) {
    const [whole, before, mark] = ITEM.exec(lines[at]);
    if (before.length > base + 1 || isOrdered(mark) !== isOrdered(first)) break;
    const inner = [lines[at].slice(whole.length)];
    // Its other lines stand as far to the right as the first of them.
    let width = null;
    for (at += 1; at < lines.length; at += 1) {
      const line = lines[at];
      const space = indent(line);
      if (line.trim() === "") inner.push("");
      else if (space >= base + 2) {
        width ??= Math.min(space, Math.max(base + 2, before.length + mark.length + 1));
        inner.push(line.slice(Math.min(space, width)));
      } else if (inner.at(-1) !== "" && !begins(line)) inner.push(line.trimStart());
      else break;
    }
    while (inner.length > 0 && inner.at(-1) === "") inner.pop();
    const parts = blocks(inner, depth + 1, paper);
    const close = (part) => (part.localName === "p" ? [...part.childNodes] : [part]);
    made.append(filled("li", "", inner.includes("") ? parts : parts.flatMap(close)));
  }
  return [made, at];
}

/** The paragraph that begins at a line, or the heading that it is by a line below it, and the line behind it. */
function paragraph(lines, at, paper) {
  const inner = [lines[at]];
  for (at += 1; at < lines.length && lines[at].trim() !== "" && !UNDERLINE.test(lines[at]) && !begins(lines[at]); at += 1) inner.push(lines[at]);
  // A line that is broken on purpose ends with a backslash, or with two spaces.
  const text = inner.map((line, n) => line.trim() + (line.endsWith("  ") && n < inner.length - 1 ? "\\" : "")).join("\n");
  const under = UNDERLINE.exec(lines[at] ?? "");
  if (under) return [heading(under[1][0] === "=" ? 1 : 2, text, paper), at + 1];
  return [[filled("p", "", inline(text))], at];
}

function blocks(lines, depth, paper) {
  const made = [];
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    const [title, fence] = [HEADING.exec(line), FENCE.exec(line)];
    const begin = at;
    if (line.trim() === "") at += 1;
    else if (title) {
      made.push(...heading(title[1].length, titled(title[2] ?? ""), paper));
      at += 1;
    } else if (fence) {
      const ends = (one) => one.trim().length >= fence[1].length && one.trim() === fence[1][0].repeat(one.trim().length);
      for (at += 1; at < lines.length && !ends(lines[at]); ) at += 1;
      made.push(pre(lines.slice(begin + 1, at).join("\n")));
      at += 1;
    } else if (RULE.test(line)) {
      made.push(element("hr"));
      at += 1;
    } else if (QUOTE.test(line) && depth < MOST_DEPTH) {
      while (at < lines.length && QUOTE.test(lines[at])) at += 1;
      const inner = lines.slice(begin, at).map((one) => one.replace(QUOTE, ""));
      made.push(filled("blockquote", "", blocks(inner, depth + 1, paper)));
    } else if (ITEM.test(line) && indent(line) < 4 && depth < MOST_DEPTH) {
      const [drawn, next] = list(lines, at, depth, paper);
      made.push(drawn);
      at = next;
    } else if (isTable(line, lines[at + 1])) {
      const heads = cellsOf(line);
      for (at += 2; at < lines.length && lines[at].includes("|"); ) at += 1;
      const rows = lines.slice(begin + 2, at).map(cellsOf).map((cells) => heads.map((_, n) => cells[n] ?? ""));
      made.push(table([heads, ...rows].map((cells) => cells.map(inline)), 1));
    } else if (indent(line) >= 4) {
      while (at < lines.length && (indent(lines[at]) >= 4 || lines[at].trim() === "")) at += 1;
      made.push(pre(lines.slice(begin, at).map((one) => one.slice(4)).join("\n").trimEnd()));
    } else {
      const [drawn, next] = paragraph(lines, at, paper);
      made.push(...drawn);
      at = next;
    }
  }
  return made;
}

/** Markdown as elements. `paper.level` is the level of the last heading above it, and goes on. */
export function markdown(text, paper) {
  const lines = text.split(/\r\n?|\n/).map((line) => line.replace(/^[ \t]+/, (space) => space.replaceAll("\t", "    ")));
  return blocks(lines, 0, paper);
}
