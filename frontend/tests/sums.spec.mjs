// Checksums of uploads, and the upload that sends them, without a browser: what it gives to them here is a double.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { access } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { crc32 as known } from "node:zlib";

import { crc32, crc32Of } from "../static/js/crc32.js";
import { checksumOf } from "./checksum.mjs";

const MIB = 1024 * 1024;
const hex = (sum) => sum.toString(16).padStart(8, "0");
const bytesOf = (words) => new TextEncoder().encode(words);

/** A blob that cannot be read from a place on, as one that was changed meanwhile. */
function unreadable(bytes, from) {
  const blob = new Blob([bytes]);
  const slice = (start, end) => {
    const part = blob.slice(start, end);
    if (end > from) part.arrayBuffer = () => Promise.reject(new DOMException("The file could not be read.", "NotReadableError"));
    // A slice of a slice, as the sum reads it.
    part.slice = (inner, most) => slice(start + inner, start + Math.min(most, part.size));
    return part;
  };
  return { name: "big.bin", size: blob.size, lastModified: 0, slice };
}

test("the sum of nothing, and of what everybody tries first", () => {
  assert.equal(hex(crc32(new Uint8Array())), "00000000");
  assert.equal(hex(crc32(bytesOf("123456789"))), "cbf43926");
  assert.equal(hex(crc32(bytesOf("a"))), "e8b7be43");
});

test("it is the same at each length and each place in memory, whole or in two", () => {
  const all = new Uint8Array(randomBytes(100));
  for (let length = 0; length <= 70; length += 1) {
    for (let at = 0; at <= 17; at += 1) {
      const bytes = all.subarray(at, at + length);
      assert.equal(crc32(bytes), known(bytes), `${length} bytes from ${at}`);
      const cut = length - Math.min(at, length);
      assert.equal(crc32(bytes.subarray(cut), crc32(bytes.subarray(0, cut))), known(bytes), `${length} bytes from ${at}, cut at ${cut}`);
    }
  }
});

test("a blob is read in parts, whose sum is that of the whole", async () => {
  for (const length of [0, 1, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 8 * MIB, 9 * MIB + 3]) {
    const bytes = randomBytes(length);
    assert.equal(await crc32Of(new Blob([bytes])), known(bytes), `${length} bytes`);
  }
  const read = [];
  const blob = { size: 9 * MIB, slice: (from, to) => (read.push(to - from), new Blob([new Uint8Array(Math.min(to, 9 * MIB) - from)])) };
  await crc32Of(blob);
  assert.deepEqual(read, [4 * MIB, 4 * MIB, 4 * MIB]);
  await assert.rejects(crc32Of(unreadable(randomBytes(9 * MIB), 8 * MIB)), /could not be read/);
});

let fresh = 0;
/** The module as a page has it that has just been loaded. */
const sums = () => import(`../static/js/sums.js?${(fresh += 1)}`);

/** A double of the worker that runs the real one's module. Answers wait until they are let go. */
async function workers(t) {
  const state = { made: [], asked: [], answered: 0, last: null, held: null };
  let hear;
  t.after(() => ["Worker", "addEventListener", "postMessage"].forEach((name) => delete globalThis[name]));
  globalThis.addEventListener = (kind, work) => (hear = work);
  globalThis.postMessage = (data) => {
    const give = () => {
      state.last.dispatchEvent(Object.assign(new Event("message"), { data }));
      state.answered += 1;
    };
    if (state.held) state.held.push(give);
    else give();
  };
  await import(`../static/js/crc32-worker.js?${(fresh += 1)}`);
  globalThis.Worker = class extends EventTarget {
    constructor(url, options) {
      super();
      state.made.push([url, options]);
      state.last = this;
    }
    postMessage(data) {
      state.asked.push(data);
      if (!state.mute) hear({ data });
    }
    terminate() {
      state.terminated = true;
    }
  };
  return state;
}

/** Goes on when a condition holds, which others bring about in turns of the loop. */
async function until(what, condition) {
  for (let n = 0; n < 10_000; n += 1) {
    if (condition()) return;
    await new Promise((go) => setImmediate(go));
  }
  assert.fail(`in vain: ${what}`);
}

test("one worker reckons for all uploads, and answers find whoever asked", async (t) => {
  const state = await workers(t);
  state.held = [];
  const { sumsOf } = await sums();
  assert.equal(state.made.length, 0, "none before it is needed");
  const files = ["one", "another", "third"].map(bytesOf);
  const coming = files.map((bytes) => sumsOf(new Blob([bytes]), 100)(0));
  await until("all are reckoned", () => state.held.length === 3);
  for (const give of state.held.reverse()) give();
  assert.deepEqual(await Promise.all(coming), files.map(checksumOf));
  assert.equal(state.made.length, 1);
  const [url, options] = state.made[0];
  await access(fileURLToPath(url));
  assert.deepEqual(options, { type: "module" });
});

