// What is done with what is picked: other names and places, copies, the trash, permissions, saving. Without scripts each thing has a page
// of its own for that.
import { Trouble, ask, formToken } from "./ask.js";
import { askFor } from "./dialog.js";
import { directory, here, picked, rows } from "./files.js";
import { above, address, base64url, bytesOf, bytesOfText, field, join, lastName, text } from "./paths.js";
import { plain } from "./shown.js";
import { quiet, tell } from "./tell.js";
import { follow, resume } from "./works.js";
import { announce, say } from "./words.js";

const root = document.querySelector("[data-files]");
const tools = root.querySelector("[data-tools]");
const all = root.querySelector("[data-pick-all]");
const live = `/live/spaces/${here.space}`;
/** Most things in one archive by their own names. */
const MOST_ARCHIVED = 500;
const CONFLICT = ["refuse", "keep_both", "replace"];

/** Does what may fail, and says so where it does. */
export async function attempt(work) {
  quiet();
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Trouble)) throw error;
    tell("bad", error.message);
    return undefined;
  }
}

/** The list is fetched again; nothing is picked. */
export async function afresh() {
  picked.clear();
  await attempt(() => rows.reload());
  showTools();
}

/** What of several things was refused, in a sentence. */
function refused(list) {
  if (list.length === 0) return "";
  const [first] = list;
  return say("refused", { name: plain(first.path), why: first.text, n: list.length });
}

const paths = (entries) => {
  const asked = entries.map((entry) => field("path", bytesOf(entry)));
  const of = (key) => asked.filter((path) => key in path).map((path) => path[key]);
  return { paths: of("path"), raw_paths: of("raw_path") };
};

async function trash(entries) {
  const { items, refused: kept } = await ask("POST", `${live}/files/trash`, { body: paths(entries) });
  await afresh();
  const undo = async () => {
    for (const { id } of items) await ask("POST", `${live}/trash/${id}/restore`, { body: { on_conflict: "keep_both" } });
    await afresh();
    announce(say("restored"));
  };
  const why = refused(kept);
  tell(why ? "wait" : "good", `${say("trashed", { n: items.length })} ${why}`, items.length > 0 && [say("undo"), () => attempt(undo)]);
}

const OTHER_FILE_SYSTEM = "other_file_system";
const key = ({ path, raw_path: raw }) => raw ?? path;

/**
 * Moves, as an operation what goes to another file system; what was moved, and what was not. Whatever fails keeps nothing else from being moved,
 * and is told with the rest.
 */
async function move(body) {
  const place = `${live}/files/move`;
  // Where all of them lie there, the answer is that alone.
  const now = await ask("POST", place, { body }).catch((error) => {
    if (error.code !== OTHER_FILE_SYSTEM) throw error;
    return { items: [], refused: body.items.map((item) => ({ ...item, code: OTHER_FILE_SYSTEM })) };
  });
  const isFar = ({ code }) => code === OTHER_FILE_SYSTEM;
  const far = now.refused.filter(isFar);
  if (far.length === 0) return now;
  const kept = now.refused.filter((one) => !isFar(one));
  const keys = far.map(key);
  const items = body.items.filter((item) => keys.includes(key(item)));
  let begun;
  try {
    begun = await ask("POST", place, { body: { ...body, items, as_operation: true } });
  } catch (error) {
    // Where nothing else is to be told, it is told as any other trouble.
    if (!(error instanceof Trouble) || now.items.length + kept.length === 0) throw error;
    const why = error.message.replace(/\.$/, "");
    return { items: now.items, refused: [...kept, ...far.map((one) => ({ ...one, text: why }))] };
  }
  const { state, progress } = await follow(begun);
  // Why it failed, if it did, stands where it was followed.
  const later = state === "done" ? progress : { items: [], refused: [] };
  return { items: [...now.items, ...later.items], refused: [...kept, ...later.refused] };
}

/** Moves or copies entries to where `to` says for each, in this space or in another one. */
async function place(verb, entries, to, onConflict, space) {
  const items = entries.map((entry) => ({ ...field("path", bytesOf(entry)), ...field("to", to(entry)) }));
  const body = { items, to_space: space, on_conflict: onConflict };
  if (verb === "copy") {
    await follow(await ask("POST", `${live}/files/copy`, { body }));
    return afresh();
  }
  const answer = await move(body);
  await afresh();
  if (answer.items.length + answer.refused.length === 0) return undefined;
  const why = refused(answer.refused);
  return tell(why ? "wait" : "good", `${say("moved", { n: answer.items.length })} ${why}`);
}

