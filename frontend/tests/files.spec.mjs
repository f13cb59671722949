// The file browser's modules against a portal of the test's own: a hundred thousand names, names that are no friends, uploads that break off,
// files that would like to run.
import assert from "node:assert/strict";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";

import { SIZES, accessibility, drag, launch, listen, picture } from "./browser.mjs";
import { checksumOf } from "./checksum.mjs";
import { POLICY, folder, serve } from "./samples.mjs";

const ID = "0198f3a2b4c67d1e8f90a1b2c3d4e5f6";
const PNG = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

async function bodyOf(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts);
}

const entry = (name, more = {}) => ({ name, path: name, kind: "file", size_bytes: 3, mode: "rw-r-----", mine: true, ...more });
const listing = (items, next = null, entries = items.length) => ({
  directory: { path: "", writable: true, entries, entries_at_least: false },
  items,
  next,
});

/** The directory's page with this list in it, and a portal that answers as `answers` says, by `METHOD /path`. */
async function portal(t, list, answers = {}) {
  const asked = [];
  const page = (await readFile(path.join(folder, "files.html"), "utf8")).replace(/data-files="[^"]*"/, () => {
    const targets = [
      { value: "home", label: "Home", selected: true },
      { value: "scratch-ada", label: "Scratch <b>", selected: false },
    ];
    const state = { space: "home", title: "Home", writable: true, targets, sort: "name", order: "asc", hidden: false, filter: "", list };
    return `data-files="${JSON.stringify(state).replaceAll("&", "&amp;").replaceAll('"', "&quot;")}"`;
  });
  const server = await serve(async (request, response, name) => {
    if (name === "/page") {
      response.writeHead(200, {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": POLICY,
      });
      response.end(page);
      return true;
    }
    if (!name.startsWith("/live/")) return false;
    const ask = { method: request.method, url: request.url, headers: request.headers };
    asked.push(ask);
    const answer = answers[`${request.method} ${name}`];
    const json = (status, said) => response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(said));
    if (typeof answer === "function") await answer({ request, response, ask, json });
    else {
      ask.body = (await bodyOf(request)).toString();
      if (answer === undefined && name === "/live/operations") json(200, { items: [], next: null });
      else if (answer === undefined) json(404, { code: "not_found", detail: "there is no such thing" });
      else json(answer.status ?? 200, answer.body ?? answer);
    }
    return true;
  });
  t.after(() => server.close());
  const view = await browser.newPage();
  t.after(() => view.close());
  const faults = listen(view, (text) => text.includes("Failed to load resource"));
  await view.addInitScript(() => {
    globalThis.pwned = undefined;
  });
  await view.goto(`${server.origin}/page`);
  const of = (what) => asked.filter((ask) => `${ask.method} ${new URL(ask.url, "http://x").pathname}` === what);
  return { page: view, faults, of };
}

const LIST = "GET /live/spaces/home/files";
const UPLOADS = "POST /live/spaces/home/uploads";
const until = async (what, condition) => {
  for (let n = 0; n < 200; n += 1) {
    if (await condition()) return;
    await new Promise((go) => setTimeout(go, 50));
  }
  assert.fail(`not in ten seconds: ${what}`);
};

test("names are text, whatever they are, and lead to what has them", async (t) => {
  const names = ["<img src=x onerror=window.pwned=1>", '"><script>window.pwned=1</script>', "two\nlines", "\u202egpj.exe", "a&b=c"];
  const raw = entry("caf\ufffd", { raw_path: "Y2Fm6Q" });
  const { page, faults } = await portal(t, listing([...names.map((name) => entry(name)), raw, entry("d", { kind: "directory" })]));
  const shown = await page.locator("tbody bdi").evaluateAll((all) => all.map((one) => one.textContent));
  for (const name of ["<img src=x onerror=window.pwned=1>", "two\u240alines", "\ufffdgpj.exe"]) assert.ok(shown.includes(name), name);
  const hrefs = await page.locator('[data-part="name"]').evaluateAll((all) => all.map((one) => one.getAttribute("href")));
  assert.equal(hrefs[2], "/spaces/home/files/entry?path=two%0Alines");
  assert.equal(hrefs[5], "/spaces/home/files/entry?raw_path=Y2Fm6Q");
  assert.equal(hrefs[6], "/spaces/home/files?path=d");
  const data = await page.locator("tbody tr").evaluateAll((rows) => rows.map((row) => Object.entries(row.dataset).join()));
  assert.deepEqual(data, ["index,0", "index,1", "index,2", "index,3", "index,4", "index,5", "index,6"], "a row carries its index and no name");
  assert.equal(await page.evaluate(() => globalThis.pwned), undefined);
  assert.deepEqual(faults, []);
});

test("a hundred thousand names scroll by in a table of a few hundred rows", async (t) => {
  const all = 100_000;
  const name = (n) => entry(`n${String(n).padStart(6, "0")}`);
  const some = (from, many) => Array.from({ length: Math.min(many, all - from) }, (_, n) => name(from + n));
  const { page, of, faults } = await portal(t, listing(some(0, 200), "200.0", all), {
    [LIST]: ({ ask, json }) => {
      const query = new URL(ask.url, "http://x").searchParams;
      const from = Number(query.get("cursor")?.split(".")[0] ?? 0);
      const many = Number(query.get("limit"));
      json(200, listing(some(from, many), from + many < all ? `${from + many}.0` : null, all));
    },
  });
  const rows = () => page.locator("tbody tr[data-index]").count();
  for (let n = 1; n <= 12; n += 1) {
    const before = of(LIST).length;
    await until("more has come", async () => {
      await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
      return of(LIST).length > before;
    });
  }
  await until("rows far away are gone", async () => (await rows()) <= 1000);
  assert.ok((await page.locator("tr.spacer").count()) > 3);
  await page.evaluate(() => scrollTo(0, 0));
  await page.locator("tbody tr[data-index='0']").waitFor();
  assert.equal(await page.locator("tbody bdi").first().textContent(), "n000000");
  assert.equal(await page.locator("table.files").getAttribute("aria-rowcount"), String(all + 1));
  assert.deepEqual(faults, []);
});

