"""Starting real ranks for a test, and what each of them returned.

A test gives a function at the top level of its file; every rank is a process of its own, new for the test, that imports the file and calls it.
What it returns, or raises, comes back in rank order. Ranks are started by `eirene-train run`, and forked by the `forkserver` behind a stand-in; where
another launcher is given, they are new interpreters.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import pickle
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forkserver

__all__ = ["ALONE", "Died", "Failed", "MIXED", "REFERENCE", "meeting", "place", "run", "values"]

# The backend alone, and beside another one, for tensors there are none of.
ALONE, MIXED = "eirene", "cpu:eirene,cuda:gloo"
# With EIRENE_TEST_REFERENCE set, ranks run on the reference instead of the real runtime.
REFERENCE = bool(os.environ.get("EIRENE_TEST_REFERENCE"))


@dataclass
class Failed:
    """A rank whose function raised."""

    kind: str
    message: str
    trace: str
    attributes: dict[str, Any]


@dataclass
class Died:
    """A rank that ended without an answer."""

    code: int
    errors: str


def run(
    size: int,
    function: Callable[..., Any],
    *arguments: Any,
    timeout: float = 240.0,
    variables: dict[str, str] | None = None,
    alone: bool = False,
    launcher: list[str] | None = None,
) -> list[Any]:
    """What each rank returned; `Failed` where it raised, `Died` where it ended without a word.

    With `alone`, ranks are started one by one, as a batch system does, and nobody ends the others when one dies. `launcher` is the command,
    up to the program, that starts them instead, each as an interpreter of its own.
    """
    with tempfile.TemporaryDirectory() as directory:
        call = (function.__code__.co_filename, function.__name__, arguments)
        Path(directory, "call").write_bytes(pickle.dumps(call))
        environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
        environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent), "PYTHONUNBUFFERED": "1"} | (variables or {})
        processes = _start(size, directory, environment, alone, launcher)
        deadline = time.monotonic() + timeout
        try:
            outputs = [_wait(process, deadline) for process in processes]
        finally:
            for process in processes:
                _kill(process)
        answers = []
        for rank in range(size):
            process = processes[min(rank, len(processes) - 1)]
            answer = Path(directory, f"answer{rank}")
            errors = outputs[min(rank, len(outputs) - 1)]
            answers.append(pickle.loads(answer.read_bytes()) if answer.exists() else Died(process.returncode, errors[-4000:]))
        return answers


def values(size: int, function: Callable[..., Any], *arguments: Any, **options: Any) -> list[Any]:
    """The same, for tests in which no rank may fail."""
    answers = run(size, function, *arguments, **options)
    for rank, answer in enumerate(answers):
        if isinstance(answer, Failed):
            raise AssertionError(f"rank {rank} raised {answer.kind}: {answer.message}\n{answer.trace}")
        if isinstance(answer, Died):
            raise AssertionError(f"rank {rank} ended with {answer.code}:\n{answer.errors}")
    return answers


def _start(
    size: int, directory: str, environment: dict[str, str], alone: bool, launcher: list[str] | None
) -> list[subprocess.Popen[str]]:
    options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    if launcher is not None:
        interpreter = [sys.executable, "-c", "import sys, ranks; ranks.be_a_rank(sys.argv[1])", directory]
        return [subprocess.Popen([*launcher, *interpreter], env=environment, **options)]
    rank_program = forkserver.command("ranks:be_a_rank", directory)
    if not (REFERENCE or alone):
        program = [sys.executable, "-m", "eirene_train", "run", "-n", str(size), *rank_program]
        return [subprocess.Popen(program, env=environment, **options)]
    given = {"EIRENE_REFERENCE": directory} if REFERENCE else meeting(directory)
    return [
        subprocess.Popen(rank_program, env=environment | given | place(rank, size), **options) for rank in range(size)
    ]


def meeting(directory: str) -> dict[str, str]:
    """What ranks on one node need to find each other, in our own variables."""
    secret = Path(directory, "secret")
    secret.touch(0o600)
    secret.write_text(secrets.token_hex(16))
    meeting = Path(directory, "meeting")
    meeting.mkdir(0o700)
    return {"EIRENE_TRAIN_SECRET_FILE": str(secret), "EIRENE_TRAIN_MEETING": f"directory:{meeting}", "EIRENE_TRAIN_WORLD": "test"}


def place(rank: int, size: int) -> dict[str, str]:
    """Which rank of how many, all on this node."""
    if REFERENCE:
        return {"RANK": str(rank), "WORLD_SIZE": str(size)}
    here = {"RANK": rank, "SIZE": size, "LOCAL_RANK": rank, "LOCAL_SIZE": size, "NODE": 0}
    return {f"EIRENE_TRAIN_{name}": str(value) for name, value in here.items()}


def _wait(process: subprocess.Popen[str], deadline: float) -> str:
    try:
        return process.communicate(timeout=max(0.1, deadline - time.monotonic()))[1]
    except subprocess.TimeoutExpired:
        _kill(process)
        return "(still running when the test's time was over)\n" + process.communicate()[1]


def _kill(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def be_a_rank(directory: str) -> None:
    """What every rank's process does."""
    file, name, arguments = pickle.loads(Path(directory, "call").read_bytes())
    if REFERENCE:
        # In the place of the real one, before anything imports it.
        package = importlib.machinery.PathFinder.find_spec("eirene_train")
        assert package is not None
        shell = types.ModuleType("eirene_train")
        shell.__path__ = list(package.submodule_search_locations or [])
        sys.modules["eirene_train"] = shell
        import reference

        del sys.modules["eirene_train"]
        sys.modules["eirene_train._native"] = reference
    import torch

    torch.set_num_threads(1)
    specification = importlib.util.spec_from_file_location("test_module", file)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["test_module"] = module
    specification.loader.exec_module(module)
    import eirene_train

    rank = eirene_train.world().rank
    try:
        answer = getattr(module, name)(*arguments)
    except Exception as error:
        attributes = {key: value for key, value in vars(error).items() if key in ("rank", "missing")}
        answer = Failed(type(error).__name__, str(error), traceback.format_exc(), attributes)
    target = Path(directory, f"answer{rank}")
    target.with_suffix(".part").write_bytes(pickle.dumps(answer))
    target.with_suffix(".part").rename(target)

