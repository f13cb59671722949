"""A rank's life: wait for what the notebook wants, carry it out, say how it ended.

A thread hears the notebook: on rank 0 from standard input, and passed on from there to all others through a group of the world that nothing else
uses. Nothing else goes from the notebook to ranks, so any launcher will do that gives rank 0 its standard input and passes outputs on. The main
thread runs cells, as programs expect it. When standard input ends, the notebook is gone, and so are the ranks, at once; likewise where it holds what
is no message, for where the next one would begin nobody knows.
"""

from __future__ import annotations

import ast
import atexit
import base64
import contextlib
import ctypes
import linecache
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any

from .. import _native
from .._world import world
from ..errors import EireneError, PeerDied
from ._failures import Failure, describe
from ._messages import LONGEST, Message, Sender, pack, unpack
from ._streams import Latest, RankStream, Values

__all__ = ["main", "tell_progress"]

_JOIN_MS = 300_000
# A message to a rank may take as long as the rank is there: years.
_FOREVER_MS = 10**11
_TAG = 1
# What is still there that long after the end was asked for ends without asking.
_END_SECONDS = 3.0
# Characters of a value as text that are shown.
_LONGEST_REPR = 100_000
# Ways in which values show themselves beside text, as IPython knows them.
_RICH = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_latex_": "text/latex",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
}

_worker: _Worker | None = None


def main() -> None:
    """A rank, until the notebook wants its end."""
    global _worker
    # What the cells' own code reads, and what programs that it starts read, is nothing; the notebook's words are not for them.
    orders = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    _worker = _Worker(orders)
    _worker.serve()
    _leave()


def tell_progress(done: int, total: int | None) -> None:
    """Shows how far this rank is; nothing where this process is no rank of a notebook."""
    if _worker is not None:
        _worker.tell_progress(done, total)


