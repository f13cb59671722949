// One upload by the protocol tus 1.0.0: made once, then sent in pieces, each with its checksum (`sums.js`). No piece is ever whole in
// the page's memory. Whatever breaks off is asked for how far it came, and goes on from there. What is kept between visits is the upload's
// address, and never a token.
import { Trouble, formToken, signInAgain, troubleOf } from "./ask.js";
import { sumsOf } from "./sums.js";
import { say } from "./words.js";

/** Bytes of a piece. */
export const PIECE = 32 * 1024 * 1024;
const FIRST_MS = 1000;
const MOST_MS = 30_000;
/** Tries without a byte of progress before it is given up. */
const TRIES = 8;
const VERSION = "1.0.0";
const KEPT = "eirene-upload:";

/** Sends one request. `fetch` does not tell how much of a body has left. */
function send(method, address, headers, { body, signal, onSent } = {}) {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open(method, address);
    const all = { "tus-resumable": VERSION, accept: "application/json", "x-eirene-form": formToken(), ...headers };
    for (const [name, value] of Object.entries(all)) request.setRequestHeader(name, value);
    const end = () => request.abort();
    const over = (work) => () => {
      signal?.removeEventListener("abort", end);
      work();
    };
    request.addEventListener("load", over(() => done(request)));
    request.addEventListener("error", over(() => failed(new Trouble("offline", say("no_answer")))));
    request.addEventListener("abort", over(() => failed(new DOMException("ended", "AbortError"))));
    if (onSent) request.upload.addEventListener("progress", (event) => onSent(event.loaded));
    // A request that was never sent tells nobody that it was ended.
    if (signal?.aborted) return failed(new DOMException("ended", "AbortError"));
    signal?.addEventListener("abort", end);
    request.send(body ?? null);
  });
}

function refusal(request) {
  let said = null;
  try {
    said = JSON.parse(request.responseText);
  } catch {
    // An answer without a body, as to HEAD, says all by its status.
  }
  return troubleOf(request.status, request.getResponseHeader("retry-after"), said);
}

/** Whether trying again may help: nobody answered, too much at once, somebody else writes yet, or the bytes were not those that were sent. */
const passes = ({ code, status }) => ["offline", "offset_differs"].includes(code) || [408, 423, 429, 460, 500, 502, 503, 504].includes(status);

function wait(ms, signal) {
  return new Promise((go, failed) => {
    const timer = setTimeout(go, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      failed(new DOMException("ended", "AbortError"));
    });
  });
}

/** What `work` comes to, or the end that the signal says: a file that cannot be read is not waited for by whoever has cancelled. */
function unlessEnded(signal, work) {
  return new Promise((done, failed) => {
    const end = () => failed(new DOMException("ended", "AbortError"));
    if (signal?.aborted) end();
    signal?.addEventListener("abort", end);
    work.then(done, failed).finally(() => signal?.removeEventListener("abort", end));
  });
}

/** Under which name an upload is kept between visits: this file, to this place. */
export const keyOf = (file, target) => KEPT + JSON.stringify([target, file.name, file.size, file.lastModified]);

function storage(work) {
  try {
    return work(localStorage);
  } catch {
    // Storage may be forbidden or full; the upload then lasts for this visit.
    return null;
  }
}

/** The uploads that an earlier visit did not finish, by their keys. */
export const unfinished = () => storage((kept) => Object.keys(kept).filter((key) => key.startsWith(KEPT))) ?? [];

/** What an unfinished upload was: its key's parts and its address. */
export function read(key) {
  const [target, name, size] = JSON.parse(key.slice(KEPT.length));
  return { target, name, size, address: storage((kept) => kept.getItem(key)) };
}

/** Forgets an unfinished upload, and has what there is of it removed. */
export async function forget(key) {
  const { address } = read(key);
  storage((kept) => kept.removeItem(key));
  if (address) await send("DELETE", address, {}).catch(() => {});
}

/**
 * Sends `file` to `create.address` with this metadata, or goes on with what an earlier visit began. `progress(bytes)` is told how much is
 * there, `waiting(trouble)` that it is tried again. Gives where the file lies, as the server says it.
 */
export async function upload(file, { create, key, metadata, signal, progress = () => {}, waiting = () => {} }) {
  let address = storage((kept) => kept.getItem(key));
  let offset = null;
  let furthest = 0;
  let tries = 0;
  const sum = sumsOf(file, PIECE);
  const keep = (place) => {
    address = place;
    storage((kept) => (place ? kept.setItem(key, place) : kept.removeItem(key)));
  };

  const begin = async () => {
    const request = await send("POST", create, { "upload-length": file.size, "upload-metadata": metadata }, { signal });
    if (request.status === 401) throw signInAgain();
    if (request.status !== 201) throw refusal(request);
    keep(request.getResponseHeader("location"));
    furthest = 0;
    return { at: Number(request.getResponseHeader("upload-offset") ?? 0), path: request.getResponseHeader("eirene-path") };
  };
  const look = async () => {
    const request = await send("HEAD", address, {}, { signal });
    if (request.status === 401) throw signInAgain();
    if (request.status === 404 || request.status === 410) {
      keep(null);
      return begin();
    }
    if (request.status !== 200) throw refusal(request);
    return { at: Number(request.getResponseHeader("upload-offset")), path: request.getResponseHeader("eirene-path") };
  };
  const piece = async (from) => {
    const headers = { "content-type": "application/offset+octet-stream", "upload-offset": from, "upload-checksum": await unlessEnded(signal, sum(from)) };
    const body = file.slice(from, from + PIECE);
    const request = await send("PATCH", address, headers, { body, signal, onSent: (sent) => progress(from + sent) });
    if (request.status === 401) throw signInAgain();
    if (request.status !== 204) throw refusal(request);
    return { at: Number(request.getResponseHeader("upload-offset")), path: request.getResponseHeader("eirene-path") };
  };

  for (;;) {
    try {
      const stands = await (offset !== null ? piece(offset) : address ? look() : begin());
      // That it is still where it was, as it says after a break, is no progress.
      if (stands.at > furthest) tries = 0;
      furthest = Math.max(furthest, stands.at);
      offset = stands.at;
      progress(offset);
      // The server names the file's place once it is whole: after the last byte, or where there is none at once.
      if (stands.path !== null) {
        keep(null);
        return stands.path;
      }
    } catch (error) {
      if (error.name === "AbortError") throw error;
      if (!(error instanceof Trouble)) {
        // The file was changed or taken away while it was read.
        throw new Trouble("file_gone", say("file_gone"));
      }
      // It is there no more on the other side: from the start, once.
      if ([404, 410].includes(error.status) && address && tries === 0) {
        tries += 1;
        keep(null);
        offset = null;
        continue;
      }
      tries += 1;
      if (!passes(error) || tries > TRIES) throw error;
      waiting(error);
      offset = null;
      await wait(Math.max(error.retryAfter * 1000, Math.min(MOST_MS, FIRST_MS * 2 ** (tries - 1))), signal);
    }
  }
}
