// The page of charts against a server whose answers a test chooses: what is drawn, what is asked for, what is told as a table and aloud.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { after, before, test } from "node:test";

import { SIZES, accessibility, launch, listen, picture, tooWide } from "./browser.mjs";
import { AIR, HEIGHT, LEFT, RIGHT, TOP, column, host, pixels, token } from "./plots.mjs";
import { answerPage, folder, serve } from "./samples.mjs";

const STEP_S = 10;
const BEGINS = Date.parse("2026-11-21T07:30:00Z");
const MINUTES = 60;
const SPANS = (MINUTES * 60) / STEP_S;
const GIB = 2 ** 30;

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

const until = async (what, condition) => {
  for (let n = 0; n < 200; n += 1) {
    if (await condition()) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  assert.fail(`in vain: ${what}`);
};

/** Values of a line: waves around a middle, different for each seed. */
const waves = (seed, most, spans = SPANS) => Array.from({ length: spans }, (_, at) => Number((most * (0.55 + 0.4 * Math.sin(at / 17 + seed))).toPrecision(6)));

function line(metric, group, node, device, values, more = {}) {
  return { metric, group, node, ...(device === undefined ? {} : { device }), unit: "none", per_second: false, of: "job", values, ...more };
}

/** What `nodes` nodes with as many GPUs each used. */
function used(nodes, gpus, spans = SPANS) {
  const lines = [];
  for (let n = 1; n <= nodes; n += 1) {
    const node = `c${n}`;
    const memory = waves(n, 6 * GIB, spans).map(Math.round);
    lines.push(line("cpu_seconds", "cpu", node, undefined, waves(n, 4, spans)));
    lines.push(line("memory_bytes", "memory", node, undefined, memory, { highest: Math.max(...memory) }));
    lines.push(line("memory_limit_bytes", "memory", node, undefined, Array(spans).fill(8 * GIB), { highest: 8 * GIB }));
    lines.push(line("io_read_bytes", "io", node, undefined, waves(n + 2, 2e8, spans)));
    lines.push(line("net_receive_bytes", "network", node, "ib0", waves(n + 3, 3e9, spans)));
    lines.push(line("net_receive_bytes", "network", node, "lo", waves(n, 9e12, spans)));
    for (let gpu = 0; gpu < gpus; gpu += 1) {
      lines.push(line("gpu_util", "gpu", node, String(gpu), waves(n * 3 + gpu, 1, spans)));
      lines.push(line("gpu_memory_bytes", "gpu", node, String(gpu), waves(n + gpu, 70 * GIB, spans)));
      lines.push(line("gpu_memory_limit_bytes", "gpu", node, String(gpu), Array(spans).fill(80 * GIB)));
    }
  }
  lines.push(line("report", "report", "c1", "<b>loss</b>", Array.from({ length: spans }, (_, at) => Number((3 * Math.exp(-at / 90)).toPrecision(4)))));
  return { from: new Date(BEGINS).toISOString(), step_s: STEP_S, spans, of_minutes: false, unreadable: 0, lines };
}

const ID = "a".repeat(32);
const OTHER = `runs/${"b".repeat(32)}`;
const at = (minutes) => new Date(BEGINS + minutes * 60_000).toISOString();

/** What the page is about. */
function about(change = {}) {
  const marks = [
    { at: at(-1), text: "Asked for", tone: "" },
    { at: at(0), text: "Started", tone: "" },
    { at: at(MINUTES), text: "Ended", tone: "" },
  ];
  const others = [{ of: OTHER, name: "train.py", begins: at(-600) }];
  return { samples: `/live/sessions/${ID}/samples`, events: `/live/sessions/${ID}/events`, last_event: 7, begins: at(0), ends: at(MINUTES), now: at(MINUTES + 5), cpus: 4, marks, rules: { gpu_lost: "GPU lost", memory_nearly_full: "Memory nearly full" }, others, ...change };
}

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;");

/** A portal of the test's own: `state.answer(query, path)` gives samples, or a status. */
async function portal(t, answer, change) {
  const state = { asked: [], streams: new Set(), answer };
  const html = (await readFile(path.join(folder, "charts.html"), "utf8")).replace(/data-charts="[^"]*"/, () => `data-charts="${escaped(JSON.stringify(about(change)))}"`);
  const server = await serve((request, response, name) => {
    if (name === "/page") {
      answerPage(response, html);
      return true;
    }
    if (name.endsWith("/events")) {
      response.writeHead(200, { "content-type": "text/event-stream" }).write(": hello\n\n");
      state.streams.add(response);
      response.on("close", () => state.streams.delete(response));
      return true;
    }
    if (!name.endsWith("/samples")) return false;
    const query = new URL(request.url, "http://x").searchParams;
    state.asked.push({ name, from: Date.parse(query.get("from")), to: Date.parse(query.get("to")), points: Number(query.get("points")), group: query.get("group") ?? "" });
    const found = state.answer(state.asked.at(-1));
    if (typeof found === "number") response.writeHead(found).end();
    else response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(found));
    return true;
  });
  t.after(() => server.close());
  state.say = (kind, data) => {
    for (const stream of state.streams) stream.write(`event: ${kind}\ndata: ${JSON.stringify(data)}\n\n`);
  };
  state.origin = server.origin;
  return state;
}