async function rename(entry) {
  const old = bytesOf(entry);
  const values = await askFor({
    title: say("rename"),
    text: plain(entry.name),
    fields: [{ name: "name", label: say("new_name"), value: text(lastName(old)) }],
    yes: say("rename"),
  });
  if (!values) return;
  if (values.name.includes("/")) return tell("bad", say("no_slash"));
  return attempt(() => place("move", [entry], () => join(above(old), bytesOfText(values.name)), "refuse"));
}

async function elsewhere(verb, entries) {
  const choices = here.targets.map(({ value, label }) => [value, label]);
  const chosen = here.targets.find(({ selected }) => selected)?.value;
  const spaces = choices.length > 0 ? [{ name: "to_space", label: say("to_space"), kind: "select", value: chosen, choices }] : [];
  const values = await askFor({
    title: verb === "move" ? say("move") : say("copy"),
    text: entries.length === 1 ? plain(entries[0].name) : say("so_many", { n: entries.length }),
    fields: [
      ...spaces,
      { name: "to", label: say("to_folder"), value: text(directory) || "/", hint: say("to_folder_hint") },
      { name: "conflict", label: say("conflict"), kind: "radio", value: "refuse", choices: CONFLICT.map((word) => [word, conflictWord(word)]) },
    ],
    yes: verb === "move" ? say("move") : say("copy"),
  });
  if (!values) return;
  // Where nothing was changed, the bytes are those of the directory itself.
  const same = values.to === (text(directory) || "/");
  const target = same ? directory : bytesOfText(values.to.replace(/^\/+|\/+$/g, ""));
  return attempt(() => place(verb, entries, (entry) => join(target, lastName(bytesOf(entry))), values.conflict, values.to_space));
}

/** How archives are called that can be unpacked, as the portal's own page has it. */
const ARCHIVE = /^(.+?)\.(tar\.gz|tgz|tar|zip)$/i;

/** Makes a new folder here of what is in an archive. What of it is made to mislead is left out, and named. */
async function unpack(entry) {
  const values = await askFor({
    title: say("unpack"),
    text: plain(entry.name),
    fields: [
      { name: "to", label: say("unpack_to"), value: plain(entry.name).match(ARCHIVE)[1], hint: say("unpack_hint") },
      { name: "conflict", label: say("conflict"), kind: "radio", value: "refuse", choices: CONFLICT.map((word) => [word, conflictWord(word)]) },
    ],
    yes: say("unpack"),
  });
  if (!values) return undefined;
  if (values.to.includes("/")) return tell("bad", say("no_slash"));
  return attempt(async () => {
    const to = join(directory, bytesOfText(values.to));
    const body = { ...field("path", bytesOf(entry)), ...field("to", to), on_conflict: values.conflict };
    // Why it failed, if it did, stands where it was followed.
    const { state, progress } = await follow(await ask("POST", `${live}/files/extract`, { body }));
    await afresh();
    if (state !== "done") return undefined;
    const name = plain(progress.path.slice(progress.path.lastIndexOf("/") + 1));
    const [first] = progress.skipped ?? [];
    if (!first) return tell("good", say("unpacked", { name }));
    return tell("wait", say("unpacked_without", { name, n: progress.skipped_in_all, first: plain(first.path), why: first.text }));
  });
}

function conflictWord(word) {
  if (word === "refuse") return say("conflict_refuse");
  return word === "replace" ? say("conflict_replace") : say("conflict_keep_both");
}

