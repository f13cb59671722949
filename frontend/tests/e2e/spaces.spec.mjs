// The pages of spaces on the demo cluster: an admin makes one for a group of ada's alone, she uses it, grace never hears of it, and it is taken
// away and comes back with what is in it.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, test } from "node:test";

import { pictures } from "../browser.mjs";
import { inside } from "./cluster.mjs";
import { PATIENCE_MS, closeBrowser, signedIn } from "./demo.mjs";

after(closeBrowser);

// The group that everybody's user database has for one person: nobody else is in ada's.
const GROUP = "ada";
const STILL = { reducedMotion: "reduce" };
const fresh = () => `moons-${randomBytes(6).toString("hex")}`;
const adminPage = (name) => `/admin/storage/spaces/${name}`;

/** Loads an address again until the page shows this: the admins' pages do not change by themselves. */
async function loadedUntil(page, address, what, shown) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    await page.goto(address);
    if (await shown()) return;
    assert.ok(Date.now() < end, `not within ${PATIENCE_MS / 1000} s: ${what}; the page says ${await page.locator("main").innerText()}`);
    await new Promise((go) => setTimeout(go, 500));
  }
}

/** Waits until the admins' page of a space has this chip beside its title; none for a space that is simply there. */
const stands = (page, name, chip) =>
  loadedUntil(page, adminPage(name), `${name} is ${chip ?? "there"}`, async () => {
    const chips = await page.locator(".head .chip").allInnerTexts();
    return chip ? chips.includes(chip) : chips.length === 0;
  });

/** Fills the making form in, with the mouse. */
async function make(page, name, { title, ends } = {}) {
  await page.goto("/admin/storage/spaces");
  await page.getByLabel("Root", { exact: true }).selectOption("project");
  await page.getByLabel("Name", { exact: true }).fill(name);
  await page.getByLabel("Group", { exact: true }).fill(GROUP);
  if (title) await page.getByLabel("Title", { exact: true }).fill(title);
  if (ends) await page.getByLabel("Ends on", { exact: true }).fill(ends);
  await page.getByRole("button", { name: "Make a space" }).click();
  await page.waitForURL((url) => url.pathname === adminPage(name));
}