test("a page that does not come is asked for again by a button", async (t) => {
  let up = false;
  const { page } = await portal(t, listing([entry("a")], "1.0", 2), {
    [LIST]: ({ json }) => (up ? json(200, listing([entry("b")], null, 2)) : json(503, { code: "storage_away", detail: "the storage does not answer" })),
  });
  await page.getByText("The storage does not answer.").waitFor();
  up = true;
  await page.getByRole("button", { name: "Try again" }).click();
  await page.locator("bdi", { hasText: /^b$/ }).first().waitFor();
});

test("what is picked goes to the trash, and comes back", async (t) => {
  const { page, of } = await portal(t, listing([entry("a"), entry("x\ufffd", { raw_path: "eOk" }), entry("c")]), {
    "POST /live/spaces/home/files/trash": { items: [{ id: ID, path: "a" }], refused: [{ path: "x", code: "busy", text: "it is in use; try again" }] },
    [`POST /live/spaces/home/trash/${ID}/restore`]: { path: "a" },
    [LIST]: listing([entry("c")]),
  });
  await page.getByLabel("Pick a", { exact: true }).check();
  await page.getByLabel("Pick x\ufffd").check();
  await page.getByRole("button", { name: "Move to the trash" }).click();
  await page.getByText("In the trash now: 1.").waitFor();
  await page.getByText("it is in use; try again").waitFor();
  const [sent] = of("POST /live/spaces/home/files/trash");
  assert.deepEqual(JSON.parse(sent.body), { paths: ["a"], raw_paths: ["eOk"] });
  assert.equal(sent.headers["x-eirene-form"], "sample-csrf");
  assert.deepEqual(await page.locator("tbody bdi").allTextContents().then((all) => all[0]), "c");
  await page.getByRole("button", { name: "Take it back out" }).click();
  await until("it is asked for", () => of(`POST /live/spaces/home/trash/${ID}/restore`).length === 1);
});

test("one folder is saved as zip or tar, a file as it is", async (t) => {
  const saved = (name) => ({ response }) =>
    response.writeHead(200, { "content-type": "application/octet-stream", "content-disposition": `attachment; filename="${name}"` }).end("bytes");
  const { page, of, faults } = await portal(t, listing([entry("d\ufffd", { kind: "directory", raw_path: "ZOk" }), entry("a")]), {
    "GET /live/spaces/home/files/archive": saved("folder"),
    "GET /live/spaces/home/files/content": saved("a"),
  });
  const offered = () => page.getByRole("button", { name: /^Download/ }).allTextContents();
  const save = async (label) => {
    const coming = page.waitForEvent("download");
    await page.getByRole("button", { name: label, exact: true }).click();
    return (await coming).suggestedFilename();
  };
  await page.getByLabel("Pick d\ufffd").check();
  assert.deepEqual(await offered(), ["Download as zip", "Download as tar"]);
  for (const label of await offered()) assert.equal(await save(label), "folder");
  const asked = of("GET /live/spaces/home/files/archive").map(({ url }) => new URL(url, "http://x").search);
  assert.deepEqual(asked, ["?raw_path=ZOk&format=zip", "?raw_path=ZOk&format=tar"]);
  await page.getByLabel("Pick d\ufffd").uncheck();
  await page.getByLabel("Pick a", { exact: true }).check();
  assert.deepEqual(await offered(), ["Download"]);
  assert.equal(await save("Download"), "a");
  assert.deepEqual(faults, []);
});

test("a folder's own page has it as zip or tar without any script", async (t) => {
  const server = await serve();
  t.after(() => server.close());
  const context = await browser.newContext({ javaScriptEnabled: false });
  t.after(() => context.close());
  const page = await context.newPage();
  const links = async (name) => {
    await page.goto(`${server.origin}/${name}.html`);
    const all = page.getByRole("main").getByRole("link", { name: /^Download/ });
    return all.evaluateAll((found) => found.map((link) => [link.textContent.trim(), link.href]));
  };
  const folder = await links("file-directory");
  assert.deepEqual(folder.map(([label]) => label), ["Download as zip", "Download as tar"]);
  assert.deepEqual(
    folder.map(([, href]) => [new URL(href).pathname, new URL(href).searchParams.get("format")]),
    ["zip", "tar"].map((format) => ["/live/spaces/home/files/archive", format]),
  );
  assert.deepEqual((await links("file")).map(([label]) => label), ["Download"]);
});

