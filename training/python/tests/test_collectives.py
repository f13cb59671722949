"""Every collective through torch.distributed, against what its definition says, for types, shapes and layouts."""

from __future__ import annotations

from typing import Any

import pytest
import ranks
from ranks import ALONE, MIXED

FLOATS = ["float32", "float64", "float16", "bfloat16"]
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
TYPES = [*FLOATS, *INTEGERS, "bool", "complex64", "complex128"]
SHAPES = [(), (0,), (1,), (7,), (3, 5), (1000,), (257, 33)]


def start(backend: str = ALONE) -> tuple[Any, Any, int, int]:
    import torch
    import torch.distributed as dist

    import eirene_train  # noqa: F401

    dist.init_process_group(backend)
    return torch, dist, dist.get_rank(), dist.get_world_size()


def tensor_of(torch: Any, kind: str, shape: Any, seed: int) -> Any:
    """The same on every rank for the same seed, and small enough that sums and products are exact or nearly so."""
    generator = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, kind)
    if dtype.is_complex:
        return torch.complex(*(torch.randint(-4, 5, shape, generator=generator).double() for _ in range(2))).to(dtype)
    low, high = (0, 2) if kind == "bool" else (0, 4) if kind.startswith("u") else (-4, 5)
    return torch.randint(low, high, shape, generator=generator).to(dtype)


def alike(torch: Any, got: Any, wanted: Any, what: str) -> None:
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, what
    exact = not (got.dtype.is_floating_point or got.dtype.is_complex)
    if exact:
        assert bool((got == wanted).all()), (what, got, wanted)
    else:
        torch.testing.assert_close(got, wanted, msg=lambda text: f"{what}: {text}")


def combined(torch: Any, tensors: list[Any], op: str) -> Any:
    wide = torch.complex128 if tensors[0].is_complex() else torch.float64 if tensors[0].is_floating_point() else torch.int64
    stack = torch.stack([tensor.to(wide) for tensor in tensors])
    if tensors[0].dtype == torch.bool:
        return stack.bool().any(0) if op in ("SUM", "MAX") else stack.bool().all(0)
    if op == "AVG" and wide == torch.int64:
        # Integers wrap when they are summed, and are divided toward zero.
        return stack.sum(0).to(tensors[0].dtype).to(wide).div(len(tensors), rounding_mode="trunc").to(tensors[0].dtype)
    result = {
        "SUM": lambda: stack.sum(0),
        "AVG": lambda: stack.mean(0),
        "MIN": lambda: stack.amin(0),
        "MAX": lambda: stack.amax(0),
        "PRODUCT": lambda: stack.prod(0),
    }[op]()
    return result.to(tensors[0].dtype)


def reductions(backend: str) -> int:
    torch, dist, rank, size = start(backend)
    checked = 0
    for number, kind in enumerate(TYPES):
        dtype = getattr(torch, kind)
        ops = ["SUM", "AVG"] if dtype.is_complex else ["SUM", "MIN", "MAX", "PRODUCT"] + ["AVG"] * (kind != "bool")
        for shape in SHAPES:
            for op in ops:
                what = f"{kind} {shape} {op}"
                inputs = [tensor_of(torch, kind, shape, number * 100 + peer) for peer in range(size)]
                wanted = combined(torch, inputs, op)
                reduction = getattr(dist.ReduceOp, op)
                tensor = inputs[rank].clone()
                dist.all_reduce(tensor, reduction)
                alike(torch, tensor, wanted, "all_reduce " + what)
                tensor = inputs[rank].clone()
                work = dist.all_reduce(tensor, reduction, async_op=True)
                work.wait()
                assert backend == MIXED or (work.is_completed() and work.is_success())
                alike(torch, tensor, wanted, "asynchronous all_reduce " + what)
                root = size - 1
                tensor = inputs[rank].clone()
                dist.reduce(tensor, root, reduction)
                alike(torch, tensor, wanted if rank == root else inputs[rank], "reduce " + what)
                if shape:
                    blocks = [[tensor_of(torch, kind, shape, peer * 10 + block) for block in range(size)] for peer in range(size)]
                    wanted = combined(torch, [blocks[peer][rank] for peer in range(size)], op)
                    output = torch.empty_like(wanted)
                    dist.reduce_scatter(output, blocks[rank], reduction)
                    alike(torch, output, wanted, "reduce_scatter " + what)
                    output = torch.empty_like(wanted)
                    dist.reduce_scatter_single(output, torch.cat(blocks[rank]), reduction)
                    alike(torch, output, wanted, "reduce_scatter_single " + what)
                checked += 1
    for kind in ("int32", "uint8", "bool"):
        inputs = [tensor_of(torch, kind, (33,), peer) for peer in range(size)]
        for op, combine in (("BAND", torch.bitwise_and), ("BOR", torch.bitwise_or), ("BXOR", torch.bitwise_xor)):
            wanted = inputs[0]
            for other in inputs[1:]:
                wanted = combine(wanted, other)
            tensor = inputs[rank].clone()
            dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
            alike(torch, tensor, wanted, f"{op} {kind}")
    return checked


