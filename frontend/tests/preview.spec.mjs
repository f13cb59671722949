// Looks at every sample page (cargo run -p eirene-backend --example preview) under the portal's own content security policy: desk and
// phone, light and dark, twice the text size; accessible, nothing wider than the window, nothing that the policy forbids.
import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { createServer } from "node:http";
import path from "node:path";
import { after, before, test } from "node:test";

import { SIZES, accessibility, launch, listen, picture, root, tooWide } from "./browser.mjs";

const folder = path.join(root, "var", "preview");
const TYPES = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml" };
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
  "form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

const names = (await readdir(folder)).filter((name) => name.endsWith(".html") && !name.startsWith("fragment-")).sort();
let browser;
let server;
let origin;

before(async () => {
  server = createServer(async (request, response) => {
    const name = new URL(request.url, "http://x").pathname;
    try {
      const body = await readFile(path.join(folder, path.normalize(name)));
      response.writeHead(200, {
        "content-type": `${TYPES[path.extname(name)]}; charset=utf-8`,
        "content-security-policy": POLICY,
      });
      response.end(body);
    } catch {
      response.writeHead(204).end();
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  origin = `http://127.0.0.1:${server.address().port}`;
  browser = await launch();
});

after(async () => {
  await browser?.close();
  server?.close();
});

test("there are samples to look at", () => assert.ok(names.length > 25, `run the preview example first: ${names.length}`));

for (const name of names) {
  test(`sample ${name}`, async (t) => {
    for (const [size, viewport] of Object.entries(SIZES)) {
      for (const colorScheme of ["light", "dark"]) {
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
