"""Checkpoints when the end comes: killed at any moment, told to stop, damaged afterwards. The newest complete one is there, and is gone on from."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ranks
from checkpoints import ALONE, DDP, FSDP, Moments, Trained, learn, losses_of
from deep import DEEP

EXAMPLE = Path(__file__).parents[2] / "examples" / "resume.py"


def whole(directory: Path | str) -> list[str]:
    """What is in a directory, but for who writes there."""
    return sorted(entry.name for entry in Path(directory).iterdir() if entry.name != ".writers")


def consistent(trained: Trained, step: int) -> bool:
    """Whether every part of what was loaded is of that step."""
    return trained.state["seen"] == step and all(value.full_tensor().eq(step).all() for value in trained.model.parameters())


def ended(directory: str, backend: str, victim: int | None, everybody: bool, moment: int | None) -> tuple[Any, int]:
    """Loads the newest and saves the next; meanwhile somebody is killed. The step that was loaded, and how many moments there were."""
    import torch.distributed as dist

    import eirene_train  # noqa: F401
    from eirene_train.checkpoint import Checkpointer

    trained = Trained(FSDP, backend)
    processes: list[Any] = [None] * trained.size
    dist.all_gather_object(processes, os.getpid())
    with Checkpointer(directory, keep=1) as checkpointer:
        loaded = checkpointer.load_latest(trained.state)
        assert loaded is None or consistent(trained, loaded), "a checkpoint that is half of one step and half of another"
        step = (loaded or 0) + 1
        trained.state["seen"] = step
        for parameter in trained.model.parameters():
            parameter.detach().fill_(step)
        # Rank 0 renames and removes; all moments are there to be hit.
        moments = Moments(directory, moment if victim == trained.rank else None, processes if everybody else [os.getpid()])
        checkpointer.save(step, trained.state, wait=True)
        return loaded, moments.count


@pytest.mark.parametrize(("backend", "everybody"), [("eirene", False), ("eirene", True), ("gloo", True)])
def test_killed_at_any_moment_the_newest_complete_one_is_there(backend: str, everybody: bool, tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    assert [loaded for loaded, _ in ranks.values(2, ended, str(directory), backend, None, False, None)] == [None] * 2
    counts = [count for _, count in ranks.values(2, ended, str(directory), backend, None, False, None)]
    assert counts[0] > counts[1] >= 3, counts
    moments = [(victim, moment) for victim in range(2) for moment in range(1, counts[victim] + 1)]
    seed = random.randrange(1 << 16)
    print("seed", seed)
    newest = 2
    for victim, moment in moments if DEEP else random.Random(seed).sample(moments, 5):
        before = whole(directory)
        answers = ranks.run(2, ended, str(directory), backend, victim, everybody, moment, alone=everybody)
        assert isinstance(answers[victim], ranks.Died), (victim, moment, answers)
        # The old one or the new one is there, whole, whatever lies beside it; and nothing but what was killed is named otherwise.
        ((loaded, _), _) = ranks.values(2, ended, str(directory), backend, None, False, None)
        assert loaded in (newest, newest + 1), (victim, moment, before, loaded)
        newest = loaded + 1
        # The next save cleared away the left-overs.
        assert whole(directory) == [f"step-{newest:06d}"], (victim, moment)


@pytest.mark.parametrize("kind", [DDP, FSDP])
def test_an_interrupted_training_has_the_losses_of_an_undisturbed_one(kind: str, tmp_path: Path) -> None:
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    assert ranks.values(2, learn, kind, str(calm), 12, 0.1) == [0, 0]
    begun = []
    for end_at in (3, 4, 8, None):
        answers = ranks.run(2, learn, kind, str(rough), 12, 0.1, end_at, alone=end_at is not None)
        begun.append(answers[0])
        assert all(isinstance(answer, ranks.Died) == (end_at is not None) for answer in answers), answers
    # It was killed while the last one was being written, so that is lost or not; the earlier one is not.
    assert begun[3] in (7, 8)
    # Dropout and all: bit by bit.
    assert losses_of(rough) == losses_of(calm) and len(losses_of(calm)) == 12


def test_on_another_number_of_ranks_the_losses_are_close(tmp_path: Path) -> None:
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    assert ranks.values(1, learn, ALONE, str(calm), 12) == [0]
    for kind, size, until in ((FSDP, 2, 4), (DDP, 3, 7), (FSDP, 4, 10), (ALONE, 1, 12)):
        first = ranks.values(size, learn, kind, str(rough), until)
        assert len(set(first)) == 1
    # Sums are made in another order: float64 differs in its last digits.
    assert losses_of(rough) == pytest.approx(losses_of(calm), rel=1e-10, abs=0) and len(losses_of(rough)) == 12


def stopped(directory: str, backend: str, number: int) -> list[Any]:
    """One rank is sent a signal in the midst of the training."""
    import eirene_train  # noqa: F401
    from eirene_train.checkpoint import Checkpointer

    heard: list[int] = []
    signal.signal(number, lambda number, _: heard.append(number))
    before = signal.getsignal(number)
    trained = Trained(DDP, backend)
    done = 0
    with Checkpointer(directory) as checkpointer:
        while not checkpointer.should_stop():
            trained.step(done)
            done += 1
            if (trained.rank, done) == (1, 5):
                os.kill(os.getpid(), number)
            assert done < 100_000
        assert checkpointer.should_stop()
        checkpointer.save(done, trained.state, wait=True)
        asked = checkpointer._stopping.times
    return [done, asked, signal.getsignal(number) is before, heard]


@pytest.mark.parametrize(("backend", "number"), [("eirene", signal.SIGUSR1), ("eirene", signal.SIGTERM), ("gloo", signal.SIGUSR1)])
def test_a_signal_to_one_rank_stops_all_in_the_same_step(backend: str, number: int, tmp_path: Path) -> None:
    answers = ranks.values(3, stopped, str(tmp_path), backend, number)
    steps = answers[0][0]
    assert [answer[0] for answer in answers] == [steps] * 3 and steps >= 5
    # Steps take milliseconds: most of them ask nobody.
    assert answers[0][1] == answers[1][1] <= max(5, steps // 2)
    assert [answer[2:] for answer in answers] == [[True, []], [True, [number]], [True, []]]
    assert whole(tmp_path) == [f"step-{steps:06d}"]


def timed(directory: str) -> list[Any]:
    """When it is time for a checkpoint, by steps and by rank 0's clock."""
    from datetime import timedelta

    import eirene_train  # noqa: F401
    from eirene_train.checkpoint import Checkpointer

    trained = Trained(DDP)
    with Checkpointer(directory + "-steps", every=3) as checkpointer:
        saved = [step for step in range(1, 11) if checkpointer.due(step) and checkpointer.save(step, trained.state)]
        assert checkpointer.load_latest(trained.state) == 9 and not checkpointer.due(11) and checkpointer.due(12)
    with Checkpointer(directory + "-never") as checkpointer:
        assert not any(checkpointer.due(step) for step in range(100))
    with Checkpointer(directory + "-time", every=timedelta(hours=1)) as checkpointer:
        calls = 1
        while not checkpointer.due(calls):
            calls += 1
            if (trained.rank, calls) == (0, 3):
                # As if the time had passed.
                checkpointer._begun_at -= 3600
    return [saved, calls]


