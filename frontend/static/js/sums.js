// Checksums of a file's pieces, as tus sends them: CRC-32, reckoned by a worker beside the page, one for all uploads. Where there can be no
// worker the page reckons them itself, a part at a time.
import { crc32Of } from "./crc32.js";

/** What the worker was asked and has not answered, by number. */
const asked = new Map();
let last = 0;
/** Made for the first piece; `null` where there is none to be had. */
let worker;

function start() {
  let made = null;
  try {
    made = new Worker(new URL("./crc32-worker.js", import.meta.url), { type: "module" });
  } catch {
    // Some browsers say by this that it is forbidden, others by the event below.
  }
  worker = made;
  made?.addEventListener("message", ({ data: { number, sum, trouble } }) => {
    const { done, failed } = asked.get(number) ?? {};
    if (!asked.delete(number)) return;
    if (trouble === undefined) done(sum);
    else failed(new Error(trouble));
  });
  // It could not be loaded, or knows no modules, or is no more: what it owes and all that follows is done here.
  made?.addEventListener("error", () => {
    made.terminate();
    worker = null;
    const owed = [...asked.values()];
    asked.clear();
    for (const { blob, done } of owed) done(crc32Of(blob));
  });
}

function crc32Beside(blob) {
  if (worker === undefined) start();
  if (worker === null) return crc32Of(blob);
  return new Promise((done, failed) => {
    last += 1;
    asked.set(last, { blob, done, failed });
    worker.postMessage({ number: last, blob });
  });
}

/** What `Upload-Checksum` says of these bytes. Fails where they cannot be read. */
async function checksum(blob) {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, await crc32Beside(blob));
  return `crc32 ${btoa(String.fromCharCode(...bytes))}`;
}

/**
 * Gives the checksum of the piece of `file` that begins at a place. When it is there, that of the piece behind it is begun, so that it is
 * reckoned while the first is sent; it counts only if that piece is what is asked for next.
 */
export function sumsOf(file, length) {
  const begin = (from) => checksum(file.slice(from, from + length));
  let ahead = null;
  return async (from) => {
    const mine = ahead?.from === from ? ahead.sum : begin(from);
    ahead = null;
    const sum = await mine;
    const next = from + length;
    if (next < file.size) {
      ahead = { from: next, sum: begin(next) };
      // Whoever asks for it is told that it failed; perhaps nobody does.
      ahead.sum.catch(() => {});
    }
    return sum;
  };
}
