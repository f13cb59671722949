// Follows a session's log: the stream begins with what there is and goes on as it is written.
const KEEP = 512 * 1024;
const RETRY_MS = 3000;

const log = document.querySelector("[data-log]");
let stop = null;

function append(text) {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  log.append(text);
  log.normalize();
  const node = log.firstChild;
  if (node && node.length > KEEP) node.deleteData(0, node.length - KEEP);
  if (atEnd) log.scrollTop = log.scrollHeight;
}

async function follow() {
  const control = new AbortController();
  stop = () => control.abort();
  try {
    const answer = await fetch(log.dataset.log, { signal: control.signal, redirect: "manual" });
    if (!answer.ok || !answer.body) return;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let first = true;
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      if (first) log.textContent = "";
      first = false;
      append(value);
    }
  } catch {
    // The connection went away; it is tried again below.
  } finally {
    stop = null;
  }
  const over = document.querySelector('[data-state="ended"], [data-state="failed"]');
  if (!over && !document.hidden) setTimeout(() => stop || follow(), RETRY_MS);
}

if (log) {
  log.scrollTop = log.scrollHeight;
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stop?.();
    else if (!stop) follow();
  });
  addEventListener("pagehide", () => stop?.());
  if (!document.hidden) follow();
}
