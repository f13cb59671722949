"""A key-value store for torch, between the ranks of a world, without an address or a port to agree on.

torch wants one for its own business (groups that mix backends, barriers at start); the collectives never touch it. Rank 0 keeps the table
and answers in a thread. The other ranks each connect once, while the store is made; then nobody listens any more. Every connection proves
both ways that it knows a key, which the ranks have through the world they share, before anything else on it is looked at; from then on what
goes over it is sealed.
Requests are answered at once; waiting is asking again, so that one rank's wait keeps nobody else from an answer.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import selectors
import socket
import struct
import threading
import time
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Store

from . import _native
from ._wire import Frames, admitted, listen, reach
from ._world import broadcast_bytes
from .errors import EireneError, PeerDied, SystemFailure, TimedOut

__all__ = ["WorldStore"]

# How often to look whether all ranks are well.
_LOOK_SECONDS = 0.1
_NOTHING = 0xFFFF_FFFF

# One request is a verb, then fields; one answer is fields. A field is its length and its bytes.
_SET, _GET, _ADD, _CHECK, _COMPARE, _DELETE, _COUNT, _APPEND, _LIST = range(9)


def _pack(*fields: bytes | None) -> bytes:
    return b"".join(struct.pack("<I", _NOTHING) if field is None else struct.pack("<I", len(field)) + field for field in fields)


def _unpack(frame: bytes) -> list[bytes | None]:
    fields: list[bytes | None] = []
    at = 0
    while at < len(frame):
        (length,) = struct.unpack_from("<I", frame, at)
        at += 4
        if length == _NOTHING:
            fields.append(None)
        else:
            fields.append(frame[at : at + length])
            at += length
    return fields


class _Table:
    """What rank 0 keeps."""

    def __init__(self) -> None:
        self._content: dict[bytes, bytes] = {}
        self._lock = threading.Lock()

    def answer(self, verb: int, fields: list[bytes | None]) -> bytes:
        keys = [field for field in fields if field is not None]
        with self._lock:
            return self._answer(verb, keys, fields)

    def _answer(self, verb: int, keys: list[bytes], fields: list[bytes | None]) -> bytes:
        content = self._content
        if verb == _GET:
            return _pack(*(content.get(key) for key in keys))
        if verb == _CHECK:
            return _pack(b"1" if all(key in content for key in keys) else b"0")
        if verb == _COUNT:
            return _pack(str(len(content)).encode())
        if verb == _LIST:
            return _pack(*content)
        key = keys[0]
        if verb == _SET:
            content[key] = keys[1]
            return _pack()
        if verb == _ADD:
            value = int(content.get(key, b"0")) + int(keys[1])
            content[key] = str(value).encode()
            return _pack(content[key])
        if verb == _COMPARE:
            expected, desired = keys[1], keys[2]
            if (key not in content and not expected) or content.get(key) == expected:
                content[key] = desired
            return _pack(content.get(key, expected))
        if verb == _DELETE:
            return _pack(b"0" if content.pop(key, None) is None else b"1")
        if verb == _APPEND:
            content[key] = content.get(key, b"") + keys[1]
            return _pack()
        raise ConnectionError("a request nobody knows")


class _Server:
    """Rank 0's side: lets each of the others in once, then answers them."""

    def __init__(self, table: _Table, secret: bytes, clients: int, listener: socket.socket, seconds: float) -> None:
        self._table = table
        self._secret = secret
        self._clients = clients
        self._listener = listener
        self._seconds = seconds
        # Set when nobody more is let in: all are there, or `failure` says why not.
        self.complete = threading.Event()
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._serve, name="eirene-store", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        guests: list[Frames] = []
        try:
            with self._listener:
                guests.extend(admitted(self._listener, self._secret, self._clients, self._seconds))
            selector = selectors.DefaultSelector()
        except Exception as failure:  # noqa: BLE001 - whatever it is, whoever waits raises it
            self.failure = failure
            self.complete.set()
            for frames in guests:
                frames.connection.close()
            return
        self.complete.set()
        with selector:
            for frames in guests:
                selector.register(frames.connection, selectors.EVENT_READ, frames)
            while selector.get_map():
                for key, _ in selector.select():
                    self._answer(selector, key.data)

    def _answer(self, selector: selectors.BaseSelector, frames: Frames) -> None:
        try:
            request = frames.receive()
            frames.send(self._table.answer(request[0], _unpack(request[1:])))
        except (OSError, IndexError, ValueError, struct.error):
            selector.unregister(frames.connection)
            frames.connection.close()


