// Forms: what is wrong is said at the field, nothing typed is lost but the password, one click starts one thing.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import { SIZES, accessibility, listen, picture, tooWide } from "../browser.mjs";
import { PATIENCE_MS, apiStatus, closeBrowser, person, sessionId, shows, signedIn, started, startSession, visitor } from "./demo.mjs";
import { asAda, idle, loadExtension, notebook, openLab, putFile, says } from "./lab.mjs";

after(closeBrowser);

/** Fills fields in, each by its label. */
async function fill(page, values) {
  for (const [label, value] of Object.entries(values)) await page.getByLabel(label, { exact: true }).fill(value);
}

/** Fills the start form in for the smallest session, with scratch on its node and what is to be copied there and back. */
async function fillWithScratch(page, name, copies) {
  await page.goto("/sessions/new");
  await fill(page, { Name: name, CPUs: "1", Memory: "1", Hours: "0", Minutes: "20" });
  await page.getByText("More choices").click();
  await page.getByLabel("Where it is", { exact: true }).selectOption("On each node's own disk");
  await fill(page, copies);
}

test("a wrong password keeps the name, says nothing more, and is not sent back", async (t) => {
  const context = await visitor(t);
  const page = await context.newPage();
  const faults = listen(page, (text) => text.includes("401"));
  await page.goto("/login?next=/account");
  assert.deepEqual(await accessibility(page), []);
  await picture(page, "e2e/login");
  await page.getByLabel("User name").fill("ada");
  await page.getByLabel("Password").fill("certainly wrong");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("alert").waitFor();
  assert.deepEqual(await accessibility(page), []);
  assert.equal(await page.getByLabel("User name").inputValue(), "ada");
  assert.equal(await page.getByLabel("Password").inputValue(), "");
  assert.ok(!(await page.content()).includes("certainly wrong"));
  await page.getByLabel("Password").fill(person("ada").password);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("heading", { level: 1, name: "My account" }).waitFor();
  assert.deepEqual(faults, []);
});

test("a page asks for the log-in and comes back to it; another host is never gone to", async (t) => {
  const context = await visitor(t);
  const page = await context.newPage();
  await page.goto("/sessions/new");
  assert.match(page.url(), /\/login\?next=%2Fsessions%2Fnew$/);
  for (const next of ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"]) {
    await page.goto(`/login?next=${encodeURIComponent(next)}`);
    assert.equal(await page.locator('input[name="next"]').inputValue(), "/", next);
  }
});

test("the start form names the fields of what cannot be, live and when sent", async (t) => {
  const { page, faults } = await signedIn(t, "ada");
  await page.goto("/sessions/new");
  for (const [size, viewport] of Object.entries(SIZES)) {
    await page.setViewportSize(viewport);
    assert.deepEqual(await tooWide(page), []);
    await picture(page, `e2e/start-${size}`);
  }
  assert.deepEqual(await accessibility(page), []);
  await page.getByText(/^(There is room for this now|This fits, but you may have to wait)/).waitFor();
  await page.getByLabel("CPUs").fill("1000000000");
  const verdict = page.locator("[data-verdict]");
  await verdict.getByText("This cannot run here").waitFor();
  await verdict.getByRole("link", { name: /^CPUs:/ }).click();
  assert.equal(await page.evaluate(() => document.activeElement.id), "f-cpus");

  faults.length = 0;
  await page.getByLabel("Name", { exact: true }).fill("'; $(id) <script>alert(1)</script>");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.getByRole("alert").waitFor();
  assert.equal(await page.getByLabel("CPUs").getAttribute("aria-invalid"), "true");
  assert.equal(await page.getByLabel("Name", { exact: true }).inputValue(), "'; $(id) <script>alert(1)</script>");
  assert.deepEqual(await accessibility(page), []);
  await picture(page, "e2e/start-errors");
  assert.deepEqual(faults.filter((fault) => !fault.includes("422")), []);
});

