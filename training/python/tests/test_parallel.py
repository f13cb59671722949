"""Training in parallel is training: losses and gradients of torch's ways to divide a model or a batch equal those of one process."""

from __future__ import annotations

from typing import Any

import pytest
import ranks

STEPS = 20
BATCH = 8
WIDTH = 16
TOLERANCE = {"float32": 1e-6, "float64": 1e-10}


def start(kind: str) -> tuple[Any, Any, int, int]:
    import torch
    import torch.distributed as dist

    import eirene_train  # noqa: F401

    torch.set_default_dtype(getattr(torch, kind))
    dist.init_process_group("eirene")
    return torch, dist, dist.get_rank(), dist.get_world_size()


def layers(torch: Any, count: int = 4) -> Any:
    """The same model on every rank."""
    torch.manual_seed(7)
    blocks = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(count)]
    return torch.nn.Sequential(*blocks)


def batch(torch: Any, step: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(1000 + step)
    return torch.randn(BATCH, WIDTH, generator=generator), torch.randn(BATCH, WIDTH, generator=generator)


def loss_of(output: Any, target: Any) -> Any:
    return ((output - target) ** 2).mean()


def optimizer_of(torch: Any, parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


class Alone:
    """The same training in this process alone, step by step."""

    def __init__(self, torch: Any, count: int = 4) -> None:
        self.torch = torch
        self.model = layers(torch, count)
        self.optimizer = optimizer_of(torch, self.model.parameters())

    def step(self, number: int) -> tuple[Any, dict[str, Any]]:
        self.optimizer.zero_grad()
        inputs, targets = batch(self.torch, number)
        loss = loss_of(self.model(inputs), targets)
        loss.backward()
        gradients = {name: parameter.grad.clone() for name, parameter in self.model.named_parameters()}
        self.optimizer.step()
        return loss.detach(), gradients


def close(torch: Any, got: Any, wanted: Any, what: str) -> None:
    tolerance = TOLERANCE[str(wanted.dtype).removeprefix("torch.")]
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance, msg=lambda text: f"{what}: {text}")


def share_of(tensor: Any, rank: int, size: int) -> Any:
    return tensor.chunk(size)[rank]


def data_parallel(kind: str, as_views: bool) -> None:
    torch, dist, rank, size = start(kind)
    alone = Alone(torch)
    model = torch.nn.parallel.DistributedDataParallel(layers(torch), gradient_as_bucket_view=as_views, bucket_cap_mb=0.001)
    optimizer = optimizer_of(torch, model.parameters())
    for step in range(STEPS):
        wanted_loss, wanted = alone.step(step)
        optimizer.zero_grad()
        inputs, targets = batch(torch, step)
        halves = [(share_of(inputs, rank, size), share_of(targets, rank, size))]
        if step % 3 == 2:
            # Accumulated over two passes, of which only the second communicates.
            halves = list(zip(halves[0][0].chunk(2), halves[0][1].chunk(2), strict=True))
            with model.no_sync():
                (loss_of(model(halves[0][0]), halves[0][1]) / 2).backward()
        loss = loss_of(model(halves[-1][0]), halves[-1][1]) / len(halves)
        loss.backward()
        if len(halves) == 1:
            total = loss.detach().clone()
            dist.all_reduce(total, dist.ReduceOp.AVG)
            close(torch, total, wanted_loss, f"loss of step {step}")
        for name, parameter in model.module.named_parameters():
            close(torch, parameter.grad, wanted[name], f"gradient of {name} in step {step}")
        optimizer.step()


def sharded(kind: str, shared_memory: bool) -> None:
    torch, dist, rank, size = start(kind)
    from torch.distributed.fsdp import fully_shard

    alone = Alone(torch)
    model = layers(torch)
    for block in model:
        fully_shard(block)
    fully_shard(model)
    if shared_memory:
        for module in (*model, model):
            module.set_allocate_memory_from_process_group_for_comm(True)
    optimizer = optimizer_of(torch, model.parameters())
    for step in range(STEPS):
        wanted_loss, wanted = alone.step(step)
        optimizer.zero_grad()
        inputs, targets = batch(torch, step)
        loss = loss_of(model(share_of(inputs, rank, size)), share_of(targets, rank, size))
        loss.backward()
        total = loss.detach().clone()
        dist.all_reduce(total, dist.ReduceOp.AVG)
        close(torch, total, wanted_loss, f"loss of step {step}")
        for name, parameter in model.named_parameters():
            close(torch, parameter.grad.full_tensor(), wanted[name], f"gradient of {name} in step {step}")
        optimizer.step()


def tensor_parallel(kind: str) -> None:
    torch, dist, rank, size = start(kind)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    alone = Alone(torch)
    model = layers(torch)
    plan = {f"{index}.0": ColwiseParallel() if index % 2 == 0 else RowwiseParallel() for index in range(4)}
    parallelize_module(model, init_device_mesh("cpu", (size,)), plan)
    optimizer = optimizer_of(torch, model.parameters())
    for step in range(STEPS):
        wanted_loss, wanted = alone.step(step)
        optimizer.zero_grad()
        inputs, targets = batch(torch, step)
        loss = loss_of(model(inputs), targets)
        loss.backward()
        close(torch, loss.detach(), wanted_loss, f"loss of step {step}")
        for name, parameter in model.named_parameters():
            close(torch, parameter.grad.full_tensor(), wanted[name], f"gradient of {name} in step {step}")
        optimizer.step()


def pipelined(kind: str, schedule_name: str) -> None:
    torch, dist, rank, size = start(kind)
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import Schedule1F1B, ScheduleDualPipeV

    v_shaped = schedule_name == "DualPipeV"
    count = 2 * size if v_shaped else size
    alone = Alone(torch, count)
    whole = layers(torch, count)
    mine = [rank, count - 1 - rank] if v_shaped else [rank]
    stages = [PipelineStage(whole[index], index, count, torch.device("cpu")) for index in mine]
    # DualPipeV wants at least twice as many microbatches as ranks.
    microbatches = BATCH
    schedule: Any
    if v_shaped:
        schedule = ScheduleDualPipeV(stages, microbatches, loss_fn=loss_of)
    else:
        schedule = Schedule1F1B(stages[0], microbatches, loss_fn=loss_of)
    parameters = [parameter for index in mine for parameter in whole[index].parameters()]
    optimizer = optimizer_of(torch, parameters)
    last = count - 1 in mine
    for step in range(STEPS):
        wanted_loss, wanted = alone.step(step)
        optimizer.zero_grad()
        inputs, targets = batch(torch, step)
        losses: list[Any] = []
        arguments = (inputs,) if 0 in mine else ()
        extra = {"target": targets, "losses": losses} if last else {}
        schedule.step(*arguments, **extra)
        if last:
            close(torch, torch.stack(losses).mean().detach(), wanted_loss, f"loss of step {step}")
        for index in mine:
            for name, parameter in whole[index].named_parameters():
                close(torch, parameter.grad, wanted[f"{index}.{name}"], f"gradient of {index}.{name} in step {step}")
        optimizer.step()


KINDS = ["float32", "float64"]


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(("kind", "as_views"), [("float32", True), ("float64", False)])
def test_ddp_equals_one_process(size: int, kind: str, as_views: bool) -> None:
    ranks.values(size, data_parallel, kind, as_views)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(("kind", "shared_memory"), [("float32", True), ("float64", False)])
def test_fsdp2_equals_one_process(size: int, kind: str, shared_memory: bool) -> None:
    ranks.values(size, sharded, kind, shared_memory)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_tensor_parallel_equals_one_process(size: int, kind: str) -> None:
    ranks.values(size, tensor_parallel, kind)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("schedule", ["1F1B", "DualPipeV"])
@pytest.mark.parametrize("kind", KINDS)
def test_pipelines_equal_one_process(size: int, schedule: str, kind: str) -> None:
    ranks.values(size, pipelined, kind, schedule)
