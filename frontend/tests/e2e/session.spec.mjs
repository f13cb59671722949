// From a click to a kernel, as a person would: nothing on this path is simulated.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, test } from "node:test";

import { accessibility, picture, tooWide } from "../browser.mjs";
import { PATIENCE_MS, closeBrowser, notedStates, noteStates, portal, sessionId, shows, signedIn, startSession, visitor } from "./demo.mjs";

const ADA_UID = 2001;
const CELL = 'import os, socket\nprint("host", socket.gethostname(), "uid", os.getuid(), "product", 6*7)';

const SLOW_CELL = 'import time\nprint("begun", flush=True)\nfor second in range(20):\n    time.sleep(1)\nprint("product", 6*7)';
const OUTPUT = ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea-output";

after(closeBrowser);

/** Runs `code` in a new notebook and gives back what it printed first. */
async function runCell(lab, code) {
  await beginCell(lab, code);
  const output = lab.locator(OUTPUT).first();
  await output.waitFor({ timeout: PATIENCE_MS });
  return output.innerText();
}

/** Begins to run `code` in a new notebook. */
async function beginCell(lab, code) {
  await lab.locator('.jp-LauncherCard[data-category="Notebook"]').first().click({ timeout: PATIENCE_MS });
  const editor = lab.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell .cm-content").first();
  await editor.click({ timeout: PATIENCE_MS });
  // What is run before the kernel is there goes nowhere.
  await lab.locator('.jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook-ExecutionIndicator[data-status="idle"]').waitFor({ timeout: PATIENCE_MS });
  await lab.keyboard.insertText(code);
  // It says that it is idle before it hears: what it has not answered is said again.
  const output = lab.locator(OUTPUT).first();
  const until = Date.now() + PATIENCE_MS;
  do {
    await lab.keyboard.press("Control+Enter");
    await output.waitFor({ timeout: 10_000 }).catch(() => undefined);
  } while (!(await output.isVisible()) && Date.now() < until);
}

test("ada starts a session, runs a cell on a compute node and stops it", { timeout: 300_000 }, async (t) => {
  const { context, page, faults } = await signedIn(t, "ada");
  assert.deepEqual(await accessibility(page), []);
  await picture(page, "e2e/dashboard-before");

  const id = await startSession(t, page, "From a click to a kernel");
  await noteStates(page);
  await picture(page, "e2e/session-queued");
  await shows(page, id, "running");
  const states = await notedStates(page);
  const order = ["queued", "starting", "running"];
  assert.deepEqual(states, order.slice(order.indexOf(states[0])), "the way there was seen step by step");
  assert.deepEqual(await accessibility(page), []);
  assert.deepEqual(await tooWide(page), []);
  await picture(page, "e2e/session-running");

  await t.test("the app opens on an origin of its own", async () => {
    const [lab] = await Promise.all([context.waitForEvent("page"), page.getByRole("link", { name: "Open JupyterLab" }).click()]);
    await lab.waitForURL((url) => url.hostname.startsWith(id), { timeout: PATIENCE_MS });
    assert.notEqual(new URL(lab.url()).origin, new URL(portal).origin);
    assert.equal(new URL(lab.url()).search, "", "no secret in the address");
    // Lab opens what was open last time; the test wants to begin anew.
    await lab.goto(new URL("/lab?reset", lab.url()).href);
    const printed = await runCell(lab, CELL);
    await picture(lab, "e2e/lab");
    assert.match(printed, new RegExp(`^host c[12] uid ${ADA_UID} product 42\\s*$`));
    await lab.close();
  });

  await t.test("the dashboard shows it, and opening it again needs no more than a click", async () => {
    await page.goto("/");
    await shows(page, id, "running");
    await picture(page, "e2e/dashboard-running");
    assert.deepEqual(await accessibility(page), []);
    const [lab] = await Promise.all([
      context.waitForEvent("page"),
      page.locator(`[data-session="${id}"]`).getByRole("link", { name: "Open" }).click(),
    ]);
    await lab.waitForURL((url) => url.hostname.startsWith(id), { timeout: PATIENCE_MS });
    await lab.close();
  });

  await t.test("it stops when asked, and says so without a reload", async () => {
    await page.goto(`/sessions/${id}`);
    await page.getByRole("link", { name: "Stop", exact: false }).first().click();
    const dialog = page.getByRole("dialog");
    await dialog.waitFor();
    assert.deepEqual(await accessibility(page), []);
    await picture(page, "e2e/stop-dialog");
    await dialog.getByRole("button", { name: "Go back" }).click();
    await dialog.waitFor({ state: "hidden" });
    await shows(page, id, "running");
    await page.getByRole("link", { name: "Stop", exact: false }).first().click();
    await dialog.getByRole("button", { name: "Stop the session" }).click();
    await page.waitForURL(/done=stopping/);
    await shows(page, id, "ended");
    await page.getByRole("link", { name: "Start again" }).waitFor();
    await picture(page, "e2e/session-ended");
  });
  assert.deepEqual(faults, []);
});

