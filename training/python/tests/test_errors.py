"""What goes wrong is an error on every surviving rank within seconds, and says which ranks it is about."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import launchers
import pytest
import ranks
from deep import assert_within

# In the deep tests everybody knows by then what is wrong.
SOON = 5.0
# How long others wait for a rank that does not come: long enough for those that do.
LATE = 10.0


def start(backend: str = "eirene") -> tuple[Any, Any, int, int]:
    import torch
    import torch.distributed as dist

    import eirene_train  # noqa: F401

    dist.init_process_group(backend)
    dist.barrier()
    return torch, dist, dist.get_rank(), dist.get_world_size()


def timed(call: Any) -> tuple[str, str, dict[str, Any], float]:
    """What a call raises, and after how many seconds."""
    import eirene_train

    began = time.monotonic()
    try:
        call()
    except (eirene_train.EireneError, RuntimeError) as error:
        attributes = {name: getattr(error, name) for name in ("rank", "missing") if hasattr(error, name)}
        return type(error).__name__, str(error), attributes, time.monotonic() - began
    return "", "nothing was raised", {}, time.monotonic() - began


def run_ahead(count: int) -> tuple[str, int] | None:
    """Rank 0 builds groups that rank 1 does not take part in at first."""
    import eirene_train

    world = eirene_train.world()
    said = None
    if world.rank == 1:
        try:
            world.group([0, 1], "another", 20_000)
        except eirene_train.ResourceExhausted as error:
            said = str(error), error.rank
    groups = [world.group([0, 1], str(number), 20_000) for number in range(count)]
    groups[-1].monitored_barrier(20_000, True)
    return said


def other_shapes(name: str, elements: int, odd: int) -> Any:
    """Rank 1 has `odd` elements where all others have as many as are said: in its tensor, or in what each rank gives it or gets from it."""
    torch, dist, rank, size = start()
    mine = odd if rank == 1 else elements
    one, all_ = torch.ones(mine), torch.ones(mine * size)
    each = [torch.ones(mine) for _ in range(size)] if rank == 0 else None
    # What rank 0 has for rank 1 is not what that takes; everything else fits.
    gives = [elements if rank == 0 and other == 1 else 5 for other in range(size)]
    takes = [odd if rank == 1 and other == 0 else 5 for other in range(size)]
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(one),
        "broadcast": lambda: dist.broadcast(one, 0),
        "reduce": lambda: dist.reduce(one, 0),
        "all_gather": lambda: dist.all_gather_into_tensor(all_, one),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(one, all_),
        "all_to_all": lambda: dist.all_to_all_single(torch.ones(sum(takes)), torch.ones(sum(gives)), takes, gives),
        "gather": lambda: dist.gather(one, each, 0),
        "scatter": lambda: dist.scatter(one, each, 0),
    }

    def both() -> None:
        calls[name]()
        # Who is done before the others have come to it learns of it here.
        dist.barrier()

    return timed(both)


def other_types() -> Any:
    torch, dist, rank, _ = start()
    return timed(lambda: dist.all_reduce(torch.ones(10, dtype=torch.float64 if rank else torch.float32)))


def other_roots() -> Any:
    torch, dist, rank, _ = start()

    def both() -> None:
        # Two roots send and go on; the next call shows it.
        dist.broadcast(torch.ones(10), rank % 2)
        dist.all_reduce(torch.ones(10))

    return timed(both)


def other_order() -> Any:
    torch, dist, rank, _ = start()

    def both() -> None:
        first, second = (lambda: dist.all_reduce(torch.ones(8))), (lambda: dist.broadcast(torch.ones(8), 0))
        if rank == 1:
            first, second = second, first
        first()
        second()

    return timed(both)


def killed(asynchronous: bool) -> Any:
    torch, dist, rank, size = start()
    if rank == size - 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    return timed(lambda: dist.all_reduce(torch.ones(100_000), async_op=asynchronous).wait() if asynchronous else dist.all_reduce(torch.ones(100_000)))


def killed_in_backward() -> Any:
    torch, dist, rank, size = start()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    model(torch.ones(4, 64)).sum().backward()
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return timed(lambda: model(torch.ones(4, 64)).sum().backward())


def missing(backend: str) -> Any:
    import datetime

    torch, dist, rank, size = start(backend)
    late = dist.new_group()
    dist.barrier()
    # Only from now on: to make the group may take longer on a busy machine.
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=LATE), late)
    if rank == size - 1:
        # Elsewhere, until the others have given up.
        return timed(lambda: dist.all_reduce(torch.ones(4)))
    return timed(lambda: dist.all_reduce(torch.ones(4), group=late))


def short_of_memory(limit: str, largest: int) -> Any:
    """One rank may have no more files, or memory, of any size, and is asked for a group, which shares memory."""
    import resource

    _, dist, rank, _ = start()
    if rank == largest:
        mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        most = {"RLIMIT_FSIZE": 4096, "RLIMIT_AS": mapped}[limit]
        resource.setrlimit(getattr(resource, limit), (most, most))
    return timed(lambda: dist.barrier(dist.new_group()))


def wants_too_much() -> Any:
    """More than there is, as one arena, is refused before a page of it is touched; the world goes on."""
    torch, dist, rank, size = start()
    import eirene_train

    said = [timed(lambda bytes=bytes: eirene_train.world().arena(bytes)) for bytes in (1 << 50, 1 << 42)]
    tensor = torch.ones(100_000)
    dist.all_reduce(tensor)
    assert tensor.eq(size).all()
    dist.barrier()
    return said


def monitored(wait_all: bool, directory: str) -> Any:
    import datetime

    _, dist, rank, size = start()
    dist.monitored_barrier()

    def wait_for(*what: str) -> None:
        while not {*what} <= set(os.listdir(directory)):
            time.sleep(0.02)

    answer = None
    if rank in (0, 2):
        Path(directory, f"rank {rank} comes").touch()
        wait_for("rank 0 comes", "rank 2 comes")
        answer = timed(lambda: dist.monitored_barrier(timeout=datetime.timedelta(seconds=LATE), wait_all_ranks=wait_all))
        Path(directory, f"rank {rank} has given up").touch()
    # Nobody leaves before: then they would be told of that.
    wait_for("rank 0 has given up", "rank 2 has given up")
    return answer


def monitored_again(late: int) -> tuple[Any, list[str]]:
    """A monitored barrier that one rank comes to when all others have given up, and two that everybody comes to."""
    import datetime

    torch, dist, rank, size = start()
    others = [other for other in range(size) if other != late]
    if rank == late:
        for other in others:
            dist.recv(torch.empty(1), other)
    first = timed(lambda: dist.monitored_barrier(timeout=datetime.timedelta(seconds=LATE)))
    if rank != late:
        dist.send(torch.ones(1), late)
    return first, [timed(dist.monitored_barrier)[1] for _ in range(2)]


def refused() -> list[str]:
    """Calls that cannot be, which the other ranks do not notice."""
    torch, dist, rank, size = start()
    import eirene_train

    said = []
    calls = [
        lambda: dist.all_reduce(torch.ones(2, 2).to_sparse()),
        lambda: dist.all_reduce(torch.ones(2, device="meta")),
        lambda: dist.all_reduce(torch.ones(2, dtype=torch.bool), dist.ReduceOp.AVG),
        lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BXOR),
        lambda: dist.all_reduce(torch.ones(1000, dtype=torch.int64), dist._make_nccl_premul_sum(2.0)),
        lambda: dist.reduce_scatter_single(torch.ones(1, dtype=torch.uint8), torch.ones(size, dtype=torch.uint8), dist._make_nccl_premul_sum(2.0)),
        lambda: dist.all_gather_single(torch.ones(3), torch.ones(2)),
        lambda: dist.all_to_all_single(torch.ones(5 * size), torch.ones(size), [5] * size, [2] * size),
        lambda: dist.reduce_scatter_single(torch.ones(3), torch.ones(2)),
        lambda: eirene_train.world().group([0, 0, 1], "twice", 1000),
    ]
    for call in calls:
        try:
            call()
            said.append("nothing")
        except (eirene_train.InvalidArgument, RuntimeError, ValueError) as error:
            said.append(str(error))
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.eq(size).all()
    return said


def soon(answers: list[Any], longest: float = SOON) -> None:
    for kind, message, _, seconds in answers:
        assert kind, message
        assert_within(longest, seconds, (kind, message))


def disagree(traces: launchers.Traces, size: int, function: Any, *arguments: Any) -> list[tuple[str, str, dict[str, Any], float]]:
    """What the ranks were told, all of them soon."""
    answers = ranks.run(size, function, *arguments, variables=traces.variables)
    traces.assert_none()
    # A rank that has not left the barrier of the beginning yet is told there.
    answers = [(answer.kind, answer.message, answer.attributes, 0.0) if isinstance(answer, ranks.Failed) else answer for answer in answers]
    soon(answers)
    assert "Mismatch" in {kind for kind, *_ in answers}
    assert {kind for kind, *_ in answers} <= {"Mismatch", "Aborted"}
    return answers


@pytest.mark.parametrize("function", [other_types, other_roots, other_order])
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_that_do_not_agree_are_told(function: Any, size: int, traces: launchers.Traces) -> None:
    disagree(traces, size, function)


# Small; of all together, less and more than 64 KiB, from which ranks of a node agree before they begin; large; nothing on one side.
@pytest.mark.parametrize("lengths", [(10, 11), (5461, 5462), (100_000, 99_999), (0, 100_000)])
@pytest.mark.parametrize("name", ["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"])
def test_lengths_that_differ_are_told(name: str, lengths: tuple[int, int], traces: launchers.Traces) -> None:
    answers = disagree(traces, 3, other_shapes, name, *lengths)
    for _, message, *_ in answers:
        assert ranks.REFERENCE or "rank 1" in message, message


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("size", [2, 4])
def test_a_killed_rank_is_named_by_all_others(asynchronous: bool, size: int, traces: launchers.Traces) -> None:
    *answers, last = ranks.run(size, killed, asynchronous, alone=True, variables=traces.variables)
    traces.assert_none()
    soon(answers)
    assert isinstance(last, ranks.Died)
    for kind, message, attributes, _ in answers:
        assert kind in ("PeerDied", "Aborted") and f"rank {size - 1}" in message, (kind, message)
        assert kind != "PeerDied" or attributes["rank"] == size - 1


def test_a_killed_rank_is_named_where_ddp_waits_for_it() -> None:
    answers = ranks.run(3, killed_in_backward, alone=True)
    soon(answers[:2])
    assert all("rank 2" in message for _, message, *_ in answers[:2]), answers


@pytest.mark.parametrize("backend", ["eirene", "cpu:eirene,cuda:gloo"])
def test_a_rank_that_does_not_come_is_named(backend: str) -> None:
    answers = ranks.run(3, missing, backend, alone=True)
    soon(answers, LATE + SOON)
    assert all("rank 2" in message for _, message, *_ in answers[:2]), answers
    assert all(attributes["missing"] == (2,) for kind, _, attributes, _ in answers[:2] if kind == "TimedOut")


@pytest.mark.skipif(ranks.REFERENCE, reason="about the memory that the real runtime shares")
@pytest.mark.parametrize("limit", ["RLIMIT_FSIZE", "RLIMIT_AS"])
@pytest.mark.parametrize("largest", [0, 2])
def test_a_rank_that_gets_no_memory_is_named_by_all(limit: str, largest: int, traces: launchers.Traces) -> None:
    answers = ranks.values(3, short_of_memory, limit, largest, variables=traces.variables)
    traces.assert_none()
    if limit == "RLIMIT_FSIZE" and not answers[largest][0]:
        # Another rank made what is shared; this one only mapped it.
        assert largest != 0 and not any(kind for kind, *_ in answers)
        return
    soon(answers)
    assert answers[largest][0] == "MemoryShortage" and "shared memory" in answers[largest][1], answers[largest]
    for kind, message, *_ in answers:
        assert kind == "MemoryShortage" or f"rank {largest}" in message, answers


@pytest.mark.skipif(ranks.REFERENCE, reason="about the memory that the real runtime shares")
def test_more_memory_than_there_is_is_refused_and_the_world_goes_on() -> None:
    for said in ranks.values(2, wants_too_much):
        soon(said)
        assert [kind for kind, *_ in said] == ["MemoryShortage"] * 2
        assert str(1 << 50) in said[0][1] and str(1 << 42) in said[1][1]


@pytest.mark.skipif(ranks.REFERENCE, reason="about how the real runtime meets")
def test_a_rank_that_never_joins_is_named(tmp_path: Path, traces: launchers.Traces) -> None:
    # They begin together, however long each of them takes to start.
    program = (
        "import eirene_train\nprint('here', flush=True)\ninput()\n"
        f"try:\n    eirene_train.world({LATE})\nexcept eirene_train.TimedOut as error:\n    print(error.missing, error)"
    )
    here = os.environ | traces.variables | ranks.meeting(str(tmp_path))
    started = [
        subprocess.Popen([sys.executable, "-c", program], env=here | ranks.place(rank, 3), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    for process in started:
        assert process.stdout is not None and process.stdout.readline() == "here\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate(timeout=60)[0] for process in started]
    assert all("(2,)" in text and "s for rank 2;" in text and "EIRENE_TRAIN_DIRECTORY" in text for text in said), said
    traces.assert_none()


@pytest.mark.parametrize("wait_all", [False, True])
def test_a_monitored_barrier_names_who_is_missing(wait_all: bool, tmp_path: Path) -> None:
    answers = ranks.run(4, monitored, wait_all, str(tmp_path), alone=True)
    kind, _, attributes, seconds = answers[0]
    assert (kind, attributes["missing"]) == ("TimedOut", (1, 3) if wait_all else (1,))
    assert_within(LATE + SOON, seconds)
    kind, _, others, _ = answers[2]
    assert (kind, others["missing"]) == ("TimedOut", attributes["missing"])


@pytest.mark.skipif(ranks.REFERENCE, reason="about the real runtime's messages")
@pytest.mark.parametrize("late", [0, 1])
def test_after_a_monitored_barrier_that_failed_the_next_one_works(late: int) -> None:
    for rank, ((kind, message, attributes, _), later) in enumerate(ranks.values(3, monitored_again, late)):
        if rank == late == 0:
            # The others had come, and gone again.
            assert message == "nothing was raised"
        else:
            assert (kind, attributes["missing"]) == ("TimedOut", (late,)) and f"rank {late} has not come" in message
        assert later == ["nothing was raised"] * 2


def test_impossible_calls_are_refused_without_harm() -> None:
    for said in ranks.values(2, refused):
        assert "nothing" not in said
        assert "`torch.sparse_coo`" in said[0] or "sparse" in said[0].lower()
        assert "`meta`" in said[1] and "GPU" not in said[1]
        assert "avg" in said[2] and "bool" in said[2]
        assert "`torch.int64` times a factor" in said[4] and "`torch.uint8` times a factor" in said[5]


def when_this_thread_waits(do: Callable[[], Any]) -> None:
    """Does something, in another thread, as soon as this one waits in the backend: there, and nowhere else, it stands still and others may look."""
    waiting = threading.get_ident()

    def look() -> None:
        seen = None
        while True:
            frame = sys._current_frames()[waiting]
            place = frame.f_code.co_filename, frame.f_lasti
            if place == seen and Path(place[0]).match("eirene_train/backend.py"):
                return do()
            seen = place
            time.sleep(0.1)

    threading.Thread(target=look, daemon=True).start()


def interrupted_alone(call: str, victim: int) -> str:
    torch, dist, rank, _ = start()
    if rank != victim:
        kind, message, attributes, _ = timed(lambda: dist.recv(torch.ones(1), victim))
        return f"{kind} by rank {attributes['rank']}" if "interrupted" in message else message
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        when_this_thread_waits(lambda: os.kill(os.getpid(), signal.SIGINT))
        if call == "all_reduce":
            dist.all_reduce(torch.ones(4))
        else:
            dist.monitored_barrier()
    except KeyboardInterrupt:
        return timed(lambda: dist.all_reduce(torch.ones(4)))[0]
    return "nothing was raised"


@pytest.mark.skipif(ranks.REFERENCE, reason="about the real runtime")
@pytest.mark.parametrize(("call", "victim"), [("all_reduce", 0), ("monitored_barrier", 0), ("monitored_barrier", 1)])
def test_ctrl_c_in_a_blocking_call_ends_the_world_and_the_others_hear_of_it(call: str, victim: int) -> None:
    said = ranks.values(2, interrupted_alone, call, victim)
    assert said.pop(victim) == "WorldEnded" and said == [f"Aborted by rank {victim}"]


def interrupted(asynchronous: bool) -> None:
    torch, dist, rank, _ = start()
    try:
        if rank == 1:
            print("ready", flush=True)
            signal.pause()
        when_this_thread_waits(lambda: print("ready", flush=True))
        if asynchronous:
            dist.all_reduce(torch.ones(4), async_op=True).wait()
        else:
            dist.all_reduce(torch.ones(4))
    except BaseException:
        # Whose clock is everybody's on this machine.
        print(f"raised at {time.monotonic()}", flush=True)
        raise


@pytest.mark.skipif(ranks.REFERENCE, reason="about the launcher and the real runtime")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_ctrl_c_ends_all_ranks_soon(asynchronous: bool) -> None:
    program = [sys.executable, "-c", f"import test_errors; test_errors.interrupted({asynchronous})"]
    run = subprocess.Popen(
        [sys.executable, "-m", "eirene_train", "run", "-n", "2", "--grace", "60", *program],
        env=os.environ | {"PYTHONPATH": os.path.dirname(__file__)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # The test may itself run where Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert run.stdout is not None
    try:
        ready = 0
        while ready < 2:
            line = run.stdout.readline()
            assert line
            ready += "ready" in line
        began = time.monotonic()
        run.send_signal(signal.SIGINT)
        said = run.stdout.read()
        assert run.wait(60) == 128 + signal.SIGINT, said
        # How long an interpreter takes to end after that is its own affair.
        raised = [float(at) for at in re.findall(r"raised at ([\d.]+)", said)]
        assert len(raised) == 2 and "KeyboardInterrupt" in said, said
        assert_within(SOON, max(raised) - began, said)
    finally:
        run.kill()
        run.wait()


@pytest.mark.skipif(ranks.REFERENCE, reason="the reference keeps everything")
def test_a_rank_that_is_too_far_behind_is_told_whom_and_what_to_do() -> None:
    ahead, behind = ranks.values(2, run_ahead, 260)
    assert ahead is None
    assert behind is not None and behind[1] == 0 and "let this rank take part" in behind[0]