async function permissions(entry) {
  const at = bytesOf(entry);
  const now = await ask("GET", address(`${live}/files/permissions`, at));
  if (!now.mine) return tell("wait", say("not_yours"));
  const lines = address(`/spaces/${here.space}/files/permissions`, at);
  // What no word says is changed line by line.
  if (!now.share) return location.assign(lines);
  const below = entry.kind === "directory" ? [{ name: "recursive", label: say("share_below"), kind: "check" }] : [];
  const choices = [
    ["private", say("share_private")],
    ["group_reads", say("share_reads")],
    ["group_writes", say("share_writes")],
  ];
  const values = await askFor({
    title: say("permissions"),
    text: plain(entry.name),
    fields: [{ name: "share", label: say("who_may"), kind: "radio", value: now.share, choices }, ...below],
    yes: say("change"),
    buttons: [["lines", say("share_lines")]],
  });
  if (!values) return;
  if (values.button === "lines") return location.assign(lines);
  const recursive = Boolean(values.recursive);
  const body = { ...field("path", at), share: values.share, recursive };
  const answer = await ask("PUT", `${live}/files/permissions`, { body });
  if (recursive) await follow(answer);
  await afresh();
}

/** Has the browser save what an address answers with. */
function saveFrom(href) {
  const link = document.createElement("a");
  link.href = href;
  link.download = "";
  link.click();
}

/** Saves a file as it is. */
const save = (entry) => saveFrom(address(`${live}/files/content`, bytesOf(entry)));

/** Saves a directory as one archive, which is called as it is. */
const saveFolder = (entry, format) => saveFrom(address(`${live}/files/archive`, bytesOf(entry), { format }));

/** Saves several things as one archive: by a form, which has room for many paths. */
function saveAll(entries, format) {
  if (entries.length > MOST_ARCHIVED) return tell("wait", say("too_many_picked", { n: MOST_ARCHIVED }));
  const form = document.createElement("form");
  Object.assign(form, { method: "post", action: `/spaces/${here.space}/files/archive`, hidden: true });
  const values = [["csrf", formToken()], ["format", format], ...entries.map((entry) => ["raw", base64url(bytesOf(entry))])];
  for (const [name, value] of values) {
    form.append(Object.assign(document.createElement("input"), { type: "hidden", name, value }));
  }
  document.body.append(form);
  form.submit();
  form.remove();
  return undefined;
}

function button(label, work, { danger = false } = {}) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = `button button-small${danger ? " button-danger" : ""}`;
  made.textContent = label;
  made.addEventListener("click", work);
  return made;
}

/** What can be done with what is picked now. */
function showTools() {
  const entries = [...picked];
  const one = entries.length === 1;
  tools.hidden = entries.length === 0;
  all.checked = entries.length > 0 && entries.length === rows.items.length;
  all.indeterminate = entries.length > 0 && !all.checked;
  const count = document.createElement("span");
  count.textContent = say("so_many", { n: entries.length });
  const saveAs = (format) => (one ? saveFolder(entries[0], format) : saveAll(entries, format));
  const buttons =
    one && entries[0].kind !== "directory"
      ? [button(say("save"), () => save(entries[0]))]
      : [button(say("save_zip"), () => saveAs("zip")), button(say("save_tar"), () => saveAs("tar"))];
  const copy = button(say("copy"), () => elsewhere("copy", entries));
  if (here.writable) {
    if (one) buttons.push(button(say("rename"), () => rename(entries[0])));
    if (one && entries[0].kind === "file" && ARCHIVE.test(entries[0].name)) buttons.push(button(say("unpack"), () => unpack(entries[0])));
    buttons.push(button(say("move"), () => elsewhere("move", entries)), copy);
    if (one && entries[0].kind !== "link") buttons.push(button(say("permissions"), () => attempt(() => permissions(entries[0]))));
    buttons.push(button(say("to_trash"), () => attempt(() => trash(entries)), { danger: true }));
  } else if (here.targets.length > 0) buttons.push(copy);
  tools.replaceChildren(count, ...buttons);
}

all.setAttribute("aria-label", say("pick_all"));
all.addEventListener("change", () => {
  picked.clear();
  if (all.checked) for (const entry of rows.items) picked.add(entry);
  rows.redraw();
  showTools();
});
root.querySelector("table.files").addEventListener("change", (event) => {
  const entry = event.target.matches('[data-part="pick"]') && rows.of(event.target);
  if (!entry) return;
  if (event.target.checked) picked.add(entry);
  else picked.delete(entry);
  event.target.closest("tr").classList.toggle("picked", event.target.checked);
  showTools();
});
resume(afresh).catch(() => {});
