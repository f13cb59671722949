// What all browser tests share: Debian's Chromium, pictures, accessibility checks, strict listening for anything that went wrong.
import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";

const require = createRequire(import.meta.url);
const axeSource = require("node:fs").readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

/** The repository's root. */
export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");

const ARGUMENTS = [
  "--no-sandbox",
  "--headless",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Sizes at which pages are looked at. */
export const SIZES = { desk: { width: 1280, height: 900 }, phone: { width: 390, height: 844 } };

/** Starts Chromium. */
export function launch() {
  return chromium.launch({ executablePath: process.env.EIRENE_TEST_CHROMIUM ?? "/usr/bin/chromium", args: ARGUMENTS });
}

/** Collects what a page must never do: throw, log errors, break the content security policy, ask other hosts. */
export function listen(page, allowed = () => false) {
  const faults = [];
  page.on("pageerror", (error) => faults.push(`exception: ${error}`));
  page.on("console", (message) => {
    if (message.type() === "error" && !allowed(message.text())) faults.push(`console: ${message.text()}`);
  });
  return faults;
}

/** Holds files and folders of this machine over `place`, as the desk does: what is let go there are real entries, so folders are folders. */
export async function drag(page, place, files) {
  const debug = await page.context().newCDPSession(page);
  const box = await place.boundingBox();
  const at = { x: box.x + box.width / 2, y: box.y + Math.min(box.height / 2, 20), data: { items: [], files, dragOperationsMask: 1 } };
  const tell = (type) => debug.send("Input.dispatchDragEvent", { type, ...at });
  await tell("dragEnter");
  await tell("dragOver");
  return { letGo: () => tell("drop"), takeAway: () => tell("dragCancel") };
}

/** Waits until no colour is on its way to another, as from light to dark, which is none that anybody sees. */
export function settled(page) {
  return page.evaluate(async () => {
    const moving = document.getAnimations().filter((one) => one instanceof CSSTransition);
    await Promise.allSettled(moving.map((one) => one.finished));
  });
}

/**
 * Accessibility violations, WCAG 2.2 A and AA, of a page or of a `part` of it. The checker is run by the debugger, so the page's own policy
 * stays in force.
 */
export async function accessibility(page, part = "html") {
  await page.evaluate(axeSource);
  await settled(page);
  const result = await page.evaluate(
    (part) =>
      axe.run(part === "html" ? document : part, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }),
    part,
  );
  return result.violations.map(
    (fault) => `${fault.id}: ${fault.help} — ${fault.nodes.map((node) => `${node.target} ${node.failureSummary}`).join("; ")}`,
  );
}

/** Whether anything is wider than the window: nobody should scroll sideways. */
export function tooWide(page) {
  return page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    return document.documentElement.scrollWidth > width
      ? [...document.querySelectorAll("body *")]
          .filter((element) => element.getBoundingClientRect().right > width + 1 && !element.closest(".table-wrap, .sr-only"))
          .map((element) => `${element.tagName}.${element.className}`)
      : [];
  });
}

/** Keeps a picture in var/screenshots. */
export async function picture(page, name) {
  const folder = path.join(root, "var", "screenshots");
  await mkdir(folder, { recursive: true });
  await page.screenshot({ path: path.join(folder, `${name}.png`), fullPage: true });
}

/** Looks at a page of the demo in light and dark, at the desk and on the phone, and keeps the pictures. */
export async function pictures(page, name) {
  for (const [size, viewport] of Object.entries(SIZES)) {
    await page.setViewportSize(viewport);
    assert.deepEqual(await tooWide(page), []);
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      await page.waitForFunction(() => document.getAnimations().every((one) => one.playState !== "running"));
      assert.deepEqual(await accessibility(page), []);
      await picture(page, `e2e/${name}-${size}-${colorScheme}`);
    }
  }
  await page.setViewportSize(SIZES.desk);
  await page.emulateMedia({ colorScheme: null });
}
