"""How the ranks of a world reach the store of rank 0: who is let in, and what is said on a connection.

Rank 0 listens only until the others are there. Strangers may knock as well: nothing of them is looked at but whether they know the key, each
has a few seconds for that beside all others, and who knocks while too many stand there takes the place of who has stood there longest.
Neither side takes the other's word for being in: rank 0 says so once it has read the proof, and counts a rank when that has heard it.
The verbs and the table are `_store`'s.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

from . import _native
from .errors import TimedOut

__all__ = ["Frames", "admitted", "listen", "reach"]

_NONCE = 32
_PROOF = 32
_RANK = 4
_TAG = 16
_LARGEST_FRAME = 1 << 30
# For one knock, on either side.
_HANDSHAKE_SECONDS = 5.0
_MOST_KNOCKS = 64
# How long to wait before knocking again, and before looking again where there was no descriptor left.
_PAUSE_SECONDS = 0.02


class Frames:
    """A connection that has proven itself. A frame goes as its length and its content, each sealed, so that not even a length is believed
    of anybody else."""

    def __init__(self, connection: socket.socket, secret: bytes, ours: bytes, theirs: bytes, nonces: bytes) -> None:
        self.connection = connection
        keys = (hmac.new(secret, b"sealed by " + side + nonces, hashlib.sha256).digest() for side in (ours, theirs))
        self._seal = _native.Seal(*keys)

    def send(self, frame: bytes) -> None:
        """Sends a frame."""
        self.connection.sendall(self._seal.seal(struct.pack("<I", len(frame))) + self._seal.seal(frame))

    def receive(self) -> bytes:
        """The next frame.

        Raises:
            OSError: the connection has ended, or somebody has changed what is on it.
        """
        (length,) = struct.unpack("<I", self._seal.open(_exactly(self.connection, 4 + _TAG)))
        if length > _LARGEST_FRAME:
            raise ConnectionError("a frame too large")
        return self._seal.open(_exactly(self.connection, length + _TAG))


def _exactly(connection: socket.socket, length: int) -> bytes:
    parts = []
    while length:
        part = connection.recv(min(length, 1 << 20))
        if not part:
            raise ConnectionError("the connection ended")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _proof(secret: bytes, side: bytes, theirs: bytes, ours: bytes, rank: bytes) -> bytes:
    return hmac.new(secret, side + theirs + ours + rank, hashlib.sha256).digest()


class _Knock:
    """Somebody who wants in."""

    def __init__(self, connection: socket.socket, secret: bytes) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.since = time.monotonic()
        self._secret = secret
        self._said = b""
        self._ours = b""
        self._guest: tuple[int, Frames] | None = None

    @property
    def proven(self) -> bool:
        """Whether it is one of ours, who only has to hear that it is in."""
        return self._guest is not None

    def heard(self) -> tuple[int, Frames] | None:
        """What has come: who it is, once that is proven and it knows; none while more is to come.

        Raises:
            OSError: it is nobody of ours, or has gone.
        """
        if self._guest is not None:
            # One of ours may be waited for.
            self.connection.settimeout(_HANDSHAKE_SECONDS)
            self._guest[1].receive()
            self.connection.settimeout(None)
            return self._guest
        wanted = _NONCE + (_RANK + _PROOF if self._ours else 0)
        try:
            part = self.connection.recv(wanted - len(self._said))
        except BlockingIOError:
            return None
        if not part:
            raise ConnectionError("the connection ended")
        self._said += part
        if len(self._said) < wanted:
            return None
        theirs, rank, proof = self._said[:_NONCE], self._said[_NONCE : _NONCE + _RANK], self._said[_NONCE + _RANK :]
        if not self._ours:
            self._ours = secrets.token_bytes(_NONCE)
            self.connection.send(self._ours + _proof(self._secret, b"server", theirs, self._ours, b""))
            return None
        if not hmac.compare_digest(proof, _proof(self._secret, b"client", theirs, self._ours, rank)):
            raise ConnectionError("a stranger")
        frames = Frames(self.connection, self._secret, b"server", b"client", theirs + self._ours + rank)
        frames.send(b"")
        self._guest = struct.unpack("<I", rank)[0], frames
        return None


def admitted(listener: socket.socket, secret: bytes, clients: int, seconds: float) -> Iterator[Frames]:
    """Each of the ranks from 1 to so many, once it has proven itself and knows that it is in.

    A rank that gave up before it heard that may knock again; one that has heard it does not.

    Raises:
        TimedOut: not all came in time; it says which did not.
    """
    deadline = time.monotonic() + seconds
    ranks: set[int] = set()
    knocks: dict[socket.socket, _Knock] = {}
    listener.setblocking(False)

    def turn_away(connection: socket.socket) -> None:
        selector.unregister(connection)
        del knocks[connection]
        connection.close()

    def turn_all_away() -> None:
        for connection in knocks:
            connection.close()

    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as at_the_end:
        at_the_end.callback(turn_all_away)
        selector.register(listener, selectors.EVENT_READ)
        while len(ranks) < clients:
            now = time.monotonic()
            for knock in [knock for knock in knocks.values() if not knock.proven and now - knock.since > _HANDSHAKE_SECONDS]:
                turn_away(knock.connection)
            if now > deadline:
                missing = tuple(rank for rank in range(1, clients + 1) if rank not in ranks)
                raise TimedOut(f"in {seconds:g} s these ranks did not connect to the store of rank 0: {', '.join(map(str, missing))}", missing)
            for key, _ in selector.select(min(deadline - now, _HANDSHAKE_SECONDS / 10) + 0.001):
                if key.fileobj is listener:
                    connection = _knocked(listener)
                    if connection is None:
                        continue
                    strangers = [knock for knock in knocks.values() if not knock.proven]
                    if len(strangers) >= _MOST_KNOCKS:
                        turn_away(strangers[0].connection)
                    knocks[connection] = _Knock(connection, secret)
                    selector.register(connection, selectors.EVENT_READ)
                    continue
                connection = key.fileobj  # type: ignore[assignment]
                # It may have been turned away for another in this very turn.
                waiting = knocks.get(connection) if connection is not None else None
                if connection is None or waiting is None:
                    continue
                try:
                    guest = waiting.heard()
                except OSError:
                    turn_away(connection)
                    continue
                if guest is None:
                    continue
                rank, frames = guest
                if rank in ranks:
                    turn_away(connection)
                    continue
                selector.unregister(connection)
                del knocks[connection]
                ranks.add(rank)
                yield frames


def _knocked(listener: socket.socket) -> socket.socket | None:
    """Who has knocked, unless it was somebody else's user or has gone again."""
    try:
        connection, _ = listener.accept()
    except OSError:
        # Gone again, or no descriptor left: nothing that would not pass.
        time.sleep(_PAUSE_SECONDS)
        return None
    if connection.family == socket.AF_UNIX and not _same_user(connection):
        connection.close()
        return None
    return connection


