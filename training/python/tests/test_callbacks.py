"""What callbacks of futures may do: wait for later calls, start them, raise, and end their group; torch's own DDP hooks do most of that."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import ranks
from ranks import ALONE, MIXED


# What can be done once.
LAST = ("ends its group", "leaves the world")


def start(backend: str) -> tuple[Any, Any, int, int]:
    import torch
    import torch.distributed as dist

    import eirene_train  # noqa: F401

    dist.init_process_group(backend)
    return torch, dist, dist.get_rank(), dist.get_world_size()


def reduced(future: Any) -> float:
    return float(future.value()[0][0])


def in_a_callback(backend: str, what: str) -> Any:
    """What a callback does with the future of a call that is not over when the callback is added."""
    torch, dist, rank, size = start(backend)
    import eirene_train

    def later(value: float = 1.0) -> Any:
        return dist.all_reduce(torch.full((3,), value), async_op=True).get_future()

    def deeper(depth: int) -> float:
        return depth + 1.0 if depth == 0 else float(later().then(lambda _: deeper(depth - 1)).wait())

    def raises(error: BaseException) -> Any:
        raise error

    def neighbours() -> float:
        incoming, outgoing = torch.zeros(2), torch.full((2,), float(rank))
        receiving = dist.irecv(incoming, (rank - 1) % size)
        dist.isend(outgoing, (rank + 1) % size).wait()
        receiving.wait()
        return float(incoming[0]) + 1

    def together() -> float:
        tensors = [torch.ones(2), torch.ones(3)]
        with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        return float(tensors[1][0])

    def another_group() -> float:
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=dist.new_group())
        return float(tensor[0])

    actions: dict[str, Callable[[Any], Any]] = {
        "waits for the future of a later call": lambda _: float(later().wait()[0][0]),
        "waits for the work of a later call": lambda _: float(dist.all_reduce(torch.ones(3), async_op=True).wait() or size),
        "makes a call that waits": lambda _: float(dist.all_reduce(torch.ones(3)) is None and size),
        "waits for a chain of later calls": lambda _: deeper(20),
        "starts a later call": lambda _: later().then(reduced),
        "sends and receives": lambda _: neighbours(),
        "makes several calls as one": lambda _: together(),
        "makes a group": lambda _: another_group(),
        "reads its own result": reduced,
        "raises an error": lambda _: raises(ValueError("on purpose")),
        "asks to end the thread": lambda _: raises(SystemExit("on purpose")),
        "ends its group": lambda _: dist.destroy_process_group() or 7.0,
        "leaves the world": lambda _: eirene_train.leave() or 7.0,
    }
    answers = []
    work = None
    for turn in range(1 if what in LAST else 3):
        # The other ranks come when the callback is there.
        if rank == 0:
            work = dist.all_reduce(torch.full((3,), 1.0), async_op=True)
            future = work.get_future().then(actions[what])
            for peer in range(1, size):
                dist.send(torch.full((1,), float(turn)), peer, tag=99)
        else:
            dist.recv(torch.zeros(1), 0, tag=99)
            work = dist.all_reduce(torch.full((3,), 1.0), async_op=True)
            future = work.get_future().then(actions[what])
        # It comes behind what the callback calls, so it may be of another length. Beside another backend we do not hear of callbacks.
        behind = dist.all_reduce(torch.ones(5), async_op=True) if backend == ALONE and what not in LAST else None
        try:
            answer = future.wait()
            answers.append(answer.wait() if isinstance(answer, torch._C.Future) else answer)
        except Exception as error:
            answers.append("on purpose" if "on purpose" in str(error) else repr(error))
        if behind is not None:
            behind.get_future().wait()
    if what not in LAST:
        dist.barrier()
    return answers


WANTED = {
    "waits for the future of a later call": 2.0,
    "waits for the work of a later call": 1.0,
    "makes a call that waits": 2.0,
    "waits for a chain of later calls": 1.0,
    "starts a later call": 2.0,
    "sends and receives": None,
    "makes several calls as one": 2.0,
    "makes a group": 2.0,
    "reads its own result": 2.0,
    "raises an error": "on purpose",
    "asks to end the thread": "on purpose",
    "ends its group": 7.0,
    "leaves the world": 7.0,
}


@pytest.mark.parametrize("backend", [ALONE, MIXED])
@pytest.mark.parametrize("what", WANTED)
def test_a_callback_may_do_what_it_likes(what: str, backend: str) -> None:
    answers = ranks.values(2, in_a_callback, backend, what)
    turns = 1 if what in LAST else 3
    wanted = [2.0, 1.0] if what == "sends and receives" else [WANTED[what]] * 2
    assert answers == [[answer] * turns for answer in wanted]


HOOKS = {
    "default_hooks": ["allreduce_hook", "fp16_compress_hook", "bf16_compress_hook"],
    "powerSGD_hook": ["powerSGD_hook"],
    "quantization_hooks": ["quantization_pertensor_hook", "quantization_perchannel_hook"],
}


def trained(backend: str, module: str, name: str) -> float:
    """The largest difference between the ranks' gradients in some steps with a hook of torch's."""
    torch, dist, rank, size = start(backend)
    if module == "quantization_hooks" and torch.__version__ < "2.15":
        # There they take the result of NCCL alone, a list of lists.
        return 0.0
    hooks = __import__(f"torch.distributed.algorithms.ddp_comm_hooks.{module}", fromlist=[name])
    # Several buckets, whose hooks are under way together; where we do not hear of callbacks, their calls have no order.
    megabytes = 0.005 if backend == ALONE else 25.0
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(4)]), bucket_cap_mb=megabytes)
    state = hooks.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2) if module == "powerSGD_hook" else None
    model.register_comm_hook(state if state is not None else dist.group.WORLD, getattr(hooks, name))
    worst = 0.0
    for step in range(5):
        model.zero_grad()
        generator = torch.Generator().manual_seed(step * size + rank)
        model(torch.randn(1, 32, generator=generator)).square().sum().backward()
        # All ranks have the same, whatever the hook made of it.
        for parameter in model.parameters():
            gathered = [torch.empty_like(parameter.grad) for _ in range(size)]
            dist.all_gather(gathered, parameter.grad)
            worst = max(worst, *(float((other - parameter.grad).abs().max()) for other in gathered))
            assert parameter.grad.isfinite().all() and parameter.grad.abs().max() > 0
    dist.barrier()
    return worst


@pytest.mark.parametrize("backend", [ALONE, MIXED])
@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in HOOKS.items() for name in names])
def test_torchs_own_hooks_of_ddp_train(module: str, name: str, backend: str) -> None:
    assert ranks.values(2, trained, backend, module, name) == [0.0, 0.0]


def behind_a_callback_without_an_end() -> list[str]:
    """What rank 0's calls say while a callback before them waits for what comes after them; then the ranks go on together."""
    torch, dist, rank, size = start(ALONE)
    group = dist.new_group(timeout=timedelta(seconds=2 if rank == 0 else 120))
    made = threading.Event()
    said = []

    def call(asynchronous: bool) -> Any:
        return dist.all_reduce(torch.ones(3), group=group, async_op=asynchronous)

    if rank == 0:
        future = call(asynchronous=True).get_future().then(lambda _: made.wait())
        dist.send(torch.zeros(1), 1)
        for asynchronous in (False, True):
            try:
                call(asynchronous)
            except TimeoutError as error:
                said.append(str(error))
        made.set()
        future.wait()
    else:
        # It comes when the callback is there.
        dist.recv(torch.zeros(1), 0)
        call(asynchronous=False)
    after = torch.ones(1)
    dist.all_reduce(after, group=group)
    assert float(after) == size
    return said


