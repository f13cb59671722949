"""Tensors in memory that the other ranks of a node can reach in place."""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import Any

import torch

from . import _native

__all__ = ["Pool", "tensor_in"]

_SMALLEST = 64 << 10


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
    """Regions that are used again and again: a tensor's goes back when its storage dies."""

    def __init__(self, world: _native.World) -> None:
        self._world = world
        self._free: dict[int, list[_native.Region]] = {}
        self._lock = threading.Lock()

    def tensor(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """A tensor of shape (elements,), its content undefined. Small ones are ordinary memory: staging them costs nothing."""
        size = elements * dtype.itemsize
        if size < _SMALLEST:
            return torch.empty(elements, dtype=dtype)
        # Sizes in steps of an eighth of their power of two, so that tensors of nearly one size share regions.
        step = max(1 << (size.bit_length() - 4), _SMALLEST)
        rounded = -(-size // step) * step
        with self._lock:
            free = self._free.setdefault(rounded, [])
            region = free.pop() if free else None
        if region is None:
            region = self._world.arena(rounded)
        buffer = _buffer(region)
        del buffer.region
        weakref.finalize(buffer, free.append, region).atexit = False
        return torch.frombuffer(buffer, dtype=dtype, count=elements)
