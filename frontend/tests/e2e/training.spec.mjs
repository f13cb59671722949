// A first training as a person would do it: two nodes, an example's notebook, ranks on both; and a browser that is closed meanwhile.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, test } from "node:test";

import { accessibility, picture } from "../browser.mjs";
import { PATIENCE_MS, closeBrowser, shows, signedIn, startSession } from "./demo.mjs";

const IMAGE = "pytorch";
const NOTEBOOK = "/lab/tree/examples/ddp-digits.ipynb";
const PANEL = ".jp-NotebookPanel:not(.lm-mod-hidden)";
const IDLE = `${PANEL} .jp-Notebook-ExecutionIndicator[data-status="idle"]`;
// Ranks begin on busy machines, and each of them imports torch.
const TRAINING_MS = 150_000;
// Goes on once the test has closed the browser and opened another one.
const WAITS = `%%eirene
import pathlib, time
print(f"rank {rank} waits")
while not pathlib.Path("go-on").exists(): time.sleep(0.1)`;

after(closeBrowser);

/** As ada on one of the nodes, outside of her session; her home is the same everywhere. */
const asAda = (...command) => execFileSync("docker", ["exec", "--user", "ada", "--workdir", "/home/ada", "c1", ...command], { encoding: "utf8" });

/** Opens the session's JupyterLab at the example's notebook, and waits for its kernel. */
async function openNotebook(page, id, address) {
  await page.goto(`/sessions/${id}/open`);
  await page.waitForURL((url) => url.hostname.startsWith(id), { timeout: PATIENCE_MS });
  await page.goto(new URL(address, page.url()).href);
}

/** The code cell that begins like this. */
const cell = (page, begin) => page.locator(`${PANEL} .jp-CodeCell`).filter({ has: page.locator(".cm-content", { hasText: begin }) }).first();

/** Runs a cell that is there. */
async function runCell(page, begin) {
  await cell(page, begin).locator(".cm-content").click();
  await page.keyboard.press("Shift+Enter");
}

/** Runs the first cell, which may be run any number of times, until the kernel has: it says that it is idle before it hears. */
async function loadExtension(page) {
  const done = cell(page, "%load_ext").locator(".jp-InputPrompt", { hasText: /\[\d+\]/ });
  const until = Date.now() + PATIENCE_MS;
  do {
    await runCell(page, "%load_ext");
    await done.waitFor({ timeout: 3000 }).catch(() => undefined);
  } while (!(await done.isVisible()) && Date.now() < until);
}

/** Puts a cell before the first code cell and runs it. */
async function runNewCell(page, code) {
  await cell(page, "%load_ext").locator(".jp-InputPrompt").click();
  await page.keyboard.press("a");
  await page.keyboard.press("Enter");
  await page.keyboard.insertText(code);
  await page.keyboard.press("Shift+Enter");
}

/** What the output of a cell says, once it says all of this. */
async function says(page, begin, ...texts) {
  const outputs = cell(page, begin).locator(".jp-OutputArea-output");
  for (const text of texts) await outputs.filter({ hasText: text }).first().waitFor({ timeout: TRAINING_MS });
  return (await outputs.allInnerTexts()).join("\n");
}

test("ada trains on two nodes from a notebook, and closes the browser meanwhile", { timeout: 600_000 }, async (t) => {
  const portal = await signedIn(t, "ada");
  const id = await startSession(t, portal.page, "My first training", { image: IMAGE, nodes: 2, cpus: 2, gib: 4 });
  await shows(portal.page, id, "running");
  for (const node of ["c1", "c2"]) await portal.page.getByRole("row", { name: new RegExp(`${node}.*Ready`) }).waitFor();
  assert.deepEqual(await accessibility(portal.page), []);
  await picture(portal.page, "e2e/training-session");
  const { context, page: lab } = await signedIn(t, "ada");

  await t.test("the examples come into her home from a terminal", async () => {
    asAda("rm", "-rf", "examples");
    await openNotebook(lab, id, "/lab?reset");
    await lab.locator('.jp-LauncherCard[title="Start a new terminal session"]').click({ timeout: PATIENCE_MS });
    await lab.locator(".jp-Terminal .xterm-screen").click({ timeout: PATIENCE_MS });
    await lab.keyboard.insertText("cp -r /opt/eirene/examples .");
    await lab.keyboard.press("Enter");
    await lab.locator('.jp-DirListing-item[title^="Name: examples"]').waitFor({ timeout: PATIENCE_MS });
  });

  await t.test("four ranks on both nodes begin, and wait while the browser is closed", async () => {
    await lab.goto(new URL(NOTEBOOK, lab.url()).href);
    await lab.locator(IDLE).waitFor({ timeout: PATIENCE_MS });
    await loadExtension(lab);
    await runCell(lab, "%%eirene -n 4");
    const hosts = ["c1", "c1", "c2", "c2"].map((host, rank) => `[${rank}] rank ${rank} of 4 on ${host}`);
    await says(lab, "%%eirene -n 4", "4 ranks on 2 nodes (c1, c2)", ...hosts);
    await lab.locator(IDLE).waitFor({ timeout: PATIENCE_MS });
    await runNewCell(lab, WAITS);
    await says(lab, "waits", ...[0, 1, 2, 3].map((rank) => `rank ${rank} waits`));
    await lab.keyboard.press("Control+s");
    await lab.getByText("Saving completed").waitFor({ timeout: PATIENCE_MS });
    await picture(lab, "e2e/training-waits");
    await context.close();
  });

  await t.test("another browser finds the notebook, its ranks, and goes on", async () => {
    const { page } = await signedIn(t, "ada");
    await openNotebook(page, id, NOTEBOOK);
    await says(page, "waits", "rank 3 waits");
    await picture(page, "e2e/training-again");
    asAda("touch", "examples/go-on");
    await page.locator(IDLE).waitFor({ timeout: PATIENCE_MS });
    await loadExtension(page);
    await runNewCell(page, "%eirene status");
    assert.match(await says(page, "%eirene status", "started"), /4 ranks, started \d+ min \d+ s ago; c1: 0-1; c2: 2-3/);

    await page.getByRole("menuitem", { name: "Run", exact: true }).click();
    await page.getByRole("menuitem", { name: "Run All Cells", exact: true }).click();
    await says(page, "assert", "on 4 ranks");
    const learnt = await says(page, "DistributedDataParallel(nn", "epoch 8");
    await cell(page, "DistributedDataParallel(nn").scrollIntoViewIfNeeded();
    await picture(page, "e2e/training-learnt");
    const losses = [...learnt.matchAll(/epoch \d: loss ([\d.]+)/g)].map((found) => Number(found[1]));
    assert.equal(losses.length, 8, learnt);
    assert.ok(losses.at(-1) < 0.3 * losses[0], `the loss falls: ${losses}`);
    // Ranks that crash at their end leave their memory behind, where the system keeps it.
    assert.doesNotMatch(asAda("ls", "examples"), /^core/m);
  });
  assert.deepEqual(portal.faults, []);
});