test("fast scratch: a slip loses nothing, and the session's page says what could not be copied there", { timeout: 180_000 }, async (t) => {
  const { page } = await signedIn(t, "ada");
  const gone = `not-there-${Date.now()}`;
  const wanted = {
    "Room it needs": "0.5",
    "Copy there first": `home:${gone}=train`,
    "Copy back at the end": `results=home:${gone}/results\nlog=home:${gone}/log`,
    "Copy back after a good end": `best=home:${gone}/best`,
  };
  const slips = { ...wanted, "Copy there first": `home:${gone}`, "Copy back after a good end": `best=home:../${gone}` };
  const field = (label) => page.getByLabel(label, { exact: true });
  const filled = async () => {
    const values = Object.keys(wanted).map(async (label) => [label, await field(label).inputValue()]);
    return [await field("Where it is").inputValue(), Object.fromEntries(await Promise.all(values))];
  };
  await fillWithScratch(page, "Fills its scratch", slips);
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.getByRole("alert").waitFor();
  assert.deepEqual(await filled(), ["node", slips]);
  const wrong = await page.locator("[aria-invalid]").evaluateAll((all) => all.map((one) => one.name));
  assert.deepEqual(wrong, ["stage_in", "stage_out_success"]);
  assert.deepEqual(await accessibility(page), []);
  await picture(page, "e2e/start-scratch-errors");

  await fill(page, wanted);
  await page.getByRole("button", { name: "Start", exact: true }).click();
  const id = await started(t, page);
  await shows(page, id, "failed");
  const said = new RegExp(`Nothing was started, because the fast scratch could not be filled: .*home:${gone}.* it is not there`);
  await page.getByRole("main").getByText(said).first().waitFor();
  await picture(page, "e2e/session-scratch");
  await page.getByRole("link", { name: "Start again" }).click();
  await page.getByRole("heading", { level: 1, name: "Start a session" }).waitFor();
  assert.deepEqual(await filled(), ["node", wanted], "what it asked for is not lost either");
});

// May be run any number of times: by its first line the test tells whether the kernel hears.
const WORKS_IN_SCRATCH = `%load_ext autoreload
import pathlib
found = pathlib.Path("/local/train/moons.txt").read_text()
results = pathlib.Path("/local/results")
results.mkdir(exist_ok=True)
(results / "moons.txt").write_text(found.upper())
print("the scratch has", found)`;

test("fast scratch: the app works on what was copied there, and the file browser has what came of it", { timeout: 300_000 }, async (t) => {
  const folder = `scratch-e2e-${Date.now()}`;
  asAda("mkdir", "-p", `${folder}/train`);
  t.after(() => asAda("rm", "-rf", folder));
  putFile(`${folder}/train/moons.txt`, "io and europa");
  putFile(`${folder}/work.ipynb`, notebook(WORKS_IN_SCRATCH));
  const { context, page, faults } = await signedIn(t, "ada");
  await fillWithScratch(page, "Works in its scratch", {
    "Room it needs": "0.5",
    "Copy there first": `home:${folder}/train=train`,
    "Copy back at the end": `results=home:${folder}/results`,
    "Copy back after a good end": `results/moons.txt=home:${folder}/best.txt`,
  });
  await page.getByRole("button", { name: "Start", exact: true }).click();
  const id = await started(t, page);
  // Its page says what was copied there; nothing runs before that, and then there is nothing more to say of the scratch.
  await shows(page, id, "running");
  await page.locator("pre.log", { hasText: `copied \`home:${folder}/train\` to the scratch: 1 file` }).waitFor({ timeout: PATIENCE_MS });
  const ofScratch = page.locator("main .free-item p", { hasText: "scratch" }).first();
  await ofScratch.waitFor({ state: "detached", timeout: PATIENCE_MS });

  const lab = await context.newPage();
  await openLab(lab, id, `/lab/tree/${folder}/work.ipynb?reset`);
  await idle(lab);
  await loadExtension(lab);
  await says(lab, "%load_ext", "the scratch has io and europa");
  await lab.close();

  await page.goto(`/sessions/${id}/stop`);
  await page.getByRole("button", { name: "Stop the session" }).click();
  await shows(page, id, "ended");
  await ofScratch.waitFor({ state: "detached", timeout: PATIENCE_MS });
  for (const [place, name] of [[`${folder}/results`, "moons.txt"], [folder, "best.txt"]]) {
    await page.goto(`/spaces/home/files?path=${place}`);
    await page.locator("tbody tr", { hasText: name }).getByRole("link", { name }).first().click();
    await page.locator(".preview-place").getByText("IO AND EUROPA").waitFor();
  }
  await picture(page, "e2e/scratch-came-back");
  assert.deepEqual(faults, []);
});

