"""The measurements, in a rank. How time is taken is how the OSU benchmarks take it: each call by itself, a barrier of the contender's own before it.

Every result is checked in the first and the last call that count, element by element, outside the time that is taken.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from .. import __version__, world
from .._memory import tensor_in
from .cases import COLLECTIVES, Case
from .worker import WrongResult

__all__ = ["Session"]

# Elements are 1, 2, … 61, 1, 2, …: small whole numbers, so that sums are exact, with a period that no power of two hides.
_PERIOD = 61
_PIECE = _PERIOD * 4096
_UNIT = 64
# Between what memory the floor is measured.
_COPIES = {"memcpy in tensors": "tensor", "memcpy in an arena": "arena"}
# The call, what fills its buffers, the check, and after how many calls they must be filled again.
_Prepared = tuple[Callable[[], Any], Callable[[], None], Callable[[], None], float]


class Session:
    """This rank in its world.

    Args:
        backend: torch's name.
        rank: this one.
        size: of the world.
        local: its number on its node, which is that of its GPU.
        meeting: where ranks without a launcher meet, ``file://…`` or ``tcp://…`` for a store that is served already.
        library: the MPI that must be the one in use; none: no MPI.

    Raises:
        RuntimeError: the world is not what the contender's name says.
    """

    def __init__(self, backend: str, rank: int, size: int, local: int, meeting: str, library: str | None) -> None:
        torch.set_num_threads(1)
        self.rank = rank
        self.size = size
        self.device = torch.device("cpu")
        self._library = library
        # Of the size that is being measured, by where the buffers lie.
        self._prepared_for: tuple[str, int, str] | None = None
        self._kept: dict[str, _Prepared] = {}
        if backend == "eirene":
            dist.init_process_group("eirene")
        else:
            if backend == "nccl":
                found = torch.cuda.device_count()
                if found <= local:
                    raise RuntimeError(f"torch sees {found} GPUs here, and each rank of this node needs one")
                self.device = torch.device("cuda", local)
                torch.cuda.set_device(self.device)
            _meet(backend, rank, size, meeting)
        if (dist.get_rank(), dist.get_world_size()) != (rank, size):
            raise RuntimeError(f"this is rank {dist.get_rank()} of {dist.get_world_size()}, and should be {rank} of {size}")
        dist.barrier()
        if library is not None:
            self._insist_on_library()
            for kind in ("allreduce", "latency"):
                self._insist_on_its_own(Case(kind, 1 << 20))

    def facts(self) -> dict[str, Any]:
        """What this world is made of."""
        return {"torch": torch.__version__, "eirene_train": __version__, "device": self.device.type}

    def explain(self, order: dict[str, Any]) -> dict[str, Any]:
        """How the runtime carries out a case, and why: order `case`."""
        case = Case(**order["case"])
        collective = COLLECTIVES.get(case.kind)
        backend: Any = dist.group.WORLD._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
        if collective is None:
            return {"text": backend.group.explain_messages()}
        return {"text": backend.explain(collective, getattr(torch, case.type), case.elements)}

    def measure(self, order: dict[str, Any]) -> dict[str, Any]:
        """One round of a case: order `case`. Answers `figures`, empty where this rank has nothing to measure.

        Raises:
            WrongResult: a call gave something else than it must.
        """
        case = Case(**order["case"])
        with torch.no_grad(), _no_collection():
            if case.buffers == "memcpy":
                return {"figures": self._floor(case)}
            if case.kind == "latency":
                return {"figures": self._latency(case)}
            if case.kind == "bandwidth":
                return {"figures": self._bandwidth(case)}
            if case.kind == "overlap":
                return {"figures": self._overlap(case)}
            return {"figures": self._collective(case)}

    def end(self) -> None:
        """Leaves the world in good order."""
        self._kept.clear()
        dist.destroy_process_group()

    def _insist_on_library(self) -> None:
        """That the MPI which is meant is in this process, not something that was found instead."""
        wanted = Path(self._library or "").resolve()
        mapped = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()]
        if str(wanted) not in {fields[5] for fields in mapped if len(fields) == 6}:
            raise RuntimeError(f"the runtime did not open {self._library}; its figures would not be this MPI's")

    def _insist_on_its_own(self, case: Case) -> None:
        """That MPI's own collective, or its own message, is what carries out a case."""
        said = self.explain({"case": case.wire()})["text"]
        if "MPI's own" not in said:
            raise RuntimeError(f"the runtime does not call MPI's own here, but: {said}")

    def _collective(self, case: Case) -> dict[str, float]:
        call, fill, check, period = self._prepared(case)
        times: list[int] = []
        filled = 0
        for iteration in range(-case.warmup, case.iterations):
            first_or_last = iteration in (0, case.iterations - 1)
            if first_or_last or iteration == -case.warmup or iteration - filled >= period:
                fill()
                filled = iteration
            self._barrier()
            begin = time.perf_counter_ns()
            call()
            self._synchronize()
            if iteration >= 0:
                times.append(time.perf_counter_ns() - begin)
            if first_or_last:
                check()
        return _times(times)

    def _floor(self, case: Case) -> dict[str, float]:
        """Copying as much memory, where this rank does it fastest: ordinary memory has small pages, an arena has large ones."""
        ways = [way for way, memory in _COPIES.items() if memory != "arena" or dist.get_backend() == "eirene"]
        return min((self._collective(replace(case, buffers=way)) for way in ways), key=lambda figures: figures["median"])

    def _prepared(self, case: Case) -> _Prepared:
        """What a case needs; kept as long as others of its size are measured, so that no round begins with new memory."""
        wanted = (case.kind, case.bytes, case.type)
        if self._prepared_for != wanted:
            self._kept.clear()
            self._prepared_for = wanted
        if case.buffers not in self._kept:
            if self._library is not None:
                self._insist_on_its_own(case)
            self._kept[case.buffers] = self._prepare(case)
        return self._kept[case.buffers]

    def _prepare(self, case: Case) -> _Prepared:
        length, rank, size = case.elements, self.rank, self.size
        if case.buffers in _COPIES:
            lies = replace(case, buffers=_COPIES[case.buffers])
            source, target = self._memory(lies, length), self._memory(lies, length)
            # The C library's, which is faster than torch's `copy_`: it writes what is large past the caches.
            copied = target.data_ptr(), source.data_ptr(), target.nbytes
            return lambda: ctypes.memmove(*copied), lambda: _fill(source, 1), lambda: _check(rank, target, 1), math.inf
        if case.kind in ("allreduce", "overlap"):
            tensor = self._memory(case, length)
            # A sum in place grows by the number of ranks each time: it is filled again before it leaves the type's range.
            period = max(1, int(100 / math.log2(size)) - 8) if size > 1 else math.inf
            total = size * (size + 1) // 2
            return lambda: dist.all_reduce(tensor), lambda: _fill(tensor, rank + 1), lambda: _check(rank, tensor, total), period
        if case.kind == "bcast":
            tensor = self._memory(case, length)
            return lambda: dist.broadcast(tensor, 0), lambda: _fill(tensor, 0 if rank else 3), lambda: _check(rank, tensor, 3), math.inf
        if case.kind == "allgather":
            mine, everybodys = self._memory(case, length), self._memory(case, length * size)

            def fill() -> None:
                _fill(mine, rank + 1)
                everybodys.zero_()

            def check() -> None:
                for source in range(size):
                    _check(rank, everybodys[source * length : (source + 1) * length], source + 1)

            return lambda: dist.all_gather_into_tensor(everybodys, mine), fill, check, math.inf
        whole, part = self._memory(case, length), self._memory(case, length // size)

        def fill_whole() -> None:
            _fill(whole, rank + 1)
            part.zero_()

        def check_part() -> None:
            _check(rank, part, size * (size + 1) // 2, rank * part.numel())

        return lambda: dist.reduce_scatter_tensor(part, whole), fill_whole, check_part, math.inf

    def _latency(self, case: Case) -> dict[str, float]:
        """There and back between ranks 0 and 1, halved."""
        outgoing, incoming = self._memory(case, case.elements), self._memory(case, case.elements)
        times = []
        for iteration in range(-case.warmup, case.iterations):
            checked = iteration in (0, case.iterations - 1)
            if checked or iteration == -case.warmup:
                _fill(outgoing, self.rank + 1)
                _fill(incoming, 0)
                self._barrier()
            begin = time.perf_counter_ns()
            if self.rank == 0:
                dist.send(outgoing, 1)
                dist.recv(incoming, 1)
                self._synchronize()
            elif self.rank == 1:
                dist.recv(incoming, 0)
                dist.send(outgoing, 0)
                self._synchronize()
            if iteration >= 0:
                times.append((time.perf_counter_ns() - begin) / 2)
            if checked and self.rank < 2:
                _check(self.rank, incoming, 2 - self.rank)
        return _times(times) if self.rank == 0 else {}

    def _bandwidth(self, case: Case) -> dict[str, float]:
        """As many messages as the window holds from rank 0 to rank 1, then one word back."""
        message, word = self._memory(case, case.elements), self._memory(case, 1)
        rates, seconds = [], 0.0
        for iteration in range(-case.warmup, case.iterations):
            checked = iteration in (0, case.iterations - 1)
            if checked or iteration == -case.warmup:
                _fill(message, 0 if self.rank else 5)
                self._barrier()
            begin = time.perf_counter_ns()
            works: list[Any] = []
            if self.rank == 0:
                works = [dist.isend(message, 1) for _ in range(case.window)]
            elif self.rank == 1:
                works = [dist.irecv(message, 0) for _ in range(case.window)]
            for work in works:
                work.wait()
            if self.rank == 0:
                dist.recv(word, 1)
            elif self.rank == 1:
                dist.send(word, 0)
            self._synchronize()
            if iteration >= 0:
                took = (time.perf_counter_ns() - begin) / 1e9
                seconds += took
                rates.append(case.bytes * case.window / took / 1e6)
            if checked and self.rank == 1:
                _check(self.rank, message, 5)
        if self.rank:
            return {}
        return {"avg": case.bytes * case.window * case.iterations / seconds / 1e6, "median": median(rates), "highest": max(rates)}

    def _overlap(self, case: Case) -> dict[str, float]:
        """An allreduce alone, work of about that length alone, and both at once."""
        pure = self._collective(case)["avg"]
        period = self._prepared(case)[3]
        tensor = self._memory(case, case.elements)
        matrix = torch.ones(_UNIT, _UNIT, device=self.device)
        vector, result = torch.ones(_UNIT, device=self.device), torch.empty(_UNIT, device=self.device)

        def work(units: int) -> None:
            for _ in range(units):
                torch.mv(matrix, vector, out=result)
            self._synchronize()

        work(100)
        begin = time.perf_counter_ns()
        work(200)
        unit = (time.perf_counter_ns() - begin) / 200e3
        units = max(1, round(pure / unit))
        alone, both = [], []
        total = self.size * (self.size + 1) // 2
        filled = 0
        for iteration in range(case.iterations):
            checked = iteration in (0, case.iterations - 1)
            if checked or iteration - filled >= period:
                _fill(tensor, self.rank + 1)
                filled = iteration
            begin = time.perf_counter_ns()
            work(units)
            alone.append((time.perf_counter_ns() - begin) / 1e3)
            self._barrier()
            begin = time.perf_counter_ns()
            outstanding: Any = dist.all_reduce(tensor, async_op=True)
            work(units)
            outstanding.wait()
            self._synchronize()
            both.append((time.perf_counter_ns() - begin) / 1e3)
            if checked:
                _check(self.rank, tensor, total)
        overall, compute = fmean(both), fmean(alone)
        hidden = 1 - (overall - compute) / pure
        return {"avg": overall, "compute": compute, "pure": pure, "overlap": 100 * min(max(hidden, 0.0), 1.0), "median": median(both)}

    def _memory(self, case: Case, elements: int) -> torch.Tensor:
        """A tensor of shape (elements,), where the case wants it."""
        kind: torch.dtype = getattr(torch, case.type)
        if case.buffers == "arena":
            return tensor_in(world().arena(elements * kind.itemsize), kind, elements)
        return torch.empty(elements, dtype=kind, device=self.device)

    def _barrier(self) -> None:
        dist.barrier()
        self._synchronize()

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def _meet(backend: str, rank: int, size: int, meeting: str) -> None:
    address = meeting.removeprefix("tcp://")
    if address == meeting:
        dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=size)
        return
    # With the address alone, torch would have rank 0 serve the store.
    host, _, port = address.rpartition(":")
    dist.init_process_group(backend, store=TCPStore(host, int(port), is_master=False), rank=rank, world_size=size)


def _times(nanoseconds: list[Any]) -> dict[str, float]:
    """Microseconds: the mean, the median and the fastest of a rank's calls."""
    return {"avg": fmean(nanoseconds) / 1e3, "median": median(nanoseconds) / 1e3, "fastest": min(nanoseconds) / 1e3}


def _pattern(tensor: torch.Tensor, factor: int) -> torch.Tensor:
    numbers = torch.arange(min(_PIECE, tensor.numel()) + _PERIOD, device=tensor.device) % _PERIOD + 1
    return (numbers * factor).to(tensor.dtype)


def _fill(tensor: torch.Tensor, factor: int) -> None:
    """Element i becomes (i % 61 + 1) × factor."""
    pattern = _pattern(tensor, factor)
    for start in range(0, tensor.numel(), _PIECE):
        piece = tensor[start : start + _PIECE]
        piece.copy_(pattern[: piece.numel()])


def _check(rank: int, tensor: torch.Tensor, factor: int, offset: int = 0) -> None:
    """That element i is ((i + offset) % 61 + 1) × factor."""
    pattern = _pattern(tensor, factor)[offset % _PERIOD :]
    for start in range(0, tensor.numel(), _PIECE):
        piece = tensor[start : start + _PIECE]
        wanted = pattern[: piece.numel()]
        if not torch.equal(piece, wanted):
            at = int((piece != wanted).nonzero()[0])
            raise WrongResult(f"element {start + at} is {piece[at].item():g} on rank {rank} and must be {wanted[at].item():g}")


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Without Python's garbage collector, whose turns would fall on some calls."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
