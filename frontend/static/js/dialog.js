// Asks for a few values in a dialog of the page.
import { say } from "./words.js";

let number = 0;

function element(name, { text, ...properties } = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  if (text !== undefined) made.textContent = text;
  made.append(...children);
  return made;
}

function fieldOf({ name, label, value = "", hint, kind = "text", choices = [] }) {
  const id = `d-${name}`;
  if (kind === "radio") {
    const options = choices.map(([word, text]) => {
      const button = element("input", { type: "radio", name, value: word, checked: word === value, required: true });
      return element("label", { className: "check" }, button, element("span", { text }));
    });
    return element("fieldset", { className: "field" }, element("legend", { text: label }), element("div", { className: "checks" }, ...options));
  }
  if (kind === "check") {
    const box = element("input", { type: "checkbox", name, value: "yes", checked: Boolean(value) });
    return element("label", { className: "check" }, box, element("span", { text: label }));
  }
  if (kind === "select") {
    const options = choices.map(([word, text]) => element("option", { value: word, text, selected: word === value }));
    const select = element("select", { id, name, className: "select" }, ...options);
    return element("div", { className: "field" }, element("label", { htmlFor: id, text: label }), select);
  }
  const input = element("input", { id, name, className: "input", value, required: true, autocomplete: "off", spellcheck: false });
  const parts = [element("label", { htmlFor: id, text: label }), input];
  if (hint) {
    parts.push(element("p", { className: "hint", id: `${id}-hint`, text: hint }));
    input.setAttribute("aria-describedby", `${id}-hint`);
  }
  return element("div", { className: "field" }, ...parts);
}

/** Shows `title`, `text` and `fields`; gives the values by name, or null where the answer is no. Further `buttons` are other ways of yes. */
export function askFor({ title, text, fields = [], yes, buttons = [] }) {
  const id = `dialog-${(number += 1)}`;
  const submit = (label, value, kind) => element("button", { type: "submit", className: `button ${kind}`, value, text: label });
  const no = element("button", { type: "button", className: "button", text: say("go_back") });
  const others = buttons.map(([value, label]) => submit(label, value, ""));
  const row = element("div", { className: "row" }, no, ...others, submit(yes, "yes", "button-main"));
  const form = element("form", { className: "form", method: "dialog" }, ...fields.map(fieldOf), row);
  const dialog = element("dialog", { className: "confirm" }, element("h2", { id, text: title }));
  if (text) dialog.append(element("p", { text, className: "wrap" }));
  dialog.append(form);
  dialog.setAttribute("aria-labelledby", id);
  document.body.append(dialog);
  return new Promise((done) => {
    let answer = null;
    no.addEventListener("click", () => dialog.close());
    form.addEventListener("submit", (event) => {
      answer = { ...Object.fromEntries(new FormData(form)), button: event.submitter?.value || "yes" };
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      done(answer);
    });
    dialog.showModal();
    const first = form.querySelector("input.input");
    if (first) {
      first.focus();
      const dot = first.value.lastIndexOf(".");
      first.setSelectionRange(0, dot > 0 ? dot : first.value.length);
    }
  });
}
