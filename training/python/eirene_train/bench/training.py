"""Training steps on made-up data, in a rank: forward, backward with gradients averaged over the ranks, one step of SGD."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
import torch.distributed as dist

from .. import GradArena
from .models import model

__all__ = ["Trainer"]

_CLASSES = 1000


class Trainer:
    """One rank's model, data and optimizer.

    Args:
        rank: this one.
        size: how many there are; one trains the bare model.
        device: where the model lies.
    """

    def __init__(self, rank: int, size: int, device: torch.device) -> None:
        self._rank = rank
        self._size = size
        self._device = device
        self._arena: GradArena | None = None

    def setup(self, order: dict[str, Any]) -> dict[str, Any]:
        """Builds everything.

        Args:
            order: `model`, `batch_size`, `image_size`, `threads`, and how gradients are averaged: `arena` (by a `GradArena` instead of
                DistributedDataParallel), `fp16` (sent as 16-bit numbers).

        Returns:
            `parameters`: how many the model has.
        """
        threads = order["threads"]
        torch.set_num_threads(threads)
        os.environ["OMP_NUM_THREADS"] = str(threads)
        torch.manual_seed(7)
        bare = model(order["model"]).to(self._device)
        self._model: torch.nn.Module = bare
        if self._size > 1 and order["arena"]:
            self._arena = GradArena(bare)
        elif self._size > 1:
            devices = [self._device.index] if self._device.type == "cuda" else None
            # Each rank keeps its own running statistics, as Horovod's do.
            wrapped = torch.nn.parallel.DistributedDataParallel(
                bare, device_ids=devices, broadcast_buffers=False, gradient_as_bucket_view=True
            )
            if order["fp16"]:
                from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

                wrapped.register_comm_hook(None, fp16_compress_hook)
            self._model = wrapped
        self._optimizer = torch.optim.SGD(bare.parameters(), lr=0.01)
        side = order["image_size"]
        self._images = torch.randn(order["batch_size"], 3, side, side, device=self._device)
        self._labels = torch.randint(_CLASSES, (order["batch_size"],), device=self._device)
        return {"parameters": sum(parameter.numel() for parameter in bare.parameters())}

    def train(self, order: dict[str, Any]) -> dict[str, Any]:
        """Some batches: order `batches`.

        Returns:
            `seconds`: how long they took on this rank; `images`: how many it saw.
        """
        if self._size > 1:
            dist.barrier()
        self._synchronize()
        begin = time.perf_counter()
        for _ in range(order["batches"]):
            self._step()
        self._synchronize()
        return {"seconds": time.perf_counter() - begin, "images": order["batches"] * len(self._images)}

    def _step(self) -> None:
        self._optimizer.zero_grad(set_to_none=self._arena is None)
        loss = torch.nn.functional.cross_entropy(self._model(self._images), self._labels)
        loss.backward()  # type: ignore[no-untyped-call]
        if self._arena is not None:
            self._arena.reduce()
        self._optimizer.step()

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()
