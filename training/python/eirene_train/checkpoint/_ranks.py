"""What ranks agree on, and how they tell each other: over a torch process group, or alone where there is none.

Calls here are collectives: every rank makes them, in the same order. They go over the caller's own group, from the thread that calls, so their
order among the training's collectives is the program's. What is written in the background has a group of its own, as it comes at no such order.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from .errors import CheckpointError

__all__ = ["Agreement", "Ranks", "reason"]

_Thing = TypeVar("_Thing")
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class _Said:
    """What a rank tells the others of its failure; whole, where all know of it already and it needs no rank before it."""

    text: str
    ranks: tuple[int, ...]
    is_whole: bool


class Ranks:
    """The ranks that make checkpoints together.

    Args:
        group: torch's; none: the default group, or this process alone where `init_process_group` was not called. What is agreed on lies in
            the CPU's memory; for a group without a CPU backend, one of gloo is made.
    """

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.alone = not (dist.is_available() and dist.is_initialized())
        self.rank, self.size = 0, 1
        self.group: dist.ProcessGroup | None = None
        self.writing: dist.ProcessGroup | None = None
        self._ours: list[dist.ProcessGroup] = []
        self._everybody = group is None
        if self.alone:
            return
        self.group = group if group is not None else dist.group.WORLD
        assert self.group is not None
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        self._backend = "gloo"
        if _CPU in self.group._device_types:
            self._backend = self.group._get_backend(_CPU).name()
        else:
            self.group = self._another(None)

    def make_writing(self, timeout: timedelta) -> None:
        """Makes the group for what is written in the background."""
        if not self.alone:
            self.writing = self._another(timeout)

    def _another(self, timeout: timedelta | None) -> dist.ProcessGroup:
        assert self.group is not None
        ranks = None if self._everybody else dist.get_process_group_ranks(self.group)
        # A group of some ranks is made by those alone: the others know nothing of checkpoints.
        made: Any = dist.new_group(ranks, timeout=timeout, backend=self._backend, use_local_synchronization=ranks is not None)
        self._ours.append(made)
        return self._ours[-1]

    def close(self) -> None:
        """Destroys the groups made here, unless somebody has destroyed all."""
        if not self.alone and dist.is_initialized():
            for group in self._ours:
                dist.destroy_process_group(group)
        self._ours.clear()

    def in_world(self, rank: int) -> int:
        """The number in the world of one of these ranks."""
        return rank if self.alone or self.group is None else dist.get_global_rank(self.group, rank)

    def largest(self, values: Sequence[int]) -> list[int]:
        """The largest of each over all ranks."""
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.int64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self.group)
        return [int(value) for value in tensor.tolist()]

    def from_first(self, thing: _Thing | None) -> _Thing:
        """Rank 0's, on every rank."""
        things = [thing]
        if self.size > 1:
            dist.broadcast_object_list(things, src=self.in_world(0), group=self.group)
        assert things[0] is not None
        return things[0]

    def check(self, failure: BaseException | str | None, what: str) -> None:
        """Raises what any rank comes with, on all of them.

        Args:
            failure: what went wrong on this rank, if anything.
            what: what was not done because of it, for the message.

        Raises:
            CheckpointError: with what each of them said.
        """
        if not self.largest([failure is not None])[0]:
            return
        mine: _Said | None = None
        if isinstance(failure, CheckpointError):
            mine = _Said(str(failure), failure.ranks, True)
        elif failure is not None:
            mine = _Said(failure if isinstance(failure, str) else reason(failure), (self.in_world(self.rank),), False)
        said: list[_Said | None] = [mine] * self.size
        if self.size > 1:
            dist.all_gather_object(said, mine, group=self.group)
        told = [one for one in said if one is not None]
        ranks = tuple(sorted({rank for one in told for rank in one.ranks}))
        each = "; ".join(f"rank {one.ranks[0]}: {one.text}" for one in told if not one.is_whole)
        message = next((one.text for one in told if one.is_whole), f"{what}: {each}")
        raise CheckpointError(message, ranks) from (failure if isinstance(failure, BaseException) else None)


def reason(error: BaseException) -> str:
    """An error in one line: what the system said, where that is at the bottom of it, as in torch's errors about files that it could not write."""
    at: BaseException | None = error
    while at is not None and not isinstance(at, OSError):
        at = at.__cause__ or at.__context__
    first = str(error if at is None else at).strip().split("\n")[0]
    return first if at is not None else f"{type(error).__name__}: {first}" if first else type(error).__name__


class Agreement:
    """Whether any rank says yes, asked about once in some seconds, and answered alike on all ranks in the same call.

    Most calls count down and cost nothing. All ranks know from the last time how many calls it is until the next: the fewest that any of them
    wishes for, judged by how long calls took since. So nobody asks a clock what others' clocks may answer otherwise. That number at most doubles
    at a time, as the first steps of a training are often not like the others.

    Args:
        ranks: who agrees.
        within: how many seconds may lie between two times, as long as calls come as fast as they did.
    """

    def __init__(self, ranks: Ranks, within: float) -> None:
        self._ranks = ranks
        self._within = within
        self._calls = self._left = 1
        self._since = time.monotonic()
        self.times = 0

    def ask(self, *says: bool) -> list[bool]:
        """Which of these any rank says; nothing, as long as nobody is asked."""
        if self._ranks.size == 1:
            return list(says)
        self._left -= 1
        if self._left > 0:
            return [False] * len(says)
        passed = max(time.monotonic() - self._since, 1e-9)
        wish = max(1, min(2 * self._calls, int(self._calls * self._within / passed)))
        *said, fewest = self._ranks.largest([*says, -wish])
        self._calls = self._left = -fewest
        self._since = time.monotonic()
        self.times += 1
        return [bool(one) for one in said]
