"""The torch.distributed backend ``eirene``: everything that knows how torch talks to backends is in this file.

torch lets a Python subclass of its `Backend` be one (from 2.14 on). Two classes are needed, because what torch returns to a Python caller
of such a backend is a shell around our `Work` that can only be waited for: it never says that it is complete, and not who sent a message.

- `EireneBackend` does the work. C++ callers and groups that mix backends (``cpu:eirene,cuda:nccl``) reach it through torch's dispatcher.
- `EireneGroup` is the process group of a plain ``eirene``: it has the backend registered in itself, like any group, and its Python methods
  call the backend directly. That saves the dispatcher's microseconds, and callers get our own `Work`. Whenever somebody watches (a profiler,
  a dispatch mode, a tensor subclass, hooks) calls take torch's way.

`tests/test_backend_conformance.py` pins what is relied on here.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, cast
from urllib.parse import urlparse

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as core
from torch.distributed import distributed_c10d as c10d

from . import _native
from ._futures import Completer, future_of
from ._memory import Pool
from ._tensors import (
    BYTE,
    DTYPES,
    blocks,
    check,
    check_written,
    contiguous,
    copies,
    flat,
    moved,
    multiplied,
    one,
    real,
    room,
    same,
    write,
)
from ._world import Outbox, joined, world
from .errors import EireneError, InvalidArgument
from .throughput import count_steps
from .tuning import BUDGET_SECONDS

__all__ = ["EireneBackend", "EireneGroup", "EireneWork", "register"]

NAME = "eirene"

# `torch.distributed.rendezvous` is the function of that name; this is the module.
_rendezvous_module = importlib.import_module("torch.distributed.rendezvous")

_ReduceOp = dist.ReduceOp
_SUM = _native.op("sum")
_AVG = _native.op("avg")
_OPS: dict[Any, int] = {
    _ReduceOp.SUM: _SUM,
    _ReduceOp.AVG: _AVG,
    _ReduceOp.MIN: _native.op("min"),
    _ReduceOp.MAX: _native.op("max"),
    _ReduceOp.PRODUCT: _native.op("prod"),
}
_BITWISE: dict[Any, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    _ReduceOp.BAND: torch.bitwise_and,
    _ReduceOp.BOR: torch.bitwise_or,
    _ReduceOp.BXOR: torch.bitwise_xor,
}

_ALL_REDUCE = _native.collective("all_reduce")
_BROADCAST = _native.collective("broadcast")
_REDUCE = _native.collective("reduce")
_REDUCE_SCATTER = _native.collective("reduce_scatter")
_ALL_GATHER = _native.collective("all_gather")
_ALL_TO_ALL = _native.collective("all_to_all")
_GATHER = _native.collective("gather")
_SCATTER = _native.collective("scatter")
_BARRIER = _native.collective("barrier")

_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
_dispatch_modes = torch._C._len_torch_dispatch_stack
_profiling = torch._C._autograd._profiler_enabled

# Which copy a default group is, when a process makes one after the other: part of the key its members meet under.
_generations = itertools.count()
_stores: list[Any] = []
_generation = 0


_CALLERS = vars(c10d)


class EireneWork(dist.Work):
    """A collective or message under way, or over.

    It keeps the tensors alive that the runtime reads and writes. What has to happen at its end in Python (copying into tensors that are not
    plain) happens once, in whichever of `wait`, `is_completed` and the future first sees the end.
    """

    def __init__(
        self,
        natives: list[_native.Work],
        result: list[torch.Tensor],
        kept: Any = None,
        after: Callable[[], None] | None = None,
        completer: Completer | None = None,
        in_order: bool = True,
    ) -> None:
        super().__init__()
        self._natives = natives
        self._result = result
        self._kept = kept
        self._after = after
        self._lock = threading.Lock() if after is not None else None
        self._completer = completer
        self._in_order = in_order
        self._future: Any = None
        # Whether a caller in Python has it, of whose callbacks we hear.
        self._in_python = False
        self._error: Exception | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits for the end; without the GIL. Raises what went wrong.

        Args:
            timeout: how long to wait at most; none: as long as the call's own time-out lets it run.
        """
        milliseconds = None if not timeout else max(1, int(timeout.total_seconds() * 1000))
        try:
            for native in self._natives:
                native.wait(milliseconds)
        except EireneError as error:
            if all(native.is_done() for native in self._natives):
                self._error = error
            raise
        self._finish()
        return True

    def synchronize(self) -> None:
        """The same as `wait`: there are no streams here."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it is over, well or badly."""
        if not self.over():
            return False
        try:
            self.wait()
        except EireneError:
            pass
        return True

    def is_success(self) -> bool:
        """Whether it is over, and well."""
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:
        """What went wrong, if it is over and something did."""
        self.is_completed()
        return self._error

    def result(self) -> list[torch.Tensor]:
        """The tensors with the result."""
        return self._result

    def source_rank(self) -> int:
        """Whose message was received, as a rank of the group."""
        source = self._natives[0].source() if len(self._natives) == 1 else None
        if source is None:
            raise InvalidArgument("only a receive that is over has a source")
        return source

    _source_rank = source_rank

    def get_future(self) -> Any:
        """A future with the result's tensors.

        It is completed by a thread of the group's, in order of the calls, and callbacks may do what they like: wait for later calls, make some,
        raise, end the group. What they call comes, on all ranks, before what is called after they were added; in a group that mixes backends,
        where torch keeps callbacks to itself, it has no such order, and is to be alike for all works under way.
        """
        if self._future is None:
            completer = self._completer or Completer()
            if self._in_python:
                self._future = completer.future(self._outcome, self.over(), self._in_order)
            else:
                self._future = future_of(self._outcome, self.over(), completer.collective if self._in_order else completer.message)
        return self._future

    def in_python(self, depth: int = 2) -> EireneWork:
        """Finds out whether a caller in Python gets it: DDP calls a process group's methods from C++, and needs another future.

        Args:
            depth: how many calls above this one somebody has called the process group's method: a function of torch.distributed, or C++.
        """
        self._in_python = sys._getframe(depth).f_globals is _CALLERS
        return self

    def over(self) -> bool:
        """Whether the runtime is done with the memory."""
        return all(native.is_done() for native in self._natives)

    def _outcome(self) -> list[torch.Tensor]:
        self.wait()
        return self._result

    def _finish(self) -> None:
        if self._lock is None:
            return
        with self._lock:
            after, self._after = self._after, None
            if after is not None:
                after()


