// Runs by hand: a script and a notebook without a browser, followed from the form to their end; what fails, what is cancelled, what is done
// again; and nobody else's.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { accessibility, picture, pictures } from "../browser.mjs";
import { PATIENCE_MS, closeBrowser, notedStates, noteStates, shows, signedIn } from "./demo.mjs";
import { asAda, notebook, putFile } from "./lab.mjs";

const FOLDER = "runs-by-hand";
// Colours that are on their way from light to dark are none that can be judged.
const STILL = { reducedMotion: "reduce" };
const FILES = {
  "ranks.py": `import os, pathlib, sys, time
rank = os.environ["RANK"]
print(f"rank {rank} of {os.environ['WORLD_SIZE']} has {sys.argv[1:]}", flush=True)
while not pathlib.Path("go-on").exists(): time.sleep(0.1)
print(f"rank {rank} went on", flush=True)
`,
  "fails.py": 'import sys\nprint("about to fail", flush=True)\nsys.exit(3)\n',
  "waits.py": 'import time\nprint("waits", flush=True)\ntime.sleep(1000)\n',
  "ranks.ipynb": notebook(
    "%load_ext eirene_train.notebook",
    '%%eirene -n 4\nimport os, socket\nprint("all say this")\nprint("rank", os.environ["RANK"], "on", socket.gethostname())',
  ),
};

before(() => {
  asAda("rm", "-rf", FOLDER);
  asAda("mkdir", FOLDER);
  for (const [name, text] of Object.entries(FILES)) putFile(`${FOLDER}/${name}`, text);
});
after(closeBrowser);

/** Fills the form in, with the mouse; what is not said stays as the form has it. */
async function fill(page, file, { args, ranks, image, nodes } = {}) {
  await page.getByLabel("File", { exact: true }).fill(file);
  if (args) await page.getByLabel("Arguments").fill(args);
  if (ranks) await page.getByLabel("Ranks", { exact: true }).fill(`${ranks}`);
  if (image) await page.getByLabel("Image").selectOption(image);
  await page.getByLabel("CPUs").fill(nodes ? "2" : "1");
  await page.getByLabel("Memory").fill(nodes ? "4" : "1");
  await page.getByLabel("Hours").fill("0");
  await page.getByLabel("Minutes").fill("15");
  if (nodes) {
    await page.getByText("More choices").click();
    await page.getByLabel("Nodes", { exact: true }).fill(`${nodes}`);
  }
}

/** The id of the run whose page comes next; whatever became of the test, the run is cancelled at its end. */
async function begun(t, page) {
  await page.waitForURL(/\/runs\/[0-9a-f]{32}/);
  const id = new URL(page.url()).pathname.split("/")[2];
  t.after(async () => {
    const { page } = await signedIn(t, "ada", STILL);
    await page.goto(`/runs/${id}/cancel`);
    await page.getByRole("button", { name: "Cancel the run" }).click();
    await page.waitForURL(/done=cancelling/);
  });
  return id;
}

const send = (page) => page.getByRole("button", { name: "Start", exact: true }).click();
const log = (page) => page.getByRole("log", { name: "Log" });
/** What the page says beside a word. */
const fact = (page, word) => page.locator(`dl.facts dt:text-is("${word}") + dd`);

test("who has no runs is told what they are for, and finds the form", async (t) => {
  // The admin has no user on the cluster and never has any.
  const { page, faults } = await signedIn(t, "admin", STILL);
  await page.goto("/runs");
  await page.getByRole("heading", { name: "No runs yet" }).waitFor();
  await pictures(page, "runs-none");
  await page.getByRole("main").getByRole("link", { name: "Start a run" }).last().click();
  await page.getByRole("heading", { level: 1, name: "Start a run" }).waitFor();
  await pictures(page, "runs-form");
  assert.deepEqual(faults, []);
});