test("the next piece is reckoned ahead, one and no more, and counts only where it begins", async (t) => {
  const state = await workers(t);
  const { sumsOf } = await sums();
  const bytes = new Uint8Array(randomBytes(30));
  const of = sumsOf(new Blob([bytes]), 8);
  const piece = (from) => checksumOf(bytes.subarray(from, from + 8));
  assert.equal(await of(0), piece(0));
  assert.equal(state.asked.length, 2, "0, and 8 ahead");
  assert.equal(await of(8), piece(8));
  assert.equal(state.asked.length, 3, "16 ahead");
  assert.equal(await of(11), piece(11), "16 is no use");
  assert.equal(state.asked.length, 5, "11, and 19 ahead");
  assert.equal(await of(16), piece(16), "what was dropped is not found again, and 19 is no use");
  assert.equal(state.asked.length, 7, "16, and 24 ahead");
  assert.equal(await of(24), piece(24), "a short one");
  assert.equal(state.asked.length, 7, "nothing behind the last");
});

test("a piece that cannot be read fails where it is asked for, also by way of the worker", async (t) => {
  const state = await workers(t);
  const { sumsOf } = await sums();
  const of = sumsOf(unreadable(bytesOf("0123456789"), 8), 8);
  assert.equal(await of(0), checksumOf(bytesOf("01234567")));
  await until("the next has failed, and nobody has asked for it", () => state.answered === 2);
  await new Promise((go) => setImmediate(go));
  await assert.rejects(of(8), { message: "The file could not be read." });
  await assert.rejects(of(8), { message: "The file could not be read." });
});

test("without a worker, or after its end, the page reckons itself", async (t) => {
  const bytes = bytesOf("123456789");
  const whole = async () => (await sums()).sumsOf(new Blob([bytes]), 100);
  assert.equal(await (await whole())(0), checksumOf(bytes), "there is no such thing");
  const state = await workers(t);
  state.mute = true;
  const of = await whole();
  const owed = of(0);
  state.last.dispatchEvent(new Event("error"));
  assert.equal(await owed, checksumOf(bytes), "it ended before it answered");
  assert.equal(await of(0), checksumOf(bytes), "and is not asked again");
  assert.deepEqual([state.terminated, state.made.length, state.asked.length], [true, 1, 1]);
});

/** A portal that takes one upload: `answer(request, bytes)` says what comes of its requests, where it says anything. */
async function portal(t, answer = () => undefined) {
  const state = { bytes: Buffer.alloc(0), length: 0, requests: [] };
  const usual = async ({ method, headers }, bytes) => {
    if (method === "POST") {
      state.length = headers["upload-length"];
      return [201, { location: "/live/uploads/u1", "upload-offset": 0 }];
    }
    if (method === "HEAD") return [200, { "upload-offset": state.bytes.length }];
    assert.equal(headers["upload-offset"], state.bytes.length);
    if (headers["upload-checksum"] !== checksumOf(bytes)) return [460, {}, { code: "checksum_differs", detail: "other bytes" }];
    state.bytes = Buffer.concat([state.bytes, bytes]);
    return [204, { "upload-offset": state.bytes.length, ...(state.bytes.length === state.length ? { "eirene-path": "big.bin" } : {}) }];
  };
  globalThis.document = { querySelector: () => null };
  globalThis.XMLHttpRequest = class extends EventTarget {
    headers = {};
    upload = new EventTarget();
    open(method, address) {
      Object.assign(this, { method, address });
    }
    setRequestHeader(name, value) {
      this.headers[name] = value;
    }
    getResponseHeader(name) {
      const value = this.answered[name];
      return value === undefined ? null : String(value);
    }
    async send(body) {
      this.sent = true;
      this.body = body;
      state.requests.push(this);
      const bytes = body && Buffer.from(await body.arrayBuffer());
      const said = (await answer(this, bytes, state)) ?? (await usual(this, bytes));
      if (said === "broken") return this.dispatchEvent(new Event("error"));
      const [status, headers, problem] = said;
      Object.assign(this, { status, answered: headers, responseText: problem ? JSON.stringify(problem) : "" });
      this.dispatchEvent(new Event("load"));
    }
    // As browsers do: what was not sent yet ends without a word.
    abort() {
      if (this.sent) this.dispatchEvent(new Event("abort"));
    }
  };
  t.after(() => ["document", "XMLHttpRequest"].forEach((name) => delete globalThis[name]));
  // Pauses between tries are over at once, and noted.
  state.pauses = [];
  t.mock.method(globalThis, "setTimeout", (work, ms) => (state.pauses.push(ms), setImmediate(work)));
  const { upload } = await import("../static/js/tus.js");
  state.send = (file, more) => upload(file, { create: "/live/spaces/home/uploads", key: "k", metadata: "path YQ==", ...more });
  state.patches = () => state.requests.filter(({ method }) => method === "PATCH");
  return state;
}

