"""GradArena: gradients stay right, and stay in shared memory, through everything training scripts do with them."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import launchers
import pytest
import ranks

STEPS = 6


def model_of(torch: Any, kind: str) -> Any:
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3).to(memory_format=torch.channels_last),
        torch.nn.Tanh(),
        torch.nn.Flatten(),
        # Large enough to be averaged in place.
        torch.nn.Linear(4 * 4 * 4, 512),
        torch.nn.Tanh(),
        torch.nn.Linear(512, 3),
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
    averager = hook._Averager(tuple(range(world.size)), 60_000)
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
            averager.start(tensor, 60_000)
            refused.append("nothing")
        except eirene_train.InvalidArgument as error:
            refused.append(str(error))
        whole = torch.zeros(3, 2)
        whole[:, 1] = world.rank
        # Not in order in memory: averaged in a copy, and copied back.
        assert averager.start(whole[:, 1], 60_000).wait().tolist() == [mean] * 3
        assert whole.tolist() == [[0.0, mean]] * 3
        negated = torch._neg_view(torch.full((1000,), -float(world.rank)))
        assert averager.start(negated, 60_000).wait() is negated and negated.eq(mean).all()
    return refused


def hooked_and_not_copied() -> list[Any]:
    """The average could not be copied back at first; whoever waits again has it."""
    import torch

    import eirene_train
    from eirene_train import hook

    class Stubborn(torch.Tensor):
        refusals = 1

        def copy_(self, *arguments: Any, **named: Any) -> torch.Tensor:
            if self.refusals:
                self.refusals -= 1
                raise RuntimeError("not yet")
            return super().copy_(*arguments, **named)

    world = eirene_train.world()
    averager = hook._Averager(tuple(range(world.size)), 60_000)
    # Waiting itself, as often as the test likes.
    hook.future_of = lambda wait, *_: wait  # type: ignore[assignment]
    whole = torch.zeros(3, 2)
    whole[:, 1] = world.rank
    wait = averager.start(whole[:, 1].as_subclass(Stubborn), 60_000)
    try:
        wait()
        said = "copied"
    except RuntimeError as error:
        said = str(error)
    return [said, wait().tolist(), wait().tolist(), whole.tolist()]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def summed(group: Any, address: int, elements: int) -> None:
    from eirene_train import _native

    group.allreduce(address, elements, _native.dtype("float32"), _native.op("sum"), 20_000)


def many_regions(count: int) -> tuple[int, int]:
    """How many descriptors come with many regions of one rank's that the other hears nothing of, and how many stay when all are gone."""
    import ctypes

    import eirene_train

    world = eirene_train.world()
    number = (ctypes.c_float * 1)(1)
    first = world.everybody(20_000)
    summed(first, ctypes.addressof(number), 1)
    before = descriptors()
    regions = [world.arena(1 << 16) for _ in range(count if world.rank == 0 else 1)]
    with_regions = descriptors() - before
    # The next group is built all the same, and every region can be used.
    group = world.everybody(20_000)
    summed(group, ctypes.addressof(number), 1)
    assert number[0] == 4
    for index in range(count):
        address = regions[index % len(regions)].address
        values = (ctypes.c_float * (1 << 14)).from_address(address)
        values[5] = 1 + index
        summed(group, address, 1 << 14)
        assert values[5] == 2 + 2 * index
    del values, regions, group
    summed(first, ctypes.addressof(number), 1)
    return with_regions, descriptors() - before


def many_buckets(count: int) -> dict[str, int]:
    import torch
    import torch.distributed as dist

    import eirene_train

    dist.init_process_group("eirene")
    rank = dist.get_rank()
    before = descriptors()
    # One in a hundred is worth a fence.
    parameters = [torch.nn.Parameter(torch.ones(20_000 if index % 100 == 0 else 16)) for index in range(count)]
    arena = eirene_train.GradArena(parameters, bucket_bytes=1)
    sum(((parameter * (rank + 1)).sum() for parameter in parameters), torch.zeros(())).backward()
    arena.reduce()
    assert descriptors() - before <= 8
    for parameter in parameters:
        assert parameter.grad is not None and parameter.grad.eq(1.5).all()
    value = torch.ones(3)
    dist.all_reduce(value, group=dist.new_group())
    assert value.tolist() == [2, 2, 2]
    stats = arena.stats()
    dist.destroy_process_group()
    return stats


