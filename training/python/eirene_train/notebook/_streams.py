"""What code on a rank prints to: every line goes to the notebook as a message, at once, whoever else writes. So does every value that it shows.

Progress bars go back to the begin of their line (carriage return) instead of ending it. What such a line looks like now and then is told apart, for
the notebook to show in one place; when it ends, only its last state is a line. A line without an end is told in the same way when it is flushed.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
import time
from typing import Any

from ._allowance import Allowance
from ._messages import Message, Sender

__all__ = ["Latest", "RankStream", "Values", "as_seen"]

# What one rank may say at once, and a second after that, in characters: on each of its outputs, and in values that it shows.
_MOST = 1_000_000.0
_A_SECOND = 64_000.0
# A line without an end is broken there.
_LONGEST_LINE = 8192
_BETWEEN_STATES_SECONDS = 0.1


class Latest:
    """Tells what is true now, some times a second, however often it changes: only the last state counts, and the last one is always told."""

    def __init__(self, sender: Sender, to: int) -> None:
        self._sender, self._to = sender, to
        self._lock = threading.RLock()
        self._states: dict[str, Message] = {}
        self._changed = threading.Event()
        threading.Thread(target=self._serve, name="eirene-states", daemon=True).start()

    def tell(self, name: str, message: Message) -> None:
        """From now on this is true."""
        with self._lock:
            self._states[name] = message
        self._changed.set()

    def forget(self, name: str) -> None:
        """It is true no more; after this, nothing is told of it."""
        with self._lock:
            self._states.pop(name, None)

    def flush(self) -> None:
        """Tells at once what is not told yet."""
        with self._lock:
            while self._states:
                # With nobody to read it, it is as lost as what stands on a terminal that was closed.
                with contextlib.suppress(OSError):
                    self._sender.send(self._states.pop(next(iter(self._states))), self._to)

    def _serve(self) -> None:
        while self._changed.wait():
            self._changed.clear()
            self.flush()
            time.sleep(_BETWEEN_STATES_SECONDS)


class RankStream(io.TextIOBase):
    """``sys.stdout`` or ``sys.stderr`` of a rank."""

    def __init__(self, name: str, descriptor: int, sender: Sender, to: int, latest: Latest) -> None:
        super().__init__()
        self._name, self._descriptor, self._sender, self._to, self._latest = name, descriptor, sender, to, latest
        self._lock = threading.RLock()
        self._line = ""
        self._allowance = Allowance(_MOST, _A_SECOND)
        self._is_rank = True
        self.buffer = _Bytes(self)
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        # A data loader's worker is no rank: it writes as any program does.
        self._lock = threading.RLock()
        self._is_rank, self._line = False, ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "replace"

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if not self._is_rank:
            with self._lock:
                self._line += text
                # A line in one piece: who reads it would take the end that comes later for a line of its own.
                if "\n" in text or len(self._line) > _LONGEST_LINE:
                    self._write_through()
            return len(text)
        with self._lock:
            whole, end, rest = text.rpartition("\n")
            if end:
                self._latest.forget(self._name)
                self._tell("\n".join(as_seen(line) for line in (self._line + whole).split("\n")) + "\n")
                self._line = rest
            else:
                self._line += text
            if len(self._line) > _LONGEST_LINE:
                if "\r" in self._line:
                    self._line = "\r" + as_seen(self._line)
                if len(self._line) > _LONGEST_LINE:
                    self._tell(as_seen(self._line) + "\n")
                    self._line = ""
        return len(text)

    def flush(self) -> None:
        with self._lock:
            if not self._is_rank:
                self._write_through()
            elif self._line:
                data = as_seen(self._line).encode("utf-8", "replace")
                self._latest.tell(self._name, Message("line_so_far", {"stream": self._name}, data))

    def _write_through(self) -> None:
        data, self._line = self._line.encode("utf-8", "replace"), ""
        while data:
            data = data[os.write(self._descriptor, data) :]

    def finish(self) -> None:
        """The end of a cell: a line without an end gets one."""
        with self._lock:
            if self._line:
                self.write("\n")
            self._tell_missing()

    def _tell(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        if not self._allowance.takes(len(data), time.monotonic()):
            return
        self._tell_missing()
        self._send(Message("lines", {"stream": self._name}, data))

    def _tell_missing(self) -> None:
        if missing := self._allowance.missing():
            self._send(Message("missing", {"stream": self._name, "bytes": missing}))

    def _send(self, message: Message) -> None:
        # With nobody to read it, output is as lost as on a terminal that was closed; the rank is about to end.
        with contextlib.suppress(OSError):
            self._sender.send(message, self._to)


class Values:
    """Values that a rank shows, as far as they are not too many."""

    def __init__(self, sender: Sender, to: int) -> None:
        self._sender, self._to = sender, to
        self._lock = threading.RLock()
        self._allowance = Allowance(_MOST, _A_SECOND)

    def show(self, data: dict[str, str]) -> None:
        """Shows a value in these forms. What could not even pass alone is shown as text."""
        size = sum(map(len, data.values()))
        with self._lock:
            if self._allowance.takes(size, time.monotonic()):
                self.finish()
                self._send(Message("value", {"data": data}))
            elif size > self._allowance.most and len(data) > 1:
                self.show({"text/plain": data["text/plain"]})

    def finish(self) -> None:
        """The end of a cell: what was left out is told."""
        with self._lock:
            if missing := self._allowance.missing():
                self._send(Message("missing", {"bytes": missing}))

    def _send(self, message: Message) -> None:
        with contextlib.suppress(OSError):
            self._sender.send(message, self._to)


class _Bytes(io.RawIOBase):
    """For programs that write bytes to ``sys.stdout.buffer``."""

    def __init__(self, stream: RankStream) -> None:
        super().__init__()
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        text = bytes(data)
        self._stream.write(text.decode("utf-8", "replace"))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


def as_seen(line: str) -> str:
    """A line as a terminal shows it in the end: what stands behind its last carriage return."""
    if "\r" not in line:
        return line
    states = [state for state in line.split("\r") if state]
    return states[-1] if states else ""
