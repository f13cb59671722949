// Work on files that takes a while: shown while it goes on, also after the page was loaded again, and ended where one asks.
import { ask } from "./ask.js";
import { say } from "./words.js";

const FIRST_MS = 300;
const MOST_MS = 2500;
const LIVE = ["waiting", "running"];
// What has a place of its own, or goes on in the background.
const ELSEWHERE = ["search", "scan", "old_files"];

const list = document.createElement("ul");
list.className = "works";
document.querySelector("[data-tools]").before(list);

const wait = (ms) => new Promise((go) => setTimeout(go, ms));

function what(kind) {
  if (kind === "copy") return say("work_copy");
  if (kind === "move") return say("work_move");
  if (kind === "extract") return say("work_extract");
  if (kind === "delete") return say("work_delete");
  if (kind === "search") return say("work_search");
  if (kind === "permissions") return say("work_permissions");
  return kind === "scan" ? say("work_scan") : say("work_other");
}

function how({ state, progress, problem }) {
  if (state === "waiting") return say("work_waiting");
  if (state === "running") return say("work_running", { n: progress?.entries ?? 0 });
  if (state === "cancelled") return say("work_cancelled");
  if (state === "interrupted") return problem?.text ?? say("work_interrupted");
  if (state === "failed") return problem?.text ?? say("no_answer");
  const skipped = progress?.skipped_in_all ?? 0;
  return skipped > 0 ? say("work_skipped", { n: skipped }) : say("work_done");
}

/** Follows an operation until it is over, and gives it as it was then. */
export async function follow(operation) {
  const line = document.createElement("li");
  const words = document.createElement("span");
  const end = document.createElement("button");
  Object.assign(end, { type: "button", className: "button button-small", textContent: say("cancel") });
  words.setAttribute("role", "status");
  line.append(words, end);
  list.append(line);
  const place = `/live/operations/${operation.id}`;
  end.addEventListener("click", () => {
    end.disabled = true;
    ask("DELETE", place).catch(() => (end.disabled = false));
  });
  let now = operation;
  for (let ms = FIRST_MS; LIVE.includes(now.state); ms = Math.min(MOST_MS, ms * 1.5)) {
    words.textContent = `${what(now.kind)} ${how(now)}`;
    await wait(ms);
    try {
      now = await ask("GET", place);
    } catch (error) {
      if (error.status === 404) break;
    }
  }
  words.textContent = `${what(now.kind)} ${how(now)}`;
  const over = now.state === "done" && !now.progress?.skipped_in_all;
  if (over) line.remove();
  else {
    end.disabled = false;
    end.textContent = say("close");
    end.addEventListener("click", () => line.remove());
  }
  return now;
}

/** Shows what of one's own was under way already when the page was loaded. */
export async function resume(over) {
  const { items } = await ask("GET", "/live/operations?limit=20");
  for (const one of items) if (LIVE.includes(one.state) && !ELSEWHERE.includes(one.kind)) follow(one).then(over);
}