async function open(t, server, options = {}, query = "") {
  const page = await browser.newPage({ viewport: SIZES.desk, colorScheme: "light", reducedMotion: "reduce", timezoneId: "UTC", locale: "en-GB", ...options });
  t.after(() => page.close());
  const faults = listen(page, (text) => text.includes("status of 503"));
  await page.goto(`${server.origin}/page${query}`);
  return { page, faults };
}

const query = (page) => new URL(page.url()).searchParams;
const flat = (value, spans = SPANS) => Array(spans).fill(value);
const only = (lines, spans = SPANS) => ({ ...used(1, 0, spans), lines });

for (const [nodes, gpus] of [[1, 1], [2, 2], [8, 8]]) {
  test(`${nodes * gpus} GPUs are readable at the desk and on the phone, in light and in dark`, async (t) => {
    for (const [size, viewport] of Object.entries(SIZES)) {
      const drawn = [];
      for (const colorScheme of ["light", "dark"]) {
        const server = await portal(t, () => used(nodes, gpus));
        const { page, faults } = await open(t, server, { viewport, colorScheme });
        await host(page, "gpu").locator("canvas").waitFor();
        await picture(page, `charts/${nodes}x${gpus}-${size}-${colorScheme}`);
        assert.ok((await pixels(page, "cpu", await token(page, "--series-1"))) > 200, "the first line is drawn");
        assert.equal(await host(page, "gpu").locator("canvas.strip").count(), nodes * gpus > 8 ? 1 : 0);
        assert.ok((await pixels(page, "gpu")) > 20, "many shades or colours");
        drawn.push(await host(page, "cpu").locator("canvas").evaluate((canvas) => canvas.toDataURL()));
        assert.deepEqual(await tooWide(page), []);
        assert.deepEqual(await accessibility(page), []);
        assert.deepEqual(faults, []);
        await page.close();
      }
      assert.notEqual(drawn[0], drawn[1], "dark is drawn with other colours");
    }
  });
}

test("lines lie where their values are, gaps stay gaps, and what there may be at most is a line too", async (t) => {
  const values = flat(2).map((value, at) => (at >= SPANS / 2 && at < (SPANS * 3) / 4 ? null : value));
  values[Math.round(SPANS * 0.6)] = 1;
  const server = await portal(t, () => only([line("cpu_seconds", "cpu", "c1", undefined, values)]));
  const { page, faults } = await open(t, server);
  await host(page, "cpu").locator("canvas").waitFor();
  const colour = await token(page, "--series-1");
  const y = (value) => TOP + HEIGHT * (1 - value / (4 * AIR));
  for (const share of [0.1, 0.3, 0.9]) {
    const rows = await column(page, "cpu", share, colour);
    assert.ok(rows.length > 0 && rows.every((row) => Math.abs(row - y(2)) < 3), `${share}: ${rows} instead of ${y(2)}`);
  }
  assert.deepEqual(await column(page, "cpu", 0.7, colour), [], "nothing is known there");
  const alone = await column(page, "cpu", 0.6 + 0.5 / SPANS, colour);
  assert.ok(alone.length > 0 && alone.every((row) => Math.abs(row - y(1)) < 5), `one value alone is seen: ${alone}`);
  const limit = (await Promise.all([0.2, 0.21, 0.22].map((share) => column(page, "cpu", share, "#7b877f".toLowerCase())))).flat();
  assert.ok(limit.some((row) => Math.abs(row - y(4)) < 2), `${limit} instead of ${y(4)}`);
  assert.deepEqual(faults, []);
});

test("the keyboard moves, speaks, zooms and goes back", async (t) => {
  const server = await portal(t, ({ from, to }) => ({ ...used(1, 1), from: new Date(from).toISOString(), spans: Math.min(SPANS, Math.ceil((to - from) / STEP_S / 1000)) }));
  const { page, faults } = await open(t, server);
  const chart = host(page, "cpu");
  await chart.locator("canvas").waitFor();
  assert.deepEqual([server.asked[0].from, server.asked[0].to], [BEGINS, BEGINS + MINUTES * 60_000]);
  await chart.focus();
  await page.keyboard.press("Home");
  const first = used(1, 1).lines[0].values[0];
  await until("the value is spoken", async () => (await page.locator("[data-announcer]").textContent()) === `c1: ${Math.round(first * 100) / 100}`);
  assert.equal(await chart.getAttribute("aria-valuetext"), "21 Nov, 07:30:05");
  await page.keyboard.press("ArrowRight");
  assert.equal(await chart.getAttribute("aria-valuetext"), "21 Nov, 07:30:15");
  await page.keyboard.press("Shift+ArrowRight");
  assert.equal(await chart.getAttribute("aria-valuetext"), "21 Nov, 07:31:55");
  assert.equal(await host(page, "memory").getAttribute("aria-valuetext"), "21 Nov, 07:31:55", "the cursor is in all charts");
  await page.keyboard.press("End");
  await page.keyboard.press("+");
  await until("the later half is asked for", () => server.asked.length === 2);
  assert.ok(Math.abs(server.asked[1].to - server.asked[1].from - MINUTES * 30_000) < 5000);
  assert.ok(server.asked[1].to > BEGINS + (MINUTES - 1) * 60_000);
  await until("the address says so", () => Date.parse(query(page).get("from")) === server.asked[1].from);
  await page.keyboard.press("-");
  await until("all is asked for", () => server.asked.length === 3);
  await page.keyboard.press("=");
  await until("closer again", () => server.asked.length === 4);
  await page.keyboard.press("Escape");
  await until("all again", () => server.asked.length === 5);
  assert.deepEqual([server.asked[4].from, server.asked[4].to], [BEGINS, BEGINS + MINUTES * 60_000]);
  await until("the address says nothing of it", () => [...query(page).keys()].length === 0);
  assert.equal(await page.evaluate(() => document.activeElement.dataset.chart), "cpu", "the focus stays");
  assert.deepEqual(faults, []);
});

