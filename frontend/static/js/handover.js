// Sends the hand-over form by itself; its button does the same without scripts.
document.querySelector("form[data-handover]")?.requestSubmit();
