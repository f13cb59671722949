"""Checkpoints: what is saved is loaded, on any number of ranks, while the training goes on; errors are everybody's, and nothing is left over."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ranks
from checkpoints import ALONE, DDP, FSDP, TENSOR, Trained


def whole(directory: Path | str) -> list[str]:
    """What is in a directory, but for who writes there."""
    return sorted(entry.name for entry in Path(directory).iterdir() if entry.name != ".writers")


@contextlib.contextmanager
def slow_disk() -> Iterator[threading.Event]:
    """As long as this is entered no tensor is written. The event is set when one would be."""
    reached, ready, original = threading.Event(), threading.Event(), io.open

    def slow(path: Any, mode: str = "r", *arguments: Any) -> Any:
        if mode == "wb" and str(path).endswith(".distcp"):
            reached.set()
            ready.wait()
        return original(path, mode, *arguments)

    io.open = slow
    try:
        yield reached
    finally:
        ready.set()
        io.open = original


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """What is written does not come to the disk."""
    sync = os.fsync

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    os.fsync = full
    try:
        yield
    finally:
        os.fsync = sync


def resaved(kind: str, directory: str, backend: str, steps: int) -> tuple[int | None, Any, Any, Any]:
    """Loads the newest, takes a step and saves. Where it began, what it had then and in the end, and whether each rank's own was loaded."""
    from eirene_train.checkpoint import Checkpointer

    trained = Trained(kind, backend)
    with Checkpointer(directory) as checkpointer:
        first = checkpointer.load_latest(trained.state)
        before = trained.everything()
        for number in range(first or 0, (first or 0) + steps):
            trained.step(number)
        checkpointer.save((first or 0) + steps, trained.state, wait=True)
    return first, before, trained.everything(), trained.random.restored


@pytest.mark.parametrize("backend", ["eirene", "gloo"])
@pytest.mark.parametrize("kind", [DDP, FSDP])
def test_another_number_of_ranks_loads_the_same(kind: str, backend: str, tmp_path: Path) -> None:
    answers = ranks.values(4, resaved, kind, str(tmp_path), backend, 2)
    assert [answer[0] for answer in answers] == [None] * 4
    last = answers[0][2]
    for size, step, own in ((2, 2, False), (3, 3, False), (3, 4, True)):
        answers = ranks.values(size, resaved, kind, str(tmp_path), backend, 1)
        assert [(first, restored) for first, _, _, restored in answers] == [(step, own)] * size
        assert all(before == last for _, before, _, _ in answers)
        last = answers[0][2]
        assert last != answers[0][1] and last["seen"] == step + 1
    # And a process alone, without a process group, which has nothing of DDP or FSDP2.
    ((first, before, _, _),) = ranks.values(1, resaved, ALONE, str(tmp_path), backend, 1)
    assert first == 5 and before == last
    assert whole(tmp_path) == ["step-000005", "step-000006"]


def test_tensor_parallel_is_loaded_by_others(tmp_path: Path) -> None:
    last = ranks.values(4, resaved, TENSOR, str(tmp_path), "eirene", 2)[0][2]
    for kind, size in ((TENSOR, 2), (FSDP, 3), (DDP, 2), (ALONE, 1)):
        answers = ranks.values(size, resaved, kind, str(tmp_path), "eirene", 1)
        assert all(before == last for _, before, _, _ in answers), kind
        last = answers[0][2]