test("a stretch drawn with the mouse is looked at closer by all charts, and a double click shows all", async (t) => {
  const server = await portal(t, ({ from }) => ({ ...used(1, 1), from: new Date(from).toISOString() }));
  const { page } = await open(t, server);
  const chart = host(page, "memory");
  await chart.locator("canvas").waitFor();
  await chart.scrollIntoViewIfNeeded();
  const box = await chart.boundingBox();
  const x = (share) => box.x + LEFT + share * (box.width - LEFT - RIGHT);
  await page.mouse.move(x(0.25), box.y + 90);
  await page.mouse.down();
  await page.mouse.move(x(0.4), box.y + 95);
  await page.mouse.move(x(0.5), box.y + 95);
  await page.mouse.up();
  await until("the quarter is asked for", () => server.asked.length === 2);
  const quarter = MINUTES * 15_000;
  assert.ok(Math.abs(server.asked[1].from - (BEGINS + quarter)) < 15_000, at(0) + server.asked[1].from);
  assert.ok(Math.abs(server.asked[1].to - (BEGINS + 2 * quarter)) < 15_000);
  await until("all say which time", async () => /07:45/.test(await page.locator("[data-charts-time]").textContent()));
  const begins = async (id) => Number(await host(page, id).getAttribute("aria-valuemin"));
  for (const id of ["cpu", "gpu"]) await until(`${id} shows it`, async () => (await begins(id)) === server.asked[1].from);
  await page.mouse.dblclick(x(0.5), box.y + 90);
  await until("all is asked for", () => server.asked.length === 3 && server.asked[2].from === BEGINS);
  await page.getByRole("button", { name: "Last 15 minutes" }).click();
  await until("the end is asked for", () => server.asked.length === 4);
  assert.deepEqual([server.asked[3].from, server.asked[3].to], [BEGINS + 45 * 60_000, BEGINS + 60 * 60_000]);
  await until("the address says so", () => query(page).get("last") === "15m");
  const pressed = () => page.getByRole("button", { name: "Last 15 minutes" }).getAttribute("aria-pressed");
  await until("the page says so", async () => (await pressed()) === "true");
  await page.getByRole("button", { name: "Zoom in" }).click();
  await until("closer", () => server.asked.length === 5 && server.asked[4].to - server.asked[4].from < 8 * 60_000);
});

test("the table holds the answer's figures, bounded, and stays chosen", async (t) => {
  const answer = used(2, 2);
  const server = await portal(t, () => answer);
  const { page, faults } = await open(t, server);
  await page.getByRole("button", { name: "As a table" }).nth(2).click();
  const table = page.locator(".plot", { has: host(page, "gpu") }).locator("table");
  const rows = await table.locator("tbody tr").evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent)));
  assert.equal(rows.length, 200, "at most so many");
  assert.match(await table.locator("caption").textContent(), /the last 200 spans/);
  const names = await table.locator("thead th").allTextContents();
  assert.deepEqual(names, ["Time", "c1, GPU 0", "c1, GPU 1", "c2, GPU 0", "c2, GPU 1"]);
  const gpus = answer.lines.filter((one) => one.metric === "gpu_util");
  for (const at of [0, 99, 199]) {
    const span = SPANS - 200 + at;
    const shown = gpus.map((one) => `${Number((Math.round(one.values[span] * 1000) / 10).toPrecision(4))}\u00a0%`);
    assert.deepEqual(rows[at].slice(1), shown);
  }
  assert.equal(rows[199][0], "21 Nov, 08:29:55");
  assert.deepEqual(await accessibility(page), []);
  await page.setViewportSize(SIZES.phone);
  assert.deepEqual(await tooWide(page), []);
  await picture(page, "charts/table-phone");
  await page.reload();
  await table.locator("tbody tr").first().waitFor();
  assert.equal(await page.locator(".plot table").count(), 1);
  assert.deepEqual(faults, []);
});

