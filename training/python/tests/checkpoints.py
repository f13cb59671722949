"""A small training, divided in one way or another, for the tests of checkpoints."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from ranks import REFERENCE

WIDTH, BATCH = 16, 24
# Ways to divide the training; the first has no process group at all.
ALONE, DDP, FSDP, TENSOR = "alone", "ddp", "fsdp", "tensor"


class Trained:
    """The same model on any number of ranks, in float64; with dropout, each rank's random numbers are a part of it."""

    def __init__(self, kind: str, backend: str = "eirene", dropout: float = 0.0) -> None:
        import torch
        import torch.distributed as dist

        from eirene_train.checkpoint import PerRank, RandomState, Training

        torch.set_default_dtype(torch.float64)
        self.torch, self.dist, self.kind = torch, dist, kind
        if kind != ALONE and not dist.is_initialized():
            # Ranks that are started one by one have none of torch's variables, which gloo would look for.
            dist.init_process_group(backend, init_method=None if REFERENCE else "eirene://")
        self.rank, self.size = (0, 1) if kind == ALONE else (dist.get_rank(), dist.get_world_size())
        torch.manual_seed(7)
        layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Dropout(dropout)) for _ in range(4)]
        self.model: Any = self.divided(torch.nn.Sequential(*layers))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [4, 9])
        torch.manual_seed(100 + self.rank)
        self.random = PerRank(RandomState())
        self.state: dict[str, Any] = {"training": Training(self.model, self.optimizer), "scheduler": self.scheduler, "random": self.random, "seen": 0}

    def divided(self, model: Any) -> Any:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        if self.kind == DDP:
            return self.torch.nn.parallel.DistributedDataParallel(model)
        if self.kind == FSDP:
            for layer in model:
                fully_shard(layer)
            return fully_shard(model)
        if self.kind == TENSOR:
            plan = {f"{index}.0": ColwiseParallel() if index % 2 == 0 else RowwiseParallel() for index in range(4)}
            return parallelize_module(model, init_device_mesh("cpu", (self.size,)), plan)
        return model

    def step(self, number: int) -> float:
        """The loss over the whole batch, which is the same on any number of ranks."""
        torch = self.torch
        generator = torch.Generator().manual_seed(1000 + number)
        inputs, targets = torch.randn(2, BATCH, WIDTH, generator=generator)
        if self.kind in (DDP, FSDP):
            inputs, targets = inputs.chunk(self.size)[self.rank], targets.chunk(self.size)[self.rank]
        self.optimizer.zero_grad()
        loss = ((self.model(inputs) - targets) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.state["seen"] = number + 1
        total = loss.detach().clone()
        if self.kind in (DDP, FSDP):
            self.dist.all_reduce(total, self.dist.ReduceOp.AVG)
        return float(total)

    def everything(self) -> dict[str, Any]:
        """Parameters and the optimizer's tensors, whole, by the plain model's names."""
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizer = get_state_dict(self.model, self.optimizer)
        tensors = dict(model) | {f"{name}.{key}": value for name, those in optimizer["state"].items() for key, value in those.items()}
        whole = {name: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor for name, tensor in tensors.items()}
        rest = {"scheduler": self.scheduler.state_dict(), "seen": self.state["seen"]}
        return {name: tensor.detach().tolist() for name, tensor in whole.items()} | rest


def learn(kind: str, directory: str, steps: int, dropout: float = 0.0, end_at: int | None = None, backend: str = "eirene") -> int:
    """Trains from the newest checkpoint to the last step, with a checkpoint after each; rank 0 notes the losses beside the directory.

    Args:
        end_at: after so many steps, while a checkpoint is being written, every rank kills itself.

    Returns:
        The step it began at.
    """
    from eirene_train.checkpoint import Checkpointer

    trained = Trained(kind, backend, dropout)
    with Checkpointer(directory) as checkpointer:
        first = checkpointer.load_latest(trained.state) or 0
        assert trained.state["seen"] == first
        for number in range(first, steps):
            loss = trained.step(number)
            if trained.rank == 0:
                with open(f"{directory}.losses", "a", encoding="utf-8") as losses:
                    losses.write(json.dumps([number, loss]) + "\n")
            checkpointer.save(number + 1, trained.state)
            if number + 1 == end_at:
                os.kill(os.getpid(), signal.SIGKILL)
    return first


def losses_of(directory: Path) -> dict[int, float]:
    """What was noted, the last for each step; where steps were done twice, it has to be the same again."""
    noted: dict[int, float] = {}
    for line in Path(f"{directory}.losses").read_text(encoding="utf-8").splitlines():
        number, loss = json.loads(line)
        noted[number] = loss
    return noted


class Moments:
    """Counts what this process does in a directory (it opens, makes, renames, removes), and ends something at a given count.

    By Python's audit events, which are raised before each of these: https://docs.python.org/3/library/audit_events.html.
    """

    def __init__(self, directory: str, end_at: int | None, victims: list[int]) -> None:
        self.count = 0
        self._directory, self._end_at, self._victims = directory, end_at, victims
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir"):
            return
        if not isinstance(arguments[0], (str, os.PathLike)) or not os.fspath(arguments[0]).startswith(self._directory):
            return
        self.count += 1
        if self.count == self._end_at:
            # This one last.
            for victim in sorted(self._victims, key=lambda process: process == os.getpid()):
                os.kill(victim, signal.SIGKILL)
