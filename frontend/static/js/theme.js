// Applies the chosen theme before the first paint. A classic script on purpose: a module would run after it.
(() => {
  try {
    const theme = localStorage.getItem("eirene-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage may be forbidden; the system's theme is used then.
  }
})();
