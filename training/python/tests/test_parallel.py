"""Training in parallel is training: losses and gradients of torch's ways to divide a model or a batch equal those of one process."""

from __future__ import annotations

import resource
import warnings
from pathlib import Path
from typing import Any

import launchers
import pytest
import ranks
from ranks import ALONE, MIXED

STEPS = 20
TOLERANCE = {"float32": 1e-6, "float64": 1e-10}

# What is moved is small: it goes in messages, whatever memory it lies in.
SMALL = 16, 8
# Weights are so large, or also what layers give to each other, that memory decides.
WIDE, WIDE_AND_LONG = (256, 8), (256, 768)
# A block of weights is, but not each rank's part of it.
ALMOST_WIDE = 136, 8
# The runtime looks at memory from here on.
LARGE = 64 << 10

# Of this rank's model and batches.
WIDTH, BATCH = SMALL


def start(kind: str, shape: tuple[int, int], backend: str = ALONE) -> tuple[Any, Any, int, int]:
    import torch
    import torch.distributed as dist

    import eirene_train  # noqa: F401

    global WIDTH, BATCH
    WIDTH, BATCH = shape
    torch.set_default_dtype(getattr(torch, kind))
    dist.init_process_group(backend)
    return torch, dist, dist.get_rank(), dist.get_world_size()


def of_the_cpu(dist: Any) -> Any:
    import torch

    return dist.group.WORLD._get_backend(torch.device("cpu"))


class Watched:
    """In place of the runtime's group of all ranks, while it is entered: keeps how each large collective was done, by its name."""

    def __init__(self, dist: Any) -> None:
        from eirene_train import _native

        self._names = {_native.collective(name): name for name in ("all_reduce", "all_gather", "reduce_scatter")}
        self._all_reduce = _native.collective("all_reduce")
        self._works: list[tuple[str, Any]] = []
        self._backend = of_the_cpu(dist)
        self._group = self._backend.group

    def __enter__(self) -> None:
        self._backend.group = self

    def __exit__(self, *_: object) -> None:
        self._backend.group = self._group

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)

    def start(self, collective: int, root: int, dtype: int, op: int, inputs: list[int], outputs: list[int], timeout: int) -> Any:
        work = self._group.start(collective, root, dtype, op, inputs, outputs, timeout)
        # Of four bytes at the least.
        if max(sum(inputs[1::2]), sum(outputs[1::2])) * 4 >= LARGE and collective in self._names:
            self._works.append((self._names[collective], work))
        return work

    def run(self, *arguments: Any) -> None:
        self.start(*arguments).wait(None)

    def allreduce(self, address: int, elements: int, dtype: int, op: int, timeout: int) -> None:
        self.run(self._all_reduce, 0, dtype, op, [address, elements], [address, elements], timeout)

    def manners(self) -> set[tuple[str, str]]:
        """How they were done, all being over."""
        return {(name, work.manner()[0]) for name, work in self._works}


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


def data_parallel(kind: str, as_views: bool, shape: tuple[int, int], backend: str = ALONE) -> set[tuple[str, str]]:
    torch, dist, rank, size = start(kind, shape, backend)
    watched = Watched(dist)
    alone = Alone(torch)
    model = torch.nn.parallel.DistributedDataParallel(layers(torch), gradient_as_bucket_view=as_views, bucket_cap_mb=0.001)
    optimizer = optimizer_of(torch, model.parameters())
    for step in range(STEPS):
        wanted_loss, wanted = alone.step(step)
        optimizer.zero_grad()
        inputs, targets = batch(torch, step)
        loss = torch.zeros(())
        halves = [(share_of(inputs, rank, size), share_of(targets, rank, size))]
        if step % 3 == 2:
            # Accumulated over two passes, of which only the second communicates.
            halves = list(zip(halves[0][0].chunk(2), halves[0][1].chunk(2), strict=True))
            with model.no_sync():
                loss = loss_of(model(halves[0][0]), halves[0][1]) / 2
                loss.backward()
        with watched:
            last = loss_of(model(halves[-1][0]), halves[-1][1]) / len(halves)
            last.backward()
        total = (loss + last).detach()
        dist.all_reduce(total, dist.ReduceOp.AVG)
        close(torch, total, wanted_loss, f"loss of step {step}")
        for name, parameter in model.module.named_parameters():
            close(torch, parameter.grad, wanted[name], f"gradient of {name} in step {step}")
        optimizer.step()
    return watched.manners()