test("64 GPUs are a strip: the keyboard goes through rows, and the mouse tells what is under it", async (t) => {
  const answer = used(8, 8);
  for (const one of answer.lines) if (one.metric === "gpu_util") one.values = flat(one.node === "c5" && one.device === "3" ? 0.05 : 0.9);
  const server = await portal(t, () => answer);
  const { page } = await open(t, server);
  const chart = host(page, "gpu");
  const said = page.locator(".plot", { has: chart }).locator(".plot-said");
  await chart.locator("canvas.strip").waitFor();
  assert.equal(await said.textContent(), "64 together: 88.7\u00a0% on average, least 5\u00a0% (c5, GPU 3), most 90\u00a0% (c8, GPU 7).");
  const box = await chart.boundingBox();
  const row = (box.height - TOP - 28) / 64;
  await chart.scrollIntoViewIfNeeded();
  const now = await chart.boundingBox();
  await page.mouse.move(now.x + 400, now.y + TOP + (4 * 8 + 3 + 0.5) * row);
  await until("the mouse tells", async () => /c5, GPU 3: 5\u00a0%/.test(await said.textContent()));
  const dark = await chart.locator("canvas").evaluate((canvas, y) => {
    const ratio = canvas.height / canvas.clientHeight;
    const context = canvas.getContext("2d");
    const light = (at) => context.getImageData(canvas.width / 2, Math.round(at * ratio), 1, 1).data.slice(0, 3).reduce((sum, part) => sum + part, 0);
    return [light(y), light(y - 12)];
  }, TOP + (4 * 8 + 3 + 0.5) * row);
  assert.ok(dark[0] > dark[1] + 200, `little is light, much is dark: ${dark}`);
  await chart.focus();
  await page.keyboard.press("ArrowDown");
  await until("the next row", async () => /c5, GPU 4: 90\u00a0%/.test(await said.textContent()));
  await until("is spoken", async () => (await page.locator("[data-announcer]").textContent()) === "c5, GPU 4: 90\u00a0%");
});

test("cores and processes are fetched where somebody wants them: a strip, and those that use most", async (t) => {
  const cores = Array.from({ length: 64 }, (_, core) => line("node_cpu_core", "cores", "c1", String(core), waves(core, 1)));
  const processes = Array.from({ length: 12 }, (_, n) => line("cpu_process", "processes", "c1", `${100 + n}:py<b>:${n}`, flat(n)));
  const server = await portal(t, ({ group }) => (group === "cores" ? only(cores) : group === "processes" ? only(processes) : used(1, 0)));
  const { page, faults } = await open(t, server);
  await host(page, "cpu").locator("canvas").waitFor();
  assert.deepEqual(server.asked.map(({ group }) => group), [""], "they are many, and nobody has asked");
  const button = (name) => page.getByRole("button", { name, exact: true });
  await button("Cores").click();
  await host(page, "cores-node").locator("canvas.strip").waitFor();
  assert.ok((await pixels(page, "cores-node")) > 20, "many shades");
  assert.deepEqual(server.asked.slice(1).map(({ group }) => group).sort(), ["", "cores"]);
  await button("Processes").click();
  await host(page, "process-cpu").locator("canvas").waitFor();
  const plot = page.locator(".plot", { has: host(page, "process-cpu") });
  const names = Array.from({ length: 8 }, (_, n) => `py<b>:${n + 4} (${n + 104})`);
  assert.deepEqual(await plot.locator(".plot-line .wrap").allTextContents(), names);
  await plot.getByText("The 8 that used most of it in this time.").waitFor();
  await plot.getByRole("button", { name: "As a table" }).click();
  assert.deepEqual(await plot.locator("thead th").allTextContents(), ["Time", ...names]);
  const titles = await page.locator("[data-charts-place] h2").allTextContents();
  assert.deepEqual(titles, ["CPUs", "Cores", "Memory", "Storage", "Network", "Processes", "What the program reports"]);
  assert.deepEqual(await accessibility(page), []);
  await picture(page, "charts/cores-and-processes");
  await page.setViewportSize(SIZES.phone);
  assert.deepEqual(await tooWide(page), []);

  await page.reload();
  await host(page, "cores-node").locator("canvas.strip").waitFor();
  assert.equal(await button("Processes").getAttribute("aria-pressed"), "true", "what is chosen stays");
  await button("Cores").click();
  await host(page, "cores-node").waitFor({ state: "detached" });
  assert.equal(await button("Cores").getAttribute("aria-pressed"), "false");
  server.answer = ({ group }) => (group ? only([]) : used(1, 0));
  await button("Cores").click();
  await page.getByText("Nothing is known in this time of: Processes, Cores.").waitFor();
  assert.deepEqual(faults, []);
});

test("memory errors of GPUs are counted where there are some, and those that it could not correct are marks", async (t) => {
  const errors = flat(0);
  errors[100] = 0.2;
  const answer = used(1, 2);
  for (const gpu of ["0", "1"]) {
    answer.lines.push(line("gpu_ecc_corrected", "gpu", "c1", gpu, flat(0)), line("gpu_ecc_uncorrected", "gpu", "c1", gpu, gpu === "1" ? errors : flat(0)));
    answer.lines.push(line("gpu_processes", "gpu", "c1", gpu, flat(Number(gpu))));
  }
  const server = await portal(t, () => answer);
  const { page, faults } = await open(t, server);
  await host(page, "gpu-uncorrected").locator("canvas").waitFor();
  assert.equal(await host(page, "gpu-corrected").count(), 0, "none is nothing to look at");
  await host(page, "gpu-uncorrected").focus();
  await page.keyboard.press("Home");
  for (let step = 0; step < 10; step += 1) await page.keyboard.press("Shift+ArrowRight");
  await until("it is spoken", async () => (await page.locator("[data-announcer]").textContent()) === "GPU 0: 0; GPU 1: 2");
  await page.locator("summary", { hasText: "What happened when" }).click();
  await page.locator("[data-charts-happened] li.happened-bad", { hasText: "GPU memory error (c1, GPU 1)" }).waitFor();
  await page.locator(".plot", { has: host(page, "gpu-processes") }).getByRole("button", { name: /^GPU 1 1$/ }).waitFor();
  assert.deepEqual(faults, []);
});