async function takeAway(page, name) {
  await page.goto(adminPage(name));
  await page.getByRole("link", { name: "Take away" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Take away" }).click();
  await page.waitForURL(/done=space_retiring/);
  await stands(page, name, "Taken away");
}

async function bringBack(page, name) {
  await page.goto(adminPage(name));
  await page.getByRole("button", { name: "Bring back" }).click();
  await page.waitForURL(/done=space_restoring/);
  await stands(page, name);
}

/** Does `work` with a space that is there, and has it taken away afterwards, whatever became of that. */
async function withSpace(page, name, wish, work) {
  await make(page, name, wish);
  try {
    await stands(page, name);
    await work();
  } finally {
    await page.goto(adminPage(name));
    if (await page.getByRole("link", { name: "Take away" }).isVisible()) await takeAway(page, name);
  }
}

/** The status of an address, asked for by the page's own person. */
const status = (page, address) => page.evaluate((place) => fetch(place).then((answer) => answer.status), address);

const card = (page, title) => page.locator("article", { has: page.getByRole("link", { name: title, exact: true }) });

test("a space is made, used, taken away and brought back, and is its group's alone", { timeout: 600_000 }, async (t) => {
  const admin = await signedIn(t, "admin", STILL);
  const ada = await signedIn(t, "ada", STILL);
  const grace = await signedIn(t, "grace", STILL);
  const name = fresh();
  const title = `Moons ${name.slice(-4)}`;
  await withSpace(admin.page, name, { title }, async () => {
    await admin.page.getByText("The group ada's").waitFor();
    await pictures(admin.page, "spaces-admin-space");
    await admin.page.goto("/admin/storage/spaces");
    await admin.page.getByRole("rowheader", { name, exact: true }).waitFor();
    await pictures(admin.page, "spaces-admin");

    // Ada finds it in her list with what it uses, or with what the storage can say of it, and where her sessions see it.
    const numbers = / of |without a limit|are free on the whole file system/;
    await loadedUntil(ada.page, "/spaces", "the space was looked at", async () => numbers.test(await card(ada.page, title).innerText()));
    await card(ada.page, title).getByText(`/project/${name}`).waitFor();
    await pictures(ada.page, "spaces-mine");
    await card(ada.page, title).getByRole("link", { name: title, exact: true }).click();
    await ada.page.getByRole("heading", { level: 1, name: title }).waitFor();
    await pictures(ada.page, "spaces-one");
    const startForm = async (page) => {
      await page.goto("/sessions/new");
      const told = page.locator("section", { has: page.getByRole("heading", { name: "What it sees of your data" }) });
      return await told.innerText();
    };
    assert.ok((await startForm(ada.page)).includes(`/project/${name}`));
    assert.ok(!(await startForm(grace.page)).includes(name), "and what grace starts sees nothing of it");
    await pictures(ada.page, "start");
    await ada.page.goto(`/spaces/${name}`);

    await ada.page.getByRole("link", { name: `Browse ${title}` }).click();
    await ada.page.waitForURL((url) => url.pathname === `/spaces/${name}/files`);
    const file = { name: "orbits.csv", mimeType: "text/csv", buffer: Buffer.from("io,42\n") };
    await ada.page.locator('input[type="file"]').first().setInputFiles(file);
    await ada.page.locator("tbody tr", { hasText: "orbits.csv" }).first().waitFor({ timeout: PATIENCE_MS });
    assert.equal(inside("c1", ["cat", `/shared/project/${name}/orbits.csv`], "ada"), "io,42\n");
    await pictures(ada.page, "spaces-files");

    // For grace there is no such thing, and an address that is hers to guess says what any other wrong one says.
    await grace.page.goto("/spaces");
    await grace.page.getByRole("heading", { level: 1, name: "My spaces" }).waitFor();
    const says = await grace.page.content();
    assert.ok(!says.includes(name) && !says.includes(title), "her list has nothing of it");
    const missing = async (space) => {
      const told = [];
      for (const below of ["", "/files", "/trash", "/sizes"]) {
        const answer = await grace.page.goto(`/spaces/${space}${below}`);
        assert.equal(answer.status(), 404, below);
        // Each answer has a number of its own.
        told.push((await grace.page.locator("main").innerText()).replace(/[0-9a-f]{32}/g, "NUMBER"));
      }
      return told;
    };
    const told = await missing(name);
    assert.deepEqual(told, await missing(fresh()), "what she may not see and what is not there are told alike");
    assert.ok(!told.join().includes(title) && !told.join().includes("orbits"));
    const content = `/live/spaces/${name}/files/content?path=orbits.csv`;
    assert.equal(await status(grace.page, content), 404);
    assert.equal(await status(ada.page, content), 200);

    await takeAway(admin.page, name);
    await pictures(admin.page, "spaces-admin-taken-away");
    await loadedUntil(ada.page, `/spaces/${name}`, "ada reads that it was taken away", () => ada.page.getByText("It was taken away on").isVisible());
    assert.equal(await ada.page.getByRole("link", { name: /^Browse/ }).count(), 0);
    await pictures(ada.page, "spaces-taken-away");
    assert.notEqual(await status(ada.page, content), 200);
    assert.equal((await grace.page.goto(`/spaces/${name}`)).status(), 404);

    await bringBack(admin.page, name);
    await ada.page.goto(`/spaces/${name}/files`);
    await ada.page.locator("tbody tr", { hasText: "orbits.csv" }).first().waitFor();
    assert.equal(inside("c2", ["cat", `/shared/project/${name}/orbits.csv`], "ada"), "io,42\n");
    assert.deepEqual(admin.faults, []);
  });
});

test("a policy on trial says what would be done and does nothing", { timeout: 300_000 }, async (t) => {
  const { page, faults } = await signedIn(t, "admin", STILL);
  const name = fresh();
  // The beginning of the day after tomorrow: its people would have been told fourteen days and three days before.
  const ends = new Date(Date.now() + 2 * 24 * 3600 * 1000).toISOString().slice(0, 10);
  await withSpace(page, name, { ends }, async () => {
    inside("c1", ["sh", "-c", 'echo kept > "/shared/project/$1/kept"', "sh", name], "ada");
    await page.getByRole("link", { name: "What would the policy do?" }).click();
    await page.getByRole("heading", { level: 1, name: "What would the policy do?" }).waitFor();
    await loadedUntil(page, `${adminPage(name)}/policy`, "the policy would tell its people", async () => {
      const now = await page.locator("section", { has: page.getByRole("heading", { name: "Now", exact: true }) }).innerText();
      return now.includes("Would be done") && now.includes("Tell its people.");
    });
    await pictures(page, "spaces-admin-policy");
    await stands(page, name);
    assert.equal(inside("c1", ["cat", `/shared/project/${name}/kept`], "ada"), "kept\n");
  });
  assert.deepEqual(faults, []);
});

test("a space is made by keyboard alone, also after a slip", { timeout: 300_000 }, async (t) => {
  const { page } = await signedIn(t, "admin", STILL);
  const name = fresh();
  const tabTo = async (what, wanted) => {
    // Every row of the list is a link on the way.
    for (let n = 0; n < 160; n += 1) {
      await page.keyboard.press("Tab");
      if (await page.evaluate(wanted)) return;
    }
    assert.fail(`the key Tab does not lead to ${what}`);
  };
  const type = async (field, text) => {
    await tabTo(field, `document.activeElement.id === "f-${field}"`);
    await page.keyboard.press("Control+a");
    await page.keyboard.type(text);
  };
  const send = async () => {
    await tabTo("the button", 'document.activeElement.matches("main button[type=submit]")');
    await page.keyboard.press("Enter");
  };
  await page.goto("/admin/storage/spaces");
  await tabTo("the root", 'document.activeElement.id === "f-root"');
  await page.keyboard.type("Projects");
  // A name that would mean one's own home is nobody's to give.
  await type("name", "home-moons");
  await type("group", GROUP);
  await type("title", "By keyboard");
  await send();
  const alert = page.getByRole("alert").filter({ hasText: "Please look at this again" });
  await alert.waitFor();
  assert.ok(await alert.evaluate((element) => element === document.activeElement), "one is led to what is wrong");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "f-name");
  assert.equal(await page.getByLabel("Group", { exact: true }).inputValue(), GROUP, "what was right is kept");
  await pictures(page, "spaces-admin-slip");
  await page.keyboard.press("Control+a");
  await page.keyboard.type(name);
  await send();
  await page.waitForURL((url) => url.pathname === adminPage(name));
  await stands(page, name);
  await page.getByRole("heading", { level: 1, name: "By keyboard" }).waitFor();

  // And taken away: the dialog takes the keyboard, its first answer is no.
  await tabTo("taking it away", 'document.activeElement.textContent.trim() === "Take away"');
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await tabTo("yes", 'document.activeElement.closest("dialog") !== null && document.activeElement.textContent.trim() === "Take away"');
  await page.keyboard.press("Enter");
  await page.waitForURL(/done=space_retiring/);
  await stands(page, name, "Taken away");
});