class _Worker:
    def __init__(self, orders: int) -> None:
        self._orders = orders
        self._world = world()
        self._rank, self._size = self._world.rank, self._world.size
        self._group = self._world.group(list(range(self._size)), "eirene_train.notebook", _JOIN_MS)
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        # The request that the main thread carries out, and the last one that was interrupted.
        self._running: int | None = None
        self._interrupted: int | None = None
        self._out, self._err = os.dup(1), os.dup(2)
        # Until the notebook has said what its token is, nothing can be said to it.
        self._sender, self._is_heard = Sender("", self._rank), False
        self._process = os.getpid()
        # Cells are the main program, as far as pickle and everybody else can tell.
        self._former = sys.modules["__main__"]
        self._module = types.ModuleType("__main__")
        self._module.__dict__["display"] = self._display
        sys.modules["__main__"] = self._module

    def serve(self) -> None:
        signal.signal(signal.SIGINT, self._on_interrupt)
        threading.Thread(target=self._hear, name="eirene-notebook", daemon=True).start()
        first = self._inbox.get()
        if first.kind != "hello":
            # Nobody is there to be told anything.
            return
        self._sender = Sender(str(first.fields["token"]), self._rank)
        self._is_heard = True
        self._latest = Latest(self._sender, self._out)
        sys.stdout = self._stdout = RankStream("stdout", 1, self._sender, self._out, self._latest)
        sys.stderr = self._stderr = RankStream("stderr", 2, self._sender, self._out, self._latest)
        self._values = Values(self._sender, self._out)
        if self._rank == 0 and self._size > 1:
            threading.Thread(target=self._watch, name="eirene-watch", daemon=True).start()
        self._send(Message("ready", {"size": self._size, "host": socket.gethostname(), "pid": os.getpid()}))
        while (message := self._inbox.get()).kind not in ("stop", "ended"):
            self._carry_out(message)
            if self._end() is not None:
                break
        if self._rank == 0 and message.kind != "stop":
            # Only rank 0 hears that the notebook is gone, or has understood: until then it stays, as does the launcher.
            while self._inbox.get().kind != "stop":
                pass

    # What is heard.

    def _hear(self) -> None:
        try:
            while self._take(self._next()):
                pass
        except EireneError as error:
            # The world has ended, and with it the way from rank 0 to here.
            self._tell_end(error)
        except Exception as error:
            # Nobody hears the notebook here any more, which must not look as if it said nothing.
            self._tell_damage(error)
            self._take(Message("stop"))

    def _watch(self) -> None:
        """Rank 0 waits for nobody's messages; a message that never comes tells it of the world's end."""
        nothing = ctypes.c_uint8()
        try:
            self._group.receive(1, _TAG, ctypes.addressof(nothing), 1, _UINT8, _FOREVER_MS).wait(None)
        except EireneError as error:
            self._tell_end(error)

    def _tell_end(self, error: EireneError) -> None:
        self._inbox.put(Message("ended"))
        with contextlib.suppress(OSError):
            self._send(Message("ended", _reason(error)))

    def _tell_damage(self, error: Exception) -> None:
        with contextlib.suppress(OSError):
            self._send(Message("damaged", {"reason": f"{type(error).__name__}: {error}"}))

    def _take(self, message: Message) -> bool:
        """Takes a message; whether there will be more."""
        if message.kind == "interrupt":
            self._interrupt(int(message.fields["request"]))
            return True
        self._inbox.put(message)
        if message.kind == "stop":
            threading.Thread(target=_end_soon, daemon=True).start()
            if self._running is not None:
                self._interrupt(self._running)
            return False
        return True

    def _next(self) -> Message:
        """What the notebook says next."""
        if self._rank:
            length = ctypes.c_uint64()
            self._receive(ctypes.addressof(length), 8)
            content = ctypes.create_string_buffer(length.value)
            self._receive(ctypes.addressof(content), length.value)
            return unpack(content.raw)
        order, data = self._read_order()
        length = ctypes.c_uint64(len(data))
        content = ctypes.create_string_buffer(data, len(data))
        for rank in range(1, self._size):
            try:
                self._pass_on(rank, ctypes.addressof(length), 8)
                self._pass_on(rank, ctypes.addressof(content), len(data))
            except EireneError:
                # Who cannot be reached is about to end; rank 0 goes on listening, if only for the end.
                break
        return order

    def _receive(self, address: int, length: int) -> None:
        self._group.receive(0, _TAG, address, length, _UINT8, _FOREVER_MS).wait(None)

    def _pass_on(self, rank: int, address: int, length: int) -> None:
        self._group.send(rank, _TAG, address, length, _UINT8, _FOREVER_MS).wait(None)

    def _read_order(self) -> tuple[Message, bytes]:
        """What the notebook says next, also as it came. Where it says no more, or what cannot be read, that is the end."""
        try:
            head = self._read(8)
            length = int.from_bytes(head, "little")
            if len(head) == 8 and not 0 < length <= LONGEST:
                raise ValueError(f"{length} bytes are no message")
            data = self._read(length) if len(head) == 8 else b""
            # Else the notebook has gone, be it in the midst of a message.
            if data and len(data) == length:
                return unpack(data), data
        except Exception as error:
            self._tell_damage(error)
        end = Message("stop")
        return end, pack(end)

    def _read(self, count: int) -> bytes:
        parts = []
        while count > 0 and (part := os.read(self._orders, min(count, 1 << 20))):
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    # Ctrl-C.

    def _interrupt(self, request: int) -> None:
        self._interrupted = request
        if self._running == request:
            main_thread = threading.main_thread().ident
            assert main_thread is not None
            # Also a call that waits in the system, or in a collective, is interrupted by a signal to the thread that waits.
            signal.pthread_kill(main_thread, signal.SIGINT)

    def _on_interrupt(self, *_: object) -> None:
        if self._running is not None and not self._sender.puts_off():
            raise KeyboardInterrupt

    # What is carried out.

    def _carry_out(self, message: Message) -> None:
        request = int(message.fields["request"])
        content, failure = b"", None
        actions: dict[str, Callable[[Message], bytes]] = {"cell": self._cell, "push": self._push, "pull": self._pull}
        try:
            try:
                self._running = request
                if self._interrupted == request:
                    raise KeyboardInterrupt
                content = actions[message.kind](message)
            finally:
                self._running = None
        except SystemExit as error:
            # A cell that ends itself early, in good order; the rank lives on, as a notebook's kernel does.
            failure = None if error.code in (None, 0) else describe(error, __file__)
        except BaseException as error:  # noqa: BLE001 - whatever a cell raises is told, and the rank lives on
            failure = describe(error, __file__)
        self._finish(request, failure, content)

    def _finish(self, request: int, failure: Failure | None, content: bytes) -> None:
        # The cell may have put something of its own there; ours have what is not told yet.
        for stream in (self._stdout, self._stderr):
            stream.finish()
        self._values.finish()
        self._latest.flush()
        with contextlib.suppress(Exception):
            ctypes.CDLL(None).fflush(None)
        # Programs write to stderr past us: its end is told there.
        with contextlib.suppress(OSError):
            self._sender.send(Message("quiet", {"request": request}), self._err)
        fields = {"request": request, "failure": failure and failure.fields(), "ended": self._end()}
        try:
            self._send(Message("done", fields, content))
        except ValueError as error:
            self._send(Message("done", {**fields, "failure": Failure("ValueError", str(error), "").fields()}))

    def _end(self) -> dict[str, Any] | None:
        """Why the world has ended, if it has."""
        try:
            self._world.well()
        except EireneError as error:
            return _reason(error)
        return None

    def _cell(self, message: Message) -> bytes:
        source, name = message.content.decode(), str(message.fields["name"])
        # For tracebacks.
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        tree = ast.parse(source, name)
        last = tree.body[-1] if tree.body and not source.rstrip().endswith(";") else None
        variables = self._module.__dict__
        if not isinstance(last, ast.Expr):
            exec(compile(tree, name, "exec", dont_inherit=True), variables)
            return b""
        exec(compile(ast.Module(tree.body[:-1], tree.type_ignores), name, "exec", dont_inherit=True), variables)
        value = eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), variables)
        if value is not None:
            variables["_"] = value
            if self._rank == 0 or message.fields.get("all"):
                self._display(value)
        return b""

    def _push(self, message: Message) -> bytes:
        # What is unpickled comes from the person's own notebook, by the standard input of the person's own process.
        values = {}
        for name, data in pickle.loads(message.content):
            try:
                values[name] = pickle.loads(data)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
                raise ValueError(f"`{name}` cannot be made here: {problem}; what it is made of must be importable on the ranks") from None
        self._module.__dict__.update(values)
        return b""

    def _pull(self, message: Message) -> bytes:
        if message.fields["rank"] not in (None, self._rank):
            return b""
        variables, values = self._module.__dict__, []
        for name in message.fields["names"]:
            if name not in variables:
                raise NameError(f"there is no `{name}`; a cell must have given it a value")
            try:
                values.append(pickle.dumps(variables[name]))
            except Exception as error:
                raise ValueError(f"`{name}` cannot be pickled: {type(error).__name__}: {error}") from None
        return pickle.dumps(values)

    # What is shown.

    def _display(self, *values: Any) -> None:
        """Shows values in the notebook; cells have it as `display`."""
        for value in values:
            self._values.show(_bundle(value))

    def tell_progress(self, done: int, total: int | None) -> None:
        # A data loader's worker is no rank, although it was forked from one.
        if os.getpid() == self._process:
            self._latest.tell("progress", Message("progress", {"done": done, "total": total}))

    def _send(self, message: Message) -> None:
        if self._is_heard:
            self._sender.send(message, self._out)


_UINT8 = _native.dtype("uint8")


def _reason(error: EireneError) -> dict[str, Any]:
    return {"reason": str(error), "gone": error.rank if isinstance(error, PeerDied) else None}


def _leave() -> None:
    """Ends this process without taking the interpreter apart: the threads that hear messages are in native code, and would come back into what
    is gone, when the other ranks' ends wake them."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


def _end_soon() -> None:
    time.sleep(_END_SECONDS)
    os._exit(0)


def _bundle(value: Any) -> dict[str, str]:
    """A value as text, and in the other ways it knows."""
    text = repr(value)
    bundle = {"text/plain": text if len(text) <= _LONGEST_REPR else text[:_LONGEST_REPR] + "…"}
    if isinstance(value, type):
        return bundle
    for method, kind in _RICH.items():
        # What has no such method, or cannot do it now, is shown as text.
        with contextlib.suppress(Exception):
            rich = getattr(value, method)()
            if isinstance(rich, bytes):
                rich = base64.b64encode(rich).decode()
            if isinstance(rich, str):
                bundle[kind] = rich
    return bundle