_DONE = EireneWork([], [])


class EireneBackend(core.Backend):
    """One group's collectives and messages, on tensors in the CPU's memory, by the runtime.

    Tensors may have any layout that is strided. n is the number of ranks; "alike" is: of one type and number of elements on all ranks.

    ================================================  =============================================================================
    operation                                         types
    ================================================  =============================================================================
    reductions: SUM                                   float16, bfloat16, float32, float64, int8 to int64, uint8 to uint64, bool ("any"),
                                                      complex64, complex128
    reductions: AVG                                   all of these but bool; of integers, whose sum may wrap, divided toward zero, as NCCL does
    reductions: PREMUL_SUM                            the floating-point and complex ones of these
    reductions: MIN, MAX, PRODUCT                     all of these but the complex ones
    reductions: BAND, BOR, BXOR                       integers and bool; every rank's tensor goes to all
    whatever moves tensors; send and recv             every type; one that the runtime does not know goes byte by byte
    ================================================  =============================================================================

    What a call that waits raises, an asynchronous one raises where its work or future is waited for:

    - `InvalidArgument`: the call cannot be: tensors elsewhere than in the CPU's memory, sparse, of several types in one call, too many, too
      few or of lengths that do not fit each other; a reduction the type does not have; a rank that is none. Raised at once, on this rank alone,
      which goes on; whether ranks are alike is not seen before they meet.
    - `Mismatch`: ranks called other things, or with other shapes, types, reductions or roots.
    - `TimedOut`: `missing` ranks did not come within the call's time-out.
    - `PeerDied`, `PeerLeft`, `Aborted`, `ConnectionLost`: `rank` has ended, has left, gave up, or cannot be reached.
    - `MemoryShortage`, `ResourceExhausted`, `SystemFailure`: memory to share, room for what comes early, or MPI's or the system's help is missing.
    - `WorldEnded`: one of these has come before, and but for `InvalidArgument` the first of them ends the world for all ranks.

    Args:
        group: the runtime's group.
        timeout: how long a call waits for the others when it does not say itself.
        prefix: the key its sub-groups' keys begin with.
    """

    # torch asks for these through the class; where they are torch's own properties, asking goes round in circles.
    supports_splitting = True
    supports_coalescing = True
    supports_shrinking = False
    supports_reconfigure = False
    supports_window = False
    supports_abort_hooks = False
    # The first is its name in torch 2.14.
    supports_time_estimate = False
    _supports_time_estimate = False

    def __init__(self, group: _native.Group, timeout: timedelta, prefix: str) -> None:
        super().__init__(group.rank, group.size)
        self.group = group
        self._rank = group.rank
        self._size = group.size
        self._prefix = prefix
        self._splits = 0
        self._options = core.Backend.Options(NAME, timeout=timeout)
        self._milliseconds = int(timeout.total_seconds() * 1000)
        self._pending: deque[EireneWork] = deque()
        self._completer = Completer()
        self._outbox = Outbox()
        self._coalesced: list[EireneWork] | None = None
        self._pool = Pool(group)
        self.last: EireneWork | None = None

    # What torch asks about a backend.

    def getBackendName(self) -> str:
        """The name, for torch's messages."""
        return NAME

    @property
    def options(self) -> Any:
        """Name and time-out, as torch keeps them."""
        return self._options

    def set_timeout(self, timeout: timedelta) -> None:
        """How long calls wait from now on, when they do not say themselves."""
        self._options._timeout = timeout
        self._milliseconds = int(timeout.total_seconds() * 1000)

    _set_default_timeout = set_timeout

    def explain(self, collective: str, dtype: torch.dtype, elements: int) -> str:
        """Which algorithm a collective of this size would run, and why."""
        return self.group.explain(_native.collective(collective), DTYPES[dtype], elements)

    def supports_tensor_alloc(self, device: Any) -> bool:
        """Whether `allocate_tensor` has memory for a device."""
        return isinstance(device, torch.device) and device.type == "cpu"

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """A tensor in memory that the node's other ranks reach in place; it goes back to a pool when the tensor dies.

        Args:
            size: how many elements.
            dtype: of which type.
            device: the CPU.

        Returns:
            A tensor of shape (size,), its content undefined. It lies in ordinary memory where it is too small to be worth it; where none can be
            shared, between nodes or under a limit, also, and that is warned of, once for each reason.
        """
        return self._pool.tensor(size, dtype)

    def stats(self) -> dict[str, int]:
        """How many tensors `allocate_tensor` gave, by their memory.

        Returns:
            `shared`: the node's other ranks reach them in place; `small`: ordinary memory, because they are; `fallback`: ordinary memory,
            because none can be shared, which is also warned of.
        """
        return self._pool.stats()

    def split(self, store: Any, ranks: list[int], options: Any) -> EireneBackend:
        """The backend of a sub-group of this group's ranks, as torch asks for it where backends are mixed.

        Raises:
            InvalidArgument: this rank is none of them.
        """
        backend = self.part(ranks, options)
        if backend is None:
            # In Python that would be no backend, which torch takes for one and ends the process.
            raise InvalidArgument(
                f"split_group: rank {self._rank} is in none of the groups, which torch cannot do with backends side by side; use new_group, or give "
                "this rank a group too"
            )
        return backend

    def part(self, ranks: list[int], options: Any) -> EireneBackend | None:
        """The backend of a sub-group, where this rank is a member; called by all ranks of this group."""
        self._splits += 1
        if self._rank not in ranks:
            return None
        timeout = options._timeout if options is not None else self._options._timeout
        prefix = f"{self._prefix}/split{self._splits}"
        members = self.group.ranks
        chosen = [members[rank] for rank in ranks]
        group = world().group(chosen, f"{prefix}:{chosen[0]}", int(timeout.total_seconds() * 1000))
        return EireneBackend(group, timeout, prefix)

    def shutdown(self) -> None:
        """The end, in good order: what was sent has left."""
        self._outbox.flush()
        self._completer.stop()

    def abort(self) -> None:
        """The end, in bad order: nobody waits for what is outstanding."""
        self._outbox.forget()
        self._completer.stop()

    # Coalescing: what is issued between start and end is waited for as one.

    def start_coalescing(self) -> None:
        """What follows is one work."""
        self._completer.settle(self._milliseconds)
        self._coalesced = []

    def end_coalescing(self) -> EireneWork:
        """The one work."""
        works, self._coalesced = self._coalesced or [], None
        work = self._together(works)
        self.last = work
        return work

    # Collectives. Types and errors are those of the class.

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> EireneWork:
        """Reduces a tensor of any shape, alike, over all ranks, in place."""
        if len(tensors) != 1:
            return self.allreduce_coalesced(tensors, opts)
        tensor = tensors[0]
        code = DTYPES.get(tensor.dtype)
        op = _OPS.get(opts.reduceOp.op)
        if code is None or op is None or not tensor.is_cpu or tensor.layout is not torch.strided or not tensor.is_contiguous() or tensor.is_neg():
            return self._reduction(_ALL_REDUCE, 0, opts, tensor, [tensor])
        timeout = opts.timeout
        milliseconds = self._milliseconds if timeout.days < 0 else int(timeout.total_seconds() * 1000)
        self._completer.settle(milliseconds)
        if opts.asyncOp or self._coalesced is not None:
            part = [tensor.data_ptr(), tensor.numel()]
            return self._track(
                EireneWork(
                    [self.group.start(_ALL_REDUCE, 0, code, op, part, part, milliseconds)], tensors, None, None, self._completer
                )
            )
        self.group.allreduce(tensor.data_ptr(), tensor.numel(), code, op, milliseconds)
        self.last = _DONE
        return _DONE

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any) -> EireneWork:
        """Reduces several tensors, each of any shape and alike, over all ranks, in place."""
        return self._together([self._reduction(_ALL_REDUCE, 0, opts, tensor, [tensor]) for tensor in tensors])

    def allreduce_sparse(self, tensors: list[torch.Tensor], opts: Any) -> EireneWork:
        """Refused with `InvalidArgument`: there are no sparse tensors here."""
        check(*tensors)
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> EireneWork:
        """Everybody gets the root's tensors, of any shapes, alike."""
        return self._together([self._move(_BROADCAST, opts.rootRank, opts, [tensor], [tensor]) for tensor in tensors])

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> EireneWork:
        """Reduces a tensor of any shape, alike, over all ranks; only the root's becomes the result."""
        tensor = one("reduce", tensors)
        return self._reduction(_REDUCE, opts.rootRank, opts, tensor, [tensor])

    def allgather(self, output_tensors: list[list[torch.Tensor]], input_tensors: list[torch.Tensor], opts: Any) -> EireneWork:
        """Everybody gets everybody's tensor, of any shape, in n tensors of its own: the r-th is as long as rank r's. They may differ in length."""
        works = []
        for outputs, tensor in zip(output_tensors, input_tensors, strict=True):
            self._each("all_gather", outputs)
            works.append(self._move(_ALL_GATHER, 0, opts, [tensor], outputs))
        return self._together(works)

    allgather_coalesced = allgather

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> EireneWork:
        """Everybody gets everybody's tensor, of any shape, alike, one after the other in one of n times as many elements, of any shape."""
        check(output, tensor)
        same("all_gather_single", output, tensor)
        counts = self._even("all_gather_single", output, tensor.numel())
        return self._single(_ALL_GATHER, opts, tensor, None, output, counts)

    def all_gather_single_coalesced(self, outputs: list[torch.Tensor], tensors: list[torch.Tensor], opts: Any) -> EireneWork:
        """Several of the same."""
        return self._together([self.all_gather_single(*pair, opts) for pair in zip(outputs, tensors, strict=True)])

    def gather(self, output_tensors: list[list[torch.Tensor]], input_tensors: list[torch.Tensor], opts: Any) -> EireneWork:
        """The root gets everybody's tensor, of any shape, in n tensors of its own: the r-th is as long as rank r's. They may differ in length."""
        tensor = one("gather", input_tensors)
        outputs = output_tensors[0] if output_tensors else []
        if self._rank == opts.rootRank:
            self._each("gather", outputs)
        return self._move(_GATHER, opts.rootRank, opts, [tensor], outputs)

    def scatter(self, output_tensors: list[torch.Tensor], input_tensors: list[list[torch.Tensor]], opts: Any) -> EireneWork:
        """Everybody gets one of the root's n tensors, of any shapes: rank r one as long as its own. They may differ in length."""
        output = one("scatter", output_tensors)
        tensors = input_tensors[0] if input_tensors else []
        if self._rank == opts.rootRank:
            self._each("scatter", tensors)
        return self._move(_SCATTER, opts.rootRank, opts, tensors, [output])

    def reduce_scatter(self, output_tensors: list[torch.Tensor], input_tensors: list[list[torch.Tensor]], opts: Any) -> EireneWork:
        """Rank r gets the reduction of everybody's tensor r of n, of any shape, alike; the n may differ in length among themselves."""
        works = []
        for output, tensors in zip(output_tensors, input_tensors, strict=True):
            self._each("reduce_scatter", tensors)
            check(output, *tensors)
            same("reduce_scatter", output, *tensors)
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors]) if len(tensors) > 1 else tensors[0]
            works.append(self._scattered(opts, flat, [tensor.numel() for tensor in tensors], output))
        return self._together(works)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> EireneWork:
        """Rank r gets the reduction of everybody's block r of one tensor of any shape, alike, with n times the elements of the output."""
        check(output, tensor)
        same("reduce_scatter_single", output, tensor)
        return self._scattered(opts, tensor, self._even("reduce_scatter_single", tensor, output.numel()), output)

    def reduce_scatter_single_coalesced(self, outputs: list[torch.Tensor], tensors: list[torch.Tensor], opts: Any) -> EireneWork:
        """Several of the same."""
        return self._together([self.reduce_scatter_single(*pair, opts) for pair in zip(outputs, tensors, strict=True)])

    def alltoall(self, output_tensors: list[torch.Tensor], input_tensors: list[torch.Tensor], opts: Any) -> EireneWork:
        """Rank i's tensor j of n goes to rank j's tensor i of n, which is as long; of any shapes. They may differ in length."""
        self._each("all_to_all", output_tensors)
        self._each("all_to_all", input_tensors)
        return self._move(_ALL_TO_ALL, 0, opts, input_tensors, output_tensors)

    def all_to_all_single(
        self, output: torch.Tensor, tensor: torch.Tensor, output_splits: list[int], input_splits: list[int], opts: Any
    ) -> EireneWork:
        """Rank i's block j goes to rank j's block i, which is as long. Blocks are runs of rows, of tensors of shape (rows, …): as many as the n
        numbers of the splits say, as many for each rank where there are none."""
        check(output, tensor)
        same("all_to_all_single", output, tensor)
        return self._single(
            _ALL_TO_ALL, opts, tensor, self._rows("input", tensor, input_splits), output, self._rows("output", output, output_splits)
        )

    def barrier(self, opts: Any) -> EireneWork:
        """Nobody goes on before everybody has come."""
        return self._issue(_BARRIER, 0, BYTE, _SUM, [], [], opts, [], None, None)

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        """A barrier whose failure, `TimedOut`, names the missing ranks, all or the first of them, and does not end the world."""
        self.group.monitored_barrier(self._timeout(opts), wait_all_ranks)

    # Messages.

    def send(self, tensors: list[torch.Tensor], destination: int, tag: int) -> EireneWork:
        """Sends a tensor of any shape to another rank of the group, which receives one of as many elements and the same type."""
        tensor = one("send", tensors)
        check(tensor)
        if not 0 <= destination < self._size or destination == self._rank:
            raise InvalidArgument(f"send: there is no other rank {destination} in a group of {self._size}")
        code, factor = moved(tensor)
        memory = contiguous(tensor)
        native = self.group.send(destination, tag, memory.data_ptr(), memory.numel() * factor, code, self._milliseconds)
        self._outbox.add(native)
        return self._track(EireneWork([native], tensors, memory, None, self._completer, in_order=False))

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> EireneWork:
        """Receives a tensor of any shape from another rank of the group, which sends one of as many elements and the same type."""
        if not 0 <= source < self._size or source == self._rank:
            raise InvalidArgument(f"recv: there is no other rank {source} in a group of {self._size}")
        return self._receive(tensors, source, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> EireneWork:
        """Receives a tensor of any shape from whichever rank sends first; the work says which."""
        return self._receive(tensors, None, tag)

    def _receive(self, tensors: list[torch.Tensor], source: int | None, tag: int) -> EireneWork:
        tensor = one("recv", tensors)
        check(tensor)
        code, factor = moved(tensor)
        memory = room(tensor)
        native = self.group.receive(source, tag, memory.data_ptr(), memory.numel() * factor, code, self._milliseconds)
        after = None if memory is tensor else copies([(tensor, memory)])
        return self._track(EireneWork([native], tensors, memory, after, self._completer, in_order=False))

    # How calls get to the runtime.

    def _timeout(self, opts: Any) -> int:
        timeout = opts.timeout
        return self._milliseconds if timeout.days < 0 else int(timeout.total_seconds() * 1000)

    def _issue(
        self,
        collective: int,
        root: int,
        code: int,
        op: int,
        inputs: list[int],
        outputs: list[int],
        opts: Any,
        result: list[torch.Tensor],
        kept: Any,
        after: Callable[[], None] | None,
    ) -> EireneWork:
        milliseconds = self._timeout(opts)
        self._completer.settle(milliseconds)
        if opts.asyncOp or self._coalesced is not None:
            native = self.group.start(collective, root, code, op, inputs, outputs, milliseconds)
            return self._track(EireneWork([native], result, kept, after, self._completer))
        self.group.run(collective, root, code, op, inputs, outputs, milliseconds)
        if after is not None:
            after()
        self.last = _DONE
        return _DONE

    def _track(self, work: EireneWork) -> EireneWork:
        """Keeps the tensors of what is under way alive, also when the caller drops the work."""
        pending = self._pending
        while pending and pending[0].over():
            pending.popleft()
        if len(pending) >= 256:
            self._pending = pending = deque(other for other in pending if not other.over())
        pending.append(work)
        if self._coalesced is not None:
            self._coalesced.append(work)
        self.last = work
        return work

    def _together(self, works: list[EireneWork]) -> EireneWork:
        if len(works) == 1:
            return works[0]
        afters = [work._finish for work in works if work._lock is not None]

        def after() -> None:
            for finish in afters:
                finish()

        together = EireneWork(
            [native for work in works for native in work._natives],
            [tensor for work in works for tensor in work._result],
            works,
            after if afters else None,
            self._completer,
            in_order=False,
        )
        self.last = together
        return together

    def _move(self, collective: int, root: int, opts: Any, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> EireneWork:
        """A collective that moves whole tensors."""
        check(*inputs, *outputs)
        first = (outputs or inputs)[0]
        same("this collective", first, *inputs, *outputs)
        code, factor = moved(first)
        if collective == _BROADCAST and self._rank == root:
            # Which keeps what it has.
            given = memory = [contiguous(tensor) for tensor in inputs]
            pairs = []
        else:
            memory = [room(tensor) for tensor in outputs]
            given = memory if collective == _BROADCAST else [contiguous(tensor) for tensor in inputs]
            pairs = [(tensor, copy) for tensor, copy in zip(outputs, memory, strict=True) if tensor is not copy]
        return self._issue(
            collective, root, code, _SUM, flat(given, factor), flat(memory, factor), opts, outputs, (given, memory), copies(pairs)
        )

    def _single(
        self,
        collective: int,
        opts: Any,
        tensor: torch.Tensor,
        input_counts: list[int] | None,
        output: torch.Tensor,
        output_counts: list[int],
    ) -> EireneWork:
        """A collective between blocks of one tensor each."""
        code, factor = moved(output)
        given = contiguous(tensor)
        memory = room(output)
        inputs = flat([given], factor) if input_counts is None else blocks(given, input_counts, factor)
        after = None if memory is output else copies([(output, memory)])
        return self._issue(
            collective, 0, code, _SUM, inputs, blocks(memory, output_counts, factor), opts, [output], (given, memory), after
        )

    def _operator(self, opts: Any, tensor: torch.Tensor) -> tuple[int, float | torch.Tensor | None]:
        """The runtime's reduction, and what to multiply by before it."""
        op = opts.reduceOp
        kind = op.op
        code = _OPS.get(kind)
        if code is None and kind == _ReduceOp.PREMUL_SUM:
            if not (tensor.is_floating_point() or tensor.is_complex()):
                raise InvalidArgument(f"`{tensor.dtype}` times a factor is none of that type; multiply first, and sum")
            return _SUM, op.factor
        if code is None:
            raise InvalidArgument(f"there is no reduction `{kind.name}` of `{tensor.dtype}`")
        if tensor.is_complex() and code not in (_SUM, _AVG):
            raise InvalidArgument(f"complex numbers can be summed and averaged, not reduced by `{kind.name}`")
        if code == _AVG and tensor.dtype == torch.bool:
            raise InvalidArgument("there is no average of `torch.bool`; convert the tensor to a type of numbers first")
        return code, None

    def _reduction(self, collective: int, root: int, opts: Any, tensor: torch.Tensor, result: list[torch.Tensor]) -> EireneWork:
        """A reduction of one whole tensor, in place."""
        check(tensor)
        bitwise = _BITWISE.get(opts.reduceOp.op)
        if bitwise is not None:
            return self._bitwise(bitwise, opts, tensor, tensor if collective == _ALL_REDUCE or self._rank == root else None, 0, tensor.numel())
        op, factor = self._operator(opts, tensor)
        memory = contiguous(tensor)
        code = DTYPES.get(real(memory).dtype)
        if code is None:
            raise InvalidArgument(f"there is no reduction of `{tensor.dtype}`")
        if factor is not None:
            memory = multiplied(memory, factor)
        wanted = collective == _ALL_REDUCE or self._rank == root
        after = copies([(tensor, memory)]) if memory is not tensor and wanted else None
        part = flat([real(memory)], 1)
        return self._issue(collective, root, code, op, part, part, opts, result, memory, after)

    def _scattered(self, opts: Any, tensor: torch.Tensor, counts: list[int], output: torch.Tensor) -> EireneWork:
        """Reduces a tensor of which every rank gets a block."""
        bitwise = _BITWISE.get(opts.reduceOp.op)
        if counts[self._rank] != output.numel():
            raise InvalidArgument(f"reduce_scatter: rank {self._rank} gets {counts[self._rank]} elements, and its output has {output.numel()}")
        if bitwise is not None:
            begin = sum(counts[: self._rank])
            return self._bitwise(bitwise, opts, tensor, output, begin, begin + counts[self._rank])
        op, factor = self._operator(opts, tensor)
        given = contiguous(tensor)
        code = DTYPES.get(real(given).dtype)
        if code is None:
            raise InvalidArgument(f"there is no reduction of `{tensor.dtype}`")
        if factor is not None:
            # Where the group's tensors are shared, this one is as well.
            into = None if self._pool is None else self._pool.tensor(given.numel(), given.dtype).view(given.shape)
            given = multiplied(given, factor, into)
        memory = room(output)
        pairs = 2 if tensor.is_complex() else 1
        after = None if memory is output else copies([(output, memory)])
        numbers = real(given)
        return self._issue(
            _REDUCE_SCATTER,
            0,
            code,
            op,
            blocks(numbers, [count * pairs for count in counts], 1),
            flat([real(memory)], 1),
            opts,
            [output],
            (given, memory),
            after,
        )

    def _bitwise(
        self,
        combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        opts: Any,
        tensor: torch.Tensor,
        output: torch.Tensor | None,
        begin: int,
        end: int,
    ) -> EireneWork:
        """A reduction the runtime does not have: everybody's tensors are gathered and combined here."""
        if tensor.is_floating_point() or tensor.is_complex():
            raise InvalidArgument(f"there is no bitwise reduction of `{tensor.dtype}`")
        code, factor = moved(tensor)
        if output is not None:
            check_written(output)
        given = contiguous(tensor)
        everything = torch.empty((self._size, tensor.numel()), dtype=tensor.dtype)

        def after() -> None:
            if output is not None:
                result = everything[0, begin:end]
                for row in everything[1:]:
                    result = combine(result, row[begin:end])
                write(output, result.view(output.shape))

        outputs = blocks(everything, [tensor.numel()] * self._size, factor)
        return self._issue(_ALL_GATHER, 0, code, _SUM, flat([given], factor), outputs, opts, [tensor], (given, everything), after)

    # What is checked.

    def _each(self, name: str, tensors: Sequence[torch.Tensor]) -> None:
        if len(tensors) != self._size:
            raise InvalidArgument(f"{name}: one tensor for each of {self._size} ranks is needed, and these are {len(tensors)}")

    def _even(self, name: str, whole: torch.Tensor, block: int) -> list[int]:
        if whole.numel() != block * self._size:
            raise InvalidArgument(f"{name}: {self._size} blocks of {block} elements are not a tensor of {whole.numel()}")
        return [block] * self._size

    def _rows(self, name: str, tensor: torch.Tensor, splits: list[int]) -> list[int]:
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if rows % self._size:
                raise InvalidArgument(f"all_to_all_single: {rows} rows of {name} cannot be divided among {self._size} ranks")
            splits = [rows // self._size] * self._size
        self._each(f"all_to_all_single, {name} splits", cast("Sequence[torch.Tensor]", splits))
        if sum(splits) != rows:
            raise InvalidArgument(f"all_to_all_single: the {name} has {rows} rows, and its splits are {sum(splits)}")
        width = tensor.numel() // rows if rows else 0
        return [split * width for split in splits]


class EireneGroup(dist.ProcessGroup):
    """The process group of a plain ``eirene``. Its methods are torch's; they only take the short way where they may."""

    def __init__(self, store: Any, backend: EireneBackend) -> None:
        super().__init__(store, backend.rank(), backend.size())
        self._backend = backend
        watched = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_DIST_NAN_CHECK")
        self._observed = any(os.environ.get(name, "0") not in ("", "0") for name in watched)
        custom = dist.ProcessGroup.BackendType.CUSTOM
        self._set_default_backend(custom)
        self._register_backend(torch.device("cpu"), custom, backend)

    def register_pre_hook(self, hook_id: int, hook: Any) -> None:
        """As torch's; from then on every call takes torch's way."""
        self._observed = True
        super().register_pre_hook(hook_id, hook)

    def register_post_hook(self, hook_id: int, hook: Any) -> None:
        """As torch's; from then on every call takes torch's way."""
        self._observed = True
        super().register_post_hook(hook_id, hook)

    def _own(self, shell: Any) -> Any:
        """Our own work instead of the shell torch puts around it."""
        work, self._backend.last = self._backend.last, None
        return shell if work is None else work.in_python(3)

    # Each of these is short by itself: torch knows a call from an override of its own by the name of the function that makes it.

    def allreduce(self, tensors: Any, opts: Any = None, *more: Any, **named: Any) -> Any:  # type: ignore[override]
        if type(opts) is _AllreduceOptions and len(tensors) == 1 and type(tensors[0]) in _PLAIN:
            if not (self._observed or _dispatch_modes() or _profiling()):
                return self._backend.allreduce(tensors, opts).in_python()
        arguments = more if opts is None else (opts, *more)
        return self._own(super().allreduce(tensors, *arguments, **named))

    def allreduce_coalesced(self, *arguments: Any, **named: Any) -> Any:
        if _direct(self, arguments, named):
            return self._backend.allreduce_coalesced(*arguments).in_python()
        return self._own(super().allreduce_coalesced(*arguments, **named))

    def broadcast(self, *arguments: Any, **named: Any) -> Any:
        if _direct(self, arguments, named):
            return self._backend.broadcast(*arguments).in_python()
        return self._own(super().broadcast(*arguments, **named))

    def reduce(self, *arguments: Any, **named: Any) -> Any:
        if _direct(self, arguments, named):
            return self._backend.reduce(*arguments).in_python()
        return self._own(super().reduce(*arguments, **named))

    def allgather(self, *arguments: Any, **named: Any) -> Any:
        if _direct(self, arguments, named):
            return self._backend.allgather(*arguments).in_python()
        return self._own(super().allgather(*arguments, **named))

    def allgather_coalesced(self, *arguments: Any, **named: Any) -> Any:
        if _direct(self, arguments, named):
            return self._backend.allgather_coalesced(*arguments).in_python()
        return self._own(super().allgather_coalesced(*arguments, **named))

    def all_gather_single(self, *arguments: Any, **named: Any) -> Any:
        if _direct(self, arguments, named):
            return self._backend.all_gather_single(*arguments).in_python()
        return self._own(super().all_gather_single(*arguments, **named))

    def all_gather_single_coalesced(self, *arguments: Any, **named: Any) -> Any:
        if _direct(self, arguments, named):
            return self._backend.all_gather_single_coalesced(*arguments).in_python()
        return self._own(super().all_gather_single_coalesced(*arguments, **named))

    def gather(self, *arguments: Any, **named: Any) -> Any:
        if _direct(self, arguments, named):
            return self._backend.gather(*arguments).in_python()
        return self._own(super().gather(*arguments, **named))

    def scatter(self, *arguments: Any, **named: Any) -> Any:
        if _direct(self, arguments, named):
            return self._backend.scatter(*arguments).in_python()
        return self._own(super().scatter(*arguments, **named))

    def reduce_scatter(self, *arguments: Any, **named: Any) -> Any:
        if _direct(self, arguments, named):
            return self._backend.reduce_scatter(*arguments).in_python()
        return self._own(super().reduce_scatter(*arguments, **named))

    def reduce_scatter_single(self, *arguments: Any, **named: Any) -> Any:
        if _direct(self, arguments, named):
            return self._backend.reduce_scatter_single(*arguments).in_python()
        return self._own(super().reduce_scatter_single(*arguments, **named))

    def reduce_scatter_single_coalesced(self, *arguments: Any, **named: Any) -> Any:
        if _direct(self, arguments, named):
            return self._backend.reduce_scatter_single_coalesced(*arguments).in_python()
        return self._own(super().reduce_scatter_single_coalesced(*arguments, **named))

    def alltoall(self, *arguments: Any, **named: Any) -> Any:
        if _direct(self, arguments, named):
            return self._backend.alltoall(*arguments).in_python()
        return self._own(super().alltoall(*arguments, **named))

    def all_to_all_single(self, *arguments: Any, **named: Any) -> Any:
        if _direct(self, arguments, named):
            return self._backend.all_to_all_single(*arguments).in_python()
        return self._own(super().all_to_all_single(*arguments, **named))

    def barrier(self, *arguments: Any, **named: Any) -> Any:
        # torch passes its options by name here.
        options = arguments[0] if arguments else named.get("opts")
        if len(arguments) + len(named) == 1 and _direct(self, (options,), {}):
            return self._backend.barrier(options).in_python()
        return self._own(super().barrier(*arguments, **named))

    def send(self, *arguments: Any, **named: Any) -> Any:
        if not named and _unwatched(self, arguments[0]):
            return self._backend.send(*arguments).in_python()
        return self._own(super().send(*arguments, **named))

    def recv(self, *arguments: Any, **named: Any) -> Any:
        if not named and _unwatched(self, arguments[0]):
            return self._backend.recv(*arguments).in_python()
        return self._own(super().recv(*arguments, **named))

    def recv_anysource(self, *arguments: Any, **named: Any) -> Any:
        if not named and _unwatched(self, arguments[0]):
            return self._backend.recv_anysource(*arguments).in_python()
        return self._own(super().recv_anysource(*arguments, **named))

    def _end_coalescing(self, *arguments: Any, **named: Any) -> Any:
        return self._own(super()._end_coalescing(*arguments, **named))

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        milliseconds = self._backend._milliseconds if timeout is None else int(timeout.total_seconds() * 1000)
        self._backend.group.monitored_barrier(milliseconds, wait_all_ranks)

    def split_group(
        self,
        new_ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: Any = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> EireneGroup | None:
        options = core.Backend.Options(NAME, timeout=timeout or self._backend.options._timeout) if opts is None else opts
        backend = self._backend.part(list(new_ranks), options)
        if backend is None:
            return None
        name = f"{self.group_name}:split:{self._backend._splits}" if group_name is None else group_name
        child = EireneGroup(core.PrefixStore(f"{name}/", self.get_group_store()), backend)
        child._set_group_name(cast("Any", name))
        child._set_group_desc(group_desc or f"{self.group_desc}:split")
        return child


_AllreduceOptions = core.AllreduceOptions
_OPTIONS = (
    core.AllreduceOptions,
    core.BroadcastOptions,
    core.ReduceOptions,
    core.AllgatherOptions,
    core.GatherOptions,
    core.ScatterOptions,
    core.ReduceScatterOptions,
    core.AllToAllOptions,
    core.BarrierOptions,
)


def _plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_plain(item) for item in value)
    return type(value) in _PLAIN or type(value) is int


def _unwatched(group: EireneGroup, value: Any) -> bool:
    """Whether nobody watches, so that a call may go to the backend without torch's dispatcher."""
    return not (group._observed or _dispatch_modes() or _profiling()) and _plain(value)


def _direct(group: EireneGroup, arguments: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """The same, for collectives in the form in which torch.distributed makes them: tensors, then options."""
    return not named and bool(arguments) and isinstance(arguments[-1], _OPTIONS) and _unwatched(group, arguments[:-1])


def _create(opts: Any, backend_options: Any) -> EireneBackend | EireneGroup:
    """What torch calls to make a group."""
    global _generation
    milliseconds = int(opts.timeout.total_seconds() * 1000)
    ranks = list(opts.global_ranks_in_group)
    if ranks:
        return _made(opts, world(opts.timeout.total_seconds()).group(ranks, _key(), milliseconds))
    here = _world_of(opts.group_rank, opts.group_size, opts.timeout)
    with _all_or_none(here):
        _generation = next(_generations)
        group = here.group(list(range(here.size)), _key(), milliseconds)
        made = _made(opts, group)
        # Who is done first must not go on alone.
        group.run(_BARRIER, 0, BYTE, _SUM, [], [], milliseconds)
        # Once for each topology it is measured what is fast on it.
        group.tune(int(BUDGET_SECONDS * 1000))
        return made


def _key() -> str:
    """The key under which a group's members meet.

    The runtime tells groups of the same ranks apart. torch's number of a group would not do: it also counts what has failed on this rank alone.
    """
    return f"torch{_generation}"


def _made(opts: Any, group: _native.Group) -> EireneBackend | EireneGroup:
    backend = EireneBackend(group, opts.timeout, _key())
    return backend if _mixed(opts.process_group) else EireneGroup(opts.store, backend)


@contextlib.contextmanager
def _all_or_none(here: _native.World) -> Iterator[None]:
    """A part of `init_process_group` that all ranks do together: where one fails, all do, lest they are at different tries when it tries again."""
    try:
        yield
    except BaseException as error:
        here.abandon(f"init_process_group failed on rank {here.rank}: {str(error) or type(error).__name__}")
        raise


def _world_of(rank: int, size: int, timeout: timedelta) -> _native.World:
    """The world, as whose rank this process was told to begin; -1 is what it was not told."""
    told = f"init_process_group was told to be rank {rank} of {size}"
    alone = (
        f"{told}, and nobody has started this process as one of several ranks; set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in each process "
        f"before that, or start the program by `eirene-train run -n {size}` or torchrun"
    )
    if size > 1 and not joined() and _native.launched() is None:
        # Looked at first: whoever has joined as the only rank can never be one of several.
        raise InvalidArgument(alone)
    here = world(timeout.total_seconds())
    if here.size == 1 < size:
        raise InvalidArgument(alone)
    if rank not in (-1, here.rank) or size not in (-1, here.size):
        raise InvalidArgument(f"{told}, and this process is rank {here.rank} of {here.size}; leave rank and world_size out")
    count_steps(here.rank)
    return here


def _mixed(process_group: Any) -> bool:
    """Whether the group that is being made may have other backends beside this one; those are registered in torch's own group."""
    if process_group is None or process_group._get_backend_name() != "custom":
        return True
    custom = dist.ProcessGroup.BackendType.CUSTOM
    return any(kind == custom and name not in (NAME, "fake") for name, kind in dist.Backend.backend_type_map.items())


def _rendezvous(url: str, timeout: timedelta | None = None, **_: Any) -> Any:
    """``eirene://``: the world knows its ranks, so there is nothing to agree on."""
    from ._store import WorldStore

    timeout = timeout or c10d.default_pg_timeout
    query = _rendezvous_module._query_to_dict(urlparse(url).query)
    here = _world_of(int(query.get("rank", -1)), int(query.get("world_size", -1)), timeout)
    with _all_or_none(here):
        store = WorldStore(here, timeout)
    # torch's C++ side does not keep the Python half of a store alive.
    _stores.append(store)
    yield store, here.rank, here.size
    raise InvalidArgument("a world meets only once")


def _asked_for() -> bool:
    """Whether ``eirene`` is among the backends of the `init_process_group` that this is called in.

    torch does not tell a rendezvous whom it is for, so its caller is looked at.
    """
    function = inspect.unwrap(dist.init_process_group).__code__
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not function:
        frame = frame.f_back
    return frame is not None and NAME in str(frame.f_locals["backend"])


def _env_rendezvous(original: Callable[..., Any]) -> Callable[..., Any]:
    """``env://``, torch's default. For other backends it stays torch's. For ours, where torch's variables are not all set, but somebody started us
    as a rank, the world is used."""

    def rendezvous(url: str, timeout: timedelta | None = None, **named: Any) -> Any:
        named |= {} if timeout is None else {"timeout": timeout}
        if not _asked_for():
            yield from original(url, **named)
            return
        launcher = _native.launched()
        complete = all(os.environ.get(name) for name in ("MASTER_ADDR", "MASTER_PORT"))
        # Our own launcher and a session's agent set torch's variables for programs that know nothing of us; here we are, and need no port.
        ours = launcher == "eirene-train run" or bool(os.environ.get("EIRENE_TRAIN_STEP"))
        if launcher is None or (complete and not ours):
            yield from original(url, **named)
        else:
            yield from _rendezvous(url, **named)

    return rendezvous


def register() -> None:
    """Makes ``eirene`` known to torch. Importing `eirene_train` does it; again does no harm."""
    if NAME.upper() in dist.Backend._plugins:
        return
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
    handlers = _rendezvous_module._rendezvous_handlers
    handlers[NAME] = _rendezvous
    handlers["env"] = _env_rendezvous(handlers["env"])
    # From 2.15 on torch's flight recorder hooks into every call of every group. Whoever wants it says so by its variable; see EireneGroup.
    recorded = getattr(c10d, "_FR_SELF_RECORDING_BACKENDS", None)
    if recorded is not None and not any(os.environ.get(name) for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")):
        recorded.add(NAME)
