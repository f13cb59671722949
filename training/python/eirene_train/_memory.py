"""Tensors in memory that the other ranks of a node can reach in place, and what is said where there is none."""

from __future__ import annotations

import ctypes
import threading
import warnings
import weakref
from typing import Any

import torch

from . import _native
from ._world import world
from .errors import MemoryShortage

__all__ = ["Pool", "tensor_in", "warn_of_nodes", "warn_of_rank", "warn_of_shortage"]

# From so many bytes on the runtime looks whether what a call moves can be reached in place.
_WORTH_IT = 64 << 10
_PAGE = 4 << 10

_COSTS = "{what} go through messages, which copies them; results are the same"
_NODES = f"the ranks are on several nodes, which share no memory: {_COSTS}. {{cure}}"
_RANK = f"rank {{rank}} has no shared memory for its {{what}}: {_COSTS}. Its own warning says why"
_OWN = (
    f"this rank has no shared memory for its {{what}} ({{shortage}}): {_COSTS}. Raise the limit that is in the way (`ulimit -f`, `ulimit -v`, "
    "`ulimit -n`, the memory of the job or the container)"
)
_SHARD_IN_A_NODE = "To share them, give `fully_shard` a mesh of two dimensions, the second within a node"
_warned: set[tuple[str, str]] = set()


def _warn_once(who: str, reason: str, message: str) -> None:
    if (who, reason) not in _warned:
        _warned.add((who, reason))
        warnings.warn(f"eirene_train: {who}: {message}", RuntimeWarning, stacklevel=4)


def warn_of_nodes(who: str, what: str, cure: str) -> None:
    """Once in a process: between nodes nothing is shared."""
    _warn_once(who, "nodes", _NODES.format(what=what, cure=cure))


def warn_of_rank(who: str, what: str, rank: int) -> None:
    """Once in a process: another rank shares nothing."""
    _warn_once(who, "unshared", _RANK.format(what=what, rank=rank))


def warn_of_shortage(who: str, what: str, shortage: MemoryShortage) -> None:
    """Once in a process: the system gave this rank no memory to share."""
    _warn_once(who, "own", _OWN.format(what=what, shortage=shortage))


def tensor_in(region: _native.Region, dtype: torch.dtype, elements: int, offset: int = 0) -> torch.Tensor:
    """A tensor of shape (elements,) in a region, which lives as long as the tensor does."""
    return torch.frombuffer(_buffer(region), dtype=dtype, count=elements, offset=offset)


def _buffer(region: _native.Region) -> Any:
    # A class of its own, so that instances can hold the region and be referred to weakly.
    kind: Any = type("_Memory", (ctypes.c_char * len(region),), {})
    buffer: Any = kind.from_address(region.address)
    buffer.region = region
    return buffer


class Pool:
    """Regions for a group's tensors that are used again and again: a tensor's goes back when its storage dies.

    Args:
        group: whose collectives the tensors are for.
    """

    def __init__(self, group: _native.Group) -> None:
        self._one_node = group.one_node
        # Of what a call moves in all, a rank's block is a part, and all of it has to be reached.
        self._smallest = _WORTH_IT // group.size
        self._free: dict[int, list[_native.Region]] = {}
        self._lock = threading.Lock()
        self._counts = {"shared": 0, "small": 0, "fallback": 0}

    def stats(self) -> dict[str, int]:
        """How many tensors came in which memory, as `EireneBackend.stats` has it."""
        return dict(self._counts)

    def tensor(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """A tensor of shape (elements,), its content undefined, in ordinary memory where it is small or nothing can be shared."""
        size = elements * dtype.itemsize
        if size < self._smallest:
            self._counts["small"] += 1
        elif not self._one_node:
            self._counts["fallback"] += 1
            warn_of_nodes("allocate_tensor", "communication buffers", _SHARD_IN_A_NODE)
        else:
            try:
                tensor = self._shared(size, elements, dtype)
            except MemoryShortage as shortage:
                self._counts["fallback"] += 1
                warn_of_shortage("allocate_tensor", "communication buffers", shortage)
            else:
                self._counts["shared"] += 1
                return tensor
        return torch.empty(elements, dtype=dtype)

    def _shared(self, size: int, elements: int, dtype: torch.dtype) -> torch.Tensor:
        # Sizes in steps of an eighth of their power of two, so that tensors of nearly one size share regions.
        step = max(1 << (size.bit_length() - 4), _PAGE)
        rounded = -(-size // step) * step
        with self._lock:
            free = self._free.setdefault(rounded, [])
            region = free.pop() if free else None
        if region is None:
            region = world().arena(rounded)
        buffer = _buffer(region)
        del buffer.region
        weakref.finalize(buffer, free.append, region).atexit = False
        return torch.frombuffer(buffer, dtype=dtype, count=elements)
