// What a session uses, as its charts show it: a load whose figures are known is drawn, told as a table, looked at closer by keyboard, with what
// happened on the time axis. In the end it outgrows its memory, and its page says so and shows how it came to that.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { SIZES, accessibility, picture, tooWide } from "../browser.mjs";
import { HEIGHT, TOP, column, host, pixels, token } from "../plots.mjs";
import { until } from "./cluster.mjs";
import { closeBrowser, shows, signedIn, startSession } from "./demo.mjs";
import { asAda, putFile, typeInTerminal } from "./lab.mjs";

const MIB = 2 ** 20;
const FOLDER = "charts-by-hand";
const WINDOW = { reducedMotion: "reduce", timezoneId: "UTC", locale: "en-GB" };
// Has a step run, holds memory, writes, reads, computes, and rests between these; and says what the kernel counted of it and of all else in the
// session, as the charts do. It computes as much in each fifth of a second, so that it does not matter where in it a sample was taken, nor what
// else the machine has to do. When it is told to, it takes so much memory that it is killed: slowly in the end, so that a sample sees it nearly full.
const LOAD = `import array, json, os, socket, struct, time
def everyone(file, read):
    total = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/{file}") as text:
                total += read(text.read())
        except OSError:
            pass
    return total
def count(key):
    return everyone("io", lambda text: next(int(line.split()[1]) for line in text.splitlines() if line.startswith(key)))
def cpu():
    return everyone("stat", lambda text: sum(map(int, text.rsplit(")", 1)[1].split()[11:15]))) / os.sysconf("SC_CLK_TCK")
def resident():
    return everyone("statm", lambda text: int(text.split()[1])) * os.sysconf("SC_PAGE_SIZE")
def step():
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(os.environ["EIRENE_TRAIN_STEPS"])
    null = os.open("/dev/null", os.O_RDWR)
    program = {"command": ["true"], "directory": os.getcwd(), "environment": sorted(os.environ.items())}
    body = json.dumps({"kind": "step", "ranks": 1, "ranks_per_node": None, "nodes": [], "exclude": [], "oversubscribe": False, "bind": False,
        "labels": False, "output": None, "mpi": None, "program": program}).encode()
    peer.sendmsg([struct.pack("<I", len(body)) + body], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null] * 3))])
    print(peer.makefile("rb").read(), flush=True)
os.chdir(os.path.dirname(os.path.abspath(__file__)))
step()
time.sleep(10)
said = {"rests": time.time()}
before = resident()
held = [os.urandom(1 << 20) * 300]
said["grown"] = resident() - before
said["holds"] = time.time()
time.sleep(5)
written = count("write_bytes:")
with open("load.bin", "wb") as out:
    for _ in range(128):
        out.write(os.urandom(1 << 20))
    out.flush()
    os.fsync(out.fileno())
    os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
said["written"] = count("write_bytes:") - written
read = count("read_bytes:")
with open("load.bin", "rb", buffering=0) as file:
    while file.read(1 << 20):
        pass
said["read"] = count("read_bytes:") - read
said["transferred"] = time.time()
os.unlink("load.bin")
time.sleep(6)
computed = []
slot = time.time()
end = slot + 26
while slot < end:
    computed.append([time.time(), cpu()])
    enough = time.process_time() + 0.14
    while time.process_time() < enough:
        sum(range(20_000))
    slot += 0.2
    time.sleep(max(0, slot - time.time()))
said["computed"] = computed
with open("said.new", "w") as out:
    json.dump(said, out)
os.replace("said.new", "said.json")
while not os.path.exists("go-on"):
    time.sleep(0.1)
while resident() < 850 << 20:
    held.append(b"x" * (20 << 20))
while True:
    held.append(b"x" * (10 << 20))
    time.sleep(1)
`;

before(() => {
  asAda("rm", "-rf", FOLDER);
  asAda("mkdir", FOLDER);
  putFile(`${FOLDER}/load.py`, LOAD);
});
after(closeBrowser);

/** A figure as it is written, such as `0.98`, `300 MiB` or `1.5 GiB/s`; null where nothing is known. */
function number(text) {
  const [, figure, unit = "B"] = text.match(/^([\d.,]+)(?:\u00a0([KMG]i)?B(?:\/s)?)?$/) ?? [];
  return figure === undefined ? null : Number(figure.replaceAll(",", "")) * 1024 ** ["B", "Ki", "Mi", "Gi"].indexOf(unit);
}