test("another name is asked for, and what a name cannot be is said", async (t) => {
  const { page, of } = await portal(t, listing([entry("caf\ufffd", { path: "d/caf\ufffd", raw_path: "ZC9jYWbp" })]), {
    "POST /live/spaces/home/files/move": { items: [{ path: "d/x" }], refused: [] },
    [LIST]: listing([]),
  });
  await page.locator('tbody [data-part="pick"]').check();
  for (const [name, sent] of [
    ["a/b", 0],
    ["x.txt", 1],
  ]) {
    await page.getByRole("button", { name: "Rename" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("New name").fill(name);
    await dialog.getByRole("button", { name: "Rename" }).click();
    await dialog.waitFor({ state: "detached" });
    if (sent === 0) await page.getByText("A name has no / in it.").waitFor();
    await until("it is sent or not", () => of("POST /live/spaces/home/files/move").length === sent);
  }
  const { items } = JSON.parse(of("POST /live/spaces/home/files/move")[0].body);
  assert.deepEqual(items, [{ raw_path: "ZC9jYWbp", to: "d/x.txt" }]);
});

test("a copy is followed to its end, and can be cancelled on the way", async (t) => {
  let state = "running";
  const operation = () => ({ id: ID, kind: "copy", state, progress: { entries: 7 } });
  const { page, of } = await portal(t, listing([entry("a")]), {
    "POST /live/spaces/home/files/copy": { status: 202, body: operation() },
    [`GET /live/operations/${ID}`]: ({ json }) => json(200, operation()),
    [`DELETE /live/operations/${ID}`]: ({ json }) => {
      state = "cancelled";
      json(202, operation());
    },
    [LIST]: listing([entry("a")]),
  });
  await page.getByLabel("Pick a", { exact: true }).check();
  await page.getByRole("button", { name: "Copy", exact: true }).click();
  const dialog = page.getByRole("dialog");
  assert.equal(await dialog.getByLabel("Into which space").inputValue(), "home");
  await dialog.getByLabel("Into which space").selectOption("Scratch <b>");
  await dialog.getByLabel("To which folder").fill("/data/");
  await dialog.getByLabel("Keep both").check();
  await dialog.getByRole("button", { name: "Copy" }).click();
  await page.getByText("Copying: 7 entries so far").waitFor();
  await page.locator(".works").getByRole("button", { name: "Cancel" }).click();
  await page.getByText("cancelled; what was done is done").waitFor();
  const sent = JSON.parse(of("POST /live/spaces/home/files/copy")[0].body);
  assert.deepEqual(sent, { items: [{ path: "a", to: "data/a" }], to_space: "scratch-ada", on_conflict: "keep_both" });
});

test("what goes to another file system is moved as an operation, and what stays says why", async (t) => {
  const kept = { path: "b", raw_path: null, code: "original_kept", text: "it was copied, but the original stays" };
  const over = { entries: 7, skipped_in_all: 0, items: [{ path: "a" }], refused: [kept] };
  const operation = (state, progress) => ({ id: ID, kind: "move", state, progress });
  const { page, of } = await portal(t, listing([entry("a"), entry("b")]), {
    "POST /live/spaces/home/files/move": async ({ request, ask, json }) => {
      ask.body = (await bodyOf(request)).toString();
      if (JSON.parse(ask.body).as_operation) return json(202, operation("running", { entries: 7 }));
      return json(409, { code: "other_file_system", detail: "it lies on another file system" });
    },
    [`GET /live/operations/${ID}`]: ({ json }) => json(200, operation("done", over)),
    [LIST]: listing([entry("b")]),
  });
  for (const name of ["a", "b"]) await page.getByLabel(`Pick ${name}`, { exact: true }).check();
  await page.getByRole("button", { name: "Move", exact: true }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Into which space").selectOption("Scratch <b>");
  await dialog.getByRole("button", { name: "Move" }).click();
  await page.getByText("Moved: 1. Not done: 1, the first of them b: it was copied, but the original stays.").waitFor();
  const [now, later] = of("POST /live/spaces/home/files/move").map(({ body }) => JSON.parse(body));
  assert.deepEqual(later, { ...now, as_operation: true });
  assert.deepEqual(now.items, ["a", "b"].map((name) => ({ path: name, to: name })));
});

test("what cannot be moved keeps nothing from going to another file system, and is told with the rest", async (t) => {
  const bad = (path, code, text) => ({ path, raw_path: null, code, text });
  const taken = bad("b", "exists", "something of this name lies there already");
  const far = (path) => bad(path, "other_file_system", "it lies on another file system");
  const over = { entries: 7, skipped_in_all: 0, items: [{ path: "a" }], refused: [] };
  const operation = (state, progress) => ({ id: ID, kind: "move", state, progress });
  let isFull = false;
  const { page, of } = await portal(t, listing([entry("b"), entry("a"), entry("c")]), {
    "POST /live/spaces/home/files/move": async ({ request, ask, json }) => {
      ask.body = (await bodyOf(request)).toString();
      const { items, as_operation: later } = JSON.parse(ask.body);
      if (!later) return json(200, { items: [], refused: items.map(({ path }) => (path === "b" ? taken : far(path))) });
      if (isFull) return json(429, { code: "too_many_operations", detail: "too many operations on your files at once" });
      return json(202, operation("running", { entries: 7 }));
    },
    [`GET /live/operations/${ID}`]: ({ json }) => json(200, operation("done", over)),
    [LIST]: listing([entry("b"), entry("c")]),
  });
  const move = async (names) => {
    for (const name of names) await page.getByLabel(`Pick ${name}`, { exact: true }).check();
    await page.getByRole("button", { name: "Move", exact: true }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Into which space").selectOption("Scratch <b>");
    await dialog.getByRole("button", { name: "Move" }).click();
  };
  await move(["b", "a"]);
  await page.getByText("Moved: 1. Not done: 1, the first of them b: something of this name lies there already.").waitFor();
  const [now, later] = of("POST /live/spaces/home/files/move").map(({ body }) => JSON.parse(body));
  assert.deepEqual(now.items.map(({ path }) => path), ["b", "a"]);
  assert.deepEqual(later, { ...now, items: [{ path: "a", to: "a" }], as_operation: true });
  isFull = true;
  await move(["b", "c"]);
  await page.getByText("Moved: 0. Not done: 2, the first of them b: something of this name lies there already.").waitFor();
});

/** A portal that takes one upload as tus has it, and breaks off as often as it is told. */
function store({ breaks = 0, keep = 3 } = {}) {
  const state = { bytes: Buffer.alloc(0), metadata: null, length: 0, heads: 0, sums: [], breaks };
  const answers = {
    [UPLOADS]: async ({ request, response, ask, json }) => {
      await bodyOf(request);
      state.metadata = Object.fromEntries(ask.headers["upload-metadata"].split(",").map((pair) => pair.split(" ")));
      if (state.taken && Buffer.from(state.metadata.on_conflict, "base64").toString() === "refuse") {
        return json(409, { code: "exists", detail: "something of this name lies there already" });
      }
      if (state.full) return json(507, { code: "no_space", detail: "there is no room" });
      state.length = Number(ask.headers["upload-length"]);
      return response.writeHead(201, { location: "/live/uploads/u1", "upload-offset": 0 }).end();
    },
    "HEAD /live/uploads/u1": ({ response }) => {
      state.heads += 1;
      response.writeHead(200, { "upload-offset": state.bytes.length }).end();
    },
    "DELETE /live/uploads/u1": ({ response }) => response.writeHead(204).end(),
    "PATCH /live/uploads/u1": async ({ request, response, ask, json }) => {
      const piece = await bodyOf(request);
      if (state.held) await state.held;
      // A browser sends again by itself what broke off on a connection that had served before.
      if (Number(ask.headers["upload-offset"]) !== state.bytes.length) return json(409, { code: "offset_differs", detail: "the upload is somewhere else" });
      if (state.breaks > 0) {
        state.breaks -= 1;
        state.bytes = Buffer.concat([state.bytes, piece.subarray(0, keep)]);
        return request.socket.destroy();
      }
      state.sums.push(ask.headers["upload-checksum"] === checksumOf(piece));
      state.bytes = Buffer.concat([state.bytes, piece]);
      const whole = state.bytes.length === state.length;
      return response.writeHead(204, { "upload-offset": state.bytes.length, ...(whole ? { "eirene-path": "up.txt" } : {}) }).end();
    },
    [LIST]: listing([entry("up.txt")]),
  };
  return { state, answers };
}

const FILE = { name: "up.txt", mimeType: "text/plain", buffer: Buffer.from("0123456789") };
const choose = (page, files) => page.locator('input[type="file"]').first().setInputFiles(files);

test("an upload that breaks off goes on where it stopped, each piece with its sum", async (t) => {
  const { state, answers } = store({ breaks: 1 });
  const { page, of, faults } = await portal(t, listing([]), answers);
  const nothing = page.getByText("There is nothing in this folder yet.");
  await nothing.waitFor();
  assert.equal(await page.locator("[data-count]").textContent(), "0 entries");
  answers[LIST].directory.entries_at_least = true;
  await choose(page, [FILE]);
  await page.getByText("Uploaded: 1.").first().waitFor();
  await nothing.waitFor({ state: "hidden" });
  assert.equal(await page.locator("[data-count]").textContent(), "more than 1 entry");
  assert.equal(state.bytes.toString(), "0123456789");
  assert.equal(state.heads, 1);
  assert.deepEqual(state.sums, [true]);
  assert.deepEqual(page.workers().map((one) => path.basename(one.url())), ["crc32-worker.js"], "it is reckoned beside the page");
  assert.equal(Buffer.from(state.metadata.path, "base64").toString(), "up.txt");
  assert.ok(of(UPLOADS)[0].headers["x-eirene-form"] === "sample-csrf" && of(UPLOADS)[0].headers["tus-resumable"] === "1.0.0");
  assert.deepEqual(await page.evaluate(() => Object.keys(localStorage).filter((key) => key.startsWith("eirene-upload"))), []);
  await page.locator("bdi", { hasText: "up.txt" }).first().waitFor();
  assert.deepEqual(faults, []);
});

test("after the page is loaded again, the same file goes on, and nothing secret was kept", async (t) => {
  const { state, answers } = store();
  let release;
  state.held = new Promise((go) => (release = go));
  const { page, of } = await portal(t, listing([]), answers);
  const file = path.join(folder, "files.html");
  await choose(page, file);
  await until("it is under way", () => of("PATCH /live/uploads/u1").length === 1);
  const kept = await page.evaluate(() => Object.entries(localStorage).filter(([key]) => key.startsWith("eirene-upload")));
  assert.equal(kept.length, 1);
  assert.equal(kept[0][1], "/live/uploads/u1");
  assert.ok(!JSON.stringify(kept).includes("sample-csrf"));
  page.on("dialog", (dialog) => dialog.accept());
  state.breaks = 1;
  await page.reload();
  release();
  state.held = null;
  await page.getByText("Uploads that were not finished: 1 (files.html)").waitFor();
  await until("the first try is over", () => state.breaks === 0);
  await choose(page, file);
  await page.getByText("Uploaded: 1.").first().waitFor();
  assert.ok(state.bytes.equals(await readFile(file)));
  assert.equal(of(UPLOADS).length, 1, "it was made once");
});

test("where something lies already one is asked, and where there is no room it is said", async (t) => {
  const { state, answers } = store();
  state.taken = true;
  const { page, of } = await portal(t, listing([entry("up.txt")]), answers);
  await choose(page, [FILE]);
  await page.getByRole("dialog").getByRole("button", { name: "Keep both" }).click();
  await page.getByText("Uploaded: 1.").first().waitFor();
  assert.equal(Buffer.from(state.metadata.on_conflict, "base64").toString(), "keep_both");
  assert.equal(of(UPLOADS).length, 2);
  state.full = true;
  state.taken = false;
  await choose(page, [FILE]);
  await page.getByText("There is no room. Nothing of what has arrived is lost").waitFor();
});

test("a cancelled upload is removed on the other side too", async (t) => {
  const { state, answers } = store();
  state.held = new Promise(() => {});
  const { page, of } = await portal(t, listing([]), answers);
  await choose(page, [FILE]);
  await until("it is under way", () => of("PATCH /live/uploads/u1").length === 1);
  await page.locator(".uploads").getByRole("button", { name: "Cancel" }).click();
  await until("it is ended", () => of("DELETE /live/uploads/u1").length === 1);
  await page.locator(".uploads li").waitFor({ state: "detached" });
});

/** A portal that takes as many uploads as come, each of its own, and notes the folders it is to make. */
function stores(most) {
  const got = [];
  const made = [];
  const answers = {
    [UPLOADS]: async ({ request, response, ask }) => {
      await bodyOf(request);
      const said = ask.headers["upload-metadata"].split(",").map((pair) => pair.split(" "));
      const metadata = Object.fromEntries(said.map(([key, word]) => [key, Buffer.from(word, "base64").toString()]));
      got.push({ ...metadata, length: Number(ask.headers["upload-length"]), bytes: Buffer.alloc(0) });
      response.writeHead(201, { location: `/live/uploads/u${got.length}`, "upload-offset": 0 }).end();
    },
    "POST /live/spaces/home/files/directories": async ({ request, json }) => {
      made.push(JSON.parse((await bodyOf(request)).toString()));
      json(201, { path: made.at(-1).path, made: true });
    },
    [LIST]: listing([entry("came")]),
  };
  for (let n = 1; n <= most; n += 1) {
    answers[`PATCH /live/uploads/u${n}`] = async ({ request, response }) => {
      const upload = got[n - 1];
      upload.bytes = Buffer.concat([upload.bytes, await bodyOf(request)]);
      const whole = upload.bytes.length === upload.length;
      response.writeHead(204, { "upload-offset": upload.bytes.length, ...(whole ? { "eirene-path": encodeURIComponent(upload.path) } : {}) }).end();
    };
  }
  const sent = () => got.map(({ path: at, parents, bytes }) => [at, parents ?? "", bytes.toString()]).sort(([one], [other]) => (one < other ? -1 : 1));
  return { answers, made, sent };
}

/** A folder of this machine that is gone when the test is over. */
async function folderHere(t) {
  const top = await mkdtemp(path.join(tmpdir(), "eirene-drop-"));
  t.after(() => rm(top, { recursive: true, force: true }));
  return top;
}

test("files and a folder are dropped onto the page and come with their paths, also with names beyond the first plane", async (t) => {
  const top = await folderHere(t);
  const deep = path.join(top, "measured \u{1f30d}", "deep");
  await mkdir(deep, { recursive: true });
  await mkdir(path.join(top, "measured \u{1f30d}", "empty"));
  await writeFile(path.join(deep, "\u{1f41d}\u{1f36f}.txt"), "bee");
  await writeFile(path.join(deep, "\u{20bb7}.txt"), "han");
  await writeFile(path.join(top, "alone.txt"), "one");
  const { answers, made, sent } = stores(3);
  const { page, faults } = await portal(t, listing([]), answers);
  const marked = page.locator(".dropping").waitFor();
  const held = await drag(page, page.locator("[data-drop]"), [path.join(top, "alone.txt")]);
  await marked;
  await held.takeAway();
  await until("what is held elsewhere marks nothing", async () => (await page.locator(".dropping").count()) === 0);
  const both = await drag(page, page.locator("[data-drop]"), [path.join(top, "alone.txt"), path.join(top, "measured \u{1f30d}")]);
  await both.letGo();
  await page.getByText("Uploaded: 3.").first().waitFor();
  assert.deepEqual(sent(), [
    ["alone.txt", "", "one"],
    ["measured \u{1f30d}/deep/\u{1f41d}\u{1f36f}.txt", "true", "bee"],
    ["measured \u{1f30d}/deep/\u{20bb7}.txt", "true", "han"],
  ]);
  await until("the empty folder is made", () => made.length === 1);
  assert.deepEqual(made, [{ path: "measured \u{1f30d}/empty", parents: true }]);
  assert.equal(await page.locator(".dropping").count(), 0);
  await page.locator("bdi", { hasText: "came" }).first().waitFor();
  assert.deepEqual(faults, []);
});

test("what a page drops is taken where it is files, and left alone where it is not", async (t) => {
  const { answers, sent } = stores(1);
  const { page, faults } = await portal(t, listing([]), answers);
  const drop = (content) =>
    page.evaluate((words) => {
      const transfer = new DataTransfer();
      if (words === null) transfer.setData("text/plain", "only words");
      else transfer.items.add(new File([words], "\u{1f4c8}.csv", { type: "text/csv" }));
      const event = new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true });
      document.querySelector("[data-drop]").dispatchEvent(event);
      return event.defaultPrevented;
    }, content);
  assert.equal(await drop(null), false, "a link or some words are no upload");
  assert.equal(await drop("a,b"), true);
  await page.getByText("Uploaded: 1.").first().waitFor();
  assert.deepEqual(sent(), [["\u{1f4c8}.csv", "", "a,b"]]);
  assert.deepEqual(faults, []);
});

test("names beyond the first plane are shown, followed and renamed as they are", async (t) => {
  const name = "\u{1f469}\u200d\u{1f52c} \u{20bb7}.txt";
  const { page, of, faults } = await portal(t, listing([entry(name), entry("\u{1f30d}", { kind: "directory" })]), {
    "POST /live/spaces/home/files/move": { items: [{ path: "x" }], refused: [] },
    [LIST]: listing([]),
  });
  const hrefs = await page.locator('[data-part="name"]').evaluateAll((all) => all.map((one) => new URL(one.href).searchParams.get("path")));
  assert.deepEqual(hrefs, [name, "\u{1f30d}"]);
  await page.locator("tbody tr[data-index='1']").getByRole("checkbox").check();
  await page.getByRole("button", { name: "Rename" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("New name").fill("\u{1f30e}");
  await dialog.getByRole("button", { name: "Rename" }).click();
  await until("it is asked for", () => of("POST /live/spaces/home/files/move").length === 1);
  const { items } = JSON.parse(of("POST /live/spaces/home/files/move")[0].body);
  assert.deepEqual(items, [{ path: "\u{1f30d}", to: "\u{1f30e}" }]);
  assert.deepEqual(faults, []);
});

const EXTRACT = "POST /live/spaces/home/files/extract";

/** Picks the archive and has it unpacked; gives the folder's name that was offered. */
async function unpack(page, name, to) {
  await page.getByLabel(`Pick ${name}`, { exact: true }).check();
  await page.getByRole("button", { name: "Unpack" }).click();
  const dialog = page.getByRole("dialog");
  const offered = await dialog.getByLabel("Name of the new folder").inputValue();
  if (to) await dialog.getByLabel("Name of the new folder").fill(to);
  await dialog.getByRole("button", { name: "Unpack" }).click();
  await dialog.waitFor({ state: "detached" });
  return offered;
}

test("an archive is unpacked with its progress, and members made to mislead are named as text", async (t) => {
  let state = "running";
  const evil = "../../<img src=x onerror=window.pwned=1>";
  const over = { entries: 2, path: "results", skipped: [{ path: evil, code: "unsafe_member", text: "its name leads elsewhere" }], skipped_in_all: 3 };
  const operation = () => ({ id: ID, kind: "extract", state, progress: state === "done" ? over : { entries: 7 } });
  const { page, of, faults } = await portal(t, listing([entry("results.tar.gz"), entry("a.txt")]), {
    [EXTRACT]: { status: 202, body: operation() },
    [`GET /live/operations/${ID}`]: ({ json }) => json(200, operation()),
    [LIST]: listing([entry("results", { kind: "directory" })]),
  });
  await page.getByLabel("Pick a.txt", { exact: true }).check();
  await page.getByText("Picked: 1").waitFor();
  assert.equal(await page.getByRole("button", { name: "Unpack" }).count(), 0, "no archive by its name");
  await page.getByLabel("Pick a.txt", { exact: true }).uncheck();
  assert.equal(await unpack(page, "results.tar.gz"), "results");
  await page.getByText("Unpacking: 7 entries so far").waitFor();
  state = "done";
  await page.getByText(`Unpacked into results, without 3, the first of them ${evil}: its name leads elsewhere.`).waitFor();
  assert.deepEqual(JSON.parse(of(EXTRACT)[0].body), { path: "results.tar.gz", to: "results", on_conflict: "refuse" });
  assert.equal(await page.evaluate(() => globalThis.pwned), undefined);
  await page.locator("bdi", { hasText: /^results$/ }).first().waitFor();
  assert.deepEqual(faults, []);
});

test("why an archive was not unpacked is said, and a name with a path in it is not even sent", async (t) => {
  const problem = { code: "not_an_archive", text: "it is no archive that can be unpacked here, or it is damaged" };
  const { page, of } = await portal(t, listing([entry("broken.zip")]), {
    [EXTRACT]: { status: 202, body: { id: ID, kind: "extract", state: "running", progress: { entries: 0 } } },
    [`GET /live/operations/${ID}`]: { id: ID, kind: "extract", state: "failed", progress: { entries: 0 }, problem },
    [LIST]: listing([entry("broken.zip")]),
  });
  await unpack(page, "broken.zip", "../up");
  await page.getByText("A name has no / in it.").waitFor();
  assert.equal(of(EXTRACT).length, 0);
  await page.getByLabel("Pick broken.zip", { exact: true }).uncheck();
  await unpack(page, "broken.zip");
  await page.getByText("it is no archive that can be unpacked here, or it is damaged").waitFor();
});

test("a preview runs nothing: text, tables, notebooks and pictures are drawn, the rest is named", async (t) => {
  const evil = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>";
  const shown = {
    "t.html": { kind: "text", text: evil, encoding: "utf-8", cut: true },
    "t.csv": { kind: "table", rows: [["a", evil]], cut: false },
    "t.ipynb": {
      kind: "notebook",
      cells: [
        { kind: "markdown", source: evil, outputs: [] },
        {
          kind: "code",
          source: "1 + 1",
          outputs: [
            { kind: "text", text: evil },
            { kind: "picture", media_type: "image/png", base64: PNG.toString("base64") },
            { kind: "picture", media_type: "image/svg+xml", base64: Buffer.from("<svg onload='window.pwned=1'/>").toString("base64") },
            { kind: "omitted", media_type: "text/html" },
          ],
        },
      ],
      cut: false,
    },
    "new.ipynb": { kind: "notebook", cells: [], cut: false },
    "t.png": { kind: "picture", media_type: "image/png", width: 1, height: 1 },
    "t.svg": { kind: "picture", media_type: "image/svg+xml" },
    "t.bin": { kind: "bytes", head: "00ff" },
  };
  const { page, faults } = await portal(t, listing(Object.keys(shown).map((name) => entry(name))), {
    "GET /live/spaces/home/files/preview": ({ ask, json }) => {
      const name = new URL(ask.url, "http://x").searchParams.get("path");
      json(200, { path: name, size_bytes: 100, etag: "x", shown: shown[name] });
    },
    "GET /live/spaces/home/files/content": ({ response }) => response.writeHead(200, { "content-type": "application/octet-stream" }).end(PNG),
  });
  const look = async (name) => {
    await page.getByRole("link", { name, exact: true }).click();
    const place = page.locator(".preview-place");
    await place.locator(":scope > *").first().waitFor();
    const seen = { text: await place.textContent(), pictures: await place.locator("img").evaluateAll((all) => all.map((one) => one.src.slice(0, 5))) };
    await page.getByRole("dialog").getByRole("button", { name: "Close" }).click();
    return seen;
  };
  const html = await look("t.html");
  assert.ok(html.text.includes(evil) && html.text.includes("This is the beginning") && html.pictures.length === 0);
  assert.ok((await look("t.csv")).text.includes(evil));
  const notebook = await look("t.ipynb");
  assert.deepEqual(notebook.pictures, ["blob:"]);
  assert.ok(notebook.text.includes(evil) && notebook.text.includes("text/html") && notebook.text.includes("image/svg+xml"));
  assert.ok((await look("new.ipynb")).text.includes("no cells"));
  assert.deepEqual((await look("t.png")).pictures, ["blob:"]);
  assert.deepEqual(await look("t.svg").then((seen) => seen.pictures), []);
  assert.ok((await look("t.bin")).text.includes("00ff"));
  assert.equal(await page.evaluate(() => globalThis.pwned), undefined);
  assert.deepEqual(faults, []);
});

/** A notebook in its preview. */
async function notebook(t, cells) {
  const shown = { kind: "notebook", cells, cut: false };
  const there = await portal(t, listing([entry("book.ipynb")]), {
    "GET /live/spaces/home/files/preview": { path: "book.ipynb", size_bytes: 100, etag: "x", shown },
  });
  await there.page.getByRole("link", { name: "book.ipynb", exact: true }).click();
  const place = there.page.locator(".preview-place");
  await place.locator(".preview-cell").first().waitFor({ state: "attached" });
  return { ...there, place };
}

/** Nothing of what somebody wrote has become more than text: no element that loads, leads or runs, and no attribute of theirs. */
async function assertHarmless({ page, place, faults }) {
  const [elements, attributes] = await place.evaluate((place) => {
    const all = [...place.querySelectorAll("*")];
    return [[...new Set(all.map((one) => one.localName))], [...new Set(all.flatMap((one) => one.getAttributeNames()))]];
  });
  const drawn = "section h3 h4 h5 h6 p br em strong s code pre span ul ol li blockquote hr div table thead tbody tr th td".split(" ");
  assert.deepEqual(elements.filter((name) => !drawn.includes(name)), []);
  assert.deepEqual(attributes.filter((name) => !["class", "tabindex", "scope", "start"].includes(name)), []);
  assert.equal(await page.evaluate(() => globalThis.pwned), undefined);
  assert.deepEqual(faults, []);
}

/** It can be read in both schemes, on the phone and at twice the size, without scrolling sideways, and by all means. */
async function assertReadable({ page, place }, name) {
  for (const [size, viewport] of Object.entries({ ...SIZES, twice: { width: 640, height: 450 } })) {
    await page.setViewportSize(viewport);
    assert.ok(await place.evaluate((place) => place.scrollWidth <= place.clientWidth), size);
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      assert.deepEqual(await accessibility(page, "dialog.preview"), []);
      await picture(page, `preview/${name}-${size}-${colorScheme}`);
    }
  }
}

test("a notebook's Markdown is drawn as what it means, and what is none of it is text", async (t) => {
  const evil = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>";
  const links = [
    "[site](https://example.org/x_(y)) and [file](data/a.csv)",
    "[run](javascript:window.pwned=1) [page](data:text/html,<script>window.pwned=1</script>) [case](JaVaScRiPt:window.pwned=1)",
    "![drawn](https://example.org/p.png) ![](data:image/svg+xml;base64,AAAA)",
  ];
  const source = [
    "# Title",
    "#### Below",
    "Some *words*, **more of them**, snake_case_names, 2 * 3 * 4 and `code <b>*x*</b>`  ",
    "and $a_1 * b_2$.",
    "",
    "- one",
    "  - two",
    "- three",
    "",
    "3. third",
    "",
    `> quoted ${evil}`,
    "",
    "```python",
    "print('<i>')",
    "```",
    "",
    "| name | |",
    "|---|---|",
    `| ${evil} | \\| |`,
    "",
    ...links,
    "",
    evil,
    "<a href='javascript:window.pwned=1' onclick='window.pwned=1'>here</a><style>* { display: none }</style>",
    "word".repeat(500),
  ].join("\n");
  const there = await notebook(t, [{ kind: "markdown", source, outputs: [] }, { kind: "raw", source: `# ${evil}`, outputs: [] }]);
  const { place } = there;
  assert.equal(await place.getByRole("heading", { level: 3 }).textContent(), "Title");
  assert.equal(await place.getByRole("heading", { level: 4 }).textContent(), "Below", "no step is left out");
  const texts = (what) => place.locator(what).evaluateAll((all) => all.map((one) => one.textContent));
  assert.deepEqual(await texts("p em:not(.soft)"), ["words"]);
  assert.deepEqual(await texts("p strong"), ["more of them"]);
  assert.deepEqual(await texts("code"), ["code <b>*x*</b>"]);
  assert.deepEqual(await texts("ul ul > li, ol > li"), ["two", "third"]);
  assert.equal(await place.locator("ol").getAttribute("start"), "3");
  assert.deepEqual(await texts("pre"), ["print('<i>')", `# ${evil}`]);
  assert.deepEqual(await texts("blockquote"), [`quoted ${evil}`]);
  assert.deepEqual(await texts("th"), ["name"]);
  assert.deepEqual(await texts("tbody td"), [evil, "|"]);
  const text = await place.textContent();
  for (const said of ["site (https://example.org/x_(y)) and file (data/a.csv)", links[1], "drawn", "$a_1 * b_2$", "snake_case_names, 2 * 3 * 4"]) {
    assert.ok(text.includes(said), said);
  }
  assert.ok(!text.includes("https://example.org/p.png") && !text.includes("base64"), "what is not loaded is named");
  await assertHarmless(there);
  await assertReadable(there, "notebook-words");
});

test("a notebook's cells and results are counted, and a table of its results is one", async (t) => {
  const evil = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>";
  const wide = Array.from({ length: 50 }, (_, n) => `${n} ${evil}`);
  const there = await notebook(t, [
    {
      kind: "code",
      number: 3,
      source: evil,
      outputs: [
        { kind: "text", text: "printed" },
        { kind: "table", number: 3, rows: [["", evil], ["0", evil]], heads: 1 },
        { kind: "text", text: "1 rows" },
        { kind: "omitted", media_type: evil },
      ],
    },
    { kind: "code", source: "", outputs: [{ kind: "table", rows: Array.from({ length: 20 }, () => wide), heads: 0 }] },
  ]);
  const { place } = there;
  const texts = (what) => place.locator(what).evaluateAll((all) => all.map((one) => one.textContent));
  assert.deepEqual(await texts(".preview-number"), ["In [3]", "Out [3]", "In [ ]"]);
  assert.deepEqual(await texts("th"), [evil]);
  assert.deepEqual(await place.locator("tr").nth(1).locator("td").allTextContents(), ["0", evil]);
  assert.equal(await place.locator("tbody tr").count(), 21);
  assert.deepEqual(await place.locator("section").first().locator("> *").evaluateAll((all) => all.map((one) => one.localName)), ["p", "pre", "pre", "p", "div", "pre", "p"]);
  await assertHarmless(there);
  await assertReadable(there, "notebook-results");
});

test("Markdown that is made to take long does not", async (t) => {
  const most = 64 * 1024;
  const sources = ["[a](", "![", "`` ` ", "*a _b ", ">", "- ", "~", "|", "$a", "a\n\n", '[a](b "', "\t"].map((part) => part.repeat(most / part.length));
  sources.push(`# ${" ".repeat(most)}\u2028`, `${"~".repeat(most)}\``, `${"- ".repeat(most / 2)}x`, `[a](x${" ".repeat(most)}y`);
  for (const source of sources) {
    const there = await notebook(t, [{ kind: "markdown", source, outputs: [] }]);
    await assertHarmless(there);
    await there.page.close();
  }
});

test("without the portal's help text is fetched by its beginning alone", async (t) => {
  const { page, of } = await portal(t, listing([entry("a.txt", { size_bytes: 1_000_000 })]), {
    "GET /live/spaces/home/files/content": ({ response }) => response.writeHead(206, { "content-type": "application/octet-stream" }).end("<b>text</b>"),
  });
  await page.getByRole("link", { name: "a.txt", exact: true }).click();
  await page.locator(".preview-text", { hasText: "<b>text</b>" }).waitFor();
  assert.equal(of("GET /live/spaces/home/files/content")[0].headers.range, "bytes=0-262143");
});

test("what a search finds is listed by its path", async (t) => {
  const { page, of } = await portal(t, listing([]), {
    "POST /live/spaces/home/files/search": { status: 202, body: { id: ID, kind: "search", state: "running", progress: { entries: 1 } } },
    [`GET /live/operations/${ID}`]: { id: ID, kind: "search", state: "done", progress: { entries: 9, skipped_in_all: 0 } },
    [`GET /live/operations/${ID}/results`]: {
      items: [{ path: "d/<b>x", raw_path: null, kind: "file", size_bytes: 3 }, { path: "x", raw_path: null, kind: "directory", size_bytes: null }],
      next: null,
    },
  });
  await page.getByLabel("Names with this in them").fill("x");
  await page.getByRole("button", { name: "Search in all folders below" }).click();
  await page.getByRole("heading", { name: "Found for x: 2" }).waitFor();
  const hrefs = await page.locator(".found a").evaluateAll((all) => all.map((one) => one.getAttribute("href")));
  assert.deepEqual(hrefs, ["/spaces/home/files/entry?path=d%2F%3Cb%3Ex", "/spaces/home/files?path=x"]);
  assert.deepEqual(JSON.parse(of("POST /live/spaces/home/files/search")[0].body), { name: "x" });
});

test("where one may only read, nothing is offered that would change something", async () => {
  const page = async (name) => readFile(path.join(folder, `${name}.html`), "utf8");
  const [writable, readOnly] = await Promise.all([page("files"), page("files-read-only")]);
  for (const offer of ['href="/spaces/home/trash"', 'action="/spaces/home/files/directories"']) {
    assert.ok(writable.includes(offer), offer);
    assert.ok(!readOnly.includes(offer), offer);
  }
});
