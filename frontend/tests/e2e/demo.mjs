// The running demo (`make demo`) as these tests see it: its people, logging in, starting and stopping sessions.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";

import { launch, listen, root } from "../browser.mjs";

const demo = JSON.parse(readFileSync(process.env.EIRENE_TEST_CLUSTER ?? path.join(root, "var", "demo.json"), "utf8"));

/** Where the portal is. */
export const portal = demo.portal_url;
/** Name and password of `ada`, `grace` or `admin`. */
export const person = (name) => (name === "admin" ? demo.admin : demo.users[name]);

/** A session that is not there after this long will not come. */
export const PATIENCE_MS = 90_000;

let browser;

const endings = new WeakMap();

/** Does `work` when the test is over, last things first: a page is used before its browser profile is closed. */
function atEnd(t, work) {
  if (!endings.has(t)) {
    endings.set(t, []);
    t.after(async () => {
      for (const ending of endings.get(t).reverse()) await ending();
    });
  }
  endings.get(t).push(work);
}

/** The status of an API answer. `*.localhost` is no name outside browsers, so the loopback is dialled with the portal's name. */
export function apiStatus(pathname, token) {
  const { host, port } = new URL(portal);
  const headers = { host, authorization: `Bearer ${token}` };
  return new Promise((done, failed) => {
    const request = http.get({ host: "127.0.0.1", port, path: pathname, headers }, (answer) => done(answer.resume().statusCode));
    request.on("error", failed);
  });
}

/** A browser profile of its own, closed at the end of the test. */
export async function visitor(t, options = {}) {
  browser ??= await launch();
  const context = await browser.newContext({ baseURL: portal, ...options });
  atEnd(t, () => context.close());
  return context;
}

/** Closes the browser; for the end of a file. */
export async function closeBrowser() {
  await browser?.close();
  browser = undefined;
}

/** A page of somebody who has logged in through the form; `faults` collects what must not happen on it. */
export async function signedIn(t, name, options) {
  const context = await visitor(t, options);
  const page = await context.newPage();
  const faults = listen(page);
  await logIn(page, person(name));
  return { context, page, faults };
}

/** Logs in through the form. */
export async function logIn(page, { username, password }) {
  await page.goto("/login");
  await page.getByLabel("User name").fill(username);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("heading", { level: 1, name: "My sessions" }).waitFor();
}

/** The id of the session whose page one is on. */
export function sessionId(page) {
  const id = new URL(page.url()).pathname.match(/^\/sessions\/([0-9a-f]{32})/)?.[1];
  assert.ok(id, page.url());
  return id;
}

/** Starts a session through the form, the smallest unless told otherwise, and stops it when the test is over, whatever became of it. */
export async function startSession(t, page, name, { image, nodes, cpus = 1, gib = 1, gpus } = {}) {
  await page.goto("/sessions/new");
  await page.getByLabel("Name", { exact: true }).fill(name);
  if (image) await page.getByLabel("Image").selectOption(image);
  if (gpus) {
    await page.getByLabel("GPU", { exact: true }).selectOption(gpus.type);
    await page.getByLabel("How many GPUs").fill(`${gpus.count}`);
  }
  await page.getByLabel("CPUs").fill(`${cpus}`);
  await page.getByLabel("Memory").fill(`${gib}`);
  if (nodes) {
    await page.getByText("More choices").click();
    await page.getByLabel("Nodes").fill(`${nodes}`);
  }
  await page.getByLabel("Hours").fill("0");
  await page.getByLabel("Minutes").fill("20");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  return started(t, page);
}

/** The id of the session that a form has just started; it is stopped when the test is over, whatever became of it. */
export async function started(t, page) {
  await page.waitForURL(/\/sessions\/[0-9a-f]{32}/);
  const id = sessionId(page);
  atEnd(t, () => stopQuietly(page.context(), id));
  return id;
}

async function stopQuietly(context, id) {
  const page = await context.newPage();
  try {
    await page.goto(`/sessions/${id}/stop`);
    const yes = page.getByRole("button", { name: "Stop the session" });
    if (await yes.isVisible()) await yes.click();
  } catch {
    // The test has failed already, or the portal is gone; make demo-down ends everything.
  }
}

/** Waits until the page one is on shows the session in this state, without loading it again. */
export function shows(page, id, state) {
  return page.locator(`[data-session="${id}"][data-state="${state}"]`).first().waitFor({ timeout: PATIENCE_MS, state: "attached" });
}

/** From now on, the states that the page shows are noted as they come; whoever loads the page again loses them. */
export function noteStates(page) {
  return page.evaluate(() => {
    globalThis.states = [];
    const note = () => {
      const state = document.querySelector("[data-session]")?.dataset.state;
      if (state && globalThis.states.at(-1) !== state) globalThis.states.push(state);
    };
    note();
    new MutationObserver(note).observe(document.querySelector("[data-live]"), { childList: true, subtree: true });
  });
}

/** What was noted on a page that was not loaded again. */
export async function notedStates(page) {
  const states = await page.evaluate(() => globalThis.states);
  assert.ok(states, "the page was not loaded again");
  return states;
}
