// A click on a file's name shows the beginning of the file in a panel, from which it can be saved.
import { ask } from "./ask.js";
import { here, rows } from "./files.js";
import { address, bytesOf } from "./paths.js";
import { look, summary } from "./preview.js";
import { plain } from "./shown.js";
import { say } from "./words.js";

const root = document.querySelector("[data-files]");

function open(entry) {
  const control = new AbortController();
  const dialog = document.createElement("dialog");
  dialog.className = "confirm preview";
  const title = document.createElement("h2");
  title.id = "preview-title";
  const name = document.createElement("bdi");
  name.textContent = plain(entry.name);
  title.append(name);
  const bytes = document.createElement("p");
  bytes.className = "soft";
  bytes.textContent = summary(entry);
  const place = document.createElement("div");
  place.className = "preview-place";
  place.setAttribute("aria-live", "polite");
  // What is longer than it is scrolled by keys, too.
  place.tabIndex = 0;
  place.setAttribute("role", "region");
  place.setAttribute("aria-labelledby", title.id);
  place.textContent = say("preview_wait");
  const save = document.createElement("a");
  save.className = "button button-main";
  save.href = address(`/live/spaces/${here.space}/files/content`, bytesOf(entry));
  save.download = "";
  save.textContent = say("save");
  const about = document.createElement("a");
  about.className = "button";
  about.href = address(`/spaces/${here.space}/files/entry`, bytesOf(entry));
  about.textContent = say("about");
  const sum = document.createElement("button");
  Object.assign(sum, { type: "button", className: "button", textContent: say("checksum") });
  const told = document.createElement("p");
  told.className = "wrap mono";
  told.setAttribute("role", "status");
  sum.addEventListener("click", async () => {
    sum.disabled = true;
    told.textContent = say("checksum_wait");
    try {
      const asked = address(`/live/spaces/${here.space}/files/entry`, bytesOf(entry), { checksum: "sha256" });
      const answer = await ask("GET", asked, { signal: control.signal });
      // What breaks off on its way has come to nothing.
      told.textContent = answer ? `SHA-256 ${answer.sha256}` : say("no_answer");
    } catch (error) {
      if (error.name !== "AbortError") told.textContent = error.message;
    }
    sum.disabled = false;
  });
  const close = document.createElement("button");
  Object.assign(close, { type: "button", className: "button", textContent: say("close") });
  close.addEventListener("click", () => dialog.close());
  const row = document.createElement("div");
  row.className = "row";
  row.append(close, sum, about, save);
  dialog.append(title, bytes, place, told, row);
  dialog.setAttribute("aria-labelledby", title.id);
  dialog.addEventListener("close", () => {
    control.abort();
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.showModal();
  close.focus();
  look(here.space, entry, control.signal).then(
    (parts) => place.replaceChildren(...parts),
    (error) => {
      if (error.name !== "AbortError") place.textContent = error.message;
    },
  );
}

root.querySelector("table.files").addEventListener("click", (event) => {
  const link = event.target.closest('[data-part="name"]');
  const entry = link && rows.of(link);
  if (entry?.kind !== "file" || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  open(entry);
});
