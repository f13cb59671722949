// Shows the beginning of a file beside the list. What the portal says of a file is text and numbers, and is drawn as text and pictures:
// nothing of it is ever taken for HTML, and nothing of it runs.
import { Trouble, ask } from "./ask.js";
import { markdown } from "./markdown.js";
import { element, filled, pre, table } from "./parts.js";
import { address, bytesOf } from "./paths.js";
import { plain, size } from "./shown.js";
import { say } from "./words.js";

/** Pictures that a browser draws without running anything. */
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/** Larger pictures are saved, not drawn. */
const MOST_PICTURE = 20 * 1024 * 1024;
/** Bytes of text that are fetched where the portal does not read the file for us. */
const MOST_TEXT = 256 * 1024;
/** Characters of Markdown that are drawn as what they mean; what comes after them is shown as it is written. */
const MOST_MARKDOWN = 256 * 1024;
const ENDINGS = { png: PICTURES[0], jpg: PICTURES[1], jpeg: PICTURES[1], gif: PICTURES[2], webp: PICTURES[3] };

/** An `<img>` of these bytes. Its address is given back once it is drawn, or cannot be. */
function picture(bytes, media, name) {
  const image = element("img", "preview-picture");
  image.alt = name;
  image.src = URL.createObjectURL(new Blob([bytes], { type: media }));
  const release = () => URL.revokeObjectURL(image.src);
  image.addEventListener("load", release);
  image.addEventListener("error", () => {
    release();
    image.replaceWith(element("p", "soft", say("preview_broken")));
  });
  return image;
}

/** Rows of texts, the first of which may say what the columns are. */
const drawTable = (rows, heads) => table(rows.map((cells) => cells.map((cell) => [cell])), heads);

function drawOutput(output, name) {
  if (output.kind === "text") return pre(output.text);
  if (output.kind === "table") return drawTable(output.rows, output.heads);
  if (output.kind === "picture" && PICTURES.includes(output.media_type)) {
    try {
      return picture(Uint8Array.from(atob(output.base64), (c) => c.charCodeAt(0)), output.media_type, name);
    } catch {
      return element("p", "soft", say("preview_broken"));
    }
  }
  return element("p", "soft", say("preview_omitted", { what: output.media_type ?? "" }));
}

function drawNotebook({ cells }, name) {
  // The file's name above it is a heading of the second level.
  const paper = { level: 2 };
  let left = MOST_MARKDOWN;
  return cells.map((cell) => {
    const isMarkdown = cell.kind === "markdown" && cell.source.length <= left;
    if (isMarkdown) left -= cell.source.length;
    const parts = isMarkdown ? markdown(cell.source, paper) : [pre(cell.source)];
    if (cell.kind === "code") parts.unshift(element("p", "preview-number", say("preview_in", { n: cell.number ?? " " })));
    for (const output of cell.outputs) {
      if (output.number !== undefined) parts.push(element("p", "preview-number", say("preview_out", { n: output.number })));
      parts.push(drawOutput(output, name));
    }
    return filled("section", `preview-cell${isMarkdown ? " preview-words" : ""}`, parts);
  });
}

/** What the portal says of a file (`GET …/files/preview`), as elements. `content` fetches the file itself, for pictures. */
export async function draw({ shown, size_bytes: bytes }, { name, content }) {
  const more = shown.cut ? [element("p", "soft", say("preview_cut"))] : [];
  if (shown.kind === "text") return [pre(shown.text), ...more];
  if (shown.kind === "table") return [drawTable(shown.rows, 0), ...more];
  if (shown.kind === "notebook" && shown.cells.length === 0) return [element("p", "soft", say("preview_no_cells"))];
  if (shown.kind === "notebook") return [...drawNotebook(shown, name), ...more];
  if (shown.kind === "picture" && PICTURES.includes(shown.media_type) && bytes <= MOST_PICTURE) {
    return [picture(await content(), shown.media_type, name)];
  }
  if (shown.kind === "bytes" && shown.head) return [element("p", "soft", say("preview_none")), pre(shown.head.match(/.{1,32}/g).join("\n"))];
  return [element("p", "soft", say("preview_none"))];
}

/** The same without the portal's help: pictures by the name's ending, text where the bytes are text. */
async function guess(entry, fetchBytes) {
  const media = ENDINGS[entry.name.toLowerCase().split(".").pop()];
  const bytes = entry.size_bytes ?? 0;
  if (media && bytes <= MOST_PICTURE) return [picture(await fetchBytes(), media, plain(entry.name))];
  if (bytes === 0) return [element("p", "soft", say("preview_empty"))];
  const some = new Uint8Array(await fetchBytes(MOST_TEXT));
  if (some.includes(0)) return [element("p", "soft", say("preview_none"))];
  const cut = some.length < bytes ? [element("p", "soft", say("preview_cut"))] : [];
  return [pre(new TextDecoder().decode(some)), ...cut];
}

/** Fetches what there is to see of an entry, as elements. */
export async function look(space, entry, signal) {
  const at = bytesOf(entry);
  const place = `/live/spaces/${space}/files`;
  const fetchBytes = async (most) => {
    const headers = most ? { range: `bytes=0-${most - 1}` } : {};
    const answer = await fetch(address(`${place}/content`, at), { headers, signal, redirect: "manual" });
    if (!answer.ok) throw new Trouble("unknown", say("no_answer"), { status: answer.status });
    return answer.arrayBuffer();
  };
  try {
    const said = await ask("GET", address(`${place}/preview`, at), { signal });
    return await draw(said, { name: plain(entry.name), content: fetchBytes });
  } catch (error) {
    if (!(error instanceof Trouble) || ![404, 405].includes(error.status) || error.code === "no_such_path") throw error;
    return guess(entry, fetchBytes);
  }
}

/** The line above a preview: how large the file is. */
export const summary = (entry) => size(entry.size_bytes);
