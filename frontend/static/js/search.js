// Looks for names in this folder and all below it, and lists what was found.
import { ask } from "./ask.js";
import { attempt } from "./actions.js";
import { directory, here } from "./files.js";
import { address, bytesOf, field } from "./paths.js";
import { kind, plain, size } from "./shown.js";
import { tell } from "./tell.js";
import { follow } from "./works.js";
import { say } from "./words.js";

const root = document.querySelector("[data-files]");
const filter = root.querySelector("form[role=search]");
const place = document.createElement("section");
place.className = "card found";
place.hidden = true;
filter.after(place);

function line(found) {
  const made = document.createElement("li");
  const bytes = bytesOf(found);
  const link = document.createElement("a");
  const where = found.kind === "directory" ? "files" : "files/entry";
  link.href = address(`/spaces/${here.space}/${where}`, bytes);
  const name = document.createElement("bdi");
  name.textContent = plain(found.path);
  link.append(name);
  const about = document.createElement("span");
  about.className = "soft";
  about.textContent = [kind(found.kind), size(found.size_bytes)].filter(Boolean).join(" · ");
  made.append(link, about);
  return made;
}

async function search(name) {
  const below = directory.length > 0 ? field("path", directory) : {};
  const operation = await ask("POST", `/live/spaces/${here.space}/files/search`, { body: { ...below, name } });
  const over = await follow(operation);
  if (over.state !== "done") return;
  const results = `/live/operations/${operation.id}/results`;
  const title = document.createElement("h2");
  const list = document.createElement("ul");
  let next = null;
  let n = 0;
  do {
    const page = await ask("GET", `${results}?limit=200${next ? `&cursor=${next}` : ""}`);
    list.append(...page.items.map(line));
    n += page.items.length;
    next = page.next;
  } while (next !== null);
  title.textContent = say("found", { n, name: plain(name) });
  title.tabIndex = -1;
  const close = document.createElement("button");
  Object.assign(close, { type: "button", className: "button button-small", textContent: say("close") });
  close.addEventListener("click", () => (place.hidden = true));
  const head = document.createElement("div");
  head.className = "head";
  head.append(title, close);
  place.replaceChildren(head, list);
  place.hidden = false;
  title.focus();
}

const button = document.createElement("button");
Object.assign(button, { type: "button", className: "button", textContent: say("search") });
button.addEventListener("click", () => {
  const name = filter.elements.filter.value;
  if (name === "") return tell("wait", say("search_what"));
  return attempt(() => search(name));
});
filter.querySelector(".row").append(button);