test("a double click starts one session", { timeout: 120_000 }, async (t) => {
  const { page } = await signedIn(t, "ada");
  const name = `Twice ${Date.now()}`;
  await page.goto("/sessions/new");
  const form = await page.locator("form[data-check]").evaluate((form, name) => {
    form.elements.name.value = name;
    form.elements.cpus.value = "1";
    form.elements.memory_gib.value = "1";
    return new URLSearchParams(new FormData(form)).toString();
  }, name);
  // What two quick clicks send when nothing in the browser holds the second one back.
  const send = () =>
    page.evaluate(async (body) => {
      const answer = await fetch("/sessions", { method: "POST", body: new URLSearchParams(body) });
      return [answer.status, new URL(answer.url).pathname];
    }, form);
  const [[first, one], [second, two]] = await Promise.all([send(), send()]);
  assert.deepEqual([first, second], [200, 200]);
  assert.equal(one, two);
  await page.goto("/");
  assert.equal(await page.getByRole("link", { name, exact: true }).count(), 1);
  await page.goto(`${one}/stop`);
  await page.getByRole("button", { name: "Stop the session" }).click();
  assert.equal(`/sessions/${sessionId(page)}`, one);
});

test("a ready-made size starts with one click, and an ended session starts again", { timeout: 120_000 }, async (t) => {
  const { page } = await signedIn(t, "grace");
  await page.goto("/");
  await page.getByRole("button", { name: /^Small/ }).click();
  await page.waitForURL(/\/sessions\/[0-9a-f]{32}/);
  const id = sessionId(page);
  await page.goto(`/sessions/${id}/stop`);
  await page.getByRole("button", { name: "Stop the session" }).click();
  await page.getByRole("link", { name: "Start again" }).click({ timeout: 60_000 });
  await page.getByRole("heading", { level: 1, name: "Start a session" }).waitFor();
  assert.equal(await page.getByLabel("CPUs").inputValue(), "2");
});

test("a form that was not made for this log-in is refused", async (t) => {
  const { page } = await signedIn(t, "ada");
  await page.goto("/sessions/new");
  await page.locator('form[data-check] input[name="csrf"]').evaluate((field) => (field.value = "forged"));
  const [answer] = await Promise.all([
    page.waitForResponse((response) => response.request().method() === "POST" && response.url().endsWith("/sessions")),
    page.getByRole("button", { name: "Start", exact: true }).click(),
  ]);
  assert.equal(answer.status(), 403);
  await page.getByText("If you ask for help, give this number").waitFor();
});

test("an API token is shown once, works, and is gone when deleted", async (t) => {
  const { page } = await signedIn(t, "ada");
  const name = `laptop ${Date.now()}`;
  await page.goto("/account");
  assert.deepEqual(await accessibility(page), []);
  await page.getByLabel("Name", { exact: true }).fill(name);
  await page.getByRole("button", { name: "Make the token" }).click();
  const token = (await page.locator("#new-token").innerText()).trim();
  await picture(page, "e2e/account");
  assert.equal(await apiStatus("/api/v1/me", token), 200);
  await page.goto("/account");
  assert.ok(!(await page.content()).includes(token));
  await page.getByRole("row", { name: new RegExp(name) }).getByRole("link", { name: /^Delete/ }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("The token was deleted.").waitFor();
  assert.equal(await apiStatus("/api/v1/me", token), 401);
});

test("logging out ends it, in every tab", async (t) => {
  const { page, context } = await signedIn(t, "ada");
  const other = await context.newPage();
  await other.goto("/account");
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByText("You are logged out.").waitFor();
  await other.goto("/account");
  await other.getByRole("heading", { name: "Log in to Eirene" }).waitFor();
});

test("everything can be reached with the keyboard", { timeout: 120_000 }, async (t) => {
  const { page } = await signedIn(t, "ada");
  await startSession(t, page, "By keyboard");
  await page.goto("/");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to content");
  const wanted = new Set(await page.locator("a[href]:visible, button:visible").evaluateAll((all) => all.map((e) => e.textContent.trim())));
  const reached = new Set();
  for (let n = 0; n < 120 && reached.size < wanted.size; n += 1) {
    const at = await page.evaluate(() => {
      const element = document.activeElement;
      const ring = getComputedStyle(element);
      return { text: element.textContent.trim(), ring: ring.outlineStyle !== "none" && parseFloat(ring.outlineWidth) >= 2 };
    });
    if (wanted.has(at.text)) {
      assert.ok(at.ring, `${at.text} shows where the keyboard is`);
      reached.add(at.text);
    }
    await page.keyboard.press("Tab");
  }
  assert.deepEqual([...wanted].filter((text) => !reached.has(text)), []);
});
