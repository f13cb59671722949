"""A slow and simple runtime in Python, with the interface of `eirene_train._native`.

Tests run the Python face on it as well as on the real one: what only one of them gets wrong is found so. Rank 0 keeps a hub that every rank
connects to; a call's inputs go there, and when all members' have come, the hub computes what everybody gets, in the plainest way. The ranks
are given by the variables RANK and WORLD_SIZE, and EIRENE_REFERENCE names a directory for the hub's socket.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import queue
import threading
import time
from collections import defaultdict
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import torch

from eirene_train.errors import Aborted, EireneError, InvalidArgument, Mismatch, PeerDied, TimedOut

_DTYPES = "float32 float64 float16 bfloat16 int8 uint8 int16 uint16 int32 uint32 int64 uint64 bool".split()
_OPS = "sum avg min max prod".split()
_COLLECTIVES = "all_reduce broadcast reduce reduce_scatter all_gather all_to_all gather scatter barrier".split()
_MONITORED = len(_COLLECTIVES)
_SECRET = b"only for tests"


def dtype(name: str) -> int:
    return _DTYPES.index(name)


def op(name: str) -> int:
    return _OPS.index(name)


def collective(name: str) -> int:
    return _COLLECTIVES.index(name)


def launched() -> str | None:
    return "the reference" if "EIRENE_REFERENCE" in os.environ else None


def command(arguments: list[str]) -> int:
    raise InvalidArgument(f"the reference has no commands, and these are {arguments}")


def _reduce(parts: list[bytes], dtype: int, op: int) -> bytes:
    """The reduction of ranks' parts in rank order, half precision accumulated in single."""
    kind = getattr(torch, _DTYPES[dtype])
    if not parts[0]:
        return b""
    tensors = [torch.frombuffer(bytearray(part), dtype=kind) for part in parts]
    if kind in (torch.float16, torch.bfloat16):
        tensors = [tensor.float() for tensor in tensors]
    if kind in (torch.uint16, torch.uint32, torch.uint64):
        tensors = [tensor.to(torch.int64) for tensor in tensors]
    result = tensors[0].clone()
    for tensor in tensors[1:]:
        if kind == torch.bool:
            result = result | tensor if _OPS[op] in ("sum", "max") else result & tensor
        elif _OPS[op] in ("sum", "avg"):
            result += tensor
        elif _OPS[op] == "prod":
            result *= tensor
        else:
            result = torch.minimum(result, tensor) if _OPS[op] == "min" else torch.maximum(result, tensor)
    if _OPS[op] == "avg" and kind.is_floating_point:
        result /= len(parts)
    result = result.to(kind)
    if _OPS[op] == "avg" and not kind.is_floating_point:
        quotients = [abs(total) // len(parts) * (1 if total > 0 else -1) for total in result.tolist()]
        result = torch.tensor(quotients, dtype=kind)
    return ctypes.string_at(result.data_ptr(), len(parts[0]))


def _compute(name: str, root: int, dtype: int, op: int, inputs: list[list[bytes]]) -> list[list[bytes]]:
    """What everybody gets, by rank and part."""
    ranks = range(len(inputs))
    match name:
        case "all_reduce":
            result = _reduce([parts[0] for parts in inputs], dtype, op)
            return [[result] for _ in ranks]
        case "reduce":
            result = _reduce([parts[0] for parts in inputs], dtype, op)
            return [[result] if rank == root else [] for rank in ranks]
        case "broadcast":
            return [[inputs[root][0]] for _ in ranks]
        case "reduce_scatter":
            return [[_reduce([parts[rank] for parts in inputs], dtype, op)] for rank in ranks]
        case "all_gather":
            return [[parts[0] for parts in inputs] for _ in ranks]
        case "all_to_all":
            return [[parts[rank] for parts in inputs] for rank in ranks]
        case "gather":
            return [[parts[0] for parts in inputs] if rank == root else [] for rank in ranks]
        case "scatter":
            return [[inputs[root][rank]] for rank in ranks]
    return [[] for _ in ranks]


class _Call:
    """One collective, as far as its members have come."""

    def __init__(self, ranks: list[int]) -> None:
        self.ranks = ranks
        self.come: dict[int, tuple[int, tuple[int, ...], list[bytes], list[int]]] = {}
        self.deadlines: list[float] = []


class _Hub:
    """Rank 0's side."""

    def __init__(self, path: str, size: int) -> None:
        self._listener = Listener(path, "AF_UNIX", backlog=size, authkey=_SECRET)
        self._clients: dict[int, queue.SimpleQueue[Any]] = {}
        self._lock = threading.RLock()
        self._calls: dict[Any, _Call] = {}
        self._sent: dict[Any, list[tuple[int, int, bytes]]] = defaultdict(list)
        self._wanted: dict[Any, list[tuple[int, int | None, int, int]]] = defaultdict(list)
        self._dead: EireneError | None = None
        threading.Thread(target=self._accept, args=(size,), daemon=True).start()
        threading.Thread(target=self._watch, daemon=True).start()

    def _accept(self, size: int) -> None:
        for _ in range(size):
            client = self._listener.accept()
            rank = client.recv()
            answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
            with self._lock:
                self._clients[rank] = answers
            # A thread for each direction: a client that is sending itself must not hold up the others.
            threading.Thread(target=self._answer, args=(client, answers), daemon=True).start()
            threading.Thread(target=self._serve, args=(rank, client), daemon=True).start()

    def _serve(self, rank: int, client: Connection) -> None:
        try:
            while (message := client.recv()) is not None:
                with self._lock:
                    getattr(self, message[0])(rank, *message[1:])
        except (EOFError, OSError):
            with self._lock:
                self._dead = PeerDied(f"rank {rank} died", rank)
                for other in self._clients:
                    self._tell(other, ("dead", self._dead))

    def _tell(self, rank: int, message: Any) -> None:
        self._clients[rank].put(message)

    @staticmethod
    def _answer(client: Connection, answers: queue.SimpleQueue[Any]) -> None:
        try:
            while True:
                client.send(answers.get())
        except OSError:
            pass

    def _watch(self) -> None:
        while True:
            time.sleep(0.02)
            now = time.monotonic()
            with self._lock:
                for key, call in list(self._calls.items()):
                    if now > min(call.deadlines):
                        missing = tuple(rank for index, rank in enumerate(call.ranks) if index not in call.come)
                        if key[2] == _MONITORED and not next(iter(call.come.values()))[1][1]:
                            missing = missing[:1]
                        late = f"{_COLLECTIVES[key[2]] if key[2] < _MONITORED else 'monitored barrier'}: {', '.join(f'rank {rank}' for rank in missing)} not come"
                        self._fail(key, call, TimedOut(late, missing))

    def _fail(self, key: Any, call: _Call, error: Exception) -> None:
        del self._calls[key]
        for index, (number, *_) in call.come.items():
            self._tell(call.ranks[index], ("failed", number, error))
        if key[2] != _MONITORED:
            # As with the real one: half a collective cannot be taken back.
            rank = call.ranks[next(iter(call.come))]
            self._dead = Aborted(f"rank {rank} has given up: {error}", rank)
            for other in self._clients:
                self._tell(other, ("dead", self._dead))

    def abandon(self, rank: int, reason: str) -> None:
        self._dead = Aborted(f"rank {rank} has given up: {reason}", rank)
        for other in self._clients:
            self._tell(other, ("dead", self._dead))

    def call(self, rank: int, number: int, ranks: list[int], name: str, sequence: int, what: Any, inputs: Any, lengths: Any, until: float) -> None:
        if self._dead is not None:
            return self._tell(rank, ("failed", number, self._dead))
        key = (name, sequence, what[0])
        for other in list(self._calls):
            if other[:2] == key[:2] and other != key:
                call = self._calls[other]
                call.come[ranks.index(rank)] = (number, what, inputs, lengths)
                return self._fail(other, call, Mismatch(f"rank {rank} called `{_COLLECTIVES[what[0]]}` where others called `{_COLLECTIVES[other[2]]}`"))
        call = self._calls.setdefault(key, _Call(ranks))
        call.come[ranks.index(rank)] = (number, what, inputs, lengths)
        call.deadlines.append(until)
        if len(call.come) < len(ranks):
            return None
        members = [call.come[index] for index in range(len(ranks))]
        different = [ranks[index] for index, member in enumerate(members) if member[1] != members[0][1]]
        if different:
            return self._fail(key, call, Mismatch(f"ranks {different} called `{_COLLECTIVES[what[0]]}` with other arguments than rank {ranks[0]}"))
        self._finish(key, call, members)
        return None

    def _finish(self, key: Any, call: _Call, members: list[Any]) -> None:
        kind, root, dtype, op = members[0][1]
        try:
            outputs = _compute(_COLLECTIVES[kind] if kind < _MONITORED else "", root, dtype, op, [member[2] for member in members])
        except (IndexError, RuntimeError) as error:
            return self._fail(key, call, Mismatch(f"shapes that do not fit: {error}"))
        for member, parts in zip(members, outputs, strict=True):
            if parts and [len(part) for part in parts] != member[3]:
                sizes = [member[3] for member in members]
                return self._fail(key, call, Mismatch(f"shapes that do not fit in `{_COLLECTIVES[kind]}`: {sizes}"))
        del self._calls[key]
        for rank, member, parts in zip(call.ranks, members, outputs, strict=True):
            self._tell(rank, ("done", member[0], parts, None))
        return None

    def send(self, rank: int, number: int, name: str, source: int, target: int, target_rank: int, tag: int, data: bytes) -> None:
        self._sent[name, target, tag].append((source, rank, data))
        self._tell(rank, ("done", number, [], None))
        self._match(name, target, tag)

    def receive(self, rank: int, number: int, name: str, me: int, source: int | None, tag: int, length: int) -> None:
        if self._dead is not None:
            return self._tell(rank, ("failed", number, self._dead))
        self._wanted[name, me, tag].append((number, source, length, rank))
        return self._match(name, me, tag)

    def _match(self, name: str, me: int, tag: int) -> None:
        wanted, sent = self._wanted[name, me, tag], self._sent[name, me, tag]
        for want in list(wanted):
            number, source, length, rank = want
            found = next((message for message in sent if source in (None, message[0])), None)
            if found is None:
                continue
            wanted.remove(want)
            sent.remove(found)
            if len(found[2]) != length:
                self._tell(rank, ("failed", number, Mismatch(f"rank {found[1]} sent {len(found[2])} bytes where rank {rank} expects {length}")))
            else:
                self._tell(rank, ("done", number, [found[2]], found[0]))


class Work:
    def __init__(self, addresses: list[tuple[int, int]], milliseconds: int) -> None:
        self.addresses = addresses
        self.deadline = time.monotonic() + milliseconds / 1000
        self.event = threading.Event()
        self.error: Exception | None = None
        self.from_: int | None = None

    def wait(self, timeout_ms: int | None = None) -> None:
        own = self.deadline + 1 - time.monotonic()
        if not self.event.wait(own if timeout_ms is None else min(own, timeout_ms / 1000)):
            if timeout_ms is None:
                self.error = TimedOut("nothing came in time")
                self.event.set()
            else:
                raise TimedOut("nothing came in time")
        if self.error is not None:
            raise self.error

    def is_done(self) -> bool:
        return self.event.is_set()

    def source(self) -> int | None:
        return self.from_

    def manner(self) -> tuple[str, int | None] | None:
        return ("chosen", None)


class Region:
    def __init__(self, size: int) -> None:
        self._memory = mmap.mmap(-1, max(size, 1))
        self._size = size
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def __len__(self) -> int:
        return self._size


class Seal:
    """Frames as they are, with room for the tag."""

    def __init__(self, ours: bytes, theirs: bytes) -> None:
        pass

    def seal(self, frame: bytes) -> bytes:
        return frame + bytes(16)

    def open(self, sealed: bytes) -> bytes:
        return sealed[:-16]


class World:
    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.local_rank, self.local_size, self.node, self.nodes = rank, size, 0, 1
        self.remarks: list[str] = []
        path = os.path.join(os.environ["EIRENE_REFERENCE"], "hub")
        if rank == 0:
            self._hub = _Hub(path, size)
        for _ in range(3000):
            try:
                self._hub_connection = Client(path, "AF_UNIX", authkey=_SECRET)
                break
            except (FileNotFoundError, ConnectionRefusedError):
                time.sleep(0.01)
        self._lock = threading.Lock()
        self._works: dict[int, Work] = {}
        self._number = 0
        self._everybody = 0
        self._built: dict[Any, int] = defaultdict(int)
        self._dead: Exception | None = None
        self._hub_connection.send(rank)
        threading.Thread(target=self._read, daemon=True).start()

    @staticmethod
    def join(timeout_ms: int) -> World:
        return World(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))

    def everybody(self, timeout_ms: int) -> Group:
        self._everybody += 1
        return Group(self, list(range(self.size)), f"everybody{self._everybody}")

    def group(self, ranks: list[int], key: str, timeout_ms: int) -> Group:
        if len(set(ranks)) != len(ranks):
            raise InvalidArgument(f"a group of {ranks}")
        self._built[key, *ranks] += 1
        return Group(self, list(ranks), f"{key} {ranks} {self._built[key, *ranks]}")

    def arena(self, size: int) -> Region:
        return Region(size)

    def well(self) -> None:
        pass

    def derive(self, purpose: str) -> bytes:
        return hashlib.sha256(_SECRET + purpose.encode()).digest()

    def abandon(self, reason: str) -> None:
        self._hub_connection.send(("abandon", reason))

    def leave(self) -> None:
        # Rank 0 keeps the hub, so it stays until the others are done.
        try:
            self.everybody(0).run(collective("barrier"), 0, 0, 0, [], [], 20_000)
            self._hub_connection.send(None)
        except (EireneError, OSError):
            pass

    def ask(self, work: Work, verb: str, *arguments: Any) -> Work:
        with self._lock:
            if self._dead is not None:
                work.error = self._dead
                work.event.set()
                return work
            self._number += 1
            self._works[self._number] = work
            self._hub_connection.send((verb, self._number, *arguments))
        return work

    def _read(self) -> None:
        try:
            while True:
                kind, *rest = self._hub_connection.recv()
                if kind == "dead":
                    self._fail(rest[0])
                    continue
                with self._lock:
                    work = self._works.pop(rest[0])
                if work.event.is_set():
                    continue
                if kind == "failed":
                    work.error = rest[1]
                else:
                    for (address, _), part in zip(work.addresses, rest[1], strict=False):
                        ctypes.memmove(address, part, len(part))
                    work.from_ = rest[2]
                work.event.set()
        except (EOFError, OSError, TypeError):
            self._fail(PeerDied("rank 0 died, and with it the hub", 0))

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self._dead = error
            works, self._works = self._works, {}
        for work in works.values():
            work.error = error
            work.event.set()


