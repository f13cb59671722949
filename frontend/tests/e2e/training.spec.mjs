// A first training as a person would do it: two nodes, an example's notebook, ranks on both; and a browser that is closed meanwhile.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import { accessibility, picture } from "../browser.mjs";
import { PATIENCE_MS, closeBrowser, shows, signedIn, startSession } from "./demo.mjs";
import { asAda, cell, copyExamples, idle, loadExtension, losses, openLab, runCell, runNewCell, says } from "./lab.mjs";

const IMAGE = "pytorch";
const NOTEBOOK = "/lab/tree/examples/ddp-digits.ipynb";
// Goes on once the test has closed the browser and opened another one.
const WAITS = `%%eirene
import pathlib, time
print(f"rank {rank} waits")
while not pathlib.Path("go-on").exists(): time.sleep(0.1)`;

after(closeBrowser);

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
    await copyExamples(lab, id, "examples");
  });

  await t.test("four ranks on both nodes begin, and wait while the browser is closed", async () => {
    await lab.goto(new URL(NOTEBOOK, lab.url()).href);
    await idle(lab);
    await loadExtension(lab);
    await runCell(lab, "%%eirene -n 4");
    const hosts = ["c1", "c1", "c2", "c2"].map((host, rank) => `[${rank}] rank ${rank} of 4 on ${host}`);
    const said = await says(lab, "%%eirene -n 4", "4 ranks on 2 nodes (c1, c2)", ...hosts);
    assert.match(said, /4 ranks on 2 nodes \(c1, c2\), by PMIx, for the image's Open MPI \d+\.\d+/);
    await idle(lab);
    await runNewCell(lab, WAITS);
    await says(lab, "waits", ...[0, 1, 2, 3].map((rank) => `rank ${rank} waits`));
    await lab.keyboard.press("Control+s");
    await lab.getByText("Saving completed").waitFor({ timeout: PATIENCE_MS });
    await picture(lab, "e2e/training-waits");
    await context.close();
  });

  await t.test("another browser finds the notebook, its ranks, and goes on", async () => {
    const { page } = await signedIn(t, "ada");
    await openLab(page, id, NOTEBOOK);
    await says(page, "waits", "rank 3 waits");
    await picture(page, "e2e/training-again");
    asAda("touch", "examples/go-on");
    await idle(page);
    await loadExtension(page);
    await runNewCell(page, "%eirene status");
    assert.match(await says(page, "%eirene status", "started"), /4 ranks, started \d+ min \d+ s ago; c1: 0-1; c2: 2-3/);

    await page.getByRole("menuitem", { name: "Run", exact: true }).click();
    await page.getByRole("menuitem", { name: "Run All Cells", exact: true }).click();
    await says(page, "assert", "on 4 ranks");
    const learnt = await says(page, "DistributedDataParallel(nn", "epoch 8");
    await cell(page, "DistributedDataParallel(nn").scrollIntoViewIfNeeded();
    await picture(page, "e2e/training-learnt");
    const seen = losses(learnt);
    assert.equal(seen.length, 8, learnt);
    assert.ok(seen.at(-1) < 0.3 * seen[0], `the loss falls: ${seen}`);
    // Ranks that crash at their end leave their memory behind, where the system keeps it.
    assert.doesNotMatch(asAda("ls", "examples"), /^core/m);
  });
  assert.deepEqual(portal.faults, []);
});
