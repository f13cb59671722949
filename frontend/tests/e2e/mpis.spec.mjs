// The same first training on images with another MPI than `pytorch` has, and with none: what ranks meet by follows from the image. One of the two,
// the other for another `EIRENE_TEST_SEED`; both with `EIRENE_TEST_DEEP=1`.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import { picture } from "../browser.mjs";
import { closeBrowser, shows, signedIn, startSession } from "./demo.mjs";
import { asAda, cell, copyExamples, idle, loadExtension, losses, openLab, runCell, says } from "./lab.mjs";

// Made by `EIRENE_DEMO_MPIS=1 deploy/demo/up`.
const IMAGES = [
  { image: "pytorch-mpich", way: /4 ranks on 2 nodes \(c1, c2\), by PMI 2, for the image's MPICH \d+\.\d+/ },
  {
    image: "pytorch-no-mpi",
    way: /4 ranks on 2 nodes \(c1, c2\), the image has no MPI, so ranks meet by themselves: Eirene's own transport/,
  },
];

const { EIRENE_TEST_DEEP, EIRENE_TEST_SEED } = process.env;
const CHOSEN = EIRENE_TEST_DEEP === "1" ? IMAGES : [IMAGES[Number(EIRENE_TEST_SEED ?? 0) % IMAGES.length]];

after(closeBrowser);

for (const { image, way } of CHOSEN) {
  test(`ada trains on two nodes with the image ${image}`, { timeout: 600_000 }, async (t) => {
    // Her first training's examples are elsewhere.
    const directory = `examples-${image}`;
    const portal = await signedIn(t, "ada");
    const id = await startSession(t, portal.page, `Training on ${image}`, { image, nodes: 2, cpus: 2, gib: 4 });
    asAda("rm", "-rf", directory);
    t.after(() => asAda("rm", "-rf", directory));
    await shows(portal.page, id, "running");
    for (const node of ["c1", "c2"]) await portal.page.getByRole("row", { name: new RegExp(`${node}.*Ready`) }).waitFor();
    const { page: lab } = await signedIn(t, "ada");
    await copyExamples(lab, id, directory);
    await openLab(lab, id, `/lab/tree/${directory}/ddp-digits.ipynb`);
    await idle(lab);
    await loadExtension(lab);

    await t.test("four ranks begin on both nodes, and a line says what they meet by and why", async () => {
      await runCell(lab, "%%eirene -n 4");
      const hosts = ["c1", "c1", "c2", "c2"].map((host, rank) => `[${rank}] rank ${rank} of 4 on ${host}`);
      assert.match(await says(lab, "%%eirene -n 4", "4 ranks on 2 nodes", ...hosts), way);
      await cell(lab, "%%eirene -n 4").scrollIntoViewIfNeeded();
      await picture(lab, `e2e/${image}-ranks`);
    });

    await t.test("they learn, data-parallel", async () => {
      await runCell(lab, "pixels, digits");
      await runCell(lab, "DistributedDataParallel(nn");
      const learnt = await says(lab, "DistributedDataParallel(nn", "epoch 8");
      await cell(lab, "DistributedDataParallel(nn").scrollIntoViewIfNeeded();
      await picture(lab, `e2e/${image}-learnt`);
      const seen = losses(learnt);
      assert.equal(seen.length, 8, learnt);
      assert.ok(seen.at(-1) < 0.3 * seen[0], `the loss falls: ${seen}`);
    });
    assert.deepEqual(portal.faults, []);
  });
}