def test_a_call_does_not_wait_for_ever_for_a_callback_that_waits_for_it() -> None:
    said, others = ranks.values(2, behind_a_callback_without_an_end)
    assert len(said) == 2 and all("within 2 s" in text and "cannot wait for a call" in text for text in said)
    assert others == []


def beside_gloo() -> list[float]:
    """A future of `comm_hook` whose callback waits for another of them, as in a hook that is made of several."""
    import torch
    import torch.distributed as dist

    import eirene_train

    dist.init_process_group("gloo")

    class Bucket:
        def buffer(self) -> Any:
            return torch.full((100_000,), float(dist.get_rank()))

    bucket: Any = Bucket()
    first = eirene_train.comm_hook(None, bucket)
    answer = first.then(lambda _: float(eirene_train.comm_hook(None, bucket).wait()[0])).wait()
    dist.barrier()
    return [answer, float(first.wait()[0])]


def test_a_callback_may_wait_for_another_hook_of_ours() -> None:
    assert ranks.values(2, beside_gloo) == [[0.5, 0.5]] * 2


@pytest.mark.skipif(ranks.REFERENCE, reason="about how the real runtime ends")
def test_a_program_may_end_while_a_callback_runs() -> None:
    program = """
import time, torch, torch.distributed as dist, eirene_train
dist.init_process_group("eirene")
if dist.get_rank() == 1:
    dist.recv(torch.zeros(1), 0)
future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(lambda _: (time.sleep(0.5), print("done", flush=True)))
if dist.get_rank() == 0:
    dist.send(torch.zeros(1), 1)
"""
    done = subprocess.run([sys.executable, "-m", "eirene_train", "run", "-n", "2", "-c", program], capture_output=True, text=True, timeout=240, cwd="/")
    assert done.returncode == 0 and done.stdout.count("done") == 2, (done.stdout, done.stderr)