# Which reductions are taken of which types. gloo takes none beside these, and NCCL takes only these of what lies in a GPU, but for sums of float8
# on the newest: what is refused here is refused on all ranks.
TAKEN = dict.fromkeys(FLOATS, "SUM AVG MIN MAX PRODUCT PREMUL_SUM".split())
TAKEN |= dict.fromkeys(INTEGERS, "SUM AVG MIN MAX PRODUCT BAND BOR BXOR".split())
TAKEN |= {"bool": "SUM MIN MAX PRODUCT BAND BOR BXOR".split()}
TAKEN |= dict.fromkeys(("complex64", "complex128"), "SUM AVG PREMUL_SUM".split())
TAKEN |= dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), [])
OPS = "SUM AVG MIN MAX PRODUCT BAND BOR BXOR PREMUL_SUM".split()


def as_gloo_and_nccl(backend: str) -> list[str]:
    """What every pair of a reduction and a type comes to, and whether that is what gloo makes of it."""
    torch, dist, rank, size = start(backend)
    gloo = dist.new_group(backend="gloo")

    def outcome(call: str, kind: str, op: str, group: Any) -> Any:
        reduction = dist._make_nccl_premul_sum(2.0) if op == "PREMUL_SUM" else getattr(dist.ReduceOp, op)
        # The ends of a type are among them, and sums that do not divide.
        numbers = [100, -100, 127, -1, rank, 1 - rank, 5 * rank, -7, 3, 2 - rank, 64, 0][: 12 // size * size]
        tensor = torch.tensor([number & 1 for number in numbers] if kind == "bool" else numbers).to(getattr(torch, kind))
        try:
            if call == "all_reduce":
                dist.all_reduce(tensor, reduction, group=group)
            elif call == "reduce":
                dist.reduce(tensor, 0, reduction, group=group)
                tensor = tensor if rank == 0 else torch.empty(0)
            else:
                parts, tensor = list(tensor.chunk(size)), torch.empty(len(tensor) // size, dtype=tensor.dtype)
                dist.reduce_scatter(tensor, parts, reduction, group=group)
        except (RuntimeError, ValueError) as error:
            return str(error)
        return tensor

    said = []
    for call in ("all_reduce", "reduce", "reduce_scatter"):
        for kind, taken in TAKEN.items():
            for op in OPS:
                what = f"{call} {op} {kind}"
                ours, theirs = outcome(call, kind, op, None), outcome(call, kind, op, gloo)
                assert isinstance(ours, str) == (op not in taken), (what, ours)
                if isinstance(ours, str):
                    assert isinstance(theirs, str), (what, ours, theirs)
                    said.append(ours)
                elif not isinstance(theirs, str):
                    alike(torch, ours, theirs, what)
    # What was refused was refused by all of them, and nobody waits for it.
    tensor = torch.tensor([7 + rank, -7 - rank])
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    assert tensor.tolist() == [(7 * size + sum(range(size))) // size, -((7 * size + sum(range(size))) // size)]
    dist.barrier()
    return said


def movements(backend: str) -> int:
    torch, dist, rank, size = start(backend)
    checked = 0
    for number, kind in enumerate([*TYPES, "float8_e4m3fn"]):
        for shape in SHAPES:
            what = f"{kind} {shape}"
            if kind == "float8_e4m3fn":
                inputs = [tensor_of(torch, "float32", shape, peer).to(torch.float8_e4m3fn).view(torch.uint8) for peer in range(size)]
                mine = inputs[rank].view(torch.float8_e4m3fn)
            else:
                inputs = [tensor_of(torch, kind, shape, number * 100 + peer) for peer in range(size)]
                mine = inputs[rank]

            def back(tensor: Any, kind: str = kind) -> Any:
                return tensor.view(torch.uint8) if kind == "float8_e4m3fn" else tensor

            for root in range(size):
                tensor = mine.clone()
                dist.broadcast(tensor, root)
                alike(torch, back(tensor), inputs[root], "broadcast " + what)
            outputs = [torch.empty_like(mine) for _ in range(size)]
            dist.all_gather(outputs, mine)
            for output, wanted in zip(outputs, inputs, strict=True):
                alike(torch, back(output), wanted, "all_gather " + what)
            if shape:
                output = torch.empty((size * shape[0], *shape[1:]), dtype=mine.dtype)
                dist.all_gather_single(output, mine)
                alike(torch, back(output), torch.cat(inputs), "all_gather_single " + what)
            root = size // 2
            outputs = [torch.empty_like(mine) for _ in range(size)] if rank == root else None
            dist.gather(mine, outputs, root)
            for output, wanted in zip(outputs or [], inputs, strict=False):
                alike(torch, back(output), wanted, "gather " + what)
            output = torch.empty_like(mine)
            pieces = [tensor.view(mine.dtype) for tensor in inputs] if rank == root else None
            dist.scatter(output, pieces, root)
            alike(torch, back(output), inputs[rank], "scatter " + what)
            outputs = [torch.empty_like(mine) for _ in range(size)]
            dist.all_to_all(outputs, [mine.clone() for _ in range(size)])
            for output, wanted in zip(outputs, inputs, strict=True):
                alike(torch, back(output), wanted, "all_to_all " + what)
            if size > 1:
                output = torch.empty_like(mine)
                request = dist.irecv(output, (rank - 1) % size, tag=number)
                dist.send(mine, (rank + 1) % size, tag=number)
                request.wait()
                alike(torch, back(output), inputs[(rank - 1) % size], "send and recv " + what)
            checked += 1
    return checked


def shapes_and_layouts(backend: str) -> None:
    torch, dist, rank, size = start(backend)
    # Uneven lengths, wherever parts come one for each rank.
    lengths = [3 * peer + 1 for peer in range(size)]
    outputs = [torch.empty(length) for length in lengths]
    dist.all_gather(outputs, torch.full((lengths[rank],), float(rank)))
    assert [output.tolist() for output in outputs] == [[float(peer)] * length for peer, length in enumerate(lengths)]
    output = torch.empty(lengths[rank])
    dist.reduce_scatter(output, [torch.full((length,), float(rank + 1)) for length in lengths])
    assert output.tolist() == [float(sum(range(1, size + 1)))] * lengths[rank]
    # Rank i sends i + j rows to rank j, of two columns.
    gives, gets = [rank + peer for peer in range(size)], [peer + rank for peer in range(size)]
    given = torch.cat([torch.full((count, 2), float(10 * rank + peer)) for peer, count in enumerate(gives)])
    output = torch.empty((sum(gets), 2))
    dist.all_to_all_single(output, given, gets, gives)
    wanted = torch.cat([torch.full((count, 2), float(10 * peer + rank)) for peer, count in enumerate(gets)])
    assert torch.equal(output, wanted)
    work = dist.all_to_all_single(output.zero_(), given, gets, gives, async_op=True)
    assert torch.equal(work.get_future().wait()[0], wanted)
    output = torch.empty(size * 2)
    dist.all_to_all_single(output, torch.arange(size * 2.0) + 100 * rank)
    assert output.tolist() == [100.0 * peer + 2 * rank + column for peer in range(size) for column in (0, 1)]
    # Tensors that do not lie in one piece, in every place they can stand.
    total = float(sum(range(1, size + 1)))
    for asynchronous in (False, True):

        def ended(work: Any, asynchronous: bool = asynchronous) -> None:
            if asynchronous and backend == MIXED:
                work.wait()
            elif asynchronous:
                while not work.is_completed():
                    pass

        base = torch.full((6, 8), float(rank + 1))
        ended(dist.all_reduce(base[::2, 1:7:3], async_op=asynchronous))
        assert base[::2, 1:7:3].eq(total).all() and base[1::2].eq(rank + 1).all() and base[:, 0].eq(rank + 1).all()
        base = torch.full((4, 4), float(rank))
        ended(dist.broadcast(base.t()[1:3], size - 1, async_op=asynchronous))
        assert base[:, 1:3].eq(size - 1).all() and base[:, 0].eq(rank).all()
        base = torch.zeros(size, 4, 2)
        ended(dist.all_gather(list(base[:, :, 1]), torch.arange(8.0).view(4, 2)[:, 0] + rank, async_op=asynchronous))
        assert torch.equal(base[:, :, 1], torch.stack([torch.arange(0, 8.0, 2) + peer for peer in range(size)])) and base[:, :, 0].eq(0).all()
        base = torch.zeros(2, size * 3)
        ended(dist.all_gather_single(base.t()[:, 1], torch.full((3,), float(rank)), async_op=asynchronous))
        assert base[1].tolist() == [float(peer) for peer in range(size) for _ in range(3)]
        base = torch.zeros(3, 2)
        ended(dist.reduce_scatter_single(base[:, 0], torch.full((size * 3, 2), float(rank + 1))[:, 1], async_op=asynchronous))
        assert base[:, 0].eq(total).all() and base[:, 1].eq(0).all()
        if size > 1:
            base = torch.zeros(3, 2)
            request = dist.irecv(base[:, 1], (rank + 1) % size)
            dist.isend(torch.full((3, 2), float(rank))[:, 0], (rank - 1) % size).wait()
            ended(request) if asynchronous else request.wait()
            assert base[:, 1].eq((rank + 1) % size).all() and base[:, 0].eq(0).all()
    # Coalesced forms, batches, and what has other names in other versions.
    tensors = [torch.full((count,), float(rank + 1), dtype=torch.float64 if count % 2 else torch.float32) for count in range(5)]
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    assert all(tensor.eq(total).all() for tensor in tensors)
    outputs = [torch.empty(size * count) for count in (1, 4)]
    with dist.distributed_c10d._coalescing_manager():
        for output, count in zip(outputs, (1, 4), strict=True):
            dist.all_gather_single(output, torch.full((count,), float(rank)))
    assert outputs[1].view(size, 4)[:, 0].tolist() == [float(peer) for peer in range(size)]
    outputs = [torch.empty(count) for count in (1, 4)]
    with dist.distributed_c10d._coalescing_manager():
        for output, count in zip(outputs, (1, 4), strict=True):
            dist.reduce_scatter_single(output, torch.ones(size * count))
    assert all(output.eq(size).all() for output in outputs)
    if size > 1:
        incoming = torch.empty(4)
        operations = [
            dist.P2POp(dist.irecv, incoming, (rank - 1) % size),
            dist.P2POp(dist.isend, torch.full((4,), float(rank)), (rank + 1) % size),
        ]
        for request in dist.batch_isend_irecv(operations):
            request.wait()
        assert incoming.eq((rank - 1) % size).all()
        # Whoever comes first, where torch hands on who that was.
        if rank == 0:
            sources = set()
            for peer in range(1, size):
                tensor = torch.zeros(2)
                source = dist.recv(tensor, peer if backend == MIXED else None, tag=9)
                assert tensor.eq(source).all()
                sources.add(source)
            assert sources == set(range(1, size))
        else:
            dist.send(torch.full((2,), float(rank)), 0, tag=9)
    # A factor before the sum, a number or a tensor of a wider type, leaves the type of what is summed.
    for factor in (2.0, torch.tensor([2.0])):
        for kind in (torch.float64, torch.float16, torch.complex64):
            tensor = torch.full((1000,), float(rank + 1), dtype=kind)
            dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
            assert tensor.eq(2 * total).all()
            output = torch.zeros(3, dtype=kind)
            dist.reduce_scatter_single(output, torch.full((3 * size,), float(rank + 1), dtype=kind), dist._make_nccl_premul_sum(factor))
            assert output.eq(2 * total).all()
    for kind in ("uint16", "uint64", "int8"):
        bits = torch.full((5,), 1 << rank).to(getattr(torch, kind))
        dist.all_reduce(bits, dist.ReduceOp.BOR)
        assert bits.tolist() == [(1 << size) - 1] * 5


def marked() -> None:
    """Tensors that torch says are negated, while their memory is not, in and out of every collective."""
    torch, dist, rank, size = start()

    def turned(number: float, gaps: bool) -> Any:
        """That number four times, negated by a mark; with gaps in its memory or without."""
        tensor = torch.full((4,), complex(7, -number)).conj().imag if gaps else torch._neg_view(torch.full((4,), -number))
        assert tensor.is_neg() and tensor.is_contiguous() != gaps and tensor.eq(number).all()
        return tensor

    total = size * (size + 1) / 2
    for gaps in (False, True):
        mine, result, each = turned(rank + 1.0, gaps), turned(0.0, gaps), [turned(0.0, gaps) for _ in range(size)]
        everybodys = [turned(one + 1.0, gaps) for one in range(size)]
        for asynchronous in (False, True):
            tensor = turned(rank + 1.0, gaps)
            work = dist.all_reduce(tensor, async_op=asynchronous)
            if asynchronous:
                work.wait()
            assert tensor.eq(total).all()
        tensor = turned(rank + 1.0, gaps)
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(2.0))
        assert tensor.eq(2 * total).all()
        tensor = turned(rank + 1.0, gaps)
        dist.reduce(tensor, size - 1)
        assert rank != size - 1 or tensor.eq(total).all()
        # Marked at the root, at all the others, at all.
        for marked_at in ([0], range(1, size), range(size)):
            tensor = turned(rank + 1.0, gaps) if rank in marked_at else torch.full((4,), rank + 1.0)
            dist.broadcast(tensor, 0)
            assert tensor.eq(1).all(), (marked_at, tensor)
        dist.all_gather(each, mine)
        assert all(tensor.eq(one + 1).all() for one, tensor in enumerate(each)), each
        single = torch.zeros(4 * size)
        dist.all_gather_single(single, mine)
        assert single.equal(torch.cat(everybodys))
        dist.reduce_scatter(result, everybodys)
        assert result.eq(size * (rank + 1)).all()
        dist.scatter(result, [-tensor for tensor in everybodys] if rank == 0 else None, 0)
        assert result.eq(-rank - 1).all()
        dist.scatter(result, everybodys if rank == 0 else None, 0)
        assert result.eq(rank + 1).all()
        each = [turned(0.0, gaps) for _ in range(size)]
        dist.gather(mine, each if rank == 0 else None, 0)
        assert all(tensor.eq(one + 1 if rank == 0 else 0).all() for one, tensor in enumerate(each)), each
        dist.all_to_all(each, [mine] * size)
        assert all(tensor.eq(one + 1).all() for one, tensor in enumerate(each)), each
        dist.all_to_all_single(single, torch._neg_view(torch.full((4 * size,), -rank - 1.0)))
        assert single.equal(torch.cat(everybodys))
        if size > 1:
            request = dist.irecv(result, (rank - 1) % size)
            dist.send(mine, (rank + 1) % size)
            request.wait()
            assert result.eq((rank - 1) % size + 1).all()
    bits = torch._neg_view(torch.full((3,), -(1 << rank)))
    dist.all_reduce(bits, dist.ReduceOp.BOR)
    assert bits.tolist() == [(1 << size) - 1] * 3
    # torch.distributed itself refuses most conjugated tensors; its process groups do not.
    group, wanted = dist.group.WORLD, torch.full((4,), complex(total, -total), dtype=torch.complex128)
    conjugated = torch.full((4,), complex(rank + 1, rank + 1), dtype=torch.complex128).conj()
    group.allreduce([conjugated], dist.distributed_c10d.AllreduceOptions()).wait()
    assert conjugated.is_conj() and conjugated.equal(wanted)
    tensor = torch.zeros(4, dtype=torch.complex128)
    tensor = tensor if rank else torch._neg_view(tensor.add(complex(-1, 2)).conj())
    group.broadcast([tensor], dist.distributed_c10d.BroadcastOptions()).wait()
    assert tensor.eq(complex(1, 2)).all()


# What there is of a tensor that cannot be moved, or written into, and a word of what is said of it.
UNFIT = {"sparse": "`torch.sparse_coo`", "compressed": "`torch.sparse_csr`", "meta": "`meta`", "expanded": "`expand`"}


def unfit(backend: str) -> list[list[str]]:
    """What calls say of tensors that their results cannot be written into, or that are in no memory; nothing has been sent then."""
    torch, dist, rank, size = start(backend)
    made = {
        "sparse": lambda: torch.ones(4, 4).to_sparse(),
        "compressed": lambda: torch.ones(4, 4).to_sparse_csr(),
        "meta": lambda: torch.ones(4, 4, device="meta"),
        "expanded": lambda: torch.ones(1, 4).expand(4, 4),
    }

    def calls(bad: Any) -> list[Any]:
        good = [torch.ones(4, 4) for _ in range(size)]
        return [
            lambda: dist.all_reduce(bad),
            lambda: dist.all_reduce(bad, async_op=True),
            lambda: dist.all_gather([bad] * size, good[0]),
            lambda: dist.reduce_scatter(bad, good),
            lambda: dist.scatter(bad, good if rank == 0 else None, 0),
            lambda: dist.all_to_all([bad] * size, good),
            lambda: dist.irecv(bad, (rank + 1) % size),
        ]

    said = []
    for make in made.values():
        lines = []
        for call in calls(make()):
            try:
                call()
                lines.append("nothing")
            except (RuntimeError, ValueError) as error:
                lines.append(str(error))
        said.append(lines)
    # An expanded integer, which is combined here.
    try:
        dist.all_reduce(torch.ones(1, dtype=torch.int32).expand(4), dist.ReduceOp.BOR)
    except (RuntimeError, ValueError) as error:
        said[-1].append(str(error))
    total = torch.ones(3)
    dist.all_reduce(total)
    assert total.eq(size).all()
    dist.barrier()
    return said


def kept_and_written(backend: str) -> None:
    """What need not be written is never too odd, and tensors of inference mode are written wherever it is left by then."""
    torch, dist, rank, size = start(backend)
    for root in range(size):
        odd: list[Any] = [torch.full((1, 3), 7.0).expand(2, 3), torch.full((3, 2), 7.0).t(), torch._neg_view(torch.full((2, 3), -7.0))]
        with torch.inference_mode():
            odd.append(torch.full((3, 2), 7.0).t())
        for at_root in odd:
            for asynchronous in (False, True):
                tensor = at_root if rank == root else torch.zeros(2, 3)
                work = dist.broadcast(tensor, root, async_op=asynchronous)
                if asynchronous:
                    work.wait()
                assert tensor.eq(7).all()
    for inside in (False, True):
        for asynchronous in (False, True):
            with torch.inference_mode():
                reduced, sides = torch.ones(3, 2).t(), [torch.zeros(3, 2).t() for _ in range(size)]
                bits = torch.full((3, 2), 1 << rank).t()
            with torch.inference_mode(inside):
                works = [
                    dist.all_reduce(reduced, async_op=asynchronous),
                    dist.all_gather(sides, torch.full((2, 3), float(rank)), async_op=asynchronous),
                    dist.all_reduce(bits, dist.ReduceOp.BOR, async_op=asynchronous),
                ]
                if asynchronous:
                    works[0].get_future().wait()
                    works[1].wait()
                    works[2].wait()
            leaf = torch.ones(3, 2).t().requires_grad_()
            work = dist.all_reduce(leaf, async_op=asynchronous)
            if asynchronous:
                work.wait()
            assert leaf.eq(size).all() and reduced.eq(size).all() and bits.eq((1 << size) - 1).all()
            assert all(side.eq(peer).all() for peer, side in enumerate(sides))


def functional_and_watched() -> None:
    """The ways that go through torch's dispatcher, and their results too."""
    torch, dist, rank, size = start()
    import torch.distributed._functional_collectives as functional
    from torch.distributed.tensor.debug import CommDebugMode

    total = float(sum(range(1, size + 1)))
    group = dist.group.WORLD
    assert functional.all_reduce(torch.full((3,), float(rank + 1)), "sum", group).tolist() == [total] * 3
    gathered = functional.all_gather_tensor(torch.full((2,), float(rank)), 0, group)
    assert gathered.view(size, 2)[:, 0].tolist() == [float(peer) for peer in range(size)]
    assert functional.reduce_scatter_tensor(torch.full((size * 2,), 1.0), "sum", 0, group).tolist() == [float(size)] * 2
    outputs = functional.all_reduce_coalesced([torch.ones(2), torch.ones(3)], "sum", group)
    assert [output.tolist() for output in outputs] == [[float(size)] * 2, [float(size)] * 3]
    outputs = functional.all_gather_into_tensor_coalesced([torch.ones(2), torch.ones(3)], group)
    assert [output.tolist() for output in outputs] == [[1.0] * 2 * size, [1.0] * 3 * size]
    outputs = functional.reduce_scatter_tensor_coalesced([torch.ones(size), torch.ones(2 * size)], "sum", [0, 0], group)
    assert [output.tolist() for output in outputs] == [[float(size)], [float(size)] * 2]
    with CommDebugMode() as mode:
        tensor = torch.full((3,), float(rank + 1))
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        assert work.is_completed() and tensor.eq(total).all()
    assert mode.get_total_counts() == 1
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.ones(2))
        dist.barrier()
    assert any("allreduce" in event.key for event in profile.key_averages())
    seen = []
    group.register_pre_hook(1, lambda arguments: seen.append(arguments.name.name))
    dist.all_reduce(torch.ones(2))
    assert seen == ["ALLREDUCE"]


def objects(backend: str) -> None:
    torch, dist, rank, size = start(backend)
    everything = [None] * size
    dist.all_gather_object(everything, {"rank": rank, "text": "x" * (rank * 50)})
    assert everything == [{"rank": peer, "text": "x" * (peer * 50)} for peer in range(size)]
    listed = [("from", 1), 2.5] if rank == 0 else [None, None]
    dist.broadcast_object_list(listed, 0)
    assert listed == [("from", 1), 2.5]
    gathered = [None] * size if rank == size - 1 else None
    dist.gather_object(rank * "y", gathered, size - 1)
    assert gathered is None or gathered == [peer * "y" for peer in range(size)]
    output: list[Any] = [None]
    dist.scatter_object_list(output, [{"for": peer} for peer in range(size)] if rank == 0 else None, 0)
    assert output == [{"for": rank}]
    if size > 1:
        if rank == 0:
            dist.send_object_list([1, "two"], 1)
        elif rank == 1:
            received = [None, None]
            dist.recv_object_list(received, 0)
            assert received == [1, "two"]
    dist.barrier()


@pytest.mark.parametrize(("size", "backend"), [(1, ALONE), (2, ALONE), (3, ALONE), (4, ALONE), (3, MIXED)])
def test_reductions_are_what_their_definition_says(size: int, backend: str) -> None:
    assert ranks.values(size, reductions, backend) == [len(SHAPES) * (12 * 5 + 1 * 4 + 2 * 2)] * size


@pytest.mark.parametrize(("size", "backend"), [(2, ALONE), (3, ALONE), (3, MIXED)])
def test_reductions_and_types_go_together_as_elsewhere(size: int, backend: str) -> None:
    first, *others = ranks.values(size, as_gloo_and_nccl, backend)
    assert all(other == first for other in others)
    # Each says what is wrong: torch does so itself for complex numbers.
    assert all(any(word in said for word in ("float", "int", "bool", "complex")) for said in first), first


@pytest.mark.parametrize(("size", "backend"), [(1, ALONE), (2, ALONE), (3, ALONE), (4, ALONE), (3, MIXED)])
def test_tensors_arrive_where_they_are_sent(size: int, backend: str) -> None:
    assert ranks.values(size, movements, backend) == [len(SHAPES) * (len(TYPES) + 1)] * size


@pytest.mark.parametrize(("size", "backend"), [(1, ALONE), (2, ALONE), (4, ALONE), (2, MIXED), (3, MIXED)])
def test_uneven_strided_and_coalesced_tensors(size: int, backend: str) -> None:
    ranks.values(size, shapes_and_layouts, backend)


@pytest.mark.parametrize("size", [1, 3])
def test_tensors_that_are_marked_as_negated_or_conjugated(size: int) -> None:
    ranks.values(size, marked)


@pytest.mark.parametrize("backend", [ALONE, MIXED])
def test_unfit_tensors_are_refused_everywhere_with_the_reason(backend: str) -> None:
    first, second = ranks.values(2, unfit, backend)
    assert first == second
    for (what, word), lines in zip(UNFIT.items(), first, strict=True):
        # Beside another backend torch's dispatcher looks first, and does nothing with what is in no memory.
        assert all(word in line or (backend == MIXED and (what == "meta" or what != "expanded" and line != "nothing")) for line in lines), (what, lines)
        assert not any("GPU" in line for line in lines), lines


@pytest.mark.parametrize(("size", "backend"), [(2, ALONE), (3, ALONE), (2, MIXED)])
def test_odd_tensors_are_sent_from_and_written_to(size: int, backend: str) -> None:
    ranks.values(size, kept_and_written, backend)


def test_watched_calls_take_torchs_way_with_the_same_results() -> None:
    ranks.values(2, functional_and_watched)


@pytest.mark.parametrize(("size", "backend"), [(2, ALONE), (3, ALONE), (3, MIXED)])
def test_objects(size: int, backend: str) -> None:
    ranks.values(size, objects, backend)
