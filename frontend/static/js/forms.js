// Small helps for forms: one click starts one thing, the start form is checked while one types, errors get the focus.
import { announce, say } from "./words.js";

const CHECK_MS = 350;

for (const form of document.querySelectorAll("form[data-once]")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) return event.preventDefault();
    if (event.submitter?.hasAttribute("data-check-button")) return;
    form.dataset.sent = "yes";
    event.submitter?.setAttribute("aria-disabled", "true");
  });
  // Back from the next page: it may be sent again, and the key in it makes that harmless.
  addEventListener("pageshow", () => {
    delete form.dataset.sent;
    form.querySelector('[aria-disabled="true"]')?.removeAttribute("aria-disabled");
  });
}

const form = document.querySelector("form[data-check]");
if (form) {
  const verdict = form.querySelector("[data-verdict]");
  const gpus = form.querySelector("#f-gpus")?.closest(".field");
  const kind = form.querySelector("#f-gpu_type");
  form.querySelector("[data-check-button]").hidden = true;
  let timer = 0;
  let latest = 0;

  const check = async () => {
    const turn = ++latest;
    try {
      const body = new URLSearchParams(new FormData(form));
      const answer = await fetch(form.dataset.check, { method: "POST", body, redirect: "error" });
      if (answer.ok && turn === latest) {
        verdict.innerHTML = await answer.text();
        announce(verdict.firstElementChild?.dataset.announce);
      }
    } catch {
      // Nothing is known; starting still says what is wrong.
    }
  };
  const showGpus = () => {
    if (gpus && kind) gpus.hidden = kind.value === "none";
  };
  form.addEventListener("input", () => {
    showGpus();
    clearTimeout(timer);
    timer = setTimeout(check, CHECK_MS);
  });
  showGpus();
}

// A link of an error summary opens what hides its field.
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#f-"]');
  const field = link && document.getElementById(link.hash.slice(1));
  if (!field) return;
  event.preventDefault();
  field.closest("details")?.setAttribute("open", "");
  field.focus();
});

document.querySelector("[data-focus]")?.focus();

if (navigator.clipboard) {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.lastChild.textContent = say("copied");
      announce(say("copied"));
    });
  }
}
