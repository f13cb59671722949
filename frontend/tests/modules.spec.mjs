// The page's modules, each against a server that a test can make slow, silent or sudden: what is live stays true, what is asked is asked
// once, what is lost is said.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { after, before, test } from "node:test";

import { launch, listen } from "./browser.mjs";
import { folder, serve } from "./samples.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

/** A portal of the test's own: streams are kept open, fragments are what the test says. */
async function portal(t) {
  const state = { streams: new Set(), asked: [], fragments: new Map(), posts: [], log: null, up: true };
  const server = await serve(async (request, response, name) => {
    if (!name.endsWith(".js") && !name.endsWith(".css")) state.asked.push(request.url);
    if (!state.up && !name.startsWith("/static/")) {
      request.socket.destroy();
      return true;
    }
    if (state.gone && (name.startsWith("/fragments/") || name === "/dashboard.html")) {
      response.writeHead(303, { location: "/login.html" }).end();
      return true;
    }
    if (request.method === "POST") {
      let body = "";
      for await (const part of request) body += part;
      state.posts.push([name, body]);
      const html = state.fragments.get(name);
      response.writeHead(html === undefined ? 204 : 200, { "content-type": "text/html" }).end(html);
      return true;
    }
    if (name.startsWith("/live/") && name.endsWith("events")) {
      response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
      response.write(": hello\n\n");
      state.streams.add(response);
      response.on("close", () => state.streams.delete(response));
      return true;
    }
    if (name.startsWith("/live/") && name.endsWith("logs")) {
      response.writeHead(200, { "content-type": "text/plain; charset=utf-8" });
      state.log = response;
      response.write("from the beginning\n");
      return true;
    }
    if (state.fragments.has(name)) {
      response.writeHead(200, { "content-type": "text/html; charset=utf-8" }).end(state.fragments.get(name));
      return true;
    }
    return false;
  });
  t.after(() => server.close());
  state.origin = server.origin;
  state.say = (kind, id, data = {}) => {
    for (const stream of state.streams) stream.write(`id: ${id}\nevent: ${kind}\ndata: ${JSON.stringify(data)}\n\n`);
  };
  return state;
}

async function open(t, server, name, options = {}, waitUntil = "load") {
  const page = await browser.newPage(options);
  t.after(() => page.close());
  await page.goto(`${server.origin}/${name}`, { waitUntil });
  return page;
}