test("what is known of the nodes, of the most memory and of ranks is drawn, where there is something to see", async (t) => {
  const answer = used(1, 1);
  answer.lines.push(
    line("memory_peak_bytes", "memory", "c1", undefined, flat(7 * GIB)),
    line("node_memory_bytes", "memory", "c1", undefined, flat(16 * GIB)),
    line("node_memory_available_bytes", "memory", "c1", undefined, flat(6 * GIB).fill(null, 10, 20)),
    line("node_memory_bytes", "memory", "c2", undefined, flat(16 * GIB)),
    line("node_pressure_cpu_seconds", "cpu", "c1", undefined, flat(0.25)),
    line("node_pressure_memory_seconds", "memory", "c1", undefined, flat(0.5)),
    line("node_pressure_io_seconds", "io", "c1", undefined, flat(0.001)),
    line("gpu_memory_util", "gpu", "c1", "0", flat(0.75)),
    line("step_ranks", "cpu", "c1", undefined, flat(4)),
  );
  const server = await portal(t, () => answer);
  const { page, faults } = await open(t, server);
  await host(page, "memory-node").locator("canvas").waitFor();
  const expected = { "memory-peak": "7 GiB", "memory-node": "10 GiB", "cpu-wait-node": "25 %", "memory-wait-node": "50 %", "gpu-memory-busy": "75 %", ranks: "4" };
  for (const [id, value] of Object.entries(expected)) {
    const values = await page.locator(".plot", { has: host(page, id) }).locator(".plot-value").allTextContents();
    assert.deepEqual(values.map((one) => one.replaceAll("\u00a0", " ")), [value], id);
  }
  assert.equal(await host(page, "io-wait-node").count(), 0, "next to nothing is nothing to look at");
  await page.locator(".plot", { has: host(page, "memory-node") }).getByText("Of the whole nodes: other jobs are in it.").waitFor();
  assert.deepEqual(await accessibility(page), []);
  assert.deepEqual(faults, []);
});

test("another run is drawn beside it, aligned at the beginning, and a link shows the same", async (t) => {
  const server = await portal(t, ({ name, from }) =>
    name.includes("/runs/")
      ? { ...only([line("cpu_seconds", "cpu", "x9", undefined, flat(1))]), from: new Date(from).toISOString() }
      : only([line("cpu_seconds", "cpu", "c1", undefined, flat(3))]),
  );
  const { page, faults } = await open(t, server);
  await host(page, "cpu").locator("canvas").waitFor();
  const colour = await token(page, "--series-1");
  const before = await pixels(page, "cpu", colour);
  await page.getByLabel("Compare with").selectOption(OTHER);
  await page.getByRole("button", { name: /x9 – train\.py/ }).waitFor();
  const asked = server.asked.find(({ name }) => name.includes("/runs/"));
  assert.deepEqual([asked.from, asked.to], [BEGINS - 600 * 60_000, BEGINS - 540 * 60_000]);
  const both = await pixels(page, "cpu", colour);
  assert.ok(both > before * 1.2, `a second line: ${before}, then ${both}`);
  // Dashed: of some columns side by side some have it and some not.
  const low = TOP + HEIGHT * (1 - 1 / (4 * AIR));
  const found = await Promise.all([...Array(12).keys()].map((n) => column(page, "cpu", 0.4 + n / 400, colour)));
  const there = found.map((rows) => rows.some((row) => Math.abs(row - low) < 3));
  assert.ok(there.includes(true) && there.includes(false), String(there));
  assert.equal(query(page).get("with"), OTHER);
  assert.match(await page.locator("[data-announcer]").textContent(), /^Compared with train\.py/);
  assert.deepEqual(await accessibility(page), []);
  await picture(page, "charts/compared");
  await page.goto(`${server.origin}/page?with=${encodeURIComponent(OTHER)}&from=${at(10)}&to=${at(20)}`);
  await page.getByRole("button", { name: /x9 – train\.py/ }).waitFor();
  assert.equal(await page.getByLabel("Compare with").inputValue(), OTHER);
  assert.deepEqual(server.asked.slice(-2).map(({ from, to }) => [from, to]), [[BEGINS + 600_000, BEGINS + 1_200_000], [BEGINS - 590 * 60_000, BEGINS - 580 * 60_000]]);
  assert.deepEqual(faults, []);
});

test("what it is compared with has its cores and processes, too, where they are chosen, and what is not known of it is said", async (t) => {
  const process = (id) => line("cpu_process", "processes", "c1", `${id}:py`, flat(1));
  const server = await portal(t, ({ name, group, from }) => {
    const isOther = name.includes("/runs/");
    const lines = { "": used(1, 0).lines, processes: [process(isOther ? 200 : 100)], cores: isOther ? [] : [line("node_cpu_core", "cores", "c1", "0", flat(1))] };
    return { ...only(lines[group]), from: new Date(from).toISOString() };
  });
  const { page, faults } = await open(t, server, {}, `?with=${encodeURIComponent(OTHER)}`);
  await page.getByRole("button", { name: /c1 – train\.py/ }).first().waitFor();
  assert.ok(server.asked.every(({ group }) => group === ""), "nobody has asked");
  await page.getByRole("button", { name: "Processes", exact: true }).click();
  const plot = page.locator(".plot", { has: host(page, "process-cpu") });
  await until("both are there", async () => (await plot.locator(".plot-line .wrap").allTextContents()).join() === "py (100),py (200) – train.py");
  const asked = server.asked.find(({ name, group }) => name.includes("/runs/") && group === "processes");
  assert.deepEqual([asked.from, asked.to], [BEGINS - 600 * 60_000, BEGINS - 540 * 60_000]);
  await page.getByRole("button", { name: "Cores", exact: true }).click();
  await page.getByText("Of train.py nothing is known in this time of: Cores.").waitFor();
  assert.deepEqual(faults, []);
});

