"""Groups within the world: many at once, in any order, made in every way torch has, and left in good order."""

from __future__ import annotations

import time
from typing import Any

import pytest
import ranks
from ranks import ALONE, MIXED


def start(backend: str = ALONE) -> tuple[Any, Any, int, int]:
    import torch
    import torch.distributed as dist

    import eirene_train  # noqa: F401

    dist.init_process_group(backend)
    return torch, dist, dist.get_rank(), dist.get_world_size()


def interleaved(backend: str) -> int:
    """Collectives of several groups under way together, begun in another order on each rank, and waited for in yet another."""
    import itertools
    import random

    torch, dist, rank, size = start(backend)
    members = [ranks for count in (2, 3, size) for ranks in itertools.combinations(range(size), count)]
    groups = [(list(ranks), dist.new_group(list(ranks))) for ranks in members]
    groups = [(ranks, group) for ranks, group in groups if rank in ranks]
    order = random.Random(rank)
    checked = 0
    for turn in range(20):
        begun = []
        # Every group has one order of calls, the same for its members; the groups among themselves have none.
        waiting = [[(ranks, group, call) for call in range(3)] for ranks, group in groups]
        while waiting:
            calls = order.choice(waiting)
            ranks_, group, call = calls.pop(0)
            waiting = [calls for calls in waiting if calls]
            tensor = torch.full((1 + 5000 * call,), float(rank + 1 + turn))
            if call == 1:
                outputs = [torch.empty_like(tensor) for _ in ranks_]
                begun.append((dist.all_gather(outputs, tensor, group=group, async_op=True), outputs, [float(peer + 1 + turn) for peer in ranks_]))
            else:
                total = float(sum(peer + 1 + turn for peer in ranks_))
                begun.append((dist.all_reduce(tensor, group=group, async_op=True), [tensor], [total]))
        order.shuffle(begun)
        for work, tensors, wanted in begun:
            if order.random() < 0.3:
                work.get_future().wait()
            else:
                work.wait()
            assert [float(tensor[-1]) for tensor in tensors] == wanted
            assert all(tensor.eq(value).all() for tensor, value in zip(tensors, wanted, strict=True))
            checked += 1
    return checked


