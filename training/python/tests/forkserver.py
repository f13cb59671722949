"""Ranks for tests that are not about how ranks are started: forked from one process that has imported torch, which takes seconds.

The server imports torch and what ranks need of it, but nothing of ours, runs nothing, and has no thread but the first. The launcher, or whoever
starts the ranks, starts a `stand_in` for each. That asks for its rank here, passes signals on, and ends as the rank does. A rank has the stand-in's
variables, working directory and descriptors, a process group of its own, and joins the world itself like any process; when its stand-in is killed,
it is killed too. What is not as with a new interpreter: torch was imported before the variables were set, without triton, ranks hash alike, and
at the end of one, modules are not taken apart.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import logging
import marshal
import mmap
import os
import random
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["MARK", "address", "command", "serve"]

# The variable by which tests find what they have started, in /proc/PID/environ; that shows a process's first environment only, so a rank writes
# its own over this one's.
MARK = "EIRENE_TEST_MARK"
_ROOM_FOR_MARK = 64

_MOST_DESCRIPTORS = 64
_LARGEST_ORDER = 1 << 20
_PR_SET_PDEATHSIG = 1

# What ranks import sooner or later; torch does much of it when it is first used.
_IMPORTS = ["pytest", "torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.pipelining", "torch.distributed.tensor.debug"]


@functools.cache
def address() -> str:
    """Where stand-ins ask for ranks. The first call starts the server; it ends with this process, and its ranks with it."""
    path = str(Path(tempfile.mkdtemp(prefix="forkserver."), "socket"))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent), "PYTHONUNBUFFERED": "1", MARK: "-" * _ROOM_FOR_MARK}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        # Whoever comes before torch is imported waits.
        listener.listen(64)
        server = subprocess.Popen(
            [sys.executable, "-c", "import sys, forkserver; forkserver.serve(int(sys.argv[1]))", str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=environment,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    atexit.register(server.communicate)
    return path


def command(call: str, *arguments: str) -> list[str]:
    """The command of a stand-in whose rank makes a call: `module:function` of this folder, or of a package, with these arguments."""
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("stand_in.py")), address(), call, *arguments]


def serve(listener: int) -> None:
    """Is the server, until its standard input ends; in each rank, is the rank."""
    # Processors need no triton, and its extension complains when a process ends whose objects are frozen. That it is missing is no news.
    sys.modules["triton"] = None  # type: ignore[assignment]
    logging.disable()
    for name in _IMPORTS:
        importlib.import_module(name)
    logging.disable(logging.NOTSET)
    del sys.modules["triton"]
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1 and not any(name.startswith("eirene_train") for name in sys.modules), (threads, sorted(sys.modules))
    # What is there now stays, and its pages are shared with the ranks as long as no collection writes to them.
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=listener) as listening:
        path = Path(listening.getsockname())
        order = _Nursery(listening).run()
    if order is None:
        # Whoever made it may have been killed.
        shutil.rmtree(path.parent)
    else:
        order.take_effect()
        module, _, function = order.call[0].partition(":")
        with _gap():
            getattr(importlib.import_module(module), function)(*order.call[1:])
        # As an interpreter ends, but for taking apart what was imported, which takes longer than most ranks live.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


@dataclass
class _Order:
    """What a rank is to be."""

    call: tuple[str, ...]
    place: str
    variables: dict[bytes, bytes]
    # The descriptors as they are here, and the numbers they have to have.
    given: list[int]
    numbers: list[int]

    @classmethod
    def receive(cls, connection: socket.socket) -> _Order | None:
        message, given, _, _ = socket.recv_fds(connection, _LARGEST_ORDER, _MOST_DESCRIPTORS)
        if not message:
            return None
        call, place, variables, numbers = marshal.loads(message)
        assert len(given) == len(numbers), (given, numbers)
        return cls(call, place, variables, given, numbers)

    def close(self) -> None:
        for descriptor in self.given:
            os.close(descriptor)

    def take_effect(self) -> None:
        """Makes this process, just forked, the one that is ordered."""
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        above = max(*self.given, *self.numbers) + 1
        moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, above) for descriptor in self.given]
        self.close()
        for descriptor, number in zip(moved, self.numbers, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        mark = self.variables.get(MARK.encode(), b"")
        assert len(mark) < _ROOM_FOR_MARK, mark
        libc.getenv.restype = ctypes.c_void_p
        ctypes.memmove(libc.getenv(MARK.encode()), mark + b"\0", len(mark) + 1)
        os.environb.clear()
        os.environb.update(self.variables)
        tempfile.tempdir = None
        os.chdir(self.place)


def _gap() -> mmap.mmap:
    """Memory that nobody uses, so that what this process allocates from now on lies elsewhere than in its siblings: as with new interpreters,
    one rank's addresses must not be good in another."""
    ctypes.CDLL(None).malloc(16 * random.randint(1, 4096))
    return mmap.mmap(-1, mmap.PAGESIZE * random.randint(1, 4096))


@dataclass
class _Rank:
    process: int
    connection: socket.socket
    # Readable when the process has ended.
    end: int


class _Nursery:
    """The server's loop."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._ranks: list[_Rank] = []
        # No epoll: a child would share it.
        self._selector = selectors.PollSelector()

    def run(self) -> _Order | None:
        """In a child, what it is to be; in the server, nothing, when its standard input has ended."""
        self._selector.register(0, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        while True:
            # One at a time: what is done about it may close the next one's descriptor, and open another of that number.
            key = self._selector.select()[0][0]
            if key.fileobj is self._listener:
                order = self._admit()
                if order is not None:
                    return order
            elif key.fd == 0:
                for rank in list(self._ranks):
                    self._bury(rank)
                return None
            elif key.fd == key.data.end:
                self._tell(key.data)
            else:
                self._bury(key.data)

    def _admit(self) -> _Order | None:
        """Forks a rank for whoever connects. In the child, what it is to be; of the server's nothing is open there any more."""
        connection, _ = self._listener.accept()
        order = _Order.receive(connection)
        if order is None:
            connection.close()
            return None
        process = os.fork()
        if process == 0:
            os.setpgid(0, 0)
            self._listener.close()
            connection.close()
            for rank in self._ranks:
                rank.connection.close()
                os.close(rank.end)
            return order
        # Here as well as there, so that it is done for both.
        os.setpgid(process, process)
        order.close()
        rank = _Rank(process, connection, os.pidfd_open(process))
        self._ranks.append(rank)
        self._selector.register(connection, selectors.EVENT_READ, rank)
        self._selector.register(rank.end, selectors.EVENT_READ, rank)
        # The stand-in may have ended since it asked; then its rank is buried next.
        with contextlib.suppress(OSError):
            connection.send(str(process).encode())
        return None

    def _tell(self, rank: _Rank) -> None:
        """Tells the stand-in how its rank has ended."""
        self._selector.unregister(rank.end)
        ended = os.waitid(os.P_PID, rank.process, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        with contextlib.suppress(OSError):
            rank.connection.send(str(code).encode())

    def _bury(self, rank: _Rank) -> None:
        """Ends a rank and its helpers, when its stand-in has ended. Until here the rank keeps its number, whether it has ended or not."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(rank.process, signal.SIGKILL)
        os.waitpid(rank.process, 0)
        self._ranks.remove(rank)
        self._selector.unregister(rank.connection)
        if rank.end in self._selector.get_map():
            self._selector.unregister(rank.end)
        os.close(rank.end)
        rank.connection.close()