test("a finger points, and what it pointed at stays", async (t) => {
  const server = await portal(t, () => used(1, 0));
  const { page } = await open(t, server, { viewport: SIZES.phone, hasTouch: true });
  const chart = host(page, "cpu");
  await chart.locator("canvas").waitFor();
  await chart.scrollIntoViewIfNeeded();
  const box = await chart.boundingBox();
  await page.touchscreen.tap(box.x + LEFT + (box.width - LEFT - RIGHT) / 2, box.y + 100);
  await until("the middle is told", async () => /^21 Nov, (07:59:55|08:00:05)$/.test(await chart.getAttribute("aria-valuetext")));
  assert.ok(await chart.locator(".plot-cursor").isVisible());
  assert.equal(server.asked.length, 1, "a tap is no stretch");
});

test("many GPUs are compared as a second block of rows", async (t) => {
  const server = await portal(t, ({ name, from }) => ({ ...used(name.includes("/runs/") ? 2 : 8, 8), from: new Date(from).toISOString() }));
  const { page, faults } = await open(t, server, {}, `?with=${encodeURIComponent(OTHER)}`);
  const chart = host(page, "gpu");
  const canvas = chart.locator("canvas.strip");
  await canvas.waitFor();
  const row = 5;
  const gap = 22;
  assert.equal(await canvas.evaluate((canvas) => canvas.clientHeight), TOP + 80 * row + gap + 28);
  const box = await chart.boundingBox();
  await chart.scrollIntoViewIfNeeded();
  const now = await chart.boundingBox();
  await page.mouse.move(now.x + box.width / 2, now.y + TOP + gap + 64 * row + 2);
  const said = page.locator(".plot", { has: chart }).locator(".plot-said");
  await until("the other's first row is told", async () => /c1, GPU 0 – train\.py: [\d.]+\u00a0%\. 64 together/.test(await said.textContent()));
  await picture(page, "charts/compared-64");
  assert.deepEqual(faults, []);
});

test("a line is put away and brought back by its button, and the theme's switch changes the colours", async (t) => {
  const server = await portal(t, () => used(2, 0));
  const { page } = await open(t, server);
  await host(page, "cpu").locator("canvas").waitFor();
  const [first, second] = [await token(page, "--series-1"), await token(page, "--series-2")];
  const button = page.locator(".plot", { has: host(page, "cpu") }).getByRole("button", { name: /^c2/ });
  await button.click();
  assert.equal(await button.getAttribute("aria-pressed"), "false");
  await until("it is away", async () => (await pixels(page, "cpu", second)) === 0);
  assert.ok((await pixels(page, "cpu", first)) > 100);
  await button.click();
  await until("it is back", async () => (await pixels(page, "cpu", second)) > 100);
  await page.getByRole("button", { name: "Switch between light and dark" }).click();
  await until("other colours", async () => (await pixels(page, "cpu", first)) === 0);
  assert.ok((await pixels(page, "cpu", await token(page, "--series-1"))) > 100);
});

test("while it runs, new samples come behind those that are there, and its end is seen", async (t) => {
  const change = { ends: null, now: at(MINUTES) };
  change.marks = [{ at: at(0), text: "Started", tone: "" }, { at: at(240), text: "Its time is over", tone: "wait" }];
  let spans = SPANS;
  const server = await portal(
    t,
    ({ from, points }) => {
      if (points >= 300) return only([line("cpu_seconds", "cpu", "c1", undefined, flat(2, spans))], spans);
      spans += 1;
      const first = (from - BEGINS) / 1000 / STEP_S;
      return { ...only([line("cpu_seconds", "cpu", "c1", undefined, flat(3.5, spans - first))], spans - first), from: new Date(from).toISOString() };
    },
    change,
  );
  const { page, faults } = await open(t, server);
  await host(page, "cpu").locator("canvas").waitFor();
  await until("the stream is open", () => server.streams.size === 1);
  server.say("sample", { session: ID, node: "c1" });
  await until("only what is new is asked for", () => server.asked.length === 2);
  assert.ok(server.asked[1].points < 10 && server.asked[1].from > BEGINS + 50 * 60_000);
  await page.getByRole("button", { name: /^c1 3\.5$/ }).waitFor();
  server.say("state", { state: "ended", ended_at: at(MINUTES + 1) });
  await until("all is asked for once more", () => server.asked.at(-1).points === 300 && server.asked.at(-1).to === BEGINS + (MINUTES + 1) * 60_000);
  await until("and the stream is closed", () => server.streams.size === 0);
  await page.locator("summary", { hasText: "What happened when" }).click();
  await page.locator("li", { hasText: "Ended" }).waitFor();
  assert.equal(await page.locator("li", { hasText: "Its time is over" }).count(), 0, "what will not come is no mark any more");
  assert.deepEqual(faults, []);
});

