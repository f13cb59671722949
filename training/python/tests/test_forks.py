"""Children that ranks fork, workers of data loaders among them: they are no ranks and do no harm, whatever libraries a rank has in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import launchers
import pytest
import ranks


def start() -> tuple[Any, Any, int, int]:
    import torch
    import torch.distributed as dist

    import eirene_train  # noqa: F401

    dist.init_process_group("eirene")
    dist.barrier()
    return torch, dist, dist.get_rank(), dist.get_world_size()


def forked() -> str:
    """A child of a rank is none, and leaves the rank undisturbed, however it ends."""
    torch, dist, _, size = start()
    import eirene_train

    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            dist.all_reduce(torch.ones(2))
        except eirene_train.EireneError as error:
            os.write(write, f"{type(error).__name__}: {error}".encode())
        try:
            eirene_train.world()
        except eirene_train.EireneError as error:
            os.write(write, f"; {error}".encode())
        raise SystemExit(0)
    os.close(write)
    with open(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    tensor = torch.ones(100_000)
    dist.all_reduce(tensor)
    assert tensor.eq(size).all()
    return said


class Numbers:
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> float:
        return float(index)


def loaded() -> float:
    """Workers of a data loader, forked after the world was joined, while gradients are averaged."""
    torch, dist, rank, size = start()
    sampler = torch.utils.data.distributed.DistributedSampler(Numbers(), shuffle=False)
    total = torch.zeros(1, dtype=torch.float64)
    for _ in range(2):
        loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2, sampler=sampler, multiprocessing_context="fork")
        for batch in loader:
            mine = batch.sum().reshape(1)
            work = dist.all_reduce(mine, async_op=True)
            work.wait()
            total += mine
    return float(total)


def by_mpi(function: Callable[[], Any]) -> Any:
    """The same where MPI is loaded and carries out what is asked for."""
    import torch
    import torch.distributed as dist

    answer = function()
    assert "/libmpi" in Path("/proc/self/maps").read_text()
    assert "MPI's own" in dist.group.WORLD._backend.explain("all_reduce", torch.float32, 100_000)
    return answer


def forked_by_mpi() -> str:
    return by_mpi(forked)


def loaded_by_mpi() -> float:
    return by_mpi(loaded)


BY_MPI = {"EIRENE_TRAIN_TRANSPORT": "mpi", "EIRENE_TRAIN_ALGORITHM": "mpi"}


@pytest.mark.skipif(ranks.REFERENCE, reason="the reference is only a process of its own")
def test_a_forked_child_is_no_rank_and_does_no_harm() -> None:
    for said in ranks.values(2, forked):
        assert "WorldEnded" in said and "forked" in said, said


def test_workers_of_a_data_loader_may_be_forked_after_the_start() -> None:
    wanted = 2.0 * sum(range(40))
    assert ranks.values(2, loaded) == [wanted, wanted]


@pytest.mark.skipif(ranks.REFERENCE, reason="about MPI")
@pytest.mark.parametrize("launcher", ["mpirun", "mpiexec"])
def test_with_mpi_in_the_process_it_may_fork_too(launcher: str, traces: launchers.Traces) -> None:
    wanted = 2.0 * sum(range(40))
    options: dict[str, Any] = {"launcher": launchers.command(launcher, 2), "variables": traces.variables | BY_MPI}
    for said in ranks.values(2, forked_by_mpi, **options):
        assert "WorldEnded" in said and "forked" in said, said
    assert ranks.values(2, loaded_by_mpi, **options) == [wanted, wanted]
    traces.assert_none()
