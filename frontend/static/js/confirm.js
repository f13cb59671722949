// Asks before something that cannot be taken back, in a dialog of the page; without scripts the link's own page asks.
const dialog = document.querySelector("[data-confirm-dialog]");

if (dialog?.showModal) {
  const form = dialog.querySelector("form");
  const part = (name) => dialog.querySelector(`[data-${name}]`);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-confirm]");
    if (!link || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    part("title").textContent = link.dataset.confirmTitle;
    part("text").textContent = link.dataset.confirmText;
    part("yes").textContent = link.dataset.confirmYes;
    form.action = link.href;
    dialog.showModal();
    part("no").focus();
  });
  part("no").addEventListener("click", () => dialog.close());
}