test("an end for want of memory is a red mark, also where no figure says so", async (t) => {
  const server = await portal(t, () => used(1, 1), { ends: null, now: at(MINUTES), marks: [{ at: at(0), text: "Started", tone: "" }] });
  const { page, faults } = await open(t, server);
  await host(page, "memory").locator("canvas").waitFor();
  await until("the stream is open", () => server.streams.size === 1);
  server.say("state", { state: "failed", ended_at: at(MINUTES), reason: { code: "out_of_memory", text: "It used more memory than it asked for." } });
  await page.locator("summary", { hasText: "What happened when" }).click();
  await page.locator("[data-charts-happened] li.happened-bad", { hasText: "Killed, memory used up" }).waitFor();
  assert.equal(await page.locator("[data-charts-happened] li", { hasText: "Ended" }).count(), 0);
  assert.deepEqual(faults, []);
});

test("a warning that comes while one looks is a mark at once, and no second one when it is over", async (t) => {
  const server = await portal(t, () => used(1, 1), { ends: null, now: at(MINUTES) });
  const { page, faults } = await open(t, server);
  await host(page, "memory").locator("canvas").waitFor();
  await until("the stream is open", () => server.streams.size === 1);
  const before = await pixels(page, "memory", await token(page, "--bad"));
  const alert = { id: "7".repeat(32), rule: "gpu_lost", severity: "critical", text: "GPU 0 on c1 is <b>lost</b>.", started_at: at(30) };
  server.say("alert", alert);
  await page.locator("summary", { hasText: "What happened when" }).click();
  const lost = page.locator("[data-charts-happened] li", { hasText: "GPU lost" });
  await lost.waitFor();
  assert.equal(await lost.getAttribute("class"), "happened-bad");
  assert.ok((await pixels(page, "memory", await token(page, "--bad"))) > before + 20, "red on the time axis");
  assert.equal(await page.locator("[data-announcer]").textContent(), alert.text);
  server.say("alert", { ...alert, ended_at: at(31) });
  server.say("alert", { ...alert, id: "8".repeat(32), rule: "memory_nearly_full", severity: "warning", started_at: at(40) });
  await page.locator("[data-charts-happened] li.happened-wait", { hasText: "Memory nearly full" }).waitFor();
  assert.equal(await lost.count(), 1);
  assert.deepEqual(faults, []);
});

test("a start after it was put back into the queue is a mark, and the charts go on from the first one", async (t) => {
  const server = await portal(t, () => used(1, 1), { ends: null, now: at(MINUTES) });
  const { page, faults } = await open(t, server);
  await host(page, "memory").locator("canvas").waitFor();
  await until("the stream is open", () => server.streams.size === 1);
  await page.locator("summary", { hasText: "What happened when" }).click();
  server.say("state", { state: "queued", restart_count: 1 });
  const marks = page.locator("[data-charts-happened] li");
  await marks.filter({ hasText: "Put back into the queue" }).waitFor();
  server.say("state", { state: "starting", restart_count: 1, started_at: at(MINUTES) });
  await marks.filter({ hasText: "Started again" }).waitFor();
  server.say("state", { state: "running", restart_count: 1, started_at: at(MINUTES) });
  server.say("state", { state: "ended", restart_count: 1, started_at: at(MINUTES), ended_at: at(MINUTES + 1) });
  await until("all is asked for, from the first start on", () => server.asked.at(-1).from === BEGINS && server.asked.at(-1).to === BEGINS + (MINUTES + 1) * 60_000);
  assert.equal(await marks.filter({ hasText: "Started again" }).count(), 1);
  assert.deepEqual(faults, []);
});

test("what went wrong is a mark in words", async (t) => {
  const kills = flat(0);
  kills[100] = 0.1;
  const begun = flat(0);
  begun[50] = 0.2;
  const up = (at) => flat(1).map((value, n) => (n >= at ? 0 : value));
  const answer = used(2, 2);
  answer.lines.push(line("steps", "cpu", "c1", undefined, begun), line("oom_kills", "memory", "c2", undefined, kills), line("gpu_up", "gpu", "c1", "0", up(200)), line("gpu_up", "gpu", "c1", "1", up(200)));
  const server = await portal(t, () => answer);
  const { page } = await open(t, server);
  await page.locator("summary", { hasText: "What happened when" }).click();
  const items = page.locator("[data-charts-happened] li");
  await items.nth(5).waitFor();
  assert.deepEqual((await items.allTextContents()).map((text) => text.replace(/^.*\d\d:\d\d:\d\d /, "")), ["Asked for", "Started", "Step begun", "Killed, memory used up (c2)", "GPU lost (2)", "Ended"]);
  assert.ok((await pixels(page, "memory", await token(page, "--bad"))) > 20, "red on the time axis");
  assert.deepEqual(await accessibility(page), []);
  await picture(page, "charts/marks");
});

test("of many troubles those that are bad and the latest are marked", async (t) => {
  const kills = flat(0);
  kills[2] = 1;
  const slow = flat(0).map((value, n) => (n % 4 === 3 ? 1 : value));
  const answer = used(1, 1);
  answer.lines.push(line("oom_kills", "memory", "c1", undefined, kills), line("gpu_throttled", "gpu", "c1", "0", slow));
  const server = await portal(t, () => answer);
  const { page } = await open(t, server);
  await page.locator("summary", { hasText: "What happened when" }).click();
  const items = page.locator("[data-charts-happened] li");
  await items.nth(42).waitFor();
  assert.equal(await items.count(), 43, "what is known anyway, and forty of what figures tell");
  assert.match(await items.nth(2).textContent(), /Killed, memory used up/);
  const times = await items.locator("time").evaluateAll((all) => all.map((one) => Date.parse(one.dateTime)));
  // Of the 90 that were slow the last 39.
  assert.deepEqual([times[3], times[41]], [51, 89].map((nth) => BEGINS + (nth * 4 + 3.5) * STEP_S * 1000));
});