def values_alone(directory: str) -> list[Any]:
    """Whatever a state may hold, into a state that has other values."""
    import random

    import numpy
    import torch

    from eirene_train.checkpoint import Checkpointer, PerRank, RandomState, load_latest

    def fresh() -> dict[str, Any]:
        nested = {"list": [torch.zeros(2), {"deep": torch.zeros(1)}, "word"], 4: "a number's", ("a", 1): None}
        return {"tensor": torch.zeros(3), "nested": nested, "random": RandomState(), "own": PerRank("mine"), "words": {}, "none": 1}

    state = fresh()
    state["tensor"] += 1
    state["nested"]["list"][0] += 2
    state["nested"]["list"][1]["deep"] += 3
    state["nested"]["list"][2] = "another word"
    state["nested"][4], state["nested"]["a", 1] = "changed", {1: [2]}
    state["own"].value, state["words"], state["none"] = "still mine", {5: "five", "five": 5}, None
    with Checkpointer(directory) as checkpointer:
        checkpointer.save(7, state)
        checkpointer.wait()
        assert checkpointer.last is not None and checkpointer.last.write_s and checkpointer.last.stall_s > 0
        assert checkpointer.last.bytes == sum(entry.stat().st_size for entry in Path(directory).rglob("*.distcp"))
    expected = torch.rand(1).item(), random.random(), numpy.random.rand()
    loaded = fresh()
    kept = loaded["tensor"]
    assert load_latest(directory, loaded) == 7
    assert (torch.rand(1).item(), random.random(), numpy.random.rand()) == expected
    # Tensors where they are; values of their own type, keys too.
    assert loaded["tensor"] is kept and kept.tolist() == [1, 1, 1] and loaded["own"].restored is True
    first, second, word = loaded["nested"]["list"]
    nested = [first.tolist(), second["deep"].tolist(), word, loaded["nested"][4], loaded["nested"]["a", 1]]
    return [*nested, loaded["own"].value, loaded["words"], loaded["none"]]


def test_values_of_every_kind_are_as_they_were(tmp_path: Path) -> None:
    (answer,) = ranks.values(1, values_alone, str(tmp_path))
    assert answer == [[2, 2], [3], "another word", "changed", {1: [2]}, "still mine", {5: "five", "five": 5}, None]
    record = json.loads((tmp_path / "step-000007" / "complete.json").read_bytes())
    assert {key: record[key] for key in ("step", "ranks", "number")} == {"step": 7, "ranks": 1, "number": 1}
    assert {"torch", "eirene_train", "time", "files"} < set(record)


def refused(directory: str) -> list[str]:
    """What is said of states and arguments that mean nothing."""
    from datetime import timedelta

    import torch

    from eirene_train.checkpoint import Checkpointer, Training, load_latest

    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def of(**options: Any) -> Any:
        return lambda: Checkpointer(directory, **options)

    with Checkpointer(directory) as checkpointer:
        checkpointer.save(1, {"model": model, "word": "a"}, wait=True)
        calls = [
            lambda: checkpointer.save(2, {"optimizer": optimizer}),
            lambda: checkpointer.save(2, {"a.b": torch.ones(1), "a": {"b": torch.ones(1)}}),
            lambda: checkpointer.save(-1, {}),
            lambda: Training(model),
            lambda: load_latest(directory, {"model": torch.nn.Linear(4, 3)}),
            lambda: load_latest(directory, {"model": model, "missing": 1}),
            of(keep=0),
            of(every=timedelta()),
            of(busy="perhaps"),
            of(),
        ]
        said = []
        for call in calls:
            try:
                said.append(f"no error: {call()}")
            except Exception as error:
                said.append(f"{type(error).__name__}: {error}")
        # What was refused left nothing behind, and nothing is lost.
        assert checkpointer.load_latest({"model": model}) == 1
    try:
        checkpointer.save(3, {})
    except ValueError as error:
        said.append(str(error))
    return said


def test_what_means_nothing_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (said,) = ranks.values(1, refused, str(tmp_path))
    wanted = [
        "Training(model, optimizer)",
        "two things in the state are named `a.b`",
        "the step is -1",
        "needs the optimizers too",
        "Size mismatch",
        "Missing key in checkpoint state_dict: missing",
        "`keep` is 0",
        "`every` is 0:00:00",
        "`busy` is `perhaps`",
        "writes checkpoints in",
        "is closed",
    ]
    assert len(said) == len(wanted)
    for text, part in zip(said, wanted, strict=True):
        assert part in text, (text, part)
    assert whole(tmp_path) == ["step-000001"]


def overlapped(directory: str, backend: str) -> list[Any]:
    """The training goes on while nothing can be written, and what is written is the state that was saved."""
    import eirene_train  # noqa: F401
    from eirene_train.checkpoint import Checkpointer

    trained = Trained(FSDP, backend)
    with Checkpointer(directory) as checkpointer, Checkpointer(directory + "-skip", busy="skip") as skipping:
        trained.step(0)
        wanted = trained.everything()
        with slow_disk() as reached:
            checkpointer.save(1, trained.state)
            assert reached.wait(60)
            begun = [skipping.save(number, trained.state) for number in (1, 2)]
            for number in range(1, 5):
                trained.step(number)
                assert not checkpointer.should_stop()
            assert checkpointer.last is not None and checkpointer.last.write_s is None and whole(directory)[0].startswith("step-000001.partial-")
        checkpointer.wait()
        skipping.wait()
        begun.append(skipping.save(3, trained.state, wait=True))
        assert trained.everything() != wanted and checkpointer.load_latest(trained.state) == 1
        assert trained.everything() == wanted
    alive = [thread.name for thread in threading.enumerate() if "checkpoint" in thread.name]
    opened = [link for link in map(os.path.realpath, Path("/proc/self/fd").iterdir()) if link.startswith(directory)]
    return [begun, alive, opened]


