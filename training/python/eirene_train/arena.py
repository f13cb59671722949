"""Gradients in memory the node shares, averaged in place.

`GradArena(model)` makes every parameter's gradient a view of a few large tensors in such memory, so that averaging over ranks reads and
writes the other ranks' gradients where they lie: nothing is copied into a message. It averages bucket by bucket while the backward pass still
runs, in the same order on every rank.

Where zero-copy holds:

- **Plain** (a model without a wrapper): on one node it holds, for every gradient that autograd accumulates into its view. After
  ``zero_grad(set_to_none=True)``, torch's default, autograd makes a new tensor for the first gradient of a step; it is copied into the view
  and counted as `copied`. With ``zero_grad(set_to_none=False)`` nothing is copied.
- **DistributedDataParallel**: it does not hold. DDP keeps gradients in buckets of its own and lets nobody choose their memory; use the
  model without DDP and a `GradArena` instead, or DDP as it is, which goes the staged way.
- **FSDP2** (`fully_shard`): gradients are shards of DDP-like buffers; a `GradArena` has nothing to do there. Its communication buffers lie in
  shared memory after ``set_allocate_memory_from_process_group_for_comm(True)`` on every module that was sharded, and are gathered and reduced
  in place on one node; see `EireneBackend.stats`.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from . import _native
from ._memory import tensor_in, warn_of_nodes, warn_of_rank, warn_of_shortage
from ._tensors import DTYPES, check_written, write
from ._timeouts import milliseconds_of
from ._world import world
from .errors import InvalidArgument, MemoryShortage
from .throughput import count_steps

__all__ = ["GradArena"]

_ALIGNMENT = 64
_names = itertools.count()


@dataclass
class _Bucket:
    """Parameters whose gradients follow each other in memory and are averaged in one call."""

    parameters: list[torch.nn.Parameter]
    flat: torch.Tensor
    views: list[torch.Tensor]
    # One element for each parameter at the end of the same memory: whether a rank used it. Averaged with the rest, it says whether any did.
    used: torch.Tensor
    ready: set[int] = field(default_factory=set)
    # How gradients came into the views since the bucket was last averaged.
    came: dict[str, int] = field(default_factory=lambda: {"in_place": 0, "copied": 0})
    work: _native.Work | None = None


class GradArena:
    """Keeps a model's gradients in shared memory and averages them over the ranks.

        arena = eirene_train.GradArena(model)
        for x, y in data:
            optimizer.zero_grad(set_to_none=False)
            loss(model(x), y).backward()
            arena.reduce()
            optimizer.step()

    Accumulate over several backward passes under `no_sync`, all but the last. Clip, unscale and look at gradients after `reduce`.

    Args:
        model: whose parameters; or the parameters themselves. Those that need no gradient are left out.
        group: the process group to average over; none: all ranks of the world.
        bucket_bytes: about how much one call averages.
        broadcast: whether rank 0's parameters and buffers are copied to all ranks now, so that all begin alike.
        timeout: how long a bucket waits for the other ranks; none: as long as the calls of the process group do, or half an hour where torch
            has no process group.

    Raises:
        InvalidArgument: a parameter is not a dense floating-point tensor in the CPU's memory, or there is none; or a layer makes sparse
            gradients.
        TimedOut: some ranks make no such arena in that time; the message names them.

    Warns:
        RuntimeWarning: gradients are not averaged in place, because the system gave no memory to share or the ranks are on several nodes. Once
            in a process for each reason.
    """

    def __init__(
        self,
        model: torch.nn.Module | Iterable[torch.nn.Parameter],
        group: dist.ProcessGroup | None = None,
        bucket_bytes: int = 25 << 20,
        broadcast: bool = True,
        timeout: timedelta | None = None,
    ) -> None:
        everything = list(model.parameters()) if isinstance(model, torch.nn.Module) else list(model)
        parameters = [parameter for parameter in everything if parameter.requires_grad]
        if not parameters:
            raise InvalidArgument("there is no parameter that needs a gradient")
        self._parameter_names = _names_of(model, parameters)
        if isinstance(model, torch.nn.Module):
            for layer in model.modules():
                if isinstance(layer, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and layer.sparse and layer.weight.requires_grad:
                    raise self._sparse(layer.weight)
        for parameter in parameters:
            if not parameter.is_cpu or parameter.layout is not torch.strided or not parameter.is_floating_point():
                raise InvalidArgument(
                    f"a GradArena keeps dense floating-point gradients in the CPU's memory, and here is a parameter of `{parameter.dtype}` on "
                    f"`{parameter.device}`"
                )
        self._milliseconds = milliseconds_of(group, timeout)
        here = world()
        count_steps(here.rank)
        ranks = list(range(here.size)) if group is None else dist.get_process_group_ranks(group)
        self._group = here.group(ranks, f"arena{next(_names)}:{','.join(map(str, ranks))}", self._milliseconds)
        self._size = len(ranks)
        self._all_reduce = _native.collective("all_reduce")
        self._average = _native.op("avg")
        self._sync = True
        self._next = 0
        self._counts = {"in_place": 0, "copied": 0, "staged": 0, "fallback": 0}
        self._buckets = self._lay_out(parameters, bucket_bytes)
        self._place = {
            id(parameter): (number, index) for number, bucket in enumerate(self._buckets) for index, parameter in enumerate(bucket.parameters)
        }
        if broadcast:
            buffers = list(model.buffers()) if isinstance(model, torch.nn.Module) else []
            self._broadcast([*everything, *buffers])
        leaves: list[Any] = list(parameters)
        self._hooks = [leaf.register_post_accumulate_grad_hook(self._accumulated) for leaf in leaves]

    def reduce(self) -> None:
        """Averages what the backward pass has not averaged yet, and waits for all of it.

        Afterwards every gradient is the same on all ranks. A parameter that no rank used keeps what it had, none; one that only some ranks
        used counts as zero on the others.

        Raises:
            TimedOut: some ranks did not come within the arena's time-out; the message names them.
            EireneError: ranks died or called something else; the message names them.
        """
        while self._next < len(self._buckets):
            self._start(self._buckets[self._next])
        # All are waited for before anything is raised: until then the runtime may write into the memory.
        failure: Exception | None = None
        for bucket in self._buckets:
            assert bucket.work is not None
            try:
                bucket.work.wait(None)
            except Exception as error:  # noqa: BLE001 - raised below
                failure = failure or error
            else:
                manner = bucket.work.manner()
                assert manner is not None
                self._count(bucket, *manner)
            bucket.work = None
        self._next = 0
        try:
            if failure is not None:
                raise failure
            for bucket in self._buckets:
                self._attach_used(bucket)
        finally:
            for bucket in self._buckets:
                bucket.ready.clear()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes within only accumulate."""
        before, self._sync = self._sync, False
        try:
            yield
        finally:
            self._sync = before

    def stats(self) -> dict[str, int]:
        """How gradients were averaged, counted by gradient and backward pass when their bucket is averaged.

        Returns:
            Averaged where they lie: `in_place`, autograd added to the view; `copied`, autograd had made a tensor of its own, which was
            copied into it once. Averaged through messages: `staged`, because those are quicker for so little (less than 64 KiB), or were
            measured to be or asked for; `fallback`, because memory cannot be shared, which is also warned of. The last two are the same
            on all ranks that have as many gradients.
        """
        return dict(self._counts)

    def detach(self) -> None:
        """Ends it: gradients stay where they are and are ordinary from now on."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _count(self, bucket: _Bucket, manner: str, rank: int | None) -> None:
        """Counts what came into a bucket by how it was averaged."""
        for way, count in bucket.came.items():
            if manner == "in_place":
                self._counts[way] += count
            else:
                self._counts["staged" if manner in ("small", "chosen") else "fallback"] += count
            bucket.came[way] = 0
        if manner == "nodes":
            warn_of_nodes("GradArena", "gradients", "To average in place, make a GradArena for the ranks of one node")
        elif manner == "unshared" and rank is not None and rank != world().rank:
            warn_of_rank("GradArena", "gradients", rank)

    def _lay_out(self, parameters: list[torch.nn.Parameter], bucket_bytes: int) -> list[_Bucket]:
        """Buckets in about the order in which gradients come: the last parameters' first."""
        groups: list[list[torch.nn.Parameter]] = []
        open_groups: dict[torch.dtype, tuple[list[torch.nn.Parameter], int]] = {}
        for parameter in reversed(parameters):
            members, size = open_groups.get(parameter.dtype, ([], bucket_bytes))
            if size >= bucket_bytes:
                members, size = [], 0
                groups.append(members)
            members.append(parameter)
            open_groups[parameter.dtype] = (members, size + parameter.numel() * parameter.element_size())
        return [self._bucket(members) for members in groups]

    def _bucket(self, parameters: list[torch.nn.Parameter]) -> _Bucket:
        dtype = parameters[0].dtype
        step = _ALIGNMENT // dtype.itemsize
        offsets = [0]
        for parameter in parameters:
            offsets.append(-(-(offsets[-1] + parameter.numel()) // step) * step)
        length = offsets[-1] + len(parameters)
        try:
            flat = tensor_in(world().arena(length * dtype.itemsize), dtype, length)
        except MemoryShortage as shortage:
            warn_of_shortage("GradArena", "gradients", shortage)
            flat = torch.empty(length, dtype=dtype)
        flat.zero_()
        views = [
            flat.as_strided(parameter.shape, _dense_strides(parameter), offset) for parameter, offset in zip(parameters, offsets, strict=False)
        ]
        for parameter, view in zip(parameters, views, strict=True):
            if parameter.grad is not None:
                self._adopt(parameter, parameter.grad, view)
        return _Bucket(parameters, flat, views, flat[offsets[-1] :])

    def _broadcast(self, tensors: list[torch.Tensor]) -> None:
        collective, byte, total = _native.collective("broadcast"), _native.dtype("uint8"), _native.op("sum")
        check_written(*tensors)
        for tensor in tensors:
            memory = tensor.detach().contiguous()
            part = [memory.data_ptr(), memory.numel() * memory.element_size()]
            self._group.run(collective, 0, byte, total, part, part, self._milliseconds)
            if memory.data_ptr() != tensor.data_ptr():
                write(tensor, memory)

    def _accumulated(self, parameter: torch.Tensor) -> None:
        """Called by autograd whenever a parameter's gradient is complete for this pass."""
        number, index = self._place[id(parameter)]
        bucket = self._buckets[number]
        if bucket.work is not None:
            name = self._parameter_names.get(id(parameter), "a parameter")
            raise InvalidArgument(
                f"the gradient of {name} came again after it was averaged. If a second backward pass began before `reduce`, use `no_sync` for all "
                "passes but the last. If one pass computes it in several parts, as a checkpoint does for weights that are used more than once, use "
                "`checkpoint(use_reentrant=False)`"
            )
        view, grad = bucket.views[index], parameter.grad
        assert grad is not None
        bucket.came["copied" if self._adopt(parameter, grad, view) else "in_place"] += 1
        if self._sync:
            bucket.ready.add(index)
            while self._next < len(self._buckets) and len(self._buckets[self._next].ready) == len(self._buckets[self._next].parameters):
                self._start(self._buckets[self._next])

    def _start(self, bucket: _Bucket) -> None:
        """Begins to average a bucket; every rank does so in the same order."""
        for index, parameter in enumerate(bucket.parameters):
            grad, view = parameter.grad, bucket.views[index]
            if grad is None:
                view.zero_()
            else:
                self._adopt(parameter, grad, view)
            bucket.used[index] = 0.0 if grad is None else 1.0
        part = [bucket.flat.data_ptr(), bucket.flat.numel()]
        bucket.work = self._group.start(self._all_reduce, 0, DTYPES[bucket.flat.dtype], self._average, part, part, self._milliseconds)
        self._next += 1

    def _adopt(self, parameter: torch.Tensor, grad: torch.Tensor, view: torch.Tensor) -> bool:
        """Sees to it that a gradient is its view; says whether it had to be copied."""
        if grad.layout is not torch.strided:
            raise self._sparse(parameter)
        if grad.data_ptr() == view.data_ptr() and grad.stride() == view.stride():
            return False
        view.copy_(grad.detach())
        parameter.grad = view
        return True

    def _sparse(self, parameter: torch.Tensor) -> InvalidArgument:
        name = self._parameter_names.get(id(parameter), "a parameter")
        return InvalidArgument(
            f"the gradient of {name} is sparse, and a GradArena keeps dense gradients: make its layer with `sparse=False`, or give the GradArena "
            "only the other parameters"
        )

    def _attach_used(self, bucket: _Bucket) -> None:
        missing = [index for index, parameter in enumerate(bucket.parameters) if parameter.grad is None]
        for index in missing:
            if bucket.used[index] > 0:
                bucket.parameters[index].grad = bucket.views[index]


def _dense_strides(parameter: torch.Tensor) -> tuple[int, ...]:
    """The parameter's own order of dimensions, so that autograd accumulates in place (channels-last weights have channels-last gradients)."""
    return torch.empty_like(parameter, memory_format=torch.preserve_format, device="meta").stride()


def _names_of(model: torch.nn.Module | Iterable[torch.nn.Parameter], parameters: list[torch.nn.Parameter]) -> dict[int, str]:
    """What messages call the parameters: as the model does, or by their number among those that were given."""
    if isinstance(model, torch.nn.Module):
        return {id(parameter): f"`{name}`" for name, parameter in model.named_parameters()}
    return {id(parameter): f"parameter {number} of shape {tuple(parameter.shape)}" for number, parameter in enumerate(parameters)}
