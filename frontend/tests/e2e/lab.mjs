// A notebook in a session's JupyterLab as these tests use it: opened, its cells run, their outputs read.
import { execFileSync } from "node:child_process";

import { PATIENCE_MS } from "./demo.mjs";

const PANEL = ".jp-NotebookPanel:not(.lm-mod-hidden)";
const IDLE = `${PANEL} .jp-Notebook-ExecutionIndicator[data-status="idle"]`;
// Ranks begin on busy machines, and each of them imports torch.
const TRAINING_MS = 150_000;

/** As ada on one of the nodes, outside of her session; her home is the same everywhere. */
export const asAda = (...command) => execFileSync("docker", ["exec", "--user", "ada", "--workdir", "/home/ada", "c1", ...command], { encoding: "utf8" });

/** Writes a file of hers, of a path in her home whose folder is there. */
export const putFile = (path, text) => asAda("sh", "-c", 'printf %s "$2" > "$1"', "sh", path, text);

/** A notebook of these code cells, as its file is written. */
export function notebook(...sources) {
  const cell = (source, number) => ({ cell_type: "code", id: `cell-${number}`, metadata: {}, source, outputs: [], execution_count: null });
  const kernelspec = { display_name: "Python 3", language: "python", name: "python3" };
  return JSON.stringify({ cells: sources.map(cell), metadata: { kernelspec, language_info: { name: "python" } }, nbformat: 4, nbformat_minor: 5 });
}

/** Opens an address of the session's JupyterLab. */
export async function openLab(page, id, address) {
  // On a busy machine JupyterLab may ask which kernel to take while it is starting the notebook's own; that is the one it proposes.
  const question = page.locator(".jp-Dialog", { has: page.locator(".jp-Dialog-header", { hasText: "Select Kernel" }) });
  await page.addLocatorHandler(question, () => question.locator(".jp-mod-accept").click());
  await page.goto(`/sessions/${id}/open`);
  await page.waitForURL((url) => url.hostname.startsWith(id), { timeout: PATIENCE_MS });
  await page.goto(new URL(address, page.url()).href);
}

/** Types a line into a new terminal of the session's JupyterLab. */
export async function typeInTerminal(page, id, line) {
  await openLab(page, id, "/lab?reset");
  await page.locator('.jp-LauncherCard[title="Start a new terminal session"]').click({ timeout: PATIENCE_MS });
  await page.locator(".jp-Terminal .xterm-screen").click({ timeout: PATIENCE_MS });
  await page.keyboard.insertText(line);
  await page.keyboard.press("Enter");
}

/** Copies the image's examples into the person's home, under this name. */
export async function copyExamples(page, id, name) {
  await typeInTerminal(page, id, `cp -r /opt/eirene/examples ${name}`);
  await page.locator(".jp-DirListing-itemText", { hasText: new RegExp(`^${name}$`) }).waitFor({ timeout: PATIENCE_MS });
}

/** Waits until the notebook's kernel has nothing to do. */
export async function idle(page) {
  // JupyterLab shows an idle kernel before it has one, and asks for one where a cell is run then.
  const attached = async () => (await (await fetch("/api/sessions")).json()).some(({ kernel }) => kernel.execution_state === "idle" && kernel.connections > 0);
  await page.waitForFunction(attached, undefined, { timeout: PATIENCE_MS, polling: 200 });
  await page.locator(IDLE).waitFor({ timeout: PATIENCE_MS });
}

/** The code cell that begins like this. */
export const cell = (page, begin) => page.locator(`${PANEL} .jp-CodeCell`).filter({ has: page.locator(".cm-content", { hasText: begin }) }).first();

/** Runs a cell that is there. */
export async function runCell(page, begin) {
  await cell(page, begin).locator(".cm-content").click();
  await page.keyboard.press("Shift+Enter");
}

/** Runs the first cell, which may be run any number of times, until the kernel has: it says that it is idle before it hears. */
export async function loadExtension(page) {
  const done = cell(page, "%load_ext").locator(".jp-InputPrompt", { hasText: /\[\d+\]/ });
  const until = Date.now() + PATIENCE_MS;
  do {
    await runCell(page, "%load_ext");
    await done.waitFor({ timeout: 3000 }).catch(() => undefined);
  } while (!(await done.isVisible()) && Date.now() < until);
}

/** Puts a cell before the first code cell and runs it. */
export async function runNewCell(page, code) {
  await cell(page, "%load_ext").locator(".jp-InputPrompt").click();
  await page.keyboard.press("a");
  await page.keyboard.press("Enter");
  await page.keyboard.insertText(code);
  await page.keyboard.press("Shift+Enter");
}

/** What the output of a cell says, once it says all of this. */
export async function says(page, begin, ...texts) {
  const outputs = cell(page, begin).locator(".jp-OutputArea-output");
  for (const text of texts) {
    await outputs
      .filter({ hasText: text })
      .first()
      .waitFor({ timeout: TRAINING_MS })
      .catch(async (cause) => {
        // What came instead is what explains it.
        const shown = await page.locator(`${PANEL} .jp-Cell`).allInnerTexts();
        throw new Error(`a cell never said "${text}"; the notebook:\n${shown.join("\n---\n")}`, { cause });
      });
  }
  return (await outputs.allInnerTexts()).join("\n");
}

/** The losses that rank 0 of a training printed, an epoch each: by itself, or in a line that all ranks have alike. */
export const losses = (text) => [...text.matchAll(/^\[0(?:[-,][^\]]*)?\] epoch \d: loss ([\d.]+)/gm)].map((found) => Number(found[1]));
