"""GradArena: gradients stay right, and stay in shared memory, through everything training scripts do with them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import ranks

STEPS = 6


def model_of(torch: Any, kind: str) -> Any:
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3).to(memory_format=torch.channels_last),
        torch.nn.Tanh(),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * 4 * 4, 8),
        torch.nn.Tanh(),
        torch.nn.Linear(8, 3),
    ).to(getattr(torch, kind))


def share(torch: Any, kind: str, step: int, rank: int, size: int) -> Any:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(4 * size, 2, 6, 6, generator=generator).to(getattr(torch, kind)).chunk(size)[rank]


def gradients_of_all(torch: Any, model: Any, kind: str, step: int, size: int, passes: int, scale: float) -> list[Any]:
    """What one process alone computes for the whole batch."""
    import copy

    model = copy.deepcopy(model)
    for parameter in model.parameters():
        parameter.grad = None
    for rank in range(size):
        for part in share(torch, kind, step, rank, size).chunk(passes):
            (model(part).square().mean() * scale / passes / size).backward()
    return [parameter.grad for parameter in model.parameters()]


def trained(kind: str, set_to_none: bool, passes: int, clip: bool, scaled: bool, bucket_bytes: int) -> dict[str, int]:
    import torch

    import eirene_train

    torch.set_default_dtype(getattr(torch, kind))
    world = eirene_train.world()
    rank, size = world.rank, world.size
    model = model_of(torch, kind)
    if rank:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1)
    arena = eirene_train.GradArena(model, bucket_bytes=bucket_bytes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=scaled)
    addresses = None
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=set_to_none)
        wanted = gradients_of_all(torch, model, kind, step, size, passes, scaler.get_scale())
        parts = share(torch, kind, step, rank, size).chunk(passes)
        with arena.no_sync():
            for part in parts[:-1]:
                scaler.scale(model(part).square().mean() / passes).backward()
        scaler.scale(model(parts[-1]).square().mean() / passes).backward()
        arena.reduce()
        for parameter, gradient in zip(model.parameters(), wanted, strict=True):
            tolerance = {"float32": 1e-5, "float64": 1e-10, "bfloat16": 5e-2}[kind]
            torch.testing.assert_close(parameter.grad, gradient, rtol=tolerance, atol=tolerance * scaler.get_scale())
        now = [parameter.grad.data_ptr() for parameter in model.parameters()]
        assert addresses in (None, now)
        addresses = now
        scaler.unscale_(optimizer)
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        scaler.step(optimizer)
        scaler.update()
    ends = [parameter.detach().double().sum().item() for parameter in model.parameters()]
    everybody = world.everybody(10_000)
    import ctypes

    mine, theirs = (ctypes.c_double * len(ends))(*ends), (ctypes.c_double * len(ends))(*ends)
    from eirene_train import _native

    part = [ctypes.addressof(theirs), len(ends)]
    everybody.run(_native.collective("broadcast"), 0, _native.dtype("float64"), 0, part, part, 10_000)
    assert list(mine) == list(theirs)
    return arena.stats()


def unused() -> list[Any]:
    """Parameters that some ranks, or none, use."""
    import torch

    import eirene_train

    rank = eirene_train.world().rank
    layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(3))
    arena = eirene_train.GradArena(layers)
    for _ in range(2):
        for parameter in layers.parameters():
            parameter.grad = None
        output = layers[0](torch.ones(1, 2))
        if rank == 1:
            output = layers[1](output)
        output.sum().backward()
        arena.reduce()
    return [None if parameter.grad is None else parameter.grad.tolist() for parameter in layers.parameters()]


def misused() -> tuple[str, str]:
    import torch

    import eirene_train

    model = torch.nn.Linear(2, 2)
    arena = eirene_train.GradArena(model)
    model(torch.ones(1, 2)).sum().backward()
    try:
        model(torch.ones(1, 2)).sum().backward()
        twice = "nothing"
    except RuntimeError as error:
        twice = str(error)
    arena.reduce()
    try:
        eirene_train.GradArena(torch.nn.Linear(2, 2, device="meta"))
        meta = "nothing"
    except eirene_train.InvalidArgument as error:
        meta = str(error)
    return twice, meta


def hooked(device: str) -> None:
    """DDP over gloo, its gradients averaged by the hook."""
    import torch
    import torch.distributed as dist

    import eirene_train

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    assert rank == eirene_train.world().rank
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(4))).to(device)
    plain = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.01)
    import copy

    hooked = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(model), bucket_cap_mb=0.01)
    hooked.register_comm_hook(None, eirene_train.comm_hook)
    for step in range(4):
        inputs = torch.randn(4, 32, generator=torch.Generator().manual_seed(step * size + rank)).to(device)
        for wrapped in (plain, hooked):
            wrapped.zero_grad()
            wrapped(inputs).square().mean().backward()
        for one, other in zip(plain.parameters(), hooked.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)


def hooked_by_itself() -> list[str]:
    """What the hook averages by way of a copy, what it refuses, and that it goes on afterwards."""
    import torch

    import eirene_train
    from eirene_train import hook

    world = eirene_train.world()
    averager = hook._Averager(tuple(range(world.size)))
    mean = sum(range(world.size)) / world.size
    refused = []
    for tensor in (
        torch.empty(100, device="meta"),
        torch.zeros(4, dtype=torch.int32),
        torch.zeros(4, dtype=torch.float8_e4m3fn),
        torch.zeros(4, dtype=torch.complex64),
        torch.zeros(2, 2).to_sparse(),
    ):
        try:
            averager.start(tensor)
            refused.append("nothing")
        except eirene_train.InvalidArgument as error:
            refused.append(str(error))
        whole = torch.zeros(3, 2)
        whole[:, 1] = world.rank
        # Not in order in memory: averaged in a copy, and copied back.
        assert averager.start(whole[:, 1]).wait().tolist() == [mean] * 3
        assert whole.tolist() == [[0.0, mean]] * 3
        negated = torch._neg_view(torch.full((1000,), -float(world.rank)))
        assert averager.start(negated).wait() is negated and negated.eq(mean).all()
    return refused


MATRIX = list(itertools.product([True, False], [1, 2], [False, True]))


def matrix(kind: str, bucket_bytes: int) -> list[tuple[bool, int, dict[str, int]]]:
    """All ways to train, one after the other, with their counts."""
    return [
        (set_to_none, passes, trained(kind, set_to_none, passes, clip, kind == "float32", bucket_bytes)) for set_to_none, passes, clip in MATRIX
    ]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(("kind", "bucket_bytes"), [("float64", 1 << 10), ("float32", 1 << 20)])
def test_training_with_gradients_in_the_arena_equals_one_process(size: int, kind: str, bucket_bytes: int) -> None:
    parameters = 6
    for set_to_none, passes, stats in ranks.values(size, matrix, kind, bucket_bytes)[0]:
        assert stats["fallback"] == 0
        # Only a gradient that autograd made anew is copied: after zero_grad(set_to_none=True), and in the very first pass.
        assert stats["copied"] == parameters * (STEPS if set_to_none else 1)
        assert stats["copied"] + stats["in_place"] == parameters * STEPS * passes


def test_half_precision() -> None:
    ranks.values(2, trained, "bfloat16", False, 1, True, False, 1 << 20)


def test_unused_parameters_agree_on_all_ranks() -> None:
    first, second = ranks.values(2, unused)
    assert first == second
    # The second layer was used by rank 1 only, so everybody has half of its gradient; the third by nobody.
    assert first[3] == [0.5, 0.5]
    assert first[4:] == [None, None]


def test_misuse_is_refused_with_the_cure() -> None:
    for twice, meta in ranks.values(2, misused):
        assert "no_sync" in twice and "`meta`" in meta


@pytest.mark.skipif(ranks.REFERENCE, reason="gloo needs a rendezvous of the launcher's")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_hook_averages_beside_gloo(device: str) -> None:
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    ranks.values(2, hooked, device)


def test_the_hook_refuses_what_it_cannot_average_and_averages_the_rest() -> None:
    for meta, integer, eighth, complex_, sparse in ranks.values(2, hooked_by_itself):
        assert "on `meta`, which has no memory" in meta and "`torch.sparse_coo`" in sparse
        for said, kind in ((integer, "int32"), (eighth, "float8_e4m3fn"), (complex_, "complex64")):
            assert f"`torch.{kind}`" in said and "bfloat16" in said