/** The middle of a span of five seconds as it is written, such as `25 Nov, 15:45:02`, in seconds since 1970: the half is left out there. */
function moment(text) {
  const [, day, month, clock] = text.match(/^(\d+) (\w{3})\w*, ([\d:]+)$/) ?? assert.fail(text);
  return Date.parse(`${day} ${month} ${new Date().getUTCFullYear()} ${clock} UTC`) / 1000 + 0.5;
}

/** A sample was taken within so many seconds of the middle of its span. */
const AROUND = 2.5;

const plot = (page, chart) => page.locator(".plot", { has: page.locator(`[data-chart="${chart}"]`) });

/** The spans of a chart's table of which something is known, each with how long ago the one before was. */
async function rows(page, chart) {
  const cells = await plot(page, chart).locator("tbody tr").evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent)));
  const known = cells.map(([time, value]) => ({ at: moment(time), value: number(value) })).filter(({ value }) => value !== null);
  return known.map((row, n) => ({ ...row, since: known[n - 1]?.at ?? row.at }));
}

/** How much something that only rises rose in these spans. */
const rise = (spans) => spans.reduce((sum, { at, since, value }) => sum + value * (at - since), 0);

/** Between two moments of which something is known, what was in between. */
function between(known, at) {
  const next = known.findIndex(([when]) => when >= at);
  assert.ok(next > 0, `${at} lies within ${known[0]} and ${known.at(-1)}`);
  const [[before, less], [after, more]] = [known[next - 1], known[next]];
  return less + ((at - before) / (after - before)) * (more - less);
}

/** Within 5 %. */
function near(seen, known, what) {
  assert.ok(Math.abs(seen / known - 1) <= 0.05, `${what}: ${seen} shown, ${known} known`);
}

/** Waits until a chart has a line down its plot where this happened. */
async function marked(page, chart, text, colour = "--ink-soft") {
  const item = page.locator("[data-charts-happened] li", { hasText: text }).first();
  await item.waitFor({ state: "attached" });
  const at = Date.parse(await item.locator("time").getAttribute("datetime"));
  const ink = await token(page, colour);
  // It may be drawn anew between the looks.
  await until(`${text} is on the time axis`, async () => {
    const [from, to] = (await Promise.all(["aria-valuemin", "aria-valuemax"].map((name) => host(page, chart).getAttribute(name)))).map(Number);
    const found = (await column(page, chart, (at - from) / (to - from), ink)).filter((row) => row > TOP);
    return found.length > 30;
  });
}