class WorldStore(Store):
    """The store. Made by all ranks of the world together.

    Args:
        world: the world its users share.
        timeout: how long `get` and `wait` wait, and how long making it may take.
    """

    def __init__(self, world: _native.World, timeout: timedelta) -> None:
        super().__init__()
        self._world = world
        self._process = os.getpid()
        self._seconds = timeout.total_seconds()
        self._table: _Table | None = None
        self._frames: Frames | None = None
        self._lock = threading.Lock()
        milliseconds = int(self._seconds * 1000)
        group = world.everybody(milliseconds)
        clients = world.size - 1
        if world.rank == 0:
            self._table = _Table()
            if clients:
                name = secrets.token_bytes(16)
                listener, targets = listen(world.nodes == 1, clients)
                server = _Server(self._table, _secret(world, name), clients, listener, self._seconds)
                broadcast_bytes(group, json.dumps([name.hex(), targets]).encode(), milliseconds)
                self._await(server)
        else:
            name_text, targets = json.loads(broadcast_bytes(group, b"", milliseconds))
            secret = _secret(world, bytes.fromhex(name_text))
            try:
                self._frames = reach(targets, secret, world.rank, self._seconds, world.well)
            except TimeoutError as error:
                raise TimedOut(f"rank {world.rank} could not reach the store of rank 0 ({error})", (0,)) from error

    def _await(self, server: _Server) -> None:
        while not server.complete.wait(_LOOK_SECONDS):
            self._world.well()
        if isinstance(server.failure, TimedOut):
            raise server.failure
        if server.failure is not None:
            raise SystemFailure(f"rank 0 could not let the others in to its store: {server.failure}") from server.failure

    def _ask(self, verb: int, *fields: bytes) -> list[bytes | None]:
        # A forked child has the parent's place on the connection, or a copy of the table, and the locks as they were just then.
        if os.getpid() != self._process:
            raise EireneError(
                f"this process was forked from the one that is rank {self._world.rank} (process {self._process}), and only that one may use the "
                "world's store; ask it before forking, or leave it to that one"
            )
        if self._table is not None:
            return _unpack(self._table.answer(verb, list(fields)))
        assert self._frames is not None
        try:
            with self._lock:
                self._frames.send(bytes([verb]) + _pack(*fields))
                return _unpack(self._frames.receive())
        except OSError as error:
            raise PeerDied(f"the store's keeper, rank 0, is gone: {error}", 0) from error

    def _first(self, verb: int, *fields: bytes) -> bytes:
        (answer,) = self._ask(verb, *fields)
        assert answer is not None
        return answer

    def set(self, key: str, value: str | bytes) -> None:
        """Sets a key."""
        self._ask(_SET, key.encode(), _bytes(value))

    def get(self, key: str) -> bytes:
        """A key's value, as soon as it has one."""
        self.wait([key])
        return self._first(_GET, key.encode())

    def add(self, key: str, value: int) -> int:
        """Adds to a number, which is 0 at first, and returns it."""
        return int(self._first(_ADD, key.encode(), str(value).encode()))

    def check(self, keys: list[str]) -> bool:
        """Whether all of these keys are set."""
        return self._first(_CHECK, *(key.encode() for key in keys)) == b"1"

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Sets a key if it has the expected value, or has none and none is expected; returns its value."""
        return self._first(_COMPARE, key.encode(), _bytes(expected_value), _bytes(desired_value))

    def delete_key(self, key: str) -> bool:
        """Removes a key; whether there was one."""
        return self._first(_DELETE, key.encode()) == b"1"

    def num_keys(self) -> int:
        """How many keys are set."""
        return int(self._first(_COUNT))

    def append(self, key: str, value: str | bytes) -> None:
        """Appends to a key's value."""
        self._ask(_APPEND, key.encode(), _bytes(value))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """The values of several keys, as soon as all are set."""
        self.wait(keys)
        return [value or b"" for value in self._ask(_GET, *(key.encode() for key in keys))]

    def multi_set(self, keys: list[str], values: list[str | bytes]) -> None:
        """Sets several keys."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Waits until all of these keys are set.

        Raises:
            TimedOut: they were not set in time.
            PeerDied: a rank died meanwhile, whichever it was.
        """
        seconds = self._seconds if timeout is None else timeout.total_seconds()
        deadline = time.monotonic() + seconds
        pause = 0.0005
        while not self.check(keys):
            self._world.well()
            if time.monotonic() > deadline:
                missing = [key for key in keys if not self.check([key])]
                raise TimedOut(f"waited {seconds:g} s for {', '.join(missing)} in the store")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)

    def set_timeout(self, timeout: timedelta) -> None:
        """How long `get` and `wait` wait from now on."""
        self._seconds = timeout.total_seconds()

    def has_extended_api(self) -> bool:
        """It has append, multi_get and multi_set."""
        return True

    def list_keys(self) -> list[str]:
        """All keys."""
        return [key.decode() for key in self._ask(_LIST) if key is not None]

    def clone(self) -> Store:
        """The store itself: it may be used by several threads."""
        return self

    # torch's C++ side looks some of them up by the names of its own methods.
    deleteKey = delete_key
    getNumKeys = num_keys
    listKeys = list_keys
    setTimeout = set_timeout


def _secret(world: _native.World, name: bytes) -> bytes:
    """What the two sides of a connection to the store of this name prove to know. It follows from the world's secret and is never sent."""
    return hmac.new(world.derive("store"), name, hashlib.sha256).digest()


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
