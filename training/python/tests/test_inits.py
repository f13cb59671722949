"""Whatever the order in which ranks begin, give up, try again and end: all come to be in one world, or all are told of an error."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import launchers
import pytest
import ranks

# Long enough for those that come; how long one waits that is to give up.
AMPLE, SHORT = 60.0, 1.0

# What a rank does, by its number; the others do as `None` says. `init` may say for how long, and that it is to fail; `mark` and `await` are for each
# other. Then all that are in a world use it.
GIVES_UP_FIRST = {0: ["init short", "mark", "init"], None: ["await", "init"]}
GIVES_UP_SECOND = {1: ["init short", "mark", "init"], None: ["await", "init"]}
SCRIPTS: dict[str, tuple[bool, dict[int | None, list[str]], str]] = {
    "all come": (False, {None: ["init"]}, "together"),
    "rank 0 gives up and tries again": (False, GIVES_UP_FIRST, "together"),
    "rank 1 gives up and tries again": (False, GIVES_UP_SECOND, "together"),
    "rank 0 gives up twice": (False, {0: ["init short", "init short", "mark", "init"], None: ["await", "init"]}, "together"),
    "all but one give up": (False, {0: ["await", "init"], None: ["init short", "mark", "init"]}, "together"),
    "all end and begin again": (False, {None: ["init", "use", "destroy"] * 3 + ["init"]}, "together"),
    "rank 0 is told otherwise at first": (True, {0: ["init wrong", "mark", "init"], None: ["await", "init"]}, "together"),
    "rank 1 is told otherwise at first": (True, {1: ["init wrong", "init"], None: ["init"]}, "together"),
    # The ranks have met. Who gives up then ends the world, which a process can join once.
    "rank 0 gives up in the world": (True, GIVES_UP_FIRST, "told"),
    "rank 1 gives up in the world": (True, GIVES_UP_SECOND, "told"),
    "rank 0 begins again alone": (False, {0: ["init", "use", "destroy", "init short", "mark", "init"], None: ["init", "use", "await"]}, "told"),
    "rank 1 begins again early": (
        False,
        {1: ["init", "use", "destroy", "init short", "mark", "init"], None: ["init", "use", "destroy", "await", "init"]},
        "told",
    ),
    "rank 0 fails when it has begun": (True, {0: ["init broken", "mark", "init"], None: ["init"]}, "told"),
}


def play(directory: str, name: str, size: int) -> None:
    """Does a rank's part, and leaves in a file what it has come to."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    import eirene_train
    from eirene_train import backend

    met, parts, _ = SCRIPTS[name]
    rank = int(os.environ.get("EIRENE_TRAIN_RANK", os.environ.get("RANK", "")))
    if met:
        eirene_train.world()

    def use() -> None:
        for group in (None, dist.new_group(), dist.new_group(list(range(size)))):
            tensor = torch.full((3,), rank + 1.0)
            dist.all_reduce(tensor, group=group)
            assert tensor.eq(size * (size + 1) / 2).all()
        dist.barrier()

    def broken(*_: Any) -> Any:
        raise OSError("no more files")

    said = []
    for step in parts.get(rank, parts.get(None, [])):
        verb, _, how = step.partition(" ")
        if verb == "mark":
            Path(directory, f"mark{rank}").touch()
        elif verb == "await":
            markers = [other for other in range(size) if "mark" in parts.get(other, parts.get(None, []))]
            while not all(Path(directory, f"mark{other}").exists() for other in markers):
                time.sleep(0.02)
        else:
            kept = backend.EireneBackend
            try:
                if verb == "init":
                    backend.EireneBackend = broken if how == "broken" else kept  # type: ignore[misc, assignment]
                    other = {"init_method": "eirene://", "rank": rank, "world_size": size + 1} if how == "wrong" else {}
                    seconds = SHORT if how == "short" else AMPLE
                    dist.init_process_group("eirene", timeout=timedelta(seconds=seconds), **other)
                    assert not how, f"`{step}` did not fail"
                elif verb == "use":
                    use()
                else:
                    dist.destroy_process_group()
            except (RuntimeError, ValueError, OSError) as error:
                said.append(f"{step}: {type(error).__name__}: {error}")
            finally:
                backend.EireneBackend = kept  # type: ignore[misc]
    outcome = "told"
    if dist.is_initialized():
        try:
            use()
            outcome = "together"
        except RuntimeError as error:
            said.append(f"{type(error).__name__}: {error}")
    Path(directory, f"outcome{rank}").write_text("\n".join([outcome, *said]))


@pytest.mark.skipif(ranks.REFERENCE, reason="about how the real runtime meets")
@pytest.mark.parametrize(
    ("name", "size", "launcher"),
    [
        *((name, 2, "run") for name in SCRIPTS),
        *((name, 3, "run") for name in ("rank 1 gives up and tries again", "all but one give up", "rank 1 gives up in the world")),
        # Where torch's own store is first.
        *((name, 2, "torchrun") for name in ("rank 0 gives up and tries again", "rank 1 gives up in the world")),
    ],
)
def test_all_ranks_come_together_or_all_are_told(name: str, size: int, launcher: str, tmp_path: Path) -> None:
    program = [sys.executable, "-c", f"import test_inits; test_inits.play({str(tmp_path)!r}, {name!r}, {size})"]
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    environment |= {"PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*launchers.command(launcher, size), *program], capture_output=True, text=True, timeout=400, env=environment)
    outcomes = [path.read_text() if (path := Path(tmp_path, f"outcome{rank}")).exists() else done.stderr[-3000:] for rank in range(size)]
    assert [outcome.split("\n")[0] for outcome in outcomes] == [SCRIPTS[name][2]] * size, "\n\n".join(outcomes)