def sharded(
    kind: str, shared_memory: bool, shape: tuple[int, int], steps: int = STEPS, short: bool = False, backend: str = ALONE
) -> tuple[set[tuple[str, str]], dict[str, int]]:
    torch, dist, rank, size = start(kind, shape, backend)
    from torch.distributed.fsdp import fully_shard

    watched = Watched(dist)
    alone = Alone(torch)
    model = layers(torch)
    for block in model:
        fully_shard(block)
    fully_shard(model)
    if shared_memory:
        for module in (*model, model):
            module.set_allocate_memory_from_process_group_for_comm(True)
    if short and rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    optimizer = optimizer_of(torch, model.parameters())
    for step in range(steps):
        wanted_loss, wanted = alone.step(step)
        optimizer.zero_grad()
        inputs, targets = batch(torch, step)
        with watched:
            loss = loss_of(model(share_of(inputs, rank, size)), share_of(targets, rank, size))
            loss.backward()
        total = loss.detach().clone()
        dist.all_reduce(total, dist.ReduceOp.AVG)
        close(torch, total, wanted_loss, f"loss of step {step}")
        for name, parameter in model.named_parameters():
            close(torch, parameter.grad.full_tensor(), wanted[name], f"gradient of {name} in step {step}")
        optimizer.step()
    return watched.manners(), of_the_cpu(dist).stats()


def sharded_without_memory(short: bool) -> tuple[set[tuple[str, str]], dict[str, int], list[str]]:
    """What becomes of it where memory cannot be shared, and what is said of that."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        manners, stats = sharded("float32", True, WIDE, 3, short)
    return manners, stats, [str(warning.message) for warning in caught if "eirene_train" in str(warning.message)]


def multiplied_first() -> set[tuple[str, str]]:
    """A reduction as FSDP2 asks for it where the gradients' divisor was set."""
    torch, dist, rank, size = start("float32", SMALL)
    allocate = of_the_cpu(dist).allocate_tensor
    whole = allocate(size * 100_000, dtype=torch.float32, device=torch.device("cpu")).fill_(rank + 1)
    part = allocate(100_000, dtype=torch.float32, device=torch.device("cpu"))
    watched = Watched(dist)
    with watched:
        dist.reduce_scatter_single(part, whole, dist._make_nccl_premul_sum(0.5))
    assert part.eq(size * (size + 1) / 4).all() and whole.eq(rank + 1).all()
    return watched.manners()


def tensor_parallel(kind: str, shape: tuple[int, int]) -> set[tuple[str, str]]:
    torch, dist, rank, size = start(kind, shape)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    watched = Watched(dist)
    alone = Alone(torch)
    model = layers(torch)
    plan = {f"{index}.0": ColwiseParallel() if index % 2 == 0 else RowwiseParallel() for index in range(4)}
    parallelize_module(model, init_device_mesh("cpu", (size,)), plan)
    optimizer = optimizer_of(torch, model.parameters())
    for step in range(STEPS):
        wanted_loss, wanted = alone.step(step)
        optimizer.zero_grad()
        inputs, targets = batch(torch, step)
        with watched:
            loss = loss_of(model(inputs), targets)
            loss.backward()
        close(torch, loss.detach(), wanted_loss, f"loss of step {step}")
        for name, parameter in model.named_parameters():
            close(torch, parameter.grad.full_tensor(), wanted[name], f"gradient of {name} in step {step}")
        optimizer.step()
    return watched.manners()


def pipelined(kind: str, schedule_name: str, shape: tuple[int, int]) -> None:
    torch, dist, rank, size = start(kind, shape)
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import Schedule1F1B, ScheduleDualPipeV

    v_shaped = schedule_name == "DualPipeV"
    count = 2 * size if v_shaped else size
    alone = Alone(torch, count)
    whole = layers(torch, count)
    mine = [rank, count - 1 - rank] if v_shaped else [rank]
    stages = [PipelineStage(whole[index], index, count, torch.device("cpu")) for index in mine]
    # DualPipeV wants at least twice as many microbatches as ranks.
    microbatches = 8
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