const sample = (name) => readFile(path.join(folder, name), "utf8");
const until = async (what, condition) => {
  for (let n = 0; n < 200; n += 1) {
    if (await condition()) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  assert.fail(`in vain: ${what}`);
};

/** The inside of the live part of a sample page. */
async function part(name) {
  const page = await browser.newPage({ javaScriptEnabled: false });
  await page.setContent(await sample(name));
  const html = await page.locator("[data-live]").first().innerHTML();
  await page.close();
  return html;
}

test("that time is nearly over is shown, and spoken for what is on the page", async (t) => {
  const server = await portal(t);
  const page = await open(t, server, "session-running.html");
  const faults = listen(page);
  const address = await page.locator("[data-live]").first().getAttribute("data-live");
  await until("the stream is open", () => server.streams.size === 1 && server.asked.includes(address));
  server.fragments.set(address, '<p id="short">Little time is left</p><p data-session="mine" data-announce="x"></p>');
  server.say("notice", 8, { code: "ends_soon", session: "mine", text: "10 minutes are left" });
  await page.locator("#short").waitFor();
  assert.equal(await page.locator("[data-announcer]").textContent(), "", "nobody's business before it is on the page");
  server.say("notice", 9, { code: "ends_soon", session: "mine", text: "2 minutes <b>are</b> left" });
  await until("it is spoken", async () => (await page.locator("[data-announcer]").textContent()) === "2 minutes <b>are</b> left");
  server.say("notice", 10, { code: "ends_soon", session: "other", text: "other" });
  server.say("notice", 11, {});
  const before = server.asked.length;
  await until("notices are taken", () => server.asked.length > before);
  assert.equal(await page.locator("[data-announcer]").textContent(), "2 minutes <b>are</b> left");
  assert.deepEqual(faults, []);
});

test("a table that was opened stays open when its part is fetched again", async (t) => {
  const server = await portal(t);
  const page = await open(t, server, "session-running.html");
  const faults = listen(page);
  const address = await page.locator("[data-live]").first().getAttribute("data-live");
  await until("what happened before the stream was open is asked for", () => server.asked.includes(address));
  const tables = (row) => `<details id="one"><summary>One</summary>${row}</details><details id="two"><summary>Two</summary>${row}</details>`;
  server.fragments.set(address, tables("first"));
  server.say("state", 7);
  await page.locator("#one summary").click();
  server.fragments.set(address, tables("second"));
  server.say("state", 8);
  await page.locator("#one", { hasText: "second" }).waitFor();
  assert.deepEqual(await page.locator("#one, #two").evaluateAll((all) => all.map((one) => one.open)), [true, false]);
  assert.deepEqual(faults, []);
});

test("an event changes the page without a reload, keeps the focus and is spoken", async (t) => {
  const server = await portal(t);
  const page = await open(t, server, "session-queued.html");
  const faults = listen(page);
  const address = await page.locator("[data-live]").first().getAttribute("data-live");
  await until("what happened before the stream was open is asked for", () => server.asked.includes(address));
  const [, , , id] = address.split("/");
  const starting = (await part("session-starting.html")).replaceAll(/data-session="[0-9a-f]{32}"/g, `data-session="${id}"`).replaceAll(/\/sessions\/[0-9a-f]{32}/g, `/sessions/${id}`);
  server.fragments.set(address, starting);
  await page.getByRole("link", { name: /^Stop/ }).focus();
  await page.evaluate(() => (globalThis.mark = true));
  server.say("state", 7);
  await page.locator('[data-state="starting"]').waitFor();
  assert.equal(await page.evaluate(() => globalThis.mark), true);
  assert.match(await page.evaluate(() => document.activeElement.textContent), /Stop/);
  assert.match(await page.locator("[data-announcer]").textContent(), /Starting/);

  await t.test("and goes on from the last event when the stream broke", async () => {
    const [old] = server.streams;
    server.streams.delete(old);
    old.end();
    await until("it comes back", () => server.streams.size === 1);
    server.say("state", 8);
    await until("it asks again", () => server.asked.filter((url) => url === address).length >= 3);
  });
  assert.deepEqual(faults, []);
});

test("a lost connection is said, and taken back when it is there again", async (t) => {
  const server = await portal(t);
  const page = await open(t, server, "dashboard.html");
  server.fragments.set("/fragments/sessions", await part("dashboard.html"));
  await until("the stream is open", () => server.streams.size === 1);
  server.up = false;
  for (const stream of server.streams) stream.destroy();
  await page.getByText("The connection was lost. Trying again…").waitFor();
  server.up = true;
  await page.getByText("The connection was lost. Trying again…").waitFor({ state: "detached" });
});

test("the log grows while one looks", async (t) => {
  const server = await portal(t);
  const html = (await sample("session-running.html")).replace('class="log"', 'class="log" data-log="/live/sessions/x/logs?follow=true"');
  server.fragments.set("/page", html);
  const page = await open(t, server, "page");
  const log = page.locator(".log");
  await until("it begins with what there is", async () => (await log.textContent()) === "from the beginning\n");
  server.log.write("<b>and goes on</b>\n");
  await until("it goes on", async () => (await log.textContent()) === "from the beginning\n<b>and goes on</b>\n");
});

test("the waiting page goes to the app by itself", async (t) => {
  const server = await portal(t);
  const page = await open(t, server, "waiting-queued.html");
  await until("the stream is open", () => server.streams.size === 1);
  const address = await page.locator("[data-live]").getAttribute("data-live");
  server.fragments.set(address, '<div data-go="/login.html"></div>');
  server.say("state", 1);
  await page.waitForURL("**/login.html");
});

test("what cannot be taken back is asked in a dialog, and Escape is no", async (t) => {
  const server = await portal(t);
  const page = await open(t, server, "session-running.html");
  await page.getByRole("link", { name: /^Stop/ }).click();
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Go back");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "hidden" });
  assert.equal(server.posts.length, 0);
  await page.getByRole("link", { name: /^Stop/ }).click();
  await dialog.getByRole("button", { name: "Stop the session" }).click();
  await until("it is sent", () => server.posts.length === 1);
  assert.match(server.posts[0][0], /^\/sessions\/[0-9a-f]{32}\/stop$/);
  assert.equal(server.posts[0][1], "csrf=sample-csrf");
});

test("two clicks start one thing", async (t) => {
  const server = await portal(t);
  const page = await open(t, server, "dashboard-empty.html");
  await page.getByRole("button", { name: /^Small/ }).dblclick();
  await until("it is sent", () => server.posts.length > 0);
  await page.getByRole("button", { name: /^Small/ }).dispatchEvent("click");
  // Whatever is sent after this has waited behind a second start.
  await page.evaluate(() => fetch("/marker", { method: "POST" }));
  await until("the marker is there", () => server.posts.some(([name]) => name === "/marker"));
  assert.equal(server.posts.filter(([name]) => name === "/sessions").length, 1);
});

test("the start form is checked while one types, and shows only what matters", async (t) => {
  const server = await portal(t);
  server.fragments.set("/fragments/check", await sample("fragment-verdict.html"));
  const page = await open(t, server, "start-later.html");
  await page.getByRole("heading", { name: "This fits, but you may have to wait" }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Check whether it fits" }).isVisible(), false);
  await page.getByLabel("CPUs").fill("3");
  await page.getByRole("heading", { name: "There is room for this now" }).waitFor();
  const [[, body]] = server.posts;
  assert.match(body, /cpus=3/);
  assert.equal(await page.getByLabel("How many GPUs").isVisible(), true);
  await page.getByLabel("GPU", { exact: true }).selectOption("none");
  assert.equal(await page.getByLabel("How many GPUs").isVisible(), false);
});

test("the hand-over sends itself, and the button does it without scripts", async (t) => {
  for (const javaScriptEnabled of [true, false]) {
    const server = await portal(t);
    server.fragments.set("/page", (await sample("handover.html")).replace('action="#"', 'action="/.eirene/enter"'));
    const page = await open(t, server, "page", { javaScriptEnabled }, "commit");
    if (!javaScriptEnabled) await page.getByRole("button", { name: "Open" }).click();
    await until("the code is sent", () => server.posts.length === 1);
    assert.deepEqual(server.posts[0], ["/.eirene/enter", "code=one-time-code"]);
  }
});

test("times are shown where the reader is, and the time left counts down", async (t) => {
  const server = await portal(t);
  const soon = new Date(Date.now() + 65.5 * 60_000).toISOString();
  const html = (await sample("session-running.html")).replace(/data-countdown="[^"]+"/, `data-countdown="${soon}"`);
  server.fragments.set("/page", html);
  const page = await open(t, server, "page", { timezoneId: "Asia/Tokyo", locale: "en-GB" });
  await page.getByText("1\u00a0h 5\u00a0min left").waitFor();
  const time = page.locator("time").first();
  const expected = await time.evaluate((e) => new Date(e.dateTime).toLocaleTimeString("en-GB", { timeZone: "Asia/Tokyo", hour: "2-digit", minute: "2-digit" }));
  assert.ok((await time.textContent()).includes(expected));
});

test("when the log-in is over, the page says so instead of waiting", async (t) => {
  const server = await portal(t);
  const page = await open(t, server, "dashboard.html");
  await until("the stream is open", () => server.streams.size === 1);
  server.gone = true;
  server.say("state", 1);
  await page.waitForURL("**/login.html");
});
