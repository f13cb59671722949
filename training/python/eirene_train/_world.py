"""The world this process belongs to: joined once, when it is first needed, and left when the interpreter ends.

A child made by ``fork`` (a data loader's worker) inherits nothing of it: there, the world is over, and asking for it is an error.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import threading
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

from . import _native
from .errors import EireneError, InvalidArgument

__all__ = ["Outbox", "at_the_end", "broadcast_bytes", "joined", "leave", "world"]

_JOIN_SECONDS = 300.0

_lock = threading.Lock()
_world: _native.World | None = None
_process = os.getpid()
_left = False


def world(timeout: float = _JOIN_SECONDS) -> _native.World:
    """The world of this run, which the first call joins.

    Args:
        timeout: seconds to wait for the other ranks; of meaning for the first call only.

    Raises:
        LaunchError: how this process was started makes no sense; the message says the cure.
        TimedOut: some ranks did not come; the message names them.
        InvalidArgument: the world was left, or this is a child of a rank.
    """
    global _world
    if _process != os.getpid():
        raise InvalidArgument("this process was forked from a rank and is none itself; use the `spawn` or `forkserver` start method to make ranks")
    if _left:
        raise InvalidArgument("the world was left; a process can join only once")
    if _world is None:
        with _lock:
            if _world is None:
                _world = _native.World.join(int(timeout * 1000))
                atexit.register(leave)
                for remark in _world.remarks:
                    warnings.warn(f"eirene_train: {remark}", RuntimeWarning, stacklevel=2)
    return _world


def joined() -> bool:
    """Whether this process is a rank by now."""
    return _world is not None and not _left and _process == os.getpid()


def leave() -> None:
    """Leaves the world in good order. Called at the end of the interpreter; calling it earlier is harmless, and final.

    What this rank has begun to send, and nobody has waited for, is sent first.
    """
    global _left
    if _world is not None and not _left and _process == os.getpid():
        _left = True
        for sends in list(_outboxes):
            sends.flush()
        _world.leave()
        for call in _last:
            call()


_last: list[Callable[[], None]] = []


def at_the_end(call: Callable[[], None]) -> None:
    """Has `call` called when the world has been left, and nothing is under way in it any more."""
    _last.append(call)


class Outbox:
    """Sends that their callers may never wait for; others count on them all the same."""

    def __init__(self) -> None:
        self._under_way: deque[_native.Work] = deque()
        _outboxes.add(self)

    def add(self, work: _native.Work) -> None:
        """Remembers a send until it is over."""
        under_way = self._under_way
        while under_way and under_way[0].is_done():
            under_way.popleft()
        under_way.append(work)

    def flush(self) -> None:
        """Waits for all of them, each as long as it may take; what went wrong with one is its receiver's to tell."""
        while self._under_way:
            with contextlib.suppress(EireneError):
                self._under_way.popleft().wait(None)
        _outboxes.discard(self)

    def forget(self) -> None:
        """Lets them be."""
        self._under_way.clear()
        _outboxes.discard(self)


_outboxes: set[Outbox] = set()


def broadcast_bytes(group: _native.Group, data: bytes, timeout_ms: int) -> bytes:
    """Rank 0's bytes, on every rank of the group. Every rank gives bytes; only rank 0's count."""
    uint8, broadcast, total = _native.dtype("uint8"), _native.collective("broadcast"), _native.op("sum")

    def everywhere(memory: Any) -> None:
        part = [ctypes.addressof(memory), ctypes.sizeof(memory)]
        group.run(broadcast, 0, uint8, total, part, part, timeout_ms)

    length = ctypes.c_uint64(len(data))
    everywhere(length)
    content = (ctypes.c_char * length.value).from_buffer(bytearray(data if group.rank == 0 else length.value))
    if length.value:
        everywhere(content)
    return bytes(content.raw)