test("where there is no room for all words, those of what is bad are there", async (t) => {
  const server = await portal(t, () => used(1, 0));
  const { page, faults } = await open(t, server);
  const said = await page.evaluate(async () => {
    const { draw } = await import(new URL("./charts/marks.js", document.querySelector('script[src*="charts.js"]').src).href);
    const words = [];
    const known = { measureText: (text) => ({ width: text.length * 6 }), fillText: (text, x) => words.push([text, Math.round(x)]) };
    const context = new Proxy(known, { get: (own, name) => own[name] ?? (() => {}), set: () => true });
    const mark = (at, text, tone) => ({ at, text, tone });
    const all = [mark(100, "Started", ""), mark(110, "Slow", "wait"), mark(120, "Killed", "bad"), mark(130, "Lost", "bad"), mark(400, "Slow", "wait"), mark(990, "Ended", "")];
    draw(context, all, 0, 1000, { left: 0, top: 18, width: 1000, height: 100 });
    return words;
  });
  assert.deepEqual(said, [["Killed", 127], ["Slow", 407], ["Ended", 955]]);
  assert.deepEqual(faults, []);
});

test("a span without a sample does not begin the same trouble anew", async (t) => {
  const lost = flat(1).map((value, n) => (n >= 100 ? 0 : value));
  const slow = flat(0).map((value, n) => (n >= 150 ? 1 : value));
  for (const hole of [120, 180, 240]) lost[hole] = slow[hole] = null;
  for (const hole of [300, 301]) lost[hole] = null;
  const answer = used(1, 1);
  answer.lines.push(line("gpu_up", "gpu", "c1", "0", lost), line("gpu_throttled", "gpu", "c1", "0", slow));
  const server = await portal(t, () => answer);
  const { page } = await open(t, server);
  await page.locator("summary", { hasText: "What happened when" }).click();
  const items = page.locator("[data-charts-happened] li");
  await items.nth(5).waitFor();
  const texts = (await items.allTextContents()).map((text) => text.replace(/^.*\d\d:\d\d:\d\d /, ""));
  assert.deepEqual(texts, ["Asked for", "Started", "GPU lost (c1, GPU 0)", "GPU slowed down (c1, GPU 0)", "GPU lost (c1, GPU 0)", "Ended"], "after two of them nobody knows what was between");
});

test("where there is nothing, or no answer, the page says what to do next", async (t) => {
  for (const [answer, change, text] of [
    [() => only([], 0), {}, "Nothing is known of this time. Choose another one, or All."],
    [() => only([]), {}, "Nothing is known of what it used."],
    [() => only([]), { ends: null }, "Figures come some seconds after it has begun. They show here by themselves."],
    [() => 503, {}, "What it uses cannot be read at the moment. Trying again…"],
  ]) {
    const server = await portal(t, answer, change);
    const { page, faults } = await open(t, server);
    await page.getByText(text).waitFor();
    assert.ok(await page.getByRole("heading", { name: "What it uses" }).isVisible(), "what the server drew stays");
    assert.deepEqual(await accessibility(page), []);
    assert.deepEqual(faults, []);
    await page.close();
  }
});

test("what could not be read is asked for again by itself", async (t) => {
  const server = await portal(t, () => 503);
  const page = await browser.newPage({ viewport: SIZES.desk });
  t.after(() => page.close());
  await page.clock.install();
  await page.goto(`${server.origin}/page`);
  await page.getByText("cannot be read at the moment").waitFor();
  server.answer = () => used(1, 1);
  await page.clock.runFor(11_000);
  await host(page, "cpu").locator("canvas").waitFor();
  assert.equal(await page.getByText("cannot be read at the moment").count(), 0);
});

test("names of reports stay text, and without scripts the server's pictures are there", async (t) => {
  const server = await portal(t, () => used(1, 0));
  const { page } = await open(t, server);
  assert.equal(await page.getByRole("heading", { name: "<b>loss</b>" }).count(), 1);
  const { page: plain } = await open(t, server, { javaScriptEnabled: false });
  assert.ok(await plain.locator("[data-charts-plain] svg.chart").first().isVisible());
  assert.equal(await plain.locator("[data-charts-tools]").isVisible(), false);
});

test("an axis has round values, and none twice", async (t) => {
  const server = await portal(t, () => used(1, 1));
  const { page, faults } = await open(t, server);
  const of = (...asked) =>
    page.evaluate(async (asked) => {
      const { ticks } = await import(new URL("./charts/figures.js", document.querySelector('script[src*="charts.js"]').src).href);
      return ticks(...asked);
    }, asked);
  assert.deepEqual(await of("rate", 0, 1.04), [0, 1], "nothing was read");
  assert.deepEqual(await of("bytes", 0, 2.1 * 1024), [0, 512, 1024, 1536, 2048]);
  assert.deepEqual(await of("cores", 0, 1.04), [0, 0.25, 0.5, 0.75, 1]);
  assert.deepEqual(faults, []);
});
