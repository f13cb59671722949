// What is lost while ranks run in a notebook: a rank, the step, the person's patience, a node. The notebook stays usable, says what happened and
// what to do, and nothing is left behind in the end.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import { accessibility, picture } from "../browser.mjs";
import { bringBack, inside, killRank, loseNode, mounts, nothingIsLeft } from "./cluster.mjs";
import { PATIENCE_MS, closeBrowser, shows, signedIn, startSession } from "./demo.mjs";
import { asAda, idle, loadExtension, notebook, openLab, putFile, runNewCell, says } from "./zz-lab.mjs";

const FOLDER = "failures";
const NEW_RANKS = "the next %%eirene cell starts new ones";
const RANK = "eirene_train.notebook.rank";

/** A cell whose ranks know each other, and say so under a name. */
const meet = (name, options = "") => `%%eirene ${options}
import os, socket, torch, torch.distributed as dist
if not dist.is_initialized(): dist.init_process_group("eirene")
rank, total = dist.get_rank(), torch.ones(1)
dist.all_reduce(total)
print(f"${name}: rank {rank} of {total.item():.0f} on {socket.gethostname()}")`;
/** A cell whose ranks say a word and do nothing until they are ended. */
const wait = (name) => `%%eirene
import time
print(f"${name} holds rank {rank}")
time.sleep(1000)`;

after(closeBrowser);

/** Waits until ranks can be started on both nodes of a session whose page this is. */
async function bothReady(page, id) {
  await shows(page, id, "running");
  for (const node of ["c1", "c2"]) await page.getByRole("row", { name: new RegExp(`${node}.*Ready`) }).waitFor({ timeout: PATIENCE_MS });
}

async function stop(page, id) {
  await page.goto(`/sessions/${id}/stop`);
  await page.getByRole("button", { name: "Stop the session" }).click();
  await shows(page, id, "ended");
}

/** The kernel still has the variable that was set at first, and ranks do what they are told. */
async function usable(lab, name, { options = "", hosts = ["c1", "c1", "c2", "c2"] } = {}) {
  await idle(lab);
  await runNewCell(lab, `print("${name} finds", remembered)`);
  await says(lab, `print("${name} finds"`, `${name} finds 42`);
  await runNewCell(lab, meet(name, options));
  await says(lab, `print(f"${name}: rank`, ...hosts.map((host, rank) => `[${rank}] ${name}: rank ${rank} of ${hosts.length} on ${host}`));
  await idle(lab);
}

/** Has the ranks begin a cell that does not end. */
async function begin(lab, name) {
  await runNewCell(lab, wait(name));
  await says(lab, `${name} holds`, ...[0, 1, 2, 3].map((rank) => `[${rank}] ${name} holds rank ${rank}`));
}

test("a rank, the step and a node are lost, and ada's notebook goes on", { timeout: 900_000 }, async (t) => {
  const before = mounts();
  asAda("rm", "-rf", FOLDER);
  asAda("mkdir", FOLDER);
  putFile(`${FOLDER}/lost.ipynb`, notebook("%load_ext eirene_train.notebook"));
  const { page: portal, faults } = await signedIn(t, "ada");
  const id = await startSession(t, portal, "What is lost", { image: "pytorch", nodes: 2, cpus: 2, gib: 4 });
  await bothReady(portal, id);
  const job = await portal.locator("dl.facts dt:text-is('SLURM job') + dd").innerText();
  const { page: lab } = await signedIn(t, "ada");
  await openLab(lab, id, `/lab/tree/${FOLDER}/lost.ipynb?reset`);
  await idle(lab);
  await loadExtension(lab);
  await runNewCell(lab, "remembered = 6 * 7");
  await usable(lab, "first", { options: "-n 4" });

  // A rank is killed: the cell says which one, where and how.
  await begin(lab, "killed");
  assert.ok(killRank("c2", job, 2, RANK) > 0);
  let told = await says(lab, "killed holds", NEW_RANKS);
  assert.match(told, /rank 2 on c2 was killed by signal SIGKILL/);
  assert.match(told, /ranks 0-1, 3 were ended because of that/);
  await picture(lab, "e2e/failures-killed");
  await usable(lab, "after kill");

  // The person has had enough: the cell ends, the ranks stay and know what they knew.
  await begin(lab, "interrupted");
  await lab.locator('.jp-NotebookPanel:not(.lm-mod-hidden) [data-command="notebook:interrupt-kernel"]').click();
  await says(lab, "interrupted holds", "ranks 0-3: KeyboardInterrupt");
  await idle(lab);
  await runNewCell(lab, '%%eirene\nprint(f"still rank {rank}")');
  await says(lab, "still rank", ...[0, 1, 2, 3].map((rank) => `[${rank}] still rank ${rank}`));

  // The step is cancelled in SLURM, by its number as the session's page shows it.
  await begin(lab, "cancelled");
  const row = portal.getByRole("row", { name: /c2.*notebook.rank \(4 ranks on 2 nodes\)/ });
  await row.waitFor({ timeout: PATIENCE_MS });
  const [, step] = (await row.innerText()).match(/Step (\d+):/);
  inside("head", ["scancel", `${job}.${step}`], "ada");
  told = await says(lab, "cancelled holds", NEW_RANKS);
  assert.match(told, /rank [0-3] on c[12] was killed by signal SIGKILL/);
  await usable(lab, "after cancel");

  // A node is lost with everything on it: the scheduler says so after a minute.
  await begin(lab, "lost");
  loseNode(t, "c2", job);
  assert.match(await says(lab, "lost holds", NEW_RANKS), /rank [23] (on c2|ended in the midst of the cell)/);
  await portal.getByRole("row", { name: /c2.*Not reachable/ }).waitFor({ timeout: PATIENCE_MS });
  assert.deepEqual(await accessibility(portal), []);
  await picture(portal, "e2e/failures-node");
  await idle(lab);
  await runNewCell(lab, meet("refused"));
  told = await says(lab, 'print(f"refused', "the ranks did not start");
  assert.match(told, /node c2 cannot be used now: .+ Leave it out with `(.+?)`/);
  const [, cure] = told.match(/Leave it out with `(.+?)`/);
  await usable(lab, "without", { options: `-n 2 ${cure}`, hosts: ["c1", "c1"] });
  await picture(lab, "e2e/failures-without");

  await stop(portal, id);
  await bringBack("c2");
  // What was killed with its node could not tidy up there: the next session of hers does.
  const next = await startSession(t, portal, "After what was lost", { nodes: 2 });
  await bothReady(portal, next);
  await stop(portal, next);
  await nothingIsLeft(id, job, before);
  assert.deepEqual(faults, []);
});
