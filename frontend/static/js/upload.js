// Files and folders come in by dropping them or by choosing them: a few at once, each by itself, with what goes wrong said beside it.
import { Trouble, ask } from "./ask.js";
import { afresh, attempt } from "./actions.js";
import { askFor } from "./dialog.js";
import { directory, here } from "./files.js";
import { bytesOfText, field, join, text, toBase64 } from "./paths.js";
import { plain, size } from "./shown.js";
import { tell } from "./tell.js";
import { forget, keyOf, read, unfinished, upload } from "./tus.js";
import { announce, say } from "./words.js";

/** How many at once. */
const AT_ONCE = 3;
/** Files that nobody says to be held over the page for so long are gone: browsers say it every 350 ms. */
const HELD_MS = 1000;
const create = `/live/spaces/${here.space}/uploads`;

const root = document.querySelector("[data-files]");
const zone = root.querySelector("[data-drop]");
const panel = document.createElement("section");
const summary = document.createElement("p");
const lines = document.createElement("ul");

const waiting = [];
const under = new Set();
let seen = { files: 0, done: 0, bytes: 0, sent: 0 };
let halted = false;
let answerForAll = null;
let asking = Promise.resolve();

const b64 = (word) => toBase64(bytesOfText(word));

/** What one file is on its way. */
class Item {
  constructor(file, path) {
    Object.assign(this, { file, path, whole: join(directory, bytesOfText(path)), sent: 0, onConflict: "refuse", control: null, line: null });
    this.key = keyOf(file, `${here.space}:${text(this.whole)}`);
  }

  metadata() {
    const modified = new Date(this.file.lastModified).toISOString();
    const pairs = [`path ${toBase64(this.whole)}`, `on_conflict ${b64(this.onConflict)}`, `modified ${b64(modified)}`];
    if (this.path.includes("/")) pairs.push(`parents ${b64("true")}`);
    return pairs.join(",");
  }

  /** Its line, made where it has none. */
  show(words, buttons = []) {
    if (!this.line) {
      this.line = document.createElement("li");
      const name = document.createElement("bdi");
      name.textContent = plain(this.path);
      this.bar = document.createElement("progress");
      this.bar.max = Math.max(1, this.file.size);
      this.bar.setAttribute("aria-label", plain(this.path));
      this.words = document.createElement("span");
      this.buttons = document.createElement("span");
      this.buttons.className = "row";
      this.line.append(name, this.bar, this.words, this.buttons);
      lines.append(this.line);
    }
    this.bar.value = this.sent;
    this.words.textContent = words;
    const made = buttons.map(([label, work]) => {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", className: "button button-small", textContent: label });
      button.addEventListener("click", work);
      return button;
    });
    this.buttons.replaceChildren(...made);
  }

  hide() {
    this.line?.remove();
    this.line = null;
  }
}

function showSummary() {
  const busy = under.size > 0 || waiting.length > 0;
  panel.hidden = !busy && lines.childElementCount === 0;
  summary.hidden = seen.files === 0;
  const sent = seen.sent + [...under].reduce((sum, item) => sum + item.sent, 0);
  summary.textContent = say("upload_summary", { done: seen.done, files: seen.files, sent: size(sent), bytes: size(seen.bytes) });
}

/** What to do where something lies already; asked once for one file after the other. */
function conflict(item) {
  const turn = asking.then(async () => {
    if (answerForAll) return answerForAll;
    const values = await askFor({
      title: say("upload_exists"),
      text: plain(item.path),
      fields: seen.files > 1 ? [{ name: "all", label: say("upload_for_all"), kind: "check" }] : [],
      buttons: [
        ["skip", say("upload_skip")],
        ["replace", say("upload_replace")],
      ],
      yes: say("conflict_keep_both"),
    });
    const answer = values === null ? "skip" : values.button === "yes" ? "keep_both" : values.button;
    if (values?.all) answerForAll = answer;
    return answer;
  });
  asking = turn.catch(() => {});
  return turn;
}

async function carry(item) {
  item.control = new AbortController();
  under.add(item);
  const cancel = [[say("cancel"), () => item.control.abort()]];
  item.show(say("upload_begins"), cancel);
  const progress = (bytes) => {
    item.sent = bytes;
    item.show(say("upload_so_far", { sent: size(bytes), bytes: size(item.file.size) }), cancel);
    showSummary();
  };
  try {
    const { signal } = item.control;
    await upload(item.file, {
      create,
      key: item.key,
      metadata: item.metadata(),
      signal,
      progress,
      waiting: (trouble) => item.show(say("upload_waits", { why: trouble.message }), cancel),
    });
    seen.done += 1;
    seen.sent += item.file.size;
    item.hide();
  } catch (error) {
    await failed(item, error);
  } finally {
    under.delete(item);
    showSummary();
    go();
  }
}

