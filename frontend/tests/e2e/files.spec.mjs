// The file browser on the demo cluster, as ada: what lies in her home is what she sees, an upload survives a broken-off connection, the trash
// gives back what it got, and nothing that somebody else could have put there runs.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash, randomBytes, randomInt } from "node:crypto";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";

import { accessibility, drag, picture } from "../browser.mjs";
import { inside, until } from "./cluster.mjs";
import { PATIENCE_MS, closeBrowser, signedIn } from "./demo.mjs";
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

/** The names in an archive, as another program reads them. */
const namesIn = (module, archive) =>
  execFileSync("python3", ["-c", `import sys, ${module} as m; a = m.${module === "zipfile" ? "ZipFile(sys.argv[1]).namelist" : "open(sys.argv[1]).getnames"}; print(*sorted(a()), sep="\\n")`, archive], { encoding: "utf8" })
    .trim()
    .split("\n")
    .map((name) => name.replace(/\/$/, ""));

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

test("files and a folder are dropped from the desk, and the node sees them by the same names", async (t) => {
  const folder = folderOf(t);
  const top = await mkdtemp(path.join(tmpdir(), "eirene-drop-"));
  t.after(() => rm(top, { recursive: true, force: true }));
  await mkdir(path.join(top, "set \u{1f30d}", "empty"), { recursive: true });
  await writeFile(path.join(top, "set \u{1f30d}", "\u{1f41d}\u{20bb7}.txt"), "bee");
  await writeFile(path.join(top, "alone.txt"), "one");
  const { page, faults } = await signedIn(t, "ada");
  await page.goto(folder.href);
  const held = await drag(page, page.locator("[data-drop]"), [path.join(top, "alone.txt"), path.join(top, "set \u{1f30d}")]);
  await held.letGo();
  await row(page, "alone.txt").first().waitFor();
  await row(page, "set \u{1f30d}").first().waitFor();
  await until("the node sees all of it", () => {
    const found = folder.shell("find . -mindepth 1 | LC_ALL=C sort").trim().split("\n");
    return found.join() === ["./alone.txt", "./set \u{1f30d}", "./set \u{1f30d}/empty", "./set \u{1f30d}/\u{1f41d}\u{20bb7}.txt"].join();
  });
  assert.equal(folder.shell('cat "set \u{1f30d}/\u{1f41d}\u{20bb7}.txt"'), "bee");
  await row(page, "set \u{1f30d}").getByRole("link", { name: "set \u{1f30d}" }).first().click();
  await row(page, "\u{1f41d}\u{20bb7}.txt").first().waitFor();
  assert.deepEqual(faults, []);
});

// Two friends, and members that would like to be elsewhere.
const EVIL_TAR = `
import io, sys, tarfile
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|gz") as archive:
    for name in ["good.txt", "sub/also \\U0001f30d.txt", "../climbs.txt", "/tmp/eirene-absolute.txt"]:
        member = tarfile.TarInfo(name)
        member.size = 4
        archive.addfile(member, io.BytesIO(b"text"))
    link = tarfile.TarInfo("leads-out")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    archive.addfile(link)
`;