def made_in_every_way(backend: str) -> None:
    torch, dist, rank, size = start(backend)
    from torch.distributed.device_mesh import init_device_mesh

    def total(group: Any) -> float:
        tensor = torch.full((3,), float(rank))
        dist.all_reduce(tensor, group=group)
        return float(tensor[0])

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    row, column = divmod(rank, 2)
    assert total(mesh["rows"].get_group()) == 2 * column + 2 and total(mesh["columns"].get_group()) == 4 * row + 1
    everybody = mesh["rows", "columns"]._flatten().get_group()
    assert total(everybody) == 6.0
    backwards = dist.new_group(list(reversed(range(size))), sort_ranks=False)
    assert dist.get_rank(backwards) == size - 1 - rank
    gathered = [torch.empty(1) for _ in range(size)]
    dist.all_gather(gathered, torch.full((1,), float(rank)), group=backwards)
    assert [float(tensor) for tensor in gathered] == [3.0, 2.0, 1.0, 0.0]
    split = dist.split_group(None, [[0, 2], [3, 1]])
    assert type(split).__name__ == ("EireneGroup" if backend == ALONE else "ProcessGroup") and total(split) == (2.0 if rank % 2 == 0 else 4.0)
    assert dist.get_rank(split) == {0: 0, 2: 1, 3: 0, 1: 1}[rank]
    try:
        one = dist.split_group(None, [[1, 2]])
    except ValueError as error:
        assert backend == MIXED and rank in (0, 3) and f"rank {rank} is in none of the groups" in str(error) and "new_group" in str(error)
        one = dist.GroupMember.NON_GROUP_MEMBER
    if rank in (1, 2):
        assert total(one) == 3.0
    else:
        assert one == dist.GroupMember.NON_GROUP_MEMBER
    mine, groups = dist.new_subgroups(2)
    assert total(mine) == 4 * (rank // 2) + 1 and len(groups) == 2
    local = dist.new_group([0, 1] if rank < 2 else [2, 3], use_local_synchronization=True)
    assert total(local) == 4 * (rank // 2) + 1
    for root in range(2):
        tensor = torch.full((2,), float(rank))
        dist.broadcast(tensor, group=mine, group_src=root)
        assert float(tensor[0]) == 2 * (rank // 2) + root
    dist.destroy_process_group(mine)
    dist.monitored_barrier()
    assert total(None) == 6.0


def again_and_again(backend: str) -> list[str]:
    """A default group after another, and a store under each."""
    torch, dist, rank, size = start(backend)
    names = []
    for turn in range(3):
        if turn:
            dist.init_process_group(backend, init_method="eirene://")
        dist.barrier()
        store = dist.distributed_c10d._get_default_store()
        store.set(f"{rank}", str(turn))
        assert [store.get(str(peer)) for peer in range(size)] == [str(turn).encode()] * size
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        assert tensor.eq(size).all()
        names.append(dist.get_backend())
        dist.barrier()
        dist.destroy_process_group()
    return names


def told_otherwise() -> list[str]:
    """Ranks that are told, by whoever calls, that they are others than they are."""
    import torch.distributed as dist

    import eirene_train

    said = []
    me = eirene_train.world().rank
    # On all ranks as often: torch numbers its groups by what it has tried.
    for rank, size in ((0, 3), (1 - me, 2), (me, 2)):
        try:
            dist.init_process_group("eirene", init_method="eirene://", rank=rank, world_size=size)
            said.append(f"{dist.get_rank()} of {dist.get_world_size()}")
            # Nobody leaves while the other still meets it.
            dist.barrier()
            break
        except eirene_train.InvalidArgument as error:
            said.append(str(error))
    return said


def left_early() -> float:
    """A message that its sender never waited for arrives, though the sender has nothing more to do."""
    torch, dist, rank, _ = start()
    content = torch.full((3_000_000,), 5.0)
    group = dist.new_group([0, 1])
    if rank == 0:
        dist.isend(content, 1)
        dist.isend(content, 1, group=group)
        del group
        return 0.0
    time.sleep(0.5)
    got = torch.zeros(2, 3_000_000)
    dist.recv(got[0], 0)
    dist.recv(got[1], 0, group=group)
    return float(got.sum())


def dropped() -> None:
    """Works and tensors whose owner has forgotten them stay what they are until the runtime is done with them."""
    import gc

    torch, dist, rank, size = start()
    for turn in range(50):
        tensor = torch.full((20_000,), float(turn))
        dist.all_reduce(tensor, async_op=True)
        dist.isend(torch.full((20_000,), float(turn)), (rank + 1) % size)
        del tensor
        gc.collect()
        torch.full((20_000,), -1.0)
    for turn in range(50):
        tensor = torch.empty(20_000)
        dist.recv(tensor, (rank - 1) % size)
        assert tensor.eq(turn).all()
    dist.barrier()


@pytest.mark.parametrize("backend", [ALONE, MIXED])
def test_groups_do_not_wait_for_each_other(backend: str) -> None:
    assert all(count > 0 for count in ranks.values(4, interleaved, backend))


@pytest.mark.parametrize("backend", [ALONE, MIXED])
def test_groups_are_made_in_every_way(backend: str) -> None:
    ranks.values(4, made_in_every_way, backend)


@pytest.mark.parametrize(("size", "backend"), [(1, ALONE), (2, ALONE), (2, MIXED)])
def test_a_process_may_begin_again(size: int, backend: str) -> None:
    assert ranks.values(size, again_and_again, backend) == [[backend] * 3] * size


def test_a_rank_can_only_be_told_what_it_is() -> None:
    for me, said in enumerate(ranks.values(2, told_otherwise)):
        assert "rank 0 of 3" in said[0] and f"this process is rank {me} of 2; leave rank and world_size out" in said[0]
        assert f"rank {1 - me} of 2" in said[1] and said[2:] == [f"{me} of 2"]


def test_an_only_rank_that_is_told_to_be_one_of_several_hears_what_to_set() -> None:
    (said,) = ranks.values(1, told_otherwise)
    assert said[-1] != "0 of 2"
    assert "rank 0 of 3" in said[0] and "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT" in said[0]


def test_what_was_sent_arrives_after_its_sender_left() -> None:
    assert ranks.values(2, left_early) == [0.0, 30_000_000.0]


def test_forgotten_works_keep_their_memory() -> None:
    ranks.values(2, dropped)
