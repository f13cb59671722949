// The switch between light and dark; the choice stays in this browser.
const button = document.querySelector("[data-theme-toggle]");
const root = document.documentElement;

if (button) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try {
      localStorage.setItem("eirene-theme", root.dataset.theme);
    } catch {
      // Storage may be forbidden; the choice then lasts for this page.
    }
  });
}