@pytest.mark.parametrize("backend", ["eirene", "gloo"])
def test_the_training_goes_on_while_a_checkpoint_is_written(backend: str, tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    assert ranks.values(2, overlapped, str(directory), backend) == [[[True, False, True], [], []]] * 2
    assert whole(directory) == ["step-000001"] and whole(f"{directory}-skip") == ["step-000001", "step-000003"]


def failing(directory: str, how: str) -> list[Any]:
    """One rank's disk fails under the second checkpoint: who hears of it in which call, and what of it the third one minds."""
    import eirene_train  # noqa: F401
    from eirene_train.checkpoint import Checkpointer, CheckpointError

    trained = Trained(FSDP)
    said: list[Any] = []
    with Checkpointer(directory) as checkpointer:
        checkpointer.save(1, trained.state, wait=True)
        with contextlib.ExitStack() as stack:
            if trained.rank == 1:
                stack.enter_context(full_disk())
            checkpointer.save(2, trained.state)
            call, calls = {"stop": checkpointer.should_stop, "save": lambda: checkpointer.save(3, trained.state), "wait": checkpointer.wait}[how], 0
            try:
                # A rank that heard it before the others would leave them alone in the next step.
                while True:
                    calls += 1
                    assert calls < 10_000
                    trained.step(calls)
                    call()
            except CheckpointError as error:
                said += [calls, error.ranks, str(error)]
        checkpointer.save(4, trained.state)
        said.append(checkpointer.load_latest(trained.state))
    return said


@pytest.mark.parametrize("how", ["stop", "save", "wait"])
def test_an_error_of_the_writing_is_raised_on_all_ranks_in_the_same_call(how: str, tmp_path: Path) -> None:
    answers = ranks.values(3, failing, str(tmp_path), how)
    assert all(answer == answers[0] for answer in answers)
    _, failed, message, loaded = answers[0]
    assert failed == (1,) and loaded == 4
    assert "step 2 was not written" in message and "rank 1: [Errno 28] No space left on device" in message
    assert whole(tmp_path) == ["step-000001", "step-000004"]


def one_cannot(directory: str) -> tuple[Any, str]:
    """A state that one rank cannot give is nobody's checkpoint, and the others do not wait for it."""
    import eirene_train  # noqa: F401
    from eirene_train.checkpoint import Checkpointer, CheckpointError

    class Sick:
        def state_dict(self) -> dict[str, Any]:
            if trained.rank == 1:
                raise ArithmeticError("no state today")
            return {}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            pass

    trained = Trained(DDP)
    with Checkpointer(directory) as checkpointer:
        try:
            checkpointer.save(1, trained.state | {"sick": Sick()})
        except CheckpointError as error:
            return error.ranks, str(error)
    return None, "no error"


def test_a_state_that_one_rank_cannot_give_is_told_on_all(tmp_path: Path) -> None:
    message = "the state of step 1 was not saved: rank 1: ArithmeticError: no state today"
    assert ranks.values(2, one_cannot, str(tmp_path)) == [((1,), message)] * 2
    assert whole(tmp_path) == []


def filled(directory: str) -> list[Any]:
    """On a disk of 4 MiB: a small checkpoint, one that does not fit, and a small one again."""
    import torch

    import eirene_train  # noqa: F401
    from eirene_train.checkpoint import Checkpointer, CheckpointError

    trained = Trained(FSDP)
    with Checkpointer(directory, keep=3) as checkpointer:
        checkpointer.save(1, trained.state, wait=True)
        try:
            checkpointer.save(2, trained.state | {"large": torch.randn(1 << 20)}, wait=True)
            said = "no error"
        except CheckpointError as error:
            said = str(error)
        left = whole(directory)
        checkpointer.save(3, trained.state, wait=True)
        return [said, left, checkpointer.load_latest(trained.state), whole(directory)]


def with_disk(directory: Path, options: str, size: int) -> list[str]:
    """A launcher whose ranks see a file system of their own in a directory."""
    mount = f'mount -t tmpfs -o {options} tmpfs "$0" && exec "$@"'
    return ["unshare", "-rm", "sh", "-c", mount, str(directory), sys.executable, "-m", "eirene_train", "run", "-n", str(size)]


def test_a_full_disk_leaves_nothing_half(tmp_path: Path) -> None:
    for said, left, loaded, end in ranks.values(2, filled, str(tmp_path), launcher=with_disk(tmp_path, "size=4m", 2)):
        assert "step 2 was not written" in said and "No space left on device" in said
        assert left == ["step-000001"] and loaded == 3 and end == ["step-000001", "step-000003"]


def constructed(directory: str) -> str:
    import eirene_train  # noqa: F401
    from eirene_train.checkpoint import Checkpointer, CheckpointError

    Trained(DDP)
    try:
        Checkpointer(directory).close()
    except CheckpointError as error:
        return str(error)
    return "no error"


def test_a_directory_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    said = ranks.values(2, constructed, str(tmp_path), launcher=with_disk(tmp_path, "ro", 2))
    assert said == [f"checkpoints cannot be written in `{tmp_path}`: Read-only file system"] * 2
    (tmp_path / "file").touch()
    (text,) = ranks.values(1, constructed, str(tmp_path / "file" / "in it"))
    assert text == f"checkpoints cannot be written in `{tmp_path}/file/in it`: Not a directory"


def elsewhere(directory: str) -> str:
    """Each rank in a directory of its own."""
    return constructed(f"{directory}/{os.environ['EIRENE_TRAIN_RANK']}")


def test_a_directory_that_ranks_do_not_share_is_told_at_once(tmp_path: Path) -> None:
    first, second = ranks.values(2, elsewhere, str(tmp_path))
    assert first == second and "rank 1: cannot read" in first


SECOND = """
import sys
from eirene_train.checkpoint import Checkpointer
try:
    Checkpointer(sys.argv[1]).close()
except Exception as error:
    print(error)
"""


def shared(directory: str) -> list[str]:
    """Who else may write: neither another process nor this one again, until it is closed; a forked child is no obstacle."""
    import time

    import eirene_train  # noqa: F401
    from eirene_train.checkpoint import Checkpointer, CheckpointError

    def other() -> str:
        return subprocess.run([sys.executable, "-c", SECOND, directory], capture_output=True, text=True, timeout=120).stdout.strip()

    said = []
    with Checkpointer(directory):
        said.append(other())
        try:
            Checkpointer(directory)
        except CheckpointError as error:
            said.append(str(error))
        child = os.fork()
        if child == 0:
            time.sleep(120)
            os._exit(0)
    said.append(other())
    os.kill(child, 9)
    os.waitpid(child, 0)
    return said


def test_one_training_at_a_time_writes_in_a_directory(tmp_path: Path) -> None:
    ((other, again, later),) = ranks.values(1, shared, str(tmp_path))
    assert f"another run writes checkpoints in `{tmp_path}`: process " in other
    assert again == f"this process writes checkpoints in `{tmp_path}` already; give each Checkpointer a directory of its own"
    assert later == ""


def of_some(directory: str, backend: str) -> Any:
    """Checkpoints of a part of the world, one Checkpointer after the other; the rest has nothing to do with them."""
    import torch.distributed as dist

    import eirene_train  # noqa: F401
    from eirene_train.checkpoint import Checkpointer, load_latest

    trained = Trained(DDP, backend)
    some = dist.new_group([1, 2])
    loaded = []
    if trained.rank > 0:
        for step in (1, 2):
            state = {"word": "some's", "number": step}
            with Checkpointer(directory, group=some) as checkpointer:
                loaded.append(checkpointer.load_latest(state))
                assert not checkpointer.should_stop()
                checkpointer.save(step, {"number": step, "word": "some's"})
            state = {"number": 0}
            assert load_latest(directory, state, group=some) == step and state == {"number": step}
    trained.step(0)
    return loaded


@pytest.mark.parametrize("backend", ["eirene", "gloo"])
def test_some_ranks_make_checkpoints_together(backend: str, tmp_path: Path) -> None:
    assert ranks.values(3, of_some, str(tmp_path), backend) == [[], [None, 1], [None, 1]]
