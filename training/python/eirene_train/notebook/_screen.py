"""Where a cell's output goes: lines as they come, and one place below that changes, for what is true now.

Jupyter has a display that can be updated, and shows it without any widget. A terminal has its last line, which is written anew. Elsewhere (a file, a
test of IPython's own) only lines are shown.
"""

from __future__ import annotations

import html
import secrets
import sys
import time
from typing import Any

from ._allowance import Allowance

__all__ = ["Screen"]

# A cell that is over sooner has no status.
_BEGIN_SECONDS = 0.5
_BETWEEN_SECONDS = 0.5
# What all ranks may say at once, and a second after that, in bytes.
_MOST = 2_000_000.0
_A_SECOND = 256_000.0
_CLEAR_LINE = "\r\x1b[2K"


class Screen:
    """The output of one cell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._is_jupyter = getattr(shell, "kernel", None) is not None
        self._is_terminal = not self._is_jupyter and sys.stdout.isatty()
        self._begin = self._shown_at = time.monotonic()
        self._identity: str | None = None
        self._shown = ""
        self._allowance = Allowance(_MOST, _A_SECOND)

    def lines(self, stream: str, lines: list[str]) -> None:
        """Shows whole lines, as far as they are not too many."""
        now, shown = time.monotonic(), []
        for line in lines:
            if self._allowance.takes(len(line) + 1, now):
                self._tell_missing()
                shown.append(line)
        if shown:
            self._write(stream, "\n".join([*shown, ""]))

    def say(self, sentence: str, wrong: bool = True) -> None:
        """Shows a sentence of our own, however much output there was; Jupyter shows what is `wrong` on red."""
        self._write("stderr" if wrong else "stdout", f"eirene: {sentence}\n")

    def value(self, data: dict[str, str]) -> None:
        """Shows a value in the best of these forms, if that is not too much."""
        if not self._allowance.takes(sum(map(len, data.values())), time.monotonic()):
            return
        self._tell_missing()
        self._clear()
        self._shell.display_pub.publish(data, {})

    def next(self) -> float:
        """When the status may be shown again, on the clock of `time.monotonic`."""
        return max(self._begin + _BEGIN_SECONDS, self._shown_at + _BETWEEN_SECONDS)

    def status(self, text: str) -> None:
        """Shows what is true now, if that has changed and it is time."""
        if text != self._shown and time.monotonic() >= self.next():
            self._show(text)

    def end(self, text: str, always: bool = False) -> None:
        """Shows how it ended, where there was a status, or `always`."""
        self._tell_missing()
        if always or self._identity is not None or (self._is_terminal and self._shown):
            self._show(text)
        if self._is_terminal and self._shown:
            sys.stdout.write("\n")

    def _show(self, text: str) -> None:
        self._shown, self._shown_at = text, time.monotonic()
        if self._is_jupyter:
            update = self._identity is not None
            self._identity = self._identity or secrets.token_hex(8)
            data = {"text/plain": text, "text/html": f'<pre style="margin: 0">{html.escape(text)}</pre>'}
            self._shell.display_pub.publish(data, {}, transient={"display_id": self._identity}, update=update)
        elif self._is_terminal:
            sys.stdout.write(_CLEAR_LINE + text.replace("\n", "  "))
            sys.stdout.flush()

    def _write(self, stream: str, text: str) -> None:
        self._clear()
        output = sys.stderr if stream == "stderr" else sys.stdout
        output.write(text)
        output.flush()

    def _clear(self) -> None:
        if self._is_terminal and self._shown:
            sys.stdout.write(_CLEAR_LINE)
            self._shown = ""

    def _tell_missing(self) -> None:
        if missing := self._allowance.missing():
            self.say(f"{amount(missing)} of output are left out here: that is more than a notebook can show")


def amount(count: int) -> str:
    """Bytes for people."""
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"
