// Says on the file browser's page what has become of something, and lets one take it back.

const root = document.querySelector("[data-files]");
const place = document.createElement("div");
place.className = "notices";
place.setAttribute("role", "status");
root.prepend(place);

/** Shows `text` in place of what was said before; `action` is a label and what it does. */
export function tell(tone, text, action) {
  const notice = document.createElement("div");
  notice.className = `notice notice-${tone} undo`;
  const words = document.createElement("div");
  words.textContent = text;
  notice.append(words);
  if (action) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button button-small";
    button.textContent = action[0];
    button.addEventListener("click", () => {
      notice.remove();
      action[1]();
    });
    notice.append(button);
  }
  place.replaceChildren(notice);
  const { top } = place.getBoundingClientRect();
  if (top < 0 || top > innerHeight) place.scrollIntoView({ block: "start" });
}

/** Says nothing any more. */
export const quiet = () => place.replaceChildren();
