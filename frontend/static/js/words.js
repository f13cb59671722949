// The words modules show, from the catalogue by way of the page's head.
const words = JSON.parse(document.querySelector('meta[name="eirene-words"]')?.content || "{}");

/** The text with each `{name}` replaced. */
export function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

/** The message below `js`, with `{name}` replaced. */
export function say(key, values = {}) {
  return fill(words[key] ?? key, values);
}

/** Has a screen reader say `text` when it has nothing else to say. */
export function announce(text) {
  const place = document.querySelector("[data-announcer]");
  if (place && text) place.textContent = text;
}