NOT_SHARED = {("all_reduce", "chosen" if ranks.REFERENCE else "unshared")}


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(("kind", "as_views", "shape"), [("float32", True, SMALL), ("float64", False, SMALL), ("float64", True, WIDE)])
def test_ddp_equals_one_process(size: int, kind: str, as_views: bool, shape: tuple[int, int]) -> None:
    for manners in ranks.values(size, data_parallel, kind, as_views, shape):
        # Its buckets lie in memory of its own.
        assert manners == (NOT_SHARED if shape == WIDE else set())


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(("kind", "shared_memory"), [("float32", True), ("float64", False)])
def test_fsdp2_equals_one_process(size: int, kind: str, shared_memory: bool) -> None:
    for manners, stats in ranks.values(size, sharded, kind, shared_memory, SMALL):
        assert manners == set() and stats["shared"] == stats["fallback"] == 0
        assert (stats["small"] > 0) == shared_memory


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    ("kind", "shared_memory", "shape"), [("float32", True, WIDE), ("float32", True, ALMOST_WIDE), ("float64", True, WIDE), ("float32", False, WIDE)]
)
def test_fsdp2_s_buffers_are_gathered_and_reduced_in_place(size: int, kind: str, shared_memory: bool, shape: tuple[int, int]) -> None:
    for manners, stats in ranks.values(size, sharded, kind, shared_memory, shape):
        manner = "chosen" if ranks.REFERENCE else "in_place" if shared_memory else "unshared"
        assert manners == {("all_gather", manner), ("reduce_scatter", manner)}
        assert (stats["shared"] > 0) == shared_memory and stats["fallback"] == 0


@pytest.mark.skipif(ranks.REFERENCE, reason="the reference has no shared memory")
def test_beside_another_backend_training_is_the_same() -> None:
    assert ranks.values(2, data_parallel, "float64", True, WIDE, MIXED) == [NOT_SHARED] * 2
    for manners, stats in ranks.values(2, sharded, "float64", True, WIDE, STEPS, False, MIXED):
        assert manners == {("all_gather", "in_place"), ("reduce_scatter", "in_place")} and stats["shared"] > 0


@pytest.mark.skipif(ranks.REFERENCE, reason="the reference has no shared memory")
def test_what_is_multiplied_first_is_reduced_in_place_too() -> None:
    assert ranks.values(2, multiplied_first) == [{("reduce_scatter", "in_place")}] * 2


@pytest.mark.skipif(ranks.REFERENCE, reason="the reference has no shared memory")
def test_fsdp2_goes_on_where_a_rank_has_no_memory_to_share() -> None:
    (manners, stats, said), (other_manners, other_stats, other_said) = ranks.values(2, sharded_without_memory, True)
    assert manners == other_manners == {("all_gather", "unshared"), ("reduce_scatter", "unshared")}
    assert stats["shared"] > 0 and stats["fallback"] == 0 and not said
    assert other_stats["shared"] == 0 and other_stats["fallback"] == stats["shared"]
    assert len(other_said) == 1 and "this rank has no shared memory" in other_said[0] and "ulimit -f" in other_said[0]


@pytest.mark.skipif(ranks.REFERENCE, reason="the reference has no nodes")
def test_between_nodes_fsdp2_is_told_once_that_nothing_is_shared(tmp_path: Path) -> None:
    launcher, variables = launchers.two_nodes(tmp_path)
    for manners, stats, said in ranks.values(2, sharded_without_memory, False, launcher=launcher, variables=variables):
        assert manners == {("all_gather", "nodes"), ("reduce_scatter", "nodes")}
        assert stats["shared"] == 0 and stats["fallback"] > 0
        assert len(said) == 1 and "several nodes" in said[0] and "fully_shard" in said[0]


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(("kind", "shape"), [("float32", SMALL), ("float64", SMALL), ("float32", WIDE_AND_LONG)])
def test_tensor_parallel_equals_one_process(size: int, kind: str, shape: tuple[int, int]) -> None:
    for manners in ranks.values(size, tensor_parallel, kind, shape):
        assert manners == (NOT_SHARED if shape == WIDE_AND_LONG else set())


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("schedule", ["1F1B", "DualPipeV"])
@pytest.mark.parametrize(("kind", "shape"), [("float32", SMALL), ("float64", SMALL), ("float32", WIDE_AND_LONG)])
def test_pipelines_equal_one_process(size: int, schedule: str, kind: str, shape: tuple[int, int]) -> None:
    ranks.values(size, pipelined, kind, schedule, shape)
