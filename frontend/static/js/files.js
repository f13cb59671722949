// The file browser: what the page shows already, as a window on the whole list.
import { Trouble, ask } from "./ask.js";
import { address, bytesOf } from "./paths.js";
import { Rows } from "./rows.js";
import { kind, may, plain, size } from "./shown.js";
import { localise } from "./times.js";
import { fill, say } from "./words.js";

const root = document.querySelector("[data-files]");

/** Where one is: the space, the directory, how it is looked at. */
export const here = JSON.parse(root.dataset.files);
/** The bytes of the directory's path. */
export const directory = bytesOf(here.list.directory);
/** What is picked: entries, not rows. */
export const picked = new Set();

const table = root.querySelector("table.files");
const pager = root.querySelector("[data-pager]");
const count = root.querySelector("[data-count]");
const empty = root.querySelector("[data-empty]");
const blank = root.querySelector("template[data-row]").content;
const icons = [...root.querySelector("template[data-icons]").content.querySelectorAll("use")].map((use) => use.getAttribute("href"));
const live = `/live/spaces/${here.space}`;

const iconOf = (word) => icons[word === "directory" || word === "mount" ? 0 : word === "link" ? 2 : 1];

function row(entry) {
  const made = blank.cloneNode(true).querySelector("tr");
  const part = (name) => made.querySelector(`[data-part="${name}"]`);
  const name = plain(entry.name);
  const bytes = bytesOf(entry);
  const about = address(`/spaces/${here.space}/files/entry`, bytes);
  for (const place of made.querySelectorAll("bdi")) place.textContent = name;
  made.querySelector("use").setAttribute("href", iconOf(entry.kind));
  part("kind").textContent = kind(entry.kind);
  part("name").href = entry.kind === "directory" ? address(`/spaces/${here.space}/files`, bytes) : about;
  part("more").href = about;
  part("size").textContent = entry.kind === "directory" ? "" : size(entry.size_bytes);
  part("may").textContent = may(entry.kind, entry.mode);
  if (entry.modified_at) {
    const time = document.createElement("time");
    time.dateTime = entry.modified_at;
    part("modified").replaceChildren(time);
    localise(part("modified"));
  }
  const pick = part("pick");
  pick.checked = picked.has(entry);
  pick.setAttribute("aria-label", say("pick", { name }));
  made.classList.toggle("picked", pick.checked);
  return made;
}

/** Asks for a page of this directory. */
function fetchPage(cursor, limit) {
  const { sort, order, hidden, filter } = here;
  const look = { sort, order, hidden, limit, ...(filter ? { filter } : {}), ...(cursor ? { cursor } : {}) };
  return ask("GET", address(`${live}/files`, directory, look)).then((list) => {
    here.list.directory = list.directory;
    return list;
  });
}

/** How many there are, above the list, and that there are none, below it. */
function showCount() {
  const { entries: n, entries_at_least: more } = here.list.directory;
  const text = fill(n === 1 ? count.dataset.one : count.dataset.other, { n });
  count.textContent = more ? fill(count.dataset.atLeast, { count: text }) : text;
  empty.hidden = n > 0;
}

/** What stands below the list: nothing, or why it does not go on. */
function showTail() {
  const { failed } = rows;
  pager.replaceChildren();
  if (failed) {
    const again = document.createElement("button");
    again.type = "button";
    again.className = "button";
    again.textContent = say("try_again");
    again.addEventListener("click", () => rows.more());
    const why = document.createElement("p");
    why.setAttribute("role", "status");
    why.textContent = failed instanceof Trouble ? failed.message : say("no_answer");
    pager.append(why, again);
  }
  showCount();
  table.setAttribute("aria-rowcount", here.list.directory.entries_at_least ? -1 : here.list.directory.entries + 1);
  root.dispatchEvent(new Event("rows"));
}

/** The rows. */
export const rows = new Rows({ table, tail: pager, draw: row, fetchPage, changed: () => rows && showTail() });

table.classList.add("with-picks");
rows.begin(here.list);
showTail();
