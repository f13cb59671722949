"""Futures of torch for works of the runtime.

torch's futures wake nobody by themselves, so a thread waits for a work and then completes its future.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ._world import at_the_end
from .errors import TimedOut

__all__ = ["Completer", "Devices", "future_of"]

# How long the end of the interpreter waits for callbacks.
_CALLBACK_SECONDS = 10.0

# What the names of the threads that run callbacks begin with.
_THREAD = "eirene-future"

Devices = list[int | str | torch.device]
Future = torch.futures.Future


def future_of(wait: Callable[[], Any], over: bool, complete: Callable[[Callable[[], Any], Any], None], devices: Devices | None = None) -> Any:
    """A future with what `wait` returns, or what it raises, for callers in C++.

    Args:
        wait: waits for the end; called again by whoever is told of it.
        over: whether it has already ended.
        complete: who waits otherwise, one of a `Completer`'s.
        devices: the accelerators that tensors in the result are on.
    """
    source: Any = Future(devices=devices)
    # What a callback raises reaches C++ waiters as an error; `set_exception` would look like a result to them.
    future = source.then(lambda _: wait())
    if over:
        source.set_result(None)
    else:
        complete(wait, lambda: source.set_result(None))
    return future


# Where this thread is in the order of calls: none, or within a callback of the future that has this place.
_here = threading.local()
# Of all groups together, whose calls callbacks may mix.
_numbers = itertools.count()


@contextlib.contextmanager
def _within(place: tuple[float, ...]) -> Iterator[None]:
    before, _here.place = _place(), place
    try:
        yield
    finally:
        _here.place = before


def _place() -> tuple[float, ...]:
    place: tuple[float, ...] = getattr(_here, "place", ())
    return place


class _Ordered(torch.futures.Future):  # type: ignore[type-arg]
    """A future whose callbacks its completer knows of, so that their calls have the same place in the order of calls on all ranks."""

    def __init__(self, completer: Completer) -> None:
        super().__init__()
        self._completer = completer
        self._place = completer.place()

    def then(self, callback: Callable[[Any], Any]) -> Any:
        """As torch's."""
        self._completer.expect(self._place)
        return super().then(self._placed(callback))

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        """As torch's."""
        self._completer.expect(self._place)
        super().add_done_callback(self._placed(callback))

    def complete(self, wait: Callable[[], Any]) -> None:
        """Completes it with what `wait` returns or raises, and runs its callbacks."""
        with _within(self._place):
            try:
                result = wait()
            except Exception as error:
                self.set_exception(error)
            else:
                self.set_result(result)
        self._completer.called(self._place)

    def _placed(self, callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def placed(future: Any) -> Any:
            with _within(self._place):
                return callback(future)

        return placed


class Completer:
    """Completes the futures of one group's calls.

    A future's callbacks run in the thread that completes it, and may wait for a later call's future. So before a thread completes one, it leaves
    the queue to another thread.

    A callback may also make calls, whose place in the order of calls must be the same on all ranks, whenever the callback runs: after those of
    the callbacks of earlier calls, and before the calls that were made after the callback was added. For this, `settle` waits for callbacks.
    """

    def __init__(self) -> None:
        self._queue: deque[tuple[Callable[[], Any], Callable[[], None]]] = deque()
        self._changed = threading.Condition()
        # Whether a thread waits for the work that it took last, and how many threads are there to take the next one.
        self._waiting = False
        self._free = 0
        self._stopped = False
        # The places of futures: all that are not completed, and those of them that have callbacks.
        self._open: set[tuple[float, ...]] = set()
        self._expected: set[tuple[float, ...]] = set()

    def future(self, wait: Callable[[], Any], over: bool, in_order: bool) -> Any:
        """A future with what `wait` returns, or what it raises, for callers in Python.

        Args:
            wait: waits for the end.
            over: whether it has already ended.
            in_order: whether it ends after the works before it, as collectives do.
        """
        future = _Ordered(self)
        if over:
            future.complete(wait)
        else:
            (self.collective if in_order else self.message)(wait, lambda: future.complete(wait))
        return future

    def collective(self, wait: Callable[[], Any], complete: Callable[[], None]) -> None:
        """Calls `complete` after the end of a work that ends after those before it."""
        _due.more()
        with self._changed:
            self._queue.append((wait, complete))
            self._find_thread()

    @staticmethod
    def message(wait: Callable[[], Any], complete: Callable[[], None]) -> None:
        """Calls `complete` after the end of a work that ends when it likes."""
        _due.more()
        threading.Thread(target=_complete, args=(wait, lambda: None, complete), name=_THREAD, daemon=True).start()

    def stop(self) -> None:
        """Ends the threads after what is queued."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def place(self) -> tuple[float, ...]:
        """The place of a new future in the order of calls: behind those before it, and within the callback that asks for it."""
        place = (*_place(), next(_numbers))
        with self._changed:
            self._open.add(place)
        return place

    def expect(self, place: tuple[float, ...]) -> None:
        """Says that the future of that place is to have a callback."""
        with self._changed:
            if place in self._open:
                self._expected.add(place)

    def called(self, place: tuple[float, ...]) -> None:
        """Says that the callbacks of the future of that place have run."""
        with self._changed:
            self._open.discard(place)
            self._expected.discard(place)
            self._changed.notify_all()

    def settle(self, milliseconds: int) -> None:
        """Waits for the callbacks whose calls come before the one that is to be made now.

        Raises:
            TimedOut: they did not end in that time.
        """
        if not self._expected:
            return
        here = _place()

        def precede() -> bool:
            return any(place < (*here, math.inf) and place != here[: len(place)] for place in self._expected)

        with self._changed:
            settled = self._changed.wait_for(lambda: not precede(), milliseconds / 1000)
        if not settled:
            raise TimedOut(
                f"a callback of an earlier call did not end within {milliseconds / 1000:g} s, and this call comes after those that it may make; "
                "a callback cannot wait for a call that is made after the callback was added"
            )

    def _find_thread(self) -> None:
        """Sees to it that a thread takes what is queued next; called with the lock."""
        if not self._queue or self._waiting:
            return
        if self._free:
            self._changed.notify_all()
        else:
            self._free += 1
            threading.Thread(target=self._complete_all, name=f"{_THREAD}s", daemon=True).start()

    def _complete_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._waiting if self._queue else self._stopped)
                self._free -= 1
                if not self._queue:
                    return
                self._waiting = True
                wait, complete = self._queue.popleft()
            _complete(wait, self._waited, complete)
            del wait, complete
            with self._changed:
                self._free += 1

    def _waited(self) -> None:
        with self._changed:
            self._waiting = False
            self._find_thread()


def _complete(wait: Callable[[], Any], waited: Callable[[], None], complete: Callable[[], None]) -> None:
    try:
        wait()
    except Exception:  # noqa: BLE001 - whatever it is, who completes the future waits again, and hands it on
        pass
    waited()
    complete()
    _due.less()


class _Due:
    """How many futures are to be completed yet. The interpreter must not end in the middle of a callback: torch would end the process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    def more(self) -> None:
        with self._changed:
            self._count += 1

    def less(self) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def await_none(self) -> None:
        """Waits until there are none, but not for the callback that leaves the world, nor for one without an end."""
        own = int(threading.current_thread().name.startswith(_THREAD))
        with self._changed:
            self._changed.wait_for(lambda: self._count == own, _CALLBACK_SECONDS)


_due = _Due()
at_the_end(_due.await_none)