async function failed(item, error) {
  const again = () => {
    item.sent = 0;
    item.hide();
    waiting.unshift(item);
    halted = false;
    go();
  };
  if (error.name === "AbortError") {
    seen.files -= 1;
    seen.bytes -= item.file.size;
    item.hide();
    await forget(item.key);
  } else if (error instanceof Trouble && error.code === "exists" && item.onConflict === "refuse") {
    const answer = await conflict(item);
    item.hide();
    if (answer === "skip") {
      seen.files -= 1;
      seen.bytes -= item.file.size;
      return;
    }
    item.onConflict = answer;
    waiting.unshift(item);
  } else {
    // Where there is no room, there is none for the others either.
    const full = error.status === 507;
    if (full && !halted) {
      halted = true;
      tell("bad", `${error.message} ${say("upload_no_room")}`, [say("try_again"), again]);
    }
    const drop = () => {
      item.hide();
      showSummary();
    };
    item.show(error.message ?? say("no_answer"), [[say("try_again"), again], [say("close"), drop]]);
  }
}

/** Begins as many as may be under way. */
function go() {
  while (!halted && under.size < AT_ONCE && waiting.length > 0) carry(waiting.shift());
  if (under.size > 0 || (waiting.length > 0 && !halted)) return;
  if (seen.done > 0) {
    const { done } = seen;
    attempt(afresh).then(() => {
      if (!halted && lines.childElementCount === 0) tell("good", say("uploaded", { n: done }));
      announce(say("uploaded", { n: done }));
    });
  }
  if (waiting.length === 0) seen = { files: 0, done: 0, bytes: 0, sent: 0 };
  answerForAll = null;
  showSummary();
}

/** Takes files with their paths below this directory. */
function take(found) {
  for (const [file, path] of found) {
    waiting.push(new Item(file, path));
    seen.files += 1;
    seen.bytes += file.size;
  }
  halted = false;
  showSummary();
  go();
}

/** All files below what was dropped, and the directories that have none. */
async function walk(entries) {
  const found = [];
  const empty = [];
  const rest = [...entries];
  while (rest.length > 0) {
    const entry = rest.pop();
    const path = entry.fullPath.replace(/^\/+/, "");
    if (entry.isFile) {
      found.push([await new Promise((good, bad) => entry.file(good, bad)), path]);
      continue;
    }
    const reader = entry.createReader();
    let any = false;
    for (;;) {
      const some = await new Promise((good, bad) => reader.readEntries(good, bad));
      if (some.length === 0) break;
      any = true;
      rest.push(...some);
    }
    if (!any) empty.push(path);
  }
  return { found, empty };
}

async function dropped(transfer) {
  // What was dropped can be asked for only while the event lasts.
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const plainFiles = entries.length > 0 ? [] : [...transfer.files].map((file) => [file, file.name]);
  const { found, empty } = await walk(entries);
  take([...plainFiles, ...found]);
  for (const path of empty) {
    const body = { ...field("path", join(directory, bytesOfText(path))), parents: true };
    await attempt(() => ask("POST", `/live/spaces/${here.space}/files/directories`, { body }));
  }
  if (empty.length > 0 && found.length === 0) await afresh();
}

function chooser(label, folder) {
  const input = document.createElement("input");
  Object.assign(input, { type: "file", multiple: true, hidden: true, webkitdirectory: folder });
  input.addEventListener("change", () => {
    take([...input.files].map((file) => [file, file.webkitRelativePath || file.name]));
    input.value = "";
  });
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "button", textContent: label });
  button.addEventListener("click", () => input.click());
  return [button, input];
}

function offerUnfinished() {
  const mine = unfinished().filter((key) => read(key).target.startsWith(`${here.space}:`));
  if (mine.length === 0) return;
  const names = mine.slice(0, 3).map((key) => plain(read(key).name));
  const text = say("upload_unfinished", { n: mine.length, names: names.join(", ") });
  tell("wait", text, [say("upload_forget"), () => attempt(() => Promise.all(mine.map(forget)))]);
}

if (here.writable) {
  const bar = document.createElement("div");
  bar.className = "row upload-bar";
  const hint = document.createElement("span");
  hint.className = "soft";
  hint.textContent = say("upload_hint");
  bar.append(...chooser(say("upload_files"), false), ...chooser(say("upload_folder"), true), hint);
  panel.className = "card uploads";
  panel.hidden = true;
  panel.setAttribute("aria-label", say("uploads"));
  summary.setAttribute("role", "status");
  panel.append(summary, lines);
  zone.before(bar, panel);

  // Who holds files over the page says so again and again; that they are gone is told only where they leave the window by its edge.
  let held;
  const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  const mark = (isHeld) => {
    clearTimeout(held);
    if (isHeld) held = setTimeout(mark, HELD_MS, false);
    root.classList.toggle("dropping", isHeld);
  };
  const over = (event, isHeld) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    mark(isHeld);
  };
  document.addEventListener("dragenter", (event) => over(event, true));
  document.addEventListener("dragleave", (event) => over(event, event.relatedTarget !== null));
  document.addEventListener("dragover", (event) => over(event, true));
  document.addEventListener("drop", (event) => {
    over(event, false);
    if (hasFiles(event)) attempt(() => dropped(event.dataTransfer));
  });
  addEventListener("beforeunload", (event) => {
    if (under.size > 0) event.preventDefault();
  });
  offerUnfinished();
}