test("an archive is unpacked, and its evil members are named and nowhere", async (t) => {
  const folder = folderOf(t);
  const archive = execFileSync("python3", ["-c", EVIL_TAR]).toString("base64");
  folder.shell('printf %s "$1" | base64 -d > results.tar.gz && echo no archive > broken.zip', archive);
  const { page, faults } = await signedIn(t, "ada");
  await page.goto(folder.href);
  const unpack = async (name) => {
    await row(page, name).getByRole("checkbox").check();
    await page.getByRole("button", { name: "Unpack" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Unpack" }).click();
  };
  await unpack("results.tar.gz");
  await page.getByText(/Unpacked into results, without 3, the first of them/).waitFor();
  assert.deepEqual(await accessibility(page), []);
  await picture(page, "e2e/files-unpacked");
  assert.deepEqual(folder.shell("find results -type f | LC_ALL=C sort").trim().split("\n"), ["results/good.txt", "results/sub/also \u{1f30d}.txt"]);
  assert.equal(folder.shell("ls ../climbs.txt climbs.txt /tmp/eirene-absolute.txt results/leads-out 2>/dev/null || :"), "");
  await unpack("broken.zip");
  await page.getByText("it is no archive that can be unpacked here, or it is damaged").waitFor();
  assert.equal(folder.shell("ls -A").trim().split("\n").sort().join(), "broken.zip,results,results.tar.gz");
  assert.deepEqual(faults, []);
});

test("a data set for everybody is looked at and cannot be changed", async (t) => {
  const { page, faults } = await signedIn(t, "ada");
  await page.goto("/spaces/waves/files");
  await row(page, "waves.csv").first().waitFor();
  await page.getByText("you may only read here").first().waitFor();
  for (const name of ["Upload files", "Make it", "Move to the trash", "Rename"]) {
    await row(page, "fit.py").first().getByRole("checkbox").check();
    assert.equal(await page.getByRole("button", { name }).count(), 0, name);
  }
  await row(page, "fit.py").getByRole("link", { name: "fit.py" }).first().click();
  await page.locator(".preview-place").getByText("the strongest wave has").waitFor();
  assert.deepEqual(faults, []);
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

test("what is picked comes as one archive, and a checksum is what the node reckons", async (t) => {
  const folder = folderOf(t);
  folder.shell('echo one > "$1" && mkdir sub && echo two > sub/two.txt && echo no > left.txt', "one \u{1f30d}.txt");
  const { page, faults } = await signedIn(t, "ada");
  await page.goto(folder.href);
  for (const name of ["one", "sub"]) await row(page, name).first().getByRole("checkbox").check();
  await page.getByText("Picked: 2").waitFor();
  for (const [label, module] of [["Download as zip", "zipfile"], ["Download as tar", "tarfile"]]) {
    const coming = page.waitForEvent("download");
    await page.getByRole("button", { name: label }).click();
    const archive = await (await coming).path();
    assert.deepEqual(namesIn(module, archive), ["one \u{1f30d}.txt", "sub", "sub/two.txt"]);
  }
  await row(page, "left.txt").getByRole("link", { name: "left.txt" }).first().click();
  const panel = page.getByRole("dialog");
  await panel.getByRole("button", { name: "Checksum" }).click();
  await panel.getByText(`SHA-256 ${folder.shell("sha256sum left.txt").split(" ")[0]}`).waitFor();
  await picture(page, "e2e/files-checksum");
  assert.deepEqual(faults, []);
});

test("who may do what is changed line by line, and asked about where it opens a file to everybody", async (t) => {
  const folder = folderOf(t);
  folder.shell("echo mine > list.txt && chmod 600 list.txt");
  const { page, faults } = await signedIn(t, "ada");
  await page.goto(`/spaces/home/files/entry?path=${folder.name}/list.txt`);
  await page.getByRole("link", { name: "People and groups, one by one" }).click();
  await page.getByLabel("Everybody else").selectOption({ label: "Look and change" });
  await page.getByRole("button", { name: "Change permissions" }).click();
  await page.getByText("Do you mean that?").waitFor();
  assert.deepEqual(await accessibility(page), []);
  await picture(page, "e2e/files-danger");
  assert.equal(folder.shell("stat -c %a list.txt").trim(), "600", "nothing is changed before the answer");
  await page.getByLabel("Yes, change it").check();
  await page.getByRole("button", { name: "Change permissions" }).click();
  await until("everybody may change it", () => folder.shell("stat -c %a list.txt").trim() === "606");

  // One person more, by a list; what she may is what the node lets her.
  await page.goto(`/spaces/home/files/permissions?path=${folder.name}/list.txt`);
  await page.getByLabel("Everybody else").selectOption({ label: "Nothing" });
  await page.getByLabel("Their name on the cluster").fill("grace");
  await page.getByLabel("What they may").selectOption({ label: "Look" });
  await page.getByRole("button", { name: "Change permissions" }).click();
  assert.equal(await page.getByLabel("User grace").locator("option:checked").innerText(), "Look");
  await picture(page, "e2e/files-list");
  assert.match(folder.shell("ls -l list.txt"), /^-rw-r-----\+ /, "the node knows that there is a list");
  // The question is the answer to a form that was refused.
  assert.deepEqual(faults.filter((fault) => !fault.includes("422")), []);
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

/** Holds ada's file process where it is, lets it go on, or lets it go on for a moment: what is over in a second can be looked at then. */
const fileProcess = (what) => inside("portal", ["sh", "-c", `pids=$(pgrep -u ada -f eirene-files) && ${what}`]);
const hold = () => fileProcess("kill -STOP $pids");
const letGo = () => inside("portal", ["sh", "-c", "pkill -CONT -u ada -f eirene-files || :"]);
const letGoForAMoment = () => fileProcess("kill -CONT $pids && sleep 0.005; kill -STOP $pids");

test("what takes the space is measured before one's eyes, stopped and gone on with, and is one's own", { timeout: 600_000 }, async (t) => {
  const folder = folderOf(t);
  folder.shell("mkdir large small many && head -c 40M /dev/urandom > large/bytes && head -c 1M /dev/urandom > small/bytes");
  folder.shell("cd many && for one in $(seq 200); do mkdir $one && (cd $one && seq 1500 | xargs touch); done");
  const { page, faults } = await signedIn(t, "ada", { reducedMotion: "reduce" });
  const button = (name) => page.getByRole("button", { name, exact: true });
  const standing = page.locator("main section").first();
  await page.goto("/spaces/home/sizes");
  if (await button("Go on measuring").isVisible()) {
    // What a run of this test left that failed.
    await button("Go on measuring").click();
    await button("Measure again").waitFor({ timeout: PATIENCE_MS });
  }
  // With this her file process is there.
  await page.goto(folder.href);
  await row(page, "large").first().waitFor();
  t.after(letGo);
  hold();

  // By keyboard it begins.
  await page.goto(`/spaces/home/sizes?path=${folder.name}`);
  const begin = (await button("Measure").isVisible()) ? "Measure" : "Measure again";
  for (let n = 0; !(await page.evaluate((name) => document.activeElement.textContent.trim() === name, begin)); n += 1) {
    assert.ok(n < 60, "the key Tab leads to the button");
    await page.keyboard.press("Tab");
  }
  await page.keyboard.press("Enter");
  await button("Stop").waitFor();
  await page.evaluate(() => {
    globalThis.notLoadedAgain = true;
  });
  await until("the page says by itself how far it is", async () => {
    letGoForAMoment();
    return (await standing.innerText()).includes("so far");
  });
  assert.ok(await page.evaluate(() => globalThis.notLoadedAgain), "the page was not loaded again");
  assert.deepEqual(await accessibility(page), []);
  await picture(page, "e2e/sizes-running");

  await button("Stop").click();
  await page.waitForURL((url) => url.search === "");
  await button("Go on measuring").waitFor({ timeout: PATIENCE_MS });
  assert.match(await standing.innerText(), /^Measuring ended before it was over: /);
  assert.deepEqual(await accessibility(page), []);
  await picture(page, "e2e/sizes-stopped");

  // It goes on where it was begun, and everything is counted once.
  letGo();
  await button("Go on measuring").click();
  await page.waitForURL((url) => url.searchParams.get("path") === folder.name);
  await button("Measure again").waitFor({ timeout: PATIENCE_MS });
  const [, counted] = (await standing.innerText()).match(/^(.+?) files and directories/);
  assert.equal(counted.replaceAll(/\D/g, ""), "300205");
  const rows = page.locator("table.sizes tbody tr");
  const names = (await rows.locator("th").allInnerTexts()).map((name) => name.trim());
  assert.ok(names[0] === "large" && names.includes("many") && names.includes("small"), names.join());
  assert.match(await rows.first().innerText(), /\b4\d\b.*MiB/s);
  assert.deepEqual(await accessibility(page), []);
  await picture(page, "e2e/sizes-done");
  await rows.first().getByRole("link", { name: "large" }).press("Enter");
  await page.waitForURL((url) => url.searchParams.get("path") === `${folder.name}/large`);
  await page.getByText("Files directly here, and small directories").waitFor();
  assert.deepEqual(faults, []);

  const grace = await signedIn(t, "grace");
  for (const address of ["/spaces/home-ada/sizes", `/spaces/home-ada/sizes?path=${folder.name}`, `/fragments/spaces/home-ada/sizes?path=${folder.name}`]) {
    assert.equal((await grace.page.goto(address)).status(), 404, address);
  }
});

test("a home that the storage does not count is measured by its person, and its page says what came of it and when", { timeout: 300_000 }, async (t) => {
  // Nothing of grace's is at work now: what goes while it is measured could not be looked at, and then the sum does not count.
  const asGrace = (script, ...words) => inside("c1", ["sh", "-c", `cd /home/grace && ${script}`, "sh", ...words], "grace");
  const name = `measured-e2e-${randomBytes(6).toString("hex")}`;
  t.after(() => asGrace('rm -rf "$1"', name));
  // Another number each time, so that what an earlier run measured is told from this.
  asGrace('mkdir "$1" && cd "$1" && seq "$2" | xargs touch', name, `${randomInt(100, 900)}`);
  const number = asGrace("find . -mindepth 1 | wc -l").trim();

  const { page, faults } = await signedIn(t, "grace", { reducedMotion: "reduce" });
  const usage = page.locator("section.space");
  await page.goto("/spaces/home");
  await usage.getByText(/^As of/).waitFor({ timeout: PATIENCE_MS });
  const said = await usage.innerText();
  if (!said.includes("The storage does not say how much you use.")) return t.skip("the storage of this machine counts what is in homes");
  if (!said.includes("Measured by")) assert.ok(said.includes("You can have it measured"), said);
  const measure = said.includes("Measured by") ? /^(What takes the space|Measure what it uses)/ : /^Measure what it uses/;
  await usage.getByRole("link", { name: measure }).click();
  await page.waitForURL((url) => url.pathname.endsWith("/sizes"));

  const button = (name) => page.getByRole("button", { name, exact: true });
  await button("Measure").or(button("Measure again")).click();
  const standing = page.locator("main section").first();
  await until("all of her home was counted", async () => {
    const [, counted] = (await standing.innerText()).match(/^(.+?) files and directories, /) ?? [];
    return counted?.replaceAll(/\D/g, "") === number;
  });

  const files = usage.locator(".free-item", { hasText: "Files" }).locator(".number");
  await until("the page of her home says so", async () => {
    await page.goto("/spaces/home");
    const [counted] = await files.allInnerTexts();
    return counted?.replaceAll(/\D/g, "") === number;
  });
  await usage.getByText(/Measured by you on \d{1,2} [A-Z][a-z]+ \d{4}; what came and went since is not in it\./).waitFor();
  await usage.getByRole("link", { name: /^What takes the space/ }).waitFor();
  assert.deepEqual(await accessibility(page), []);
  await picture(page, "e2e/space-measured");
  assert.deepEqual(faults, []);
});