test("what a session uses is drawn in the figures that it has, to its end", { timeout: 330_000 }, async (t) => {
  const { context, page, faults } = await signedIn(t, "ada", WINDOW);
  const id = await startSession(t, page, "What it uses");
  await shows(page, id, "running");
  const lab = await context.newPage();
  await typeInTerminal(lab, id, `python3 ${FOLDER}/load.py`);
  await page.goto(`/sessions/${id}/charts`);
  await host(page, "cpu").locator("canvas").waitFor();
  for (const chart of ["cpu", "memory"]) await plot(page, chart).getByRole("button", { name: "As a table" }).click();
  const said = JSON.parse(await until("the load says what it used", () => asAda("sh", "-c", `cat ${FOLDER}/said.json 2>/dev/null || :`).trim()));
  const [begun, done] = [said.computed[0][0], said.computed.at(-1)[0]];

  await t.test("the tables have what the kernel counted", async () => {
    await until("all of it is shown, without loading the page again", async () => (await rows(page, "cpu")).at(-1).at >= done);
    for (const chart of ["read", "written"]) await plot(page, chart).getByRole("button", { name: "As a table" }).click();
    const cpu = (await rows(page, "cpu")).filter(({ at, since }) => since >= begun + AROUND && at <= done - AROUND && at > since);
    assert.ok(cpu.length >= 2, "it computed for longer than a few samples");
    const [first, last] = [cpu[0].since, cpu.at(-1).at];
    const known = between(said.computed, last) - between(said.computed, first);
    near(rise(cpu), known, "seconds of a CPU");

    const memory = await rows(page, "memory");
    const without = memory.findLast(({ at }) => at < said.rests - AROUND);
    const held = memory.find(({ at }) => at > said.holds + AROUND);
    assert.ok(said.grown > 295 * MIB, `${said.grown} bytes are held`);
    near(held.value - without.value, said.grown, "memory that it took");

    for (const [chart, known] of [["written", said.written], ["read", said.read]]) {
      assert.ok(known >= 120 * MIB, `storage has seen it: ${known}`);
      const meanwhile = (await rows(page, chart)).filter(({ at, since }) => at > said.holds + AROUND && since < said.transferred + AROUND);
      near(rise(meanwhile), known, `bytes ${chart}`);
    }
  });

  await t.test("lines and marks are drawn, in light and in dark", async () => {
    await page.locator("summary", { hasText: "What happened when" }).click();
    const drawn = [];
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      const colour = await token(page, "--series-1");
      for (const chart of ["cpu", "memory", "written"]) {
        await until(`the line of ${chart} is drawn, ${colorScheme}`, async () => (await pixels(page, chart, colour)) > 100);
      }
      drawn.push(colour);
      for (const text of ["Started", "Step begun"]) await marked(page, "cpu", text);
      assert.deepEqual(await accessibility(page), []);
      await picture(page, `e2e/charts-${colorScheme}`);
    }
    assert.notEqual(drawn[0], drawn[1]);
    await page.setViewportSize(SIZES.phone);
    assert.deepEqual(await tooWide(page), []);
    await page.setViewportSize(SIZES.desk);
    await page.emulateMedia({ colorScheme: null });
  });

  await t.test("keys look closer and show all again", async () => {
    const chart = host(page, "cpu");
    const range = async () => (await Promise.all(["aria-valuemin", "aria-valuemax"].map((name) => chart.getAttribute(name)))).map(Number);
    const [from, to] = await range();
    await chart.focus();
    await page.keyboard.press("Home");
    await page.keyboard.press("+");
    const [, end] = await until("the earlier part is looked at", async () => {
      const [first, last] = await range();
      return last - first < 0.7 * (to - from) && first - from < 5000 ? [first, last] : null;
    });
    assert.ok(Date.parse(new URL(page.url()).searchParams.get("from")) < Date.parse(new URL(page.url()).searchParams.get("to")));
    assert.ok((await rows(page, "cpu")).every(({ at }) => at * 1000 <= end), "the table has what is looked at");
    await page.keyboard.press("Escape");
    await until("all is looked at", async () => {
      const [first, last] = await range();
      return first === from && last >= to;
    });
    assert.equal(new URL(page.url()).search, "");
  });

  const figure = (title) => page.locator("figure.picture", { has: page.getByRole("heading", { name: title, exact: true }) });
  /** The highest that the session's page says of its memory. */
  const most = async () => number(await figure("Memory").locator("tbody td").nth(2).textContent());

  await t.test("its page shows the same without a script", async () => {
    const known = Math.max(...(await rows(page, "memory")).map(({ value }) => value));
    await page.goto(`/sessions/${id}`);
    for (const title of ["CPUs", "Memory", "Storage"]) {
      const points = await figure(title).locator("polyline").first().getAttribute("points");
      assert.ok(points.trim().split(/\s+/).length > 4, `${title}: ${points}`);
    }
    near(await most(), known, "the most memory");
  });

  await t.test("it outgrows its memory: the page says so, and shows what led there", async () => {
    asAda("touch", `${FOLDER}/go-on`);
    await shows(page, id, "failed");
    await page.locator(".state-line", { hasText: "It used more memory than it asked for. Ask for more next time." }).waitFor();
    // The figures beside it come by themselves as well; a page that is loaded anew has all of them.
    await page.reload();
    assert.ok((await most()) >= 0.9 * 1024 * MIB, "it was nearly full");
    assert.deepEqual(await accessibility(page), []);
    await picture(page, "e2e/charts-killed");
    await page.getByRole("link", { name: "Look closer" }).click();
    await host(page, "memory").locator("canvas").waitFor();
    const memory = await rows(page, "memory");
    const last = memory.at(-1);
    assert.ok(last.value >= 0.9 * 1024 * MIB && last.value > 1.5 * memory[0].value, JSON.stringify(memory));
    const range = async () => (await Promise.all(["aria-valuemin", "aria-valuemax"].map((name) => host(page, "memory").getAttribute(name)))).map(Number);
    const colour = await token(page, "--series-1");
    // The table is there before the line is drawn, and says whole seconds: where exactly the line ends is looked for about there.
    const ends = [...Array(40).keys()].map((n) => 0.005 - n / 1000);
    await until("the line ends high", async () => {
      const [from, to] = await range();
      for (const beside of ends) {
        const line = await column(page, "memory", (last.at * 1000 - from) / (to - from) + beside, colour);
        if (line.length > 0) return line.some((row) => row < TOP + 0.25 * HEIGHT);
      }
      return false;
    });
    const [, to] = await range();
    assert.ok(to / 1000 - last.at < 20, `${to / 1000 - last.at} s before its end nothing is known any more`);
    // Its end, and not that of a program in it, which has a node beside it.
    await marked(page, "memory", /memory used up\s*$/, "--bad");
    await picture(page, "e2e/charts-led-there");
  });
  assert.deepEqual(faults, []);
});
