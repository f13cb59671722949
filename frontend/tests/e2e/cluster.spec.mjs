// The cluster as a person sees it while a session of hers holds a GPU and another one waits for both: nodes as a map, when more GPUs come free, and
// what waits; by keyboard, in light and in dark, and without a script for somebody who has nothing there.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import { pictures, settled } from "../browser.mjs";
import { PATIENCE_MS, closeBrowser, shows, signedIn, startSession } from "./demo.mjs";

const WINDOW = { reducedMotion: "reduce", timezoneId: "UTC", locale: "en-GB" };

after(closeBrowser);

/** The tile of a node on the map, where it looks like this. */
const tile = (page, node, style = "") => page.locator(`ul.heat > li${style}`, { hasText: node });

test("nodes are a map with one's own on it, and GPUs say when more are free", { timeout: 300_000 }, async (t) => {
  const { page, faults } = await signedIn(t, "ada", WINDOW);
  const id = await startSession(t, page, "Holds a GPU", { gpus: { type: "a100", count: 1 } });
  await shows(page, id, "running");
  await startSession(t, page, "Wants both GPUs", { gpus: { type: "a100", count: 2 } });
  await page.goto("/cluster");

  await t.test("its node is half full, as one of its two GPUs is taken, and is marked as hers", async () => {
    await tile(page, "c1", ".heat-2.mine").getByText("one of yours is there").waitFor();
    await tile(page, "c2").waitFor();
    assert.equal(await tile(page, "c2", ".mine").count(), 0);
    const legend = page.getByRole("list", { name: "What colours and signs mean, and how many nodes have them" });
    await legend.getByText("something of yours is there").waitFor();
  });

  await t.test("the forecast says in words, as a line and as a table when the GPU is back, and who waits for it", async () => {
    const gpus = page.getByRole("article", { name: "a100" });
    await gpus.getByText("1 of 2 free").waitFor();
    await gpus.locator("p", { hasText: "One more is free from" }).filter({ hasText: "Jobs that wait ask for 2." }).waitFor();
    const drawn = gpus.getByRole("img", { name: "The next 24 hours: 1 free now, 2 at the end." });
    const points = (await drawn.locator("polyline").getAttribute("points")).trim().split(/\s+/);
    assert.ok(points.length >= 4, `a step: ${points}`);
    await gpus.getByText("As a table").click();
    await gpus.getByRole("cell", { name: "2 of 2" }).waitFor();
    await page.getByRole("heading", { name: "What you have waiting" }).waitFor();
    await page.getByRole("rowheader", { name: "Wants both GPUs" }).waitFor();
  });

  await t.test("the last day is drawn as high as the numbers say that stand beside it", async () => {
    for (const title of ["Jobs", "GPUs"]) {
      const drawn = page.locator("figure.picture", { has: page.getByRole("heading", { name: title, exact: true }) });
      // It is looked at once a minute; the page fetches the pictures by itself.
      await drawn.waitFor({ timeout: PATIENCE_MS });
      const { top, lines } = await drawn.evaluate((figure) => ({
        top: figure.querySelector("figcaption li:last-child").textContent,
        lines: [...figure.querySelectorAll(".legend")].map((legend, at) => {
          const pieces = [...figure.querySelectorAll(`polyline.line-${at + 1}`)].map((piece) => piece.getAttribute("points"));
          return { told: legend.textContent, last: pieces.at(-1)?.split(/[ ,]/).at(-1) };
        }),
      }));
      const number = (text) => Number(text.split(": ").at(-1));
      assert.equal(lines.length, 2, title);
      for (const { told, last } of lines) {
        const height = 138 - (136 * number(told)) / number(top);
        assert.ok(Math.abs(Number(last) - height) < 0.5, `${title}: ${told} of ${top} is drawn at ${last}, and belongs to ${height}`);
      }
    }
  });

  await t.test("it is whole and accessible in light and in dark, at the desk and on the phone", async () => {
    await pictures(page, "cluster");
    const colours = [];
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      await settled(page);
      colours.push(await tile(page, "c1").evaluate((element) => getComputedStyle(element).backgroundColor));
    }
    assert.notEqual(colours[0], colours[1]);
    await page.emulateMedia({ colorScheme: null });
  });

  await t.test("keys choose what nodes are looked at by, and open the table", async () => {
    const by = page.getByRole("navigation", { name: "Look at nodes by" });
    await by.getByRole("link", { name: "Allocation" }).focus();
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/cluster\?by=load$/);
    assert.equal(await by.getByRole("link", { name: "Load" }).getAttribute("aria-current"), "true");
    await by.getByRole("link", { name: "Health" }).focus();
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/cluster\?by=health$/);
    await tile(page, "c1", ".heat-well.mine").getByText("✓").waitFor();
    await page.getByRole("list", { name: "What colours and signs mean, and how many nodes have them" }).getByText("takes work: 2").waitFor();
    await page.locator("summary", { hasText: "All nodes as a table" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("row", { name: /^c1/ }).getByText("one of yours is there").waitFor();
  });

  await t.test("somebody else sees the nodes, and nothing of hers", async () => {
    const grace = await signedIn(t, "grace", { ...WINDOW, javaScriptEnabled: false });
    await grace.page.goto("/cluster");
    await tile(grace.page, "c1", ".heat-2").waitFor();
    assert.equal(await tile(grace.page, "c1", ".mine").count(), 0);
    await grace.page.getByText("Nothing of yours waits.").waitFor();
    assert.ok(!(await grace.page.content()).includes("Wants both GPUs"));
    await grace.page.getByRole("link", { name: "Health" }).click();
    await tile(grace.page, "c1", ".heat-well").waitFor();
  });
  assert.deepEqual(faults, []);
});
