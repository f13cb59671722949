"""A communication hook for DistributedDataParallel over another backend."""

# torch looks at the hook's annotations and wants types there, not their names: so no `from __future__ import annotations`.

from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from . import _native
from ._futures import Completer, future_of
from ._tensors import DTYPES
from ._world import world

__all__ = ["comm_hook"]

_TIMEOUT_MS = 30 * 60 * 1000


class _Averager:
    """Averages tensors over some ranks of the world, in a lane of its own."""

    def __init__(self, ranks: tuple[int, ...]) -> None:
        self._group = world().group(ranks, "comm_hook:" + ",".join(map(str, ranks)), _TIMEOUT_MS)
        self._completer = Completer()
        self._collective = _native.collective("all_reduce")
        self._average = _native.op("avg")

    def start(self, tensor: torch.Tensor) -> Any:
        """A future with the tensor, averaged in place."""
        dtype = DTYPES[tensor.dtype]
        part = [tensor.data_ptr(), tensor.numel()]
        work = self._group.start(self._collective, 0, dtype, self._average, part, part, _TIMEOUT_MS)

        def wait() -> torch.Tensor:
            work.wait(None)
            return tensor

        return future_of(wait, work.is_done(), self._completer.collective)


_averagers: dict[tuple[int, ...], _Averager] = {}


def comm_hook(state: dist.ProcessGroup | None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages DistributedDataParallel's gradients by Eirene while another backend, gloo for one, does everything else.

        model = DistributedDataParallel(model)
        model.register_comm_hook(None, eirene_train.comm_hook)

    The ranks of the process group must be the ranks of the world Eirene finds, as they are when one launcher started them.

    Args:
        state: the process group whose ranks average; none: all.
        bucket: what torch gives: a flat tensor of gradients, of shape (elements,) and float32, float64, float16 or bfloat16.

    Returns:
        A future with the same tensor, averaged.

    Raises:
        EireneError: through the future; the message names the ranks it is about.
    """
    group = state if state is not None else dist.group.WORLD
    ranks = tuple(dist.get_process_group_ranks(group))
    averager = _averagers.get(ranks)
    if averager is None:
        averager = _averagers[ranks] = _Averager(ranks)
    future: torch.futures.Future[torch.Tensor] = averager.start(bucket.buffer())
    return future
