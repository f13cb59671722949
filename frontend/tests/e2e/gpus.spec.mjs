// A session's GPUs on its pages: which they are, what they do, and what becomes of them. The demo's nodes have none; for as long as this takes, c1
// has a double of the library of NVIDIA's driver (monitoring/gpu/examples), which says that there are eight. SLURM gives the session two of them.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";
import { after, test } from "node:test";

import { accessibility, picture, root } from "../browser.mjs";
import { host, pixels, token } from "../plots.mjs";
import { inside, until } from "./cluster.mjs";
import { PATIENCE_MS, closeBrowser, shows, signedIn, startSession } from "./demo.mjs";

const GIB = 2 ** 30;
const NODE = "c1";
const DOUBLE = path.join(process.env.CARGO_TARGET_DIR ?? path.join(root, "target"), "debug/examples/libnvml_double.so");
/** Where the dynamic loader looks for it. */
const LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1";
/** What the double answers from. */
const STATE = "/run/nvml-double.json";
const WINDOW = { reducedMotion: "reduce", timezoneId: "UTC", locale: "en-GB" };

after(closeBrowser);

const gpu = (number) => ({
  uuid: `GPU-${number}`, name: "NVIDIA A100", util: [40 + number, 5], memory: [80 * GIB, (10 + number) * GIB],
  power: 300_000, temperature: 60 + number, ecc: [4, 0], reasons: 1,
});

/** What the driver says from now on. */
function says(state) {
  execFileSync("docker", ["exec", "-i", "--user", "root", NODE, "sh", "-c", 'umask 022 && cat > "$0.new" && mv "$0.new" "$0"', STATE], { input: JSON.stringify(state) });
}

/** Puts the driver on the node until the test is over. */
function install(t, state) {
  assert.ok(existsSync(DOUBLE), `no ${DOUBLE}: build it with \`cargo build -p eirene-monitoring-gpu --examples\``);
  t.after(() => inside(NODE, ["rm", "-f", LIBRARY, STATE]));
  says(state);
  execFileSync("docker", ["cp", DOUBLE, `${NODE}:${LIBRARY}`], { stdio: "ignore" });
}

test("a session's GPUs are shown with its programs on them, their errors and their loss", { timeout: 400_000 }, async (t) => {
  const state = { gpus: Array.from({ length: 8 }, (_, number) => gpu(number)) };
  state.gpus[1].parts = [{ uuid: "MIG-a", memory: [40 * GIB, GIB] }, { uuid: "MIG-b", memory: [40 * GIB, 2 * GIB] }];
  install(t, state);
  const { page, faults } = await signedIn(t, "ada", WINDOW);
  const id = await startSession(t, page, "With GPUs", { gpus: { type: "a100", count: 2 } });
  await shows(page, id, "running");
  // Its app, by the number that it has on the node.
  const app = Number(inside(NODE, ["pgrep", "-u", "ada", "-x", "jupyter-lab"]).trim());
  state.gpus[0].processes = [[app, 3 * GIB]];
  state.gpus[0].samples = [[app, 1, 80]];
  says(state);

  const figure = (title) => page.locator("figure.picture", { has: page.getByRole("heading", { name: title, exact: true }) });
  await figure("GPU memory").waitFor({ timeout: PATIENCE_MS });
  const names = (await figure("GPU memory").locator("tbody th").allTextContents()).map((name) => name.trim());
  assert.deepEqual(names, ["GPU 0", "GPU 1.0", "GPU 1.1"], "those that SLURM gave it, and none of the other six");
  assert.deepEqual((await figure("GPUs").locator("tbody td").allTextContents()).slice(0, 1), ["40\u00a0%"]);

  await page.goto(`/sessions/${id}/charts`);
  await page.getByRole("button", { name: "Processes", exact: true }).click();
  for (const chart of ["gpu", "gpu-memory", "gpu-power", "gpu-heat", "process-gpu", "process-gpu-memory"]) await host(page, chart).locator("canvas").waitFor({ timeout: PATIENCE_MS });
  const legend = page.locator(".plot", { has: page.locator('[data-chart="gpu-memory"]') }).locator(".plot-legend .wrap");
  assert.deepEqual(await legend.allTextContents(), ["GPU 0", "GPU 1.0", "GPU 1.1"]);
  await until("its line is drawn", async () => (await pixels(page, "gpu", await token(page, "--series-1"))) > 20);
  const program = page.locator(".plot", { has: page.locator('[data-chart="process-gpu-memory"]') }).locator(".plot-legend li");
  assert.match(await program.first().textContent(), new RegExp(`\\(${app}\\).*3\u00a0GiB`));

  await page.locator("summary", { hasText: "What happened when" }).click();
  const happened = (text) => page.locator("[data-charts-happened] li.happened-bad", { hasText: text }).first().waitFor({ timeout: PATIENCE_MS });
  state.gpus[0].ecc = [7, 2];
  says(state);
  await happened("GPU memory error (c1, GPU 0)");
  for (const chart of ["gpu-corrected", "gpu-uncorrected"]) await host(page, chart).locator("canvas").waitFor();
  for (const gpu of [0, 1]) state.gpus[gpu].lost = true;
  says(state);
  await happened("GPU lost (3)");
  assert.ok((await pixels(page, "gpu-memory", await token(page, "--bad"))) > 20, "red on the time axis");
  assert.deepEqual(await accessibility(page), []);
  await picture(page, "e2e/gpus-charts");

  await page.goto(`/sessions/${id}`);
  for (const gpu of ["0", "1.0", "1.1"]) {
    await page.getByText(`GPU ${gpu} on c1 does not answer any more. Save what you can, and start again.`).waitFor({ timeout: PATIENCE_MS });
  }
  assert.deepEqual(await accessibility(page), []);
  await picture(page, "e2e/gpus-lost");
  assert.deepEqual(faults, []);
});
