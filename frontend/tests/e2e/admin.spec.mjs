// What admins see, and that nobody else does.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import { SIZES, accessibility, picture, tooWide } from "../browser.mjs";
import { resume, until } from "./cluster.mjs";
import { closeBrowser, shows, signedIn, startSession } from "./demo.mjs";

const PAGES = {
  people: "/admin/users",
  sessions: "/admin/sessions",
  alerts: "/admin/alerts?show=all",
  nodes: "/admin/nodes",
  health: "/admin/health",
  efficiency: "/admin/efficiency",
  storage: "/admin/storage",
  quotas: "/admin/storage/quotas?first=2001",
  node: "/admin/nodes/c1",
  audit: "/admin/audit",
};

after(closeBrowser);

test("the admin pages are whole, at the desk and on the phone", { timeout: 120_000 }, async (t) => {
  const { page, faults } = await signedIn(t, "admin");
  for (const [name, address] of Object.entries(PAGES)) {
    for (const [size, viewport] of Object.entries(SIZES)) {
      await page.setViewportSize(viewport);
      await page.goto(address);
      assert.deepEqual(await tooWide(page), [], address);
      assert.deepEqual(await accessibility(page), [], address);
      await picture(page, `e2e/admin-${name}-${size}`);
    }
  }
  await page.setViewportSize(SIZES.desk);
  await page.goto("/admin/nodes");
  for (const node of ["c1", "c2"]) await page.getByRole("rowheader", { name: node, exact: true }).waitFor();
  await page.goto("/admin/audit?action=login&actor=admin");
  await page.getByRole("cell", { name: "login", exact: true }).first().waitFor();
  assert.deepEqual(faults, []);
});

test("for everybody else there is nothing there", async (t) => {
  const { page } = await signedIn(t, "ada");
  for (const address of [...Object.values(PAGES), "/admin/users/grace/disable", "/fragments/admin/sessions"]) {
    const answer = await page.goto(address);
    assert.equal(answer.status(), 404, address);
  }
  await page.goto("/");
  assert.equal(await page.getByRole("link", { name: "Audit log" }).count(), 0);
});

test("an admin sees and stops ada's session, cannot open it, and it is written down", { timeout: 180_000 }, async (t) => {
  const ada = await signedIn(t, "ada");
  const id = await startSession(t, ada.page, "Watched over");
  const { page } = await signedIn(t, "admin");
  await page.goto("/admin/sessions");
  await page.locator(`[data-session="${id}"]`).getByRole("link", { name: "Watched over", exact: true }).click();
  await page.getByText("This session belongs to ada.").waitFor();
  assert.equal(await page.getByRole("link", { name: /^Open/ }).count(), 0);
  assert.equal((await page.goto(`/sessions/${id}/open`)).status(), 404);
  await page.goto(`/sessions/${id}/stop`);
  await page.getByRole("button", { name: "Stop the session" }).click();
  await shows(ada.page, id, "ended");
  await page.goto("/admin/audit?actor=admin&action=session.stop");
  await page.getByRole("cell", { name: id }).first().waitFor();
});

test("a disabled person is out at once and back when enabled", async (t) => {
  const { page } = await signedIn(t, "admin");
  const grace = await signedIn(t, "grace");
  const change = async (verb) => {
    await page.goto("/admin/users");
    await page.getByRole("row", { name: /^grace/ }).getByRole("link", { name: new RegExp(`^${verb}`) }).click();
    await page.getByRole("dialog").getByRole("button", { name: verb }).click();
    await page.waitForURL(/done=/);
  };
  await change("Disable");
  try {
    await grace.page.goto("/account");
    await grace.page.getByRole("heading", { name: "Log in to Eirene" }).waitFor();
  } finally {
    await change("Enable");
  }
  const again = await signedIn(t, "grace");
  await again.page.getByRole("heading", { level: 1, name: "My sessions" }).waitFor();
});

test("a node is drained with a reason and resumed, and its page and its past say so", { timeout: 240_000 }, async (t) => {
  const { page, faults } = await signedIn(t, "admin");
  const why = `Fan <b>3</b>, ${Date.now()}`;
  const signed = `${why} (eirene: admin)`;
  /** Loads the page anew until it has this chip beside the node's name, and its past begins with these words. */
  const stands = (chip, ...words) =>
    until(`c2 is ${chip}`, async () => {
      await page.goto("/admin/nodes/c2");
      const [now] = await page.locator(".head .chip").allInnerTexts();
      const last = await page.locator("section", { has: page.getByRole("heading", { name: "What it was" }) }).locator("tbody tr").first().innerText();
      return chip.test(now) && words.every((word) => last.includes(word));
    });
  t.after(() => resume("c2"));
  await page.goto("/admin/nodes/c2");
  assert.equal(await page.getByRole("button", { name: "Resume" }).count(), 0, "it takes jobs");
  await page.getByLabel("Reason", { exact: true }).fill(why);
  await page.getByRole("button", { name: "Drain" }).click();
  await page.waitForURL(/done=node_draining/);
  await page.getByText("The scheduler takes the node out of service.").waitFor();
  await stands(/^Drain(ing|ed)$/, "Drain", signed);
  await page.locator(".lede", { hasText: signed }).waitFor();
  assert.deepEqual(await accessibility(page), []);
  await picture(page, "e2e/admin-node-drained");

  await page.getByRole("button", { name: "Resume" }).click();
  await page.waitForURL(/done=node_resuming/);
  await stands(/^(?!Drain|Down)/, "In service");
  assert.equal(await page.getByRole("button", { name: "Resume" }).count(), 0);
  await page.getByRole("row").filter({ hasText: signed }).first().waitFor();
  assert.deepEqual(faults, []);
});