def _pairs(flat: list[int]) -> list[tuple[int, int]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


class Group:
    def __init__(self, world: World, ranks: list[int], key: str) -> None:
        self._world, self.ranks, self._key = world, ranks, key
        self.rank, self.size, self.one_node = ranks.index(world.rank), len(ranks), True
        self._sequence = 0

    def allreduce(self, address: int, elements: int, dtype: int, op: int, timeout_ms: int) -> None:
        self.run(0, 0, dtype, op, [address, elements], [address, elements], timeout_ms)

    def run(self, collective: int, root: int, dtype: int, op: int, inputs: list[int], outputs: list[int], timeout_ms: int) -> None:
        self.start(collective, root, dtype, op, inputs, outputs, timeout_ms).wait(None)

    def start(self, collective: int, root: int, dtype: int, op: int, inputs: list[int], outputs: list[int], timeout_ms: int) -> Work:
        if collective in (0, 2, 3) and _OPS[op] == "avg" and "float" not in _DTYPES[dtype]:
            raise InvalidArgument(f"avg is not defined for {_DTYPES[dtype]}")
        size = _size(dtype)
        given = [ctypes.string_at(address, count * size) for address, count in _pairs(inputs)]
        work = Work([(address, count * size) for address, count in _pairs(outputs)], timeout_ms)
        self._sequence += 1
        what = (collective, root, dtype, op)
        lengths = [length for _, length in work.addresses]
        return self._world.ask(work, "call", self.ranks, self._key, self._sequence, what, given, lengths, work.deadline)

    def send(self, to: int, tag: int, address: int, elements: int, dtype: int, timeout_ms: int) -> Work:
        data = ctypes.string_at(address, elements * _size(dtype))
        return self._world.ask(Work([], timeout_ms), "send", self._key, self.rank, to, self.ranks[to], tag, data)

    def receive(self, source: int | None, tag: int, address: int, elements: int, dtype: int, timeout_ms: int) -> Work:
        length = elements * _size(dtype)
        return self._world.ask(Work([(address, length)], timeout_ms), "receive", self._key, self.rank, source, tag, length)

    def monitored_barrier(self, timeout_ms: int, wait_all: bool) -> None:
        self.run(_MONITORED, int(wait_all), 0, 0, [], [], timeout_ms)

    def tune(self, budget_ms: int) -> str:
        return "one way is all there is"

    def explain(self, collective: int, dtype: int, elements: int) -> str:
        return f"{_COLLECTIVES[collective]}: the hub, because it is all there is"

    def explain_messages(self) -> str:
        return "a message between two ranks: through the hub, because it is all there is"


def _size(dtype: int) -> int:
    return int(getattr(torch, _DTYPES[dtype]).itemsize)