def _same_user(connection: socket.socket) -> bool:
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return bool(user == os.geteuid())


def listen(one_node: bool, clients: int) -> tuple[socket.socket, list[Any]]:
    """A listener, and what others may try to reach it by.

    Raises:
        InvalidArgument: EIRENE_TRAIN_INTERFACE lists what is not there.
    """
    backlog = max(clients, _MOST_KNOCKS)
    if one_node:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        name = "eirene-store-" + secrets.token_hex(16)
        listener.bind("\0" + name)
        listener.listen(backlog)
        return listener, [name]
    addresses = _native.addresses()
    if socket.has_dualstack_ipv6():
        listener = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog)
    else:
        listener = socket.create_server(("", 0), backlog=backlog)
    port = listener.getsockname()[1]
    return listener, [[address, port] for address in addresses]


def reach(targets: list[Any], secret: bytes, rank: int, seconds: float, well: Callable[[], None]) -> Frames:
    """A connection to the rank 0 that is meant, and to nobody else, by whichever target leads there; tried again until the time is up.

    Args:
        targets: what `listen` gave.
        well: raises where waiting has no sense any more.

    Raises:
        TimeoutError: none did; the message says why, for each.
    """
    deadline = time.monotonic() + seconds
    while True:
        refusals = []
        for target in targets:
            well()
            left = max(deadline - time.monotonic(), 0.1)
            try:
                return _reached(target, secret, rank, min(left, _HANDSHAKE_SECONDS))
            except OSError as error:
                refusals.append(f"{target[0] if isinstance(target, list) else 'its socket'}: {error}")
        if time.monotonic() > deadline:
            raise TimeoutError("; ".join(refusals))
        time.sleep(_PAUSE_SECONDS)


def _reached(target: Any, secret: bytes, rank: int, seconds: float) -> Frames:
    if isinstance(target, str):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(seconds)
    else:
        connection = socket.create_connection((target[0], target[1]), timeout=seconds)
    try:
        if isinstance(target, str):
            connection.connect("\0" + target)
        ours = secrets.token_bytes(_NONCE)
        connection.sendall(ours)
        answer = _exactly(connection, _NONCE + _PROOF)
        theirs = answer[:_NONCE]
        if not hmac.compare_digest(answer[_NONCE:], _proof(secret, b"server", ours, theirs, b"")):
            raise ConnectionError("not the rank 0 that is meant")
        me = struct.pack("<I", rank)
        connection.sendall(me + _proof(secret, b"client", ours, theirs, me))
        frames = Frames(connection, secret, b"client", b"server", ours + theirs + me)
        # It may have been turned away meanwhile, for having taken too long or for another.
        frames.receive()
        frames.send(b"")
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return frames