def fallen_back(short: bool) -> tuple[dict[str, int], list[str]]:
    """Counts and warnings of two arenas, the second rank's under a limit if that is wanted."""
    import resource
    import warnings

    import torch

    import eirene_train

    rank = eirene_train.world().rank
    eirene_train.world().everybody(20_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            model = torch.nn.Linear(200, 200)
            if short and rank == 1:
                resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
            try:
                arena = eirene_train.GradArena(model)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            for _ in range(2):
                model.zero_grad(set_to_none=False)
                model(torch.full((1, 200), rank + 1.0)).sum().backward()
                arena.reduce()
                assert model.weight.grad is not None and model.weight.grad.eq(1.5).all()
    return arena.stats(), [str(warning.message) for warning in caught]


def sparse() -> tuple[str, str]:
    import torch

    import eirene_train

    model = torch.nn.ModuleDict({"words": torch.nn.Embedding(10, 4, sparse=True), "out": torch.nn.Linear(4, 2)})
    said = []
    for given in (model, list(model.parameters())):
        try:
            eirene_train.GradArena(given)
            model["out"](model["words"](torch.tensor([1, 2]))).sum().backward()
            said.append("nothing")
        except eirene_train.InvalidArgument as error:
            said.append(str(error))
    return said[0], said[1]


def tied_in_a_checkpoint(reentrant: bool) -> str:
    """Weights that are used in two parts of a model that are computed again in the backward pass."""
    import torch
    from torch.utils.checkpoint import checkpoint

    import eirene_train

    layer = torch.nn.Linear(8, 8)
    arena = eirene_train.GradArena(layer)
    inputs = torch.ones(2, 8, requires_grad=True)
    try:
        hidden = checkpoint(layer, inputs, use_reentrant=reentrant)
        checkpoint(layer, hidden, use_reentrant=reentrant).sum().backward()
        arena.reduce()
    except eirene_train.InvalidArgument as error:
        # What was begun is ended before the process is.
        arena.reduce()
        return str(error)
    return "nothing was raised"


def overlapping_buffer() -> str:
    """A model with a buffer that rank 0's cannot be written into."""
    import torch

    import eirene_train

    model = torch.nn.Linear(4, 2)
    model.register_buffer("ones", torch.ones(1).expand(5))
    try:
        eirene_train.GradArena(model)
    except eirene_train.InvalidArgument as error:
        return str(error)
    return "nothing was raised"


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
    # Of small buckets, only that of the large layer's weights is worth a fence.
    in_place = 1 if bucket_bytes == 1 << 10 and size > 1 else parameters
    if ranks.REFERENCE:
        in_place = 0
    for set_to_none, passes, stats in ranks.values(size, matrix, kind, bucket_bytes)[0]:
        assert stats["fallback"] == 0
        # Only a gradient that autograd made anew is copied: after zero_grad(set_to_none=True), and in the very first pass.
        assert stats["copied"] == in_place * (STEPS if set_to_none else 1)
        assert stats["copied"] + stats["in_place"] == in_place * STEPS * passes
        assert stats["staged"] == (parameters - in_place) * STEPS * passes


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


@pytest.mark.parametrize("reentrant", [False, True])
def test_tied_weights_in_a_checkpoint_are_averaged_or_the_cause_is_named(reentrant: bool) -> None:
    for said in ranks.values(2, tied_in_a_checkpoint, reentrant):
        assert all(word in said for word in ("came again", "use_reentrant=False")) if reentrant else said == "nothing was raised"


def test_a_buffer_that_cannot_be_written_is_refused_on_all_ranks() -> None:
    assert all("`expand`" in said for said in ranks.values(2, overlapping_buffer))


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


def test_the_hook_keeps_an_average_until_it_is_copied_back() -> None:
    for answer in ranks.values(2, hooked_and_not_copied):
        assert answer == ["not yet", [0.5] * 3, [0.5] * 3, [[0.0, 0.5]] * 3]


@pytest.mark.skipif(ranks.REFERENCE, reason="the reference has no shared memory")
def test_any_number_of_regions_costs_few_descriptors_and_leaves_none() -> None:
    for with_regions, left in ranks.values(2, many_regions, 600):
        assert with_regions <= 4
        assert left <= 0


@pytest.mark.skipif(ranks.REFERENCE, reason="the reference has no shared memory")
def test_an_arena_may_have_any_number_of_buckets() -> None:
    for stats in ranks.values(2, many_buckets, 600, variables={"EIRENE_TRAIN_TUNING": "off"}):
        assert stats == {"in_place": 0, "copied": 6, "staged": 594, "fallback": 0}


@pytest.mark.skipif(ranks.REFERENCE, reason="the reference has no shared memory")
def test_a_rank_without_memory_to_share_is_counted_and_told_of_on_all() -> None:
    (stats, said), (other_stats, other_said) = ranks.values(2, fallen_back, True)
    assert stats == other_stats == {"in_place": 0, "copied": 0, "staged": 0, "fallback": 4}
    assert len(said) == 1 and "rank 1 has no shared memory" in said[0]
    assert len(other_said) == 1 and "this rank" in other_said[0] and "ulimit -f" in other_said[0]


@pytest.mark.skipif(ranks.REFERENCE, reason="the reference has no shared memory")
def test_with_memory_to_share_nothing_is_warned_of() -> None:
    for stats, said in ranks.values(2, fallen_back, False):
        assert (stats, said) == ({"in_place": 2, "copied": 2, "staged": 0, "fallback": 0}, [])


@pytest.mark.skipif(ranks.REFERENCE, reason="the reference has no nodes")
def test_between_nodes_nothing_is_in_place_and_that_is_told_once(tmp_path: Path) -> None:
    launcher, variables = launchers.two_nodes(tmp_path)
    for stats, said in ranks.values(2, fallen_back, False, variables=variables, launcher=launcher):
        assert stats == {"in_place": 0, "copied": 0, "staged": 0, "fallback": 4}
        assert len(said) == 1 and "several nodes" in said[0]


def test_sparse_gradients_are_refused_by_name() -> None:
    for named, numbered in ranks.values(2, sparse):
        assert "`words.weight`" in named and "sparse=False" in named
        assert "parameter 0 of shape (10, 4)" in numbered
