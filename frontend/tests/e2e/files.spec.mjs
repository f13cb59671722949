// The file browser on the demo cluster, as ada: what lies in her home is what she sees, an upload survives a broken-off connection, the trash
// gives back what it got, and nothing that somebody else could have put there runs.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { after, test } from "node:test";

import { until } from "./cluster.mjs";
import { closeBrowser, signedIn } from "./demo.mjs";
import { asAda } from "./lab.mjs";

after(closeBrowser);

const EVIL = "<img src=x onerror=window.pwned=1>";
const MIB = 1024 * 1024;

/** A folder of this test's own in ada's home, removed when it is over. */
function folderOf(t) {
  const name = `files-e2e-${randomBytes(6).toString("hex")}`;
  const shell = (script, ...words) => asAda("sh", "-c", `cd "$0" && ${script}`, name, ...words);
  asAda("mkdir", name);
  t.after(() => asAda("rm", "-rf", name));
  return { name, shell, href: `/spaces/home/files?path=${name}` };
}

/** The row of this name. */
const row = (page, name) => page.locator("tbody tr", { has: page.locator("bdi", { hasText: name }) });

test("names that are no friends are text, and what is in files runs nothing", async (t) => {
  const folder = folderOf(t);
  folder.shell('printf "<script>window.pwned=1</script>" > page.html && : > "$1" && : > "$2"', EVIL, "two\nlines");
  const { page, faults } = await signedIn(t, "ada");
  await page.addInitScript(() => {
    globalThis.pwned = undefined;
  });
  await page.goto(folder.href);
  for (const shown of [EVIL, "two\u240alines", "page.html"]) await row(page, shown).first().waitFor();
  await row(page, "page.html").getByRole("link", { name: "page.html" }).first().click();
  await page.locator(".preview-place").getByText("<script>window.pwned=1</script>").waitFor();
  assert.equal(await page.evaluate(() => globalThis.pwned), undefined);
  // Its bytes are saved, whoever asks for them.
  const href = `/live/spaces/home/files/content?path=${folder.name}/page.html`;
  const headers = await page.evaluate((place) => fetch(place).then((answer) => Object.fromEntries(answer.headers)), href);
  assert.match(headers["content-disposition"], /^attachment/);
  assert.equal(headers["content-type"], "application/octet-stream");
  assert.match(headers["content-security-policy"], /^sandbox/);
  assert.deepEqual(faults, []);
});

test("an upload goes on after a broken-off connection, and is what was sent", async (t) => {
  const folder = folderOf(t);
  const bytes = randomBytes(40 * MIB);
  const { page } = await signedIn(t, "ada");
  await page.goto(folder.href);
  let pieces = 0;
  let heads = 0;
  await page.route("**/live/uploads/*", (route) => {
    if (route.request().method() === "HEAD") heads += 1;
    if (route.request().method() !== "PATCH") return route.continue();
    pieces += 1;
    return pieces === 2 ? route.abort("connectionreset") : route.continue();
  });
  await page.locator('input[type="file"]').first().setInputFiles({ name: "big.bin", mimeType: "application/octet-stream", buffer: bytes });
  await row(page, "big.bin").first().waitFor({ timeout: 90_000 });
  assert.ok(pieces === 3 && heads === 1, `${pieces} pieces, asked ${heads} times how far it was`);
  const sum = createHash("sha256").update(bytes).digest("hex");
  await until("the node sees the same bytes", () => folder.shell("sha256sum big.bin").startsWith(sum));
  assert.deepEqual(await page.evaluate(() => Object.keys(localStorage).filter((key) => key.startsWith("eirene-upload"))), []);
});

test("a folder is made, renamed, thrown away and taken back", async (t) => {
  const folder = folderOf(t);
  const { page, faults } = await signedIn(t, "ada");
  await page.goto(folder.href);
  await page.getByText("New folder").click();
  await page.getByLabel("Its name").fill(EVIL.replace("<img", "<b"));
  await page.getByRole("button", { name: "Make it" }).click();
  const old = EVIL.replace("<img", "<b");
  await row(page, old).getByRole("checkbox").check();
  await page.getByRole("button", { name: "Rename" }).click();
  await page.getByRole("dialog").getByLabel("New name").fill("results");
  await page.getByRole("dialog").getByRole("button", { name: "Rename" }).click();
  await row(page, "results").first().waitFor();
  await row(page, "results").getByRole("checkbox").check();
  await page.getByRole("button", { name: "Move to the trash" }).click();
  await page.getByText("In the trash now: 1.").waitFor();
  assert.equal(folder.shell("ls").trim(), "");
  await page.goto("/spaces/home/trash");
  const path = `${folder.name}/results`;
  await row(page, path).getByRole("button", { name: "Put it back" }).click();
  await page.getByText("It is back.").waitFor();
  assert.equal(folder.shell("ls").trim(), "results");
  assert.deepEqual(faults, []);
});

test("grace does not find ada's files, by no address", async (t) => {
  const folder = folderOf(t);
  folder.shell("echo secret > secret.txt");
  const { page } = await signedIn(t, "grace");
  for (const place of ["/spaces/home-ada/files", `/spaces/home-ada/files?path=${folder.name}`, "/spaces/home-ada/trash"]) {
    const answer = await page.goto(place);
    assert.equal(answer.status(), 404, place);
    assert.ok(!(await page.content()).includes("secret"));
  }
  const status = (place) => page.evaluate((address) => fetch(address).then((answer) => answer.status), place);
  assert.equal(await status(`/live/spaces/home-ada/files/content?path=${folder.name}/secret.txt`), 404);
  assert.equal(await status(`/live/spaces/home/files/content?path=../ada/${folder.name}/secret.txt`), 422);
});