const PIECE = 32 * MIB;

test("pieces are sent as they lie on the disk, each with its sum, and a break goes on from where it came to", async (t) => {
  let breaks = 1;
  const state = await portal(t, ({ method, headers }, bytes, there) => {
    if (method !== "PATCH" || headers["upload-offset"] !== PIECE || breaks === 0) return undefined;
    breaks -= 1;
    there.bytes = Buffer.concat([there.bytes, bytes.subarray(0, 5)]);
    return "broken";
  });
  const bytes = randomBytes(2 * PIECE + 77);
  assert.equal(await state.send(new File([bytes], "big.bin")), "big.bin");
  assert.ok(state.bytes.equals(bytes));
  assert.deepEqual(state.patches().map(({ headers }) => headers["upload-offset"]), [0, PIECE, PIECE + 5, 2 * PIECE + 5]);
  assert.ok(state.patches().every(({ body }) => body instanceof Blob));
});

test("bytes that never add up are given up, also behind the first piece", async (t) => {
  const state = await portal(t, ({ method, headers }) => {
    if (method !== "PATCH" || headers["upload-offset"] === 0) return undefined;
    return [460, {}, { code: "checksum_differs", detail: "the bytes that came are not those that were meant" }];
  });
  await assert.rejects(state.send(new File([randomBytes(PIECE + 10)], "big.bin")), { code: "checksum_differs", status: 460 });
  assert.equal(state.patches().length, 1 + 9, "the first piece, and the second nine times");
  assert.deepEqual(state.pauses, [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
});

test("a file that cannot be read any more is said to be gone, and what was read before has been sent", async (t) => {
  const state = await portal(t);
  await assert.rejects(state.send(unreadable(randomBytes(PIECE + 10), PIECE)), { code: "file_gone" });
  assert.equal(state.bytes.length, PIECE);
});

test("what is cancelled while it is reckoned ends there", async (t) => {
  const state = await portal(t);
  const control = new AbortController();
  const bytes = new File(["0123456789"], "big.bin");
  const slice = bytes.slice.bind(bytes);
  bytes.slice = (...where) => (control.abort(), slice(...where));
  await assert.rejects(state.send(bytes, { signal: control.signal }), { name: "AbortError" });
  assert.deepEqual(state.patches(), []);
});

test("an upload that had to begin again has its tries again, wherever the first one was", async (t) => {
  // It is gone once, behind two pieces; then each second piece breaks, more often in all than in a row is allowed.
  let gone = true;
  let breaks = 0;
  const state = await portal(t, ({ method, headers }, bytes, there) => {
    if (method !== "PATCH") return undefined;
    if (gone && headers["upload-offset"] === 2 * PIECE) {
      gone = false;
      there.bytes = Buffer.alloc(0);
      return [410, {}, { code: "upload_gone", detail: "it is there no more" }];
    }
    if (gone || breaks >= 12) return undefined;
    breaks += 1;
    there.bytes = Buffer.concat([there.bytes, bytes.subarray(0, 5)]);
    return "broken";
  });
  const bytes = randomBytes(2 * PIECE + 10);
  assert.equal(await state.send(new File([bytes], "big.bin")), "big.bin");
  assert.ok(state.bytes.equals(bytes));
  assert.equal(breaks, 12);
  assert.ok(state.pauses.every((ms) => ms <= 2000), String(state.pauses));
});

test("what cannot be read and does not end is left by whoever cancels", async (t) => {
  const state = await portal(t);
  const control = new AbortController();
  const hangs = new File(["0123456789"], "big.bin");
  hangs.slice = () => ({ slice: () => ({ arrayBuffer: () => new Promise(() => setImmediate(() => control.abort())) }) });
  await assert.rejects(state.send(hangs, { signal: control.signal }), { name: "AbortError" });
  assert.deepEqual(state.patches(), []);
});
