// Looks at every sample page (cargo run --example preview) under the portal's own content security policy: desk and
// phone, light and dark, twice the text size; accessible, nothing wider than the window, nothing that the policy forbids.
import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { after, before, test } from "node:test";

import { SIZES, accessibility, launch, listen, picture, tooWide } from "./browser.mjs";
import { folder, serve } from "./samples.mjs";

const names = (await readdir(folder)).filter((name) => name.endsWith(".html") && !name.startsWith("fragment-")).sort();
// Every page at both sizes and in both schemes, but without EIRENE_TEST_DEEP one scheme for each size, which one by the seed.
const deep = Boolean(process.env.EIRENE_TEST_DEEP);
const seed = Number(process.env.EIRENE_TEST_SEED ?? 0);
const schemes = (index, size) => (deep ? ["light", "dark"] : [(seed + index + (size === "desk" ? 0 : 1)) % 2 ? "dark" : "light"]);

let browser;
let server;
let origin;

before(async () => {
  server = await serve();
  origin = server.origin;
  browser = await launch();
});

after(async () => {
  await browser?.close();
  server?.close();
});

test("there are samples to look at", () => assert.ok(names.length > 25, `run the preview example first: ${names.length}`));

for (const [index, name] of names.entries()) {
  test(`sample ${name}`, async (t) => {
    for (const [size, viewport] of Object.entries(SIZES)) {
      for (const colorScheme of schemes(index, size)) {
        await t.test(`${size}, ${colorScheme}`, async () => {
          const page = await browser.newPage({ viewport, colorScheme, reducedMotion: "reduce" });
          try {
            const faults = listen(page);
            // The hand-over would send itself; here it is to be looked at.
            await page.route("**/handover.js", (route) => route.fulfill({ contentType: "text/javascript", body: "" }));
            await page.goto(`${origin}/${name}`);
            await picture(page, `preview/${name.replace(".html", "")}-${size}-${colorScheme}`);
            assert.deepEqual(await tooWide(page), []);
            assert.deepEqual(await accessibility(page), []);
            assert.deepEqual(faults, []);
          } finally {
            await page.close();
          }
        });
      }
    }
    await t.test("at twice the text size", async () => {
      const page = await browser.newPage({ viewport: { width: 640, height: 450 }, reducedMotion: "reduce" });
      await page.route("**/handover.js", (route) => route.fulfill({ contentType: "text/javascript", body: "" }));
      await page.goto(`${origin}/${name}`);
      assert.deepEqual(await tooWide(page), []);
      await page.close();
    });
  });
}

test("the theme is kept, and there is no flash of the other one", async () => {
  const page = await browser.newPage({ colorScheme: "light" });
  await page.goto(`${origin}/login.html`);
  const paper = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const light = await paper();
  await page.getByRole("button", { name: "Switch between light and dark" }).click();
  const dark = await paper();
  assert.notEqual(dark, light);
  await page.goto(`${origin}/error-404.html`);
  assert.equal(await paper(), dark);
  await page.close();
});

test("hostile text stays text", async () => {
  const page = await browser.newPage();
  page.on("dialog", () => assert.fail("a script ran"));
  await page.goto(`${origin}/session-failed.html`);
  assert.equal(await page.getByRole("heading", { level: 1 }).textContent(), "<script>alert(1)</script>'\"&");
  await page.close();
});