def test_checkpoints_are_due_on_all_ranks_at_once(tmp_path: Path) -> None:
    (saved, calls), (others_saved, others_calls) = ranks.values(2, timed, str(tmp_path / "checkpoints"))
    assert saved == others_saved == [3, 6, 9] and calls == others_calls > 1


def latest(directory: str) -> tuple[Any, list[str]]:
    """What is loaded on every rank, and what was said of it."""
    from eirene_train.checkpoint import load_latest

    trained = Trained(FSDP)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            step: Any = load_latest(directory, trained.state)
            assert step is None or trained.state["seen"] == step
        except Exception as error:
            step = f"{type(error).__name__}: {error}"
    return step, [str(warning.message) for warning in caught if "checkpoint" in str(warning.message)]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def scribbled(path: Path) -> None:
    path.write_bytes(b"x" * path.stat().st_size)


DAMAGES: list[tuple[str, Callable[[Path], None], str]] = [
    ("__1_0.distcp", Path.unlink, "`__1_0.distcp` is missing"),
    ("__0_0.distcp", cut, "`__0_0.distcp` has "),
    (".metadata", Path.unlink, "`.metadata` is missing"),
    (".metadata", scribbled, "rank 1: `.metadata` cannot be read: UnpicklingError: "),
    ("__1_0.distcp", scribbled, "rank "),
    ("complete.json", Path.unlink, "`complete.json` is missing"),
    ("complete.json", cut, "`complete.json` cannot be read"),
]


def test_what_is_damaged_is_named_and_the_one_before_is_taken(tmp_path: Path) -> None:
    good = tmp_path / "good"
    ranks.values(2, learn, FSDP, str(good), 3)
    assert whole(good) == ["step-000002", "step-000003"]
    for number, (name, damage, said) in enumerate(DAMAGES):
        directory = tmp_path / str(number)
        shutil.copytree(good, directory)
        damage(directory / "step-000003" / name)
        (step, warned), (other, others_warned) = ranks.values(2, latest, str(directory))
        assert step == other == 2 and not others_warned, (name, step, other)
        assert len(warned) == 1 and warned[0].startswith(f"checkpoint `{directory}/step-000003` is damaged: ") and said in warned[0], warned
    # Where nothing is left, nobody begins from the start without having been told.
    cut(directory / "step-000002" / "__0_0.distcp")
    for step, _ in ranks.values(2, latest, str(directory)):
        assert step.startswith("CheckpointError: no checkpoint in") and "step-000002" in step and "step-000003" in step
    # What is damaged does not count among those that are kept, and is replaced.
    damaged = tmp_path / "0"
    assert ranks.values(3, learn, FSDP, str(damaged), 3) == [2] * 3
    assert [step for step, _ in ranks.values(2, latest, str(damaged))] == [3, 3] and whole(damaged) == ["step-000002", "step-000003"]