test("ada starts a script on four ranks and sees it live to its end", { timeout: 400_000 }, async (t) => {
  const { page, faults } = await signedIn(t, "ada", STILL);
  await page.goto("/");
  await page.getByRole("link", { name: "Runs", exact: true }).click();
  await page.getByRole("link", { name: "Start a run" }).first().click();
  await fill(page, `${FOLDER}/ranks.py`, { args: "--name\ntwo words; $(id)", ranks: 4, image: "pytorch", nodes: 2 });
  await send(page);
  const id = await begun(t, page);
  await noteStates(page);
  await shows(page, id, "running");
  for (const rank of [0, 1, 2, 3]) {
    await log(page).getByText(`[${rank}] rank ${rank} of 4 has ['--name', 'two words; $(id)']`).waitFor({ timeout: PATIENCE_MS });
  }
  for (const node of ["c1", "c2"]) await page.getByRole("row", { name: new RegExp(`${node}.*Ready.*4 ranks`) }).waitFor({ timeout: PATIENCE_MS });
  await pictures(page, "runs-running");

  await t.test("one rank's lines alone", async () => {
    const other = await page.context().newPage();
    await other.goto(`/runs/${id}`);
    await other.getByLabel("Rank", { exact: true }).fill("2");
    await other.getByRole("button", { name: "Show" }).click();
    await log(other).getByText("rank 2 of 4 has").waitFor();
    assert.doesNotMatch(await log(other).innerText(), /rank [013] of 4/);
    await picture(other, "e2e/runs-one-rank");
    await other.goto(`/runs/${id}/log?rank=3`);
    assert.match(await other.innerText("body"), /^rank 3 of 4 has/m);
    await other.goto(`/runs/${id}?rank=4`);
    await other.getByText("the ranks of this run are 0 to 3").waitFor();
    await picture(other, "e2e/runs-no-such-rank");
    await other.close();
  });

  asAda("touch", `${FOLDER}/go-on`);
  await shows(page, id, "ended");
  for (const rank of [0, 1, 2, 3]) await log(page).getByText(`[${rank}] rank ${rank} went on`).waitFor();
  assert.equal(await fact(page, "Exit status").innerText(), "0");
  const states = await notedStates(page);
  // A state that is over at once may not be seen; none comes twice or out of order.
  const order = ["queued", "starting", "running", "stopping", "ended"];
  assert.deepEqual(states, order.filter((state) => states.includes(state)));
  assert.deepEqual(states.filter((state) => ["running", "ended"].includes(state)), ["running", "ended"]);
  await pictures(page, "runs-ended");
  assert.deepEqual(faults, []);
});

test("a notebook runs by itself on two nodes, asked for by keyboard alone", { timeout: 400_000 }, async (t) => {
  const { page, faults } = await signedIn(t, "ada", STILL);
  /** Goes on to a field or button by the key Tab. */
  const tabTo = async (what, wanted) => {
    for (let n = 0; n < 80; n += 1) {
      await page.keyboard.press("Tab");
      if (await page.evaluate(wanted)) return;
    }
    assert.fail(`the key Tab does not lead to ${what}`);
  };
  const field = (name) => tabTo(name, `document.activeElement.id === "f-${name}"`);
  const type = async (name, text) => {
    await field(name);
    await page.keyboard.press("Control+a");
    await page.keyboard.type(text);
  };
  await page.goto("/runs");
  await tabTo("the form", 'document.activeElement.textContent.trim() === "Start a run"');
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/runs\/new/);
  await type("file", `${FOLDER}/ranks.ipynb`);
  await field("image");
  await page.keyboard.type("pytorch");
  await type("name", "By keyboard");
  await type("cpus", "2");
  await type("memory_gib", "4");
  await type("hours", "0");
  await type("minutes", "15");
  await tabTo("more choices", 'document.activeElement.matches("summary")');
  await page.keyboard.press("Enter");
  await type("nodes", "2");
  await tabTo("the button", 'document.activeElement.matches("button[type=submit]")');
  await page.keyboard.press("Enter");
  const id = await begun(t, page);
  await page.getByRole("heading", { level: 1, name: "By keyboard" }).waitFor();
  await log(page).getByText("[3] rank 3 on c2").waitFor({ timeout: PATIENCE_MS });
  await shows(page, id, "ended");
  assert.equal(await fact(page, "Exit status").innerText(), "0");
  assert.equal(await fact(page, "Ranks").innerText(), "those that its cells start");
  const executed = await fact(page, "Executed notebook").innerText();
  assert.equal(executed, `${FOLDER}/ranks.run-${id}.ipynb`);
  assert.match(asAda("cat", executed), /\[3\] rank 3 on c2/);
  await pictures(page, "runs-notebook");
  await page.getByLabel("Rank", { exact: true }).fill("3");
  await page.keyboard.press("Enter");
  await page.waitForURL(/rank=3/);
  assert.match(await log(page).innerText(), /^all say this\nrank 3 on c2\n$/);
  await picture(page, "e2e/runs-notebook-one-rank");
  assert.deepEqual(faults, []);
});