test("a cell goes on while the portal is killed, and its output arrives in the same page", { timeout: 300_000 }, async (t) => {
  const { page } = await signedIn(t, "ada");
  const id = await startSession(t, page, "Killed meanwhile");
  await page.goto(`/sessions/${id}/open`);
  await page.waitForURL((url) => url.hostname.startsWith(id), { timeout: PATIENCE_MS });
  await page.goto(new URL("/lab?reset", page.url()).href);
  await beginCell(page, SLOW_CELL);
  await page.locator(OUTPUT).first().getByText("begun").waitFor({ timeout: PATIENCE_MS });
  await page.evaluate(() => (globalThis.neverLoadedAgain = true));
  execFileSync("docker", ["exec", "portal", "pkill", "-KILL", "-x", "eirened"]);
  await page.locator(OUTPUT).getByText("product 42").first().waitFor({ timeout: PATIENCE_MS });
  assert.equal(await page.evaluate(() => globalThis.neverLoadedAgain), true);
});

test("a session can be asked for, waited for and opened in one tab", { timeout: 300_000 }, async (t) => {
  const { page } = await signedIn(t, "ada");
  const id = await startSession(t, page, "Waiting room");
  await page.goto(`/sessions/${id}/open`);
  await page.waitForURL((url) => url.hostname.startsWith(id), { timeout: PATIENCE_MS });
});

test("somebody else's session is not there", { timeout: 300_000 }, async (t) => {
  const ada = await signedIn(t, "ada");
  const id = await startSession(t, ada.page, "Mine alone");
  const grace = await signedIn(t, "grace");
  for (const address of [`/sessions/${id}`, `/sessions/${id}/log`, `/sessions/${id}/open`, `/sessions/${id}/stop`, `/open?session=${id}`, `/fragments/sessions/${id}`]) {
    const answer = await grace.page.goto(address);
    assert.equal(answer.status(), 404, address);
    assert.ok(!(await grace.page.content()).includes("Mine alone"), address);
  }
  // Unknown ids look the same.
  const unknown = await grace.page.goto(`/sessions/${"0".repeat(32)}`);
  assert.equal(unknown.status(), 404);
});

test("without scripts one gets as far", { timeout: 300_000 }, async (t) => {
  const { context, page } = await signedIn(t, "ada", { javaScriptEnabled: false });
  const id = await startSession(t, page, "Without scripts");
  await page.getByRole("heading", { level: 1, name: "Without scripts" }).waitFor();
  // The page asks to be loaded again by itself.
  await shows(page, id, "running");
  await page.goto(`/sessions/${id}/open`);
  await page.getByRole("button", { name: "Open" }).click();
  await page.waitForURL((url) => url.hostname.startsWith(id), { timeout: PATIENCE_MS });
  await page.goto(`/sessions/${id}/stop`);
  // The checker is a script itself: it looks at the page in a browser that runs some.
  const checker = await (await visitor(t, { storageState: await context.storageState() })).newPage();
  await checker.goto(`/sessions/${id}/stop`);
  assert.deepEqual(await accessibility(checker), []);
  await page.getByRole("button", { name: "Stop the session" }).click();
  await shows(page, id, "ended");
  assert.equal(sessionId(page), id);
});
