"""What schedulers send before they end a job, heard and kept for the training to ask for."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable
from types import FrameType
from typing import Any

from ..errors import InvalidArgument

__all__ = ["Signals"]


class Signals:
    """Hears signals from `start` to `stop`. Handlers that were there before are called too, if they were Python's.

    A handler here keeps a number and returns: Python runs it between two instructions of the main thread, whatever that is about, and calls
    that wait in the runtime go on afterwards.
    """

    def __init__(self, which: Iterable[int]) -> None:
        self._which = [signal.Signals(one) for one in which]
        self._before: dict[signal.Signals, Any] = {}
        self.heard: signal.Signals | None = None

    def start(self) -> None:
        """Installs the handlers.

        Raises:
            InvalidArgument: this is not the main thread, where Python has its handlers.
        """
        if self._which and threading.current_thread() is not threading.main_thread():
            raise InvalidArgument("signals are heard in the main thread alone; enter the Checkpointer there, or give it `signals=()`")
        for one in self._which:
            self._before[one] = signal.signal(one, self._hear)

    def stop(self) -> None:
        """Puts the earlier handlers back, where nobody has put others since."""
        for one, before in self._before.items():
            if signal.getsignal(one) == self._hear:
                # None stands for a handler that was not Python's; those cannot be put back.
                signal.signal(one, signal.SIG_DFL if before is None else before)
        self._before.clear()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.heard = signal.Signals(number)
        before = self._before.get(self.heard)
        if callable(before):
            before(number, frame)