test("a run that fails says how, and is done again", { timeout: 400_000 }, async (t) => {
  const { page, faults } = await signedIn(t, "ada", STILL);
  await page.goto("/runs/new");
  await fill(page, `${FOLDER}/fails.py`);
  await send(page);
  const id = await begun(t, page);
  await shows(page, id, "failed");
  await page.locator(".state-line", { hasText: "The program ended with exit status 3. The log may say why." }).waitFor();
  assert.equal(await fact(page, "Exit status").innerText(), "3");
  await log(page).getByText("about to fail").waitFor();
  await pictures(page, "runs-failed");

  await page.getByRole("link", { name: "Requeue" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("It is started anew with everything as it was.").waitFor();
  assert.deepEqual(await accessibility(page), []);
  await picture(page, "e2e/runs-requeue");
  await dialog.getByRole("button", { name: "Requeue it" }).click();
  await page.waitForURL((url) => url.search.includes("done=requeued") && !url.pathname.includes(id));
  const again = await begun(t, page);
  await page.getByText("This is the new run.").waitFor();
  await shows(page, again, "failed");
  await fact(page, "Repeats").getByRole("link").click();
  await page.waitForURL(new RegExp(id));
  await fact(page, "Requeued as").getByRole("link").click();
  await page.waitForURL(new RegExp(again));
  assert.deepEqual(faults, []);
});

test("a run is cancelled after one more question, and grace does not learn of it", { timeout: 400_000 }, async (t) => {
  const { page, faults } = await signedIn(t, "ada", STILL);
  await page.goto("/runs/new");
  await fill(page, `${FOLDER}/waits.py`);
  await page.getByLabel("Name", { exact: true }).fill("Mine alone");
  await send(page);
  const id = await begun(t, page);
  await log(page).getByText("waits").waitFor({ timeout: PATIENCE_MS });

  const grace = await signedIn(t, "grace");
  const told = async (address) => {
    const answer = await grace.page.goto(address);
    const main = await grace.page.locator("main").innerText();
    assert.ok(!main.includes("Mine alone"), address);
    // The number to give is another one each time.
    return `${answer.status()} ${main.replaceAll(/[0-9a-f-]{32,36}/g, "NUMBER")}`;
  };
  const pages = ["", "/log", "/cancel", "/requeue"];
  const addresses = (id) => [...pages.map((page) => `/runs/${id}${page}`), `/fragments/runs/${id}`, `/sessions/${id}`];
  const nobodys = addresses("0".repeat(32));
  for (const [place, address] of addresses(id).entries()) {
    const there = await told(address);
    assert.match(there, /^404/);
    assert.equal(there, await told(nobodys[place]));
  }

  const cancel = () => page.locator(".head").getByRole("link", { name: "Cancel" }).click();
  const dialog = page.getByRole("dialog");
  await cancel();
  await dialog.waitFor();
  assert.deepEqual(await accessibility(page), []);
  await picture(page, "e2e/runs-cancel");
  await dialog.getByRole("button", { name: "Go back" }).click();
  await dialog.waitFor({ state: "hidden" });
  await shows(page, id, "running");
  await cancel();
  await dialog.getByRole("button", { name: "Cancel the run" }).click();
  await page.waitForURL(/done=cancelling/);
  await shows(page, id, "ended");
  await page.goto("/runs");
  await page.locator(`[data-session="${id}"][data-state="ended"]`).waitFor();
  await pictures(page, "runs-list");
  assert.deepEqual(faults, []);
});

test("what cannot be is said at its field, and nothing typed is lost", async (t) => {
  const { page } = await signedIn(t, "ada", STILL);
  await page.goto("/runs/new");
  const wrong = async (name, sentence) => {
    await send(page);
    await page.getByRole("alert").waitFor();
    assert.equal(await page.locator(`#e-${name}`).innerText(), sentence);
    assert.equal(await page.locator(`#f-${name}`).getAttribute("aria-invalid"), "true");
    assert.deepEqual(await accessibility(page), []);
    await page.getByRole("alert").getByRole("link").first().click();
    assert.equal(await page.evaluate(() => document.activeElement.id), `f-${name}`);
  };
  await fill(page, "", { args: "one\ntwo" });
  await wrong("file", "A path of 1 to 4096 printable characters that does not end in “/”.");
  assert.equal(await page.getByLabel("Arguments").inputValue(), "one\ntwo");
  await page.getByLabel("File", { exact: true }).fill("a.ipynb");
  await wrong("arguments", "A notebook takes no arguments.");
  await page.getByLabel("Arguments").fill("");
  await page.getByLabel("Ranks", { exact: true }).fill("4");
  await wrong("ranks", "A notebook is one process: its cells start ranks.");
  await page.getByLabel("File", { exact: true }).fill("a.py");
  await page.getByLabel("Ranks", { exact: true }).fill("99");
  await page.getByText("More choices").click();
  await page.getByLabel("Nodes", { exact: true }).fill("2");
  await wrong("ranks", "99 ranks are more than the 2 processors of 2 × 1: ask for 2 at most, or for more nodes or CPUs.");
  await pictures(page, "runs-wrong");
});
