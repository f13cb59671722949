"""A communication hook for DistributedDataParallel over another backend."""

# torch looks at the hook's annotations and wants types there, not their names: so no `from __future__ import annotations`.

import threading
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from . import _native
from ._futures import Completer, future_of
from ._tensors import DTYPES, contiguous
from ._timeouts import milliseconds_of
from ._world import world
from .errors import InvalidArgument
from .throughput import count_steps

__all__ = ["comm_hook"]


class _Averager:
    """Averages tensors over some ranks of the world, in a lane of its own."""

    def __init__(self, ranks: tuple[int, ...], milliseconds: int) -> None:
        here = world()
        count_steps(here.rank)
        self._group = here.group(ranks, "comm_hook:" + ",".join(map(str, ranks)), milliseconds)
        self._completer = Completer()
        self._collective = _native.collective("all_reduce")
        self._average = _native.op("avg")

    def start(self, tensor: torch.Tensor, milliseconds: int) -> Any:
        """A future with the tensor, averaged in place; how long it may wait for the other ranks is milliseconds.

        Raises:
            InvalidArgument: there is no average of such a tensor.
        """
        dtype = DTYPES.get(tensor.dtype) if tensor.is_floating_point() else None
        if dtype is None:
            raise InvalidArgument(
                f"comm_hook averages gradients of type float32, float64, float16 and bfloat16, and these are `{tensor.dtype}`; keep the "
                "parameters in one of those"
            )
        if tensor.is_meta or tensor.layout is not torch.strided:
            what = f"`{tensor.layout}`" if tensor.layout is not torch.strided else f"on `{tensor.device}`, which has no memory"
            raise InvalidArgument(f"comm_hook averages dense gradients on a CPU or a GPU, and these are {what}; make them such before DDP")
        memory = _reachable(tensor)
        part = [memory.data_ptr(), memory.numel()]
        work = self._group.start(self._collective, 0, dtype, self._average, part, part, milliseconds)
        lock = threading.Lock()
        left = [] if memory is tensor else [memory]

        def wait() -> torch.Tensor:
            work.wait(None)
            # Whoever waits first copies back, and the others wait for that.
            with lock, torch.no_grad():
                if left:
                    tensor.copy_(left[0])
                    # Not before: where copying fails, whoever waits again copies again.
                    left.clear()
            return tensor

        return future_of(wait, work.is_done(), self._completer.collective, None if tensor.is_cpu else [tensor.device])


def _reachable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself where the runtime can work in its memory, else a copy in the CPU's, pinned for a GPU.

    The copy waits for what was asked of the GPU before, so the gradients are there.
    """
    if tensor.is_cpu:
        return contiguous(tensor)
    memory = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda)
    return memory.copy_(tensor.detach())


_averagers: dict[tuple[int, ...], _Averager] = {}


def comm_hook(state: dist.ProcessGroup | None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages DistributedDataParallel's gradients by Eirene while another backend, gloo for one, does everything else.

    It works in the CPU's memory: a GPU's gradients are copied there, averaged and copied back, and the copies hold up the backward pass.
    Where NCCL works between the GPUs, it is faster.

        model = DistributedDataParallel(model)
        model.register_comm_hook(None, eirene_train.comm_hook)

    The ranks of the process group must be the ranks of the world Eirene finds, as they are when one launcher started them.

    A bucket waits for the other ranks as long as the process group's own calls do.

    Args:
        state: the process group whose ranks average; none: all.
        bucket: what torch gives: a flat tensor of gradients, of shape (elements,) and float32, float64, float16 or bfloat16.

    Returns:
        A future with the same tensor, averaged.

    Raises:
        InvalidArgument: the gradients are of another type, sparse, or without memory.
        EireneError: through the future; the message names the ranks it is about. `TimedOut`: they did not come within the group's time-out.
    """
    group = state if state is not None else dist.group.WORLD
    ranks = tuple(dist.get_process_group_ranks(group))
    milliseconds = milliseconds_of(group)
    averager = _averagers.get(ranks)
    if averager is None:
        averager = _averagers[ranks] = _Averager(ranks, milliseconds)
    future: torch.futures.Future[torch.Tensor] = averager.start(bucket.buffer(), milliseconds)
    return future