def test_there_may_be_none(tmp_path: Path) -> None:
    assert ranks.values(2, latest, str(tmp_path / "not there")) == [(None, [])] * 2


def left_over(directory: Path, writer: dict[str, Any]) -> Path:
    """What a run left that was killed."""
    path = directory / f"step-000009.partial-{writer['run']}-1"
    path.mkdir(parents=True)
    (path / "__0_0.distcp").write_bytes(b"half")
    with open(directory / ".writers", "a", encoding="utf-8") as known:
        known.write(json.dumps(writer) + "\n")
    return path


def test_left_overs_are_removed_where_their_writer_is_surely_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from eirene_train.checkpoint import _directory

    here, other = _directory._boot(), "another machine"
    job = {"id": "17", "cluster": "", "restarts": 0}
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    cases: list[tuple[str, bool, dict[str, Any], bool]] = [
        ("this machine's, on any file system", False, {"boot": here}, True),
        ("another machine's, on a file system of several", False, {"boot": other}, False),
        ("anybody's, on a file system of this machine", True, {"boot": other}, True),
        ("this job's before it was requeued", False, {"boot": other, "job": job}, True),
        ("this job's, of another step that may be running", False, {"boot": other, "job": job | {"restarts": 1}}, False),
        ("another job's", False, {"boot": other, "job": job | {"id": "16"}}, False),
    ]
    for number, (what, local, writer, goes) in enumerate(cases):
        monkeypatch.setattr(_directory, "_is_local", lambda _, local=local: local)
        path = left_over(tmp_path / str(number), {"run": f"abc{number}"} | writer)
        directory = _directory.Directory(path.parent, "fed", 2)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            directory.sweep()
            directory.sweep()
        directory.close()
        assert path.exists() != goes, what
        assert [str(warning.message).startswith(f"`{path}` was left over") for warning in caught] == [True] * (not goes), what


def test_what_was_being_replaced_when_its_run_was_killed_counts(tmp_path: Path) -> None:
    from eirene_train.checkpoint import _directory

    first = _directory.Directory(tmp_path, "aa", 1)
    for step in (5, 5):
        partial = tmp_path / _directory.partial_name(step, "aa", 1)
        partial.mkdir()
        first.commit(partial, step, {"ranks": 1})
    assert whole(tmp_path) == ["step-000005"] and _directory.find(tmp_path)[0].number == 2
    # As it is between the two renames.
    (tmp_path / "step-000005").rename(tmp_path / "step-000005.replaced-aa-9")
    (tmp_path / "step-000005.partial-aa-2").mkdir()
    first.close()
    (found,) = _directory.find(tmp_path)
    assert (found.step, found.number, found.damage) == (5, 2, None)
    second = _directory.Directory(tmp_path, "bb", 1)
    second.sweep()
    second.close()
    assert whole(tmp_path) == ["step-000005"] and _directory.find(tmp_path)[0].number == 2


def test_the_newest_is_what_was_written_last(tmp_path: Path) -> None:
    from eirene_train.checkpoint import _directory

    directory = _directory.Directory(tmp_path, "aa", 2)
    # After the eighth was found damaged, say, and the training went back.
    for count, step in enumerate((6, 8, 5, 7)):
        partial = tmp_path / _directory.partial_name(step, "aa", count)
        partial.mkdir()
        directory.commit(partial, step, {"ranks": 1})
    directory.close()
    assert [found.step for found in _directory.find(tmp_path)] == [7, 5]
    assert whole(tmp_path) == ["step-000005", "step-000007"]


def test_the_example_goes_on_where_it_was(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "eirene_train", "run", "-n"]

    def run(size: int, *arguments: str) -> str:
        options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 120, "cwd": tmp_path}
        done = subprocess.run([*command, str(size), EXAMPLE, "--directory", tmp_path / "checkpoints", *arguments], **options)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    assert "from the start" in run(2, "--steps", "30")
    assert "on from step 30" in run(3, "--steps", "40")
    # Without end, until a batch system warns of the end, or wants it. The status is the ranks' own, but for whoever asked for the end: never 0, as if
    # the training had finished.
    step = 40
    for number, status in ((signal.SIGUSR1, 75), (signal.SIGTERM, 128 + signal.SIGTERM)):
        endless = subprocess.Popen(
            [*command, "2", "--grace", "60", EXAMPLE, "--directory", tmp_path / "checkpoints", "--steps", "1000000000"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        assert endless.stdout is not None
        said = []
        for line in endless.stdout:
            said.append(line)
            if "loss" in line:
                break
        endless.send_signal(number)
        said += endless.stdout.readlines()
        assert endless.wait(60) == status
        assert f"on from step {step}\n" in said[0]
        (stopped,) = [line for line in said if "stopped" in line]
        before, step = step, int(stopped.split()[-1])
        assert step > before
    assert f"on from step {step}\n" in run(2, "--steps", str(step))
