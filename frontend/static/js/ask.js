// Asks the portal for what programs ask its API: by the log-in's cookie, and where something changes with the log-in's form token.
import { say } from "./words.js";

/** The log-in's form token, as every form of the page has it. */
export const formToken = () => document.querySelector('input[name="csrf"]')?.value ?? "";

/** Why nothing came of a request. `code` is the API's; `offline` where there was no answer. */
export class Trouble extends Error {
  constructor(code, text, { status = 0, retryAfter = 0 } = {}) {
    super(text);
    Object.assign(this, { code, status, retryAfter });
  }
}

const sentence = (text) => {
  let opened = false;
  const quoted = text.replace(/`/g, () => ((opened = !opened) ? "“" : "”"));
  return `${quoted[0]?.toUpperCase() ?? ""}${quoted.slice(1)}${/[.!?]$/.test(quoted) ? "" : "."}`;
};

/** The trouble that an answer's status, headers and JSON tell of. */
export function troubleOf(status, retryAfter, problem) {
  const text = problem?.errors?.[0]?.message ?? problem?.detail ?? say("no_answer");
  return new Trouble(problem?.code ?? "unknown", sentence(text), { status, retryAfter: Number(retryAfter) || 0 });
}

/** Whoever is not signed in any more is sent to the log-in, and back to this page. */
export function signInAgain() {
  location.reload();
  return new Trouble("unauthenticated", say("signed_out"), { status: 401 });
}

/** Sends a request; gives its JSON, or throws a `Trouble`. */
export async function ask(method, address, { body, signal } = {}) {
  const headers = { accept: "application/json" };
  if (method !== "GET") headers["x-eirene-form"] = formToken();
  if (body) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(address, { method, headers, signal, redirect: "manual", body: body && JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble("offline", say("no_answer"));
  }
  if (answer.type === "opaqueredirect" || answer.status === 401) throw signInAgain();
  const said = await answer.json().catch(() => null);
  if (!answer.ok) throw troubleOf(answer.status, answer.headers.get("retry-after"), said);
  return said;
}
