"""Futures of torch for works of the runtime.

torch's futures wake nobody by themselves, so a thread waits for a work and then completes its future.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["Completer", "future_of"]

Future = torch.futures.Future


def future_of(
    wait: Callable[[], Any],
    over: bool,
    complete: Callable[[Callable[[], Any], Any], None],
    devices: list[int | str | torch.device] | None = None,
) -> Any:
    """A future with what `wait` returns, or what it raises.

    Args:
        wait: waits for the end; called again by whoever is told of it.
        over: whether it is over already.
        complete: who waits otherwise, one of a `Completer`'s.
        devices: the accelerators that tensors in the result are on.
    """
    source: Any = Future(devices=devices)
    # What a callback raises reaches C++ waiters as an error; `set_exception` would look like a result to them.
    future = source.then(lambda _: wait())
    if over:
        source.set_result(None)
    else:
        complete(wait, source)
    return future


class Completer:
    """Completes the futures of one group's collectives, in order, in a thread that begins with the first of them."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Callable[[], Any], Any] | None] | None = None

    def collective(self, wait: Callable[[], Any], source: Any) -> None:
        """For works that end in the order they began."""
        if self._queue is None:
            self._queue = queue.SimpleQueue()
            threading.Thread(target=_complete_all, args=(self._queue,), name="eirene-futures", daemon=True).start()
        self._queue.put((wait, source))

    @staticmethod
    def message(wait: Callable[[], Any], source: Any) -> None:
        """For works that end when they like."""
        threading.Thread(target=_complete, args=(wait, source), name="eirene-future", daemon=True).start()

    def stop(self) -> None:
        """Ends the thread after what is queued."""
        if self._queue is not None:
            self._queue.put(None)
            self._queue = None


def _complete(wait: Callable[[], Any], source: Any) -> None:
    try:
        wait()
    except Exception:  # noqa: BLE001 - whatever it is, the future's own callback waits again, and raises it there
        pass
    source.set_result(None)


def _complete_all(items: queue.SimpleQueue[tuple[Callable[[], Any], Any] | None]) -> None:
    while (item := items.get()) is not None:
        _complete(*item)
        del item
