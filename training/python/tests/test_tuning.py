"""Measuring which algorithms are fast, keeping it, asking for others, and saying why."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ranks

pytestmark = pytest.mark.skipif(ranks.REFERENCE, reason="about the real runtime")


def start() -> tuple[Any, Any]:
    import torch
    import torch.distributed as dist

    import eirene_train  # noqa: F401

    dist.init_process_group("eirene")
    return torch, dist


def sums(torch: Any, dist: Any, group: Any = None) -> None:
    """Right results of several sizes."""
    size = dist.get_world_size(group)
    for elements in (1, 257, 5001, 70_001):
        tensor = torch.full((elements,), float(dist.get_rank(group)))
        dist.all_reduce(tensor, group=group)
        assert tensor.eq(size * (size - 1) / 2).all()


def explained() -> tuple[str, str]:
    """What is said of a small and a rooted collective."""
    import eirene_train

    torch, dist = start()
    sums(torch, dist)
    return eirene_train.explain("allreduce", 256), eirene_train.explain("broadcast", 70_000, torch.bfloat16)


def sub_group() -> list[str]:
    """A sub-group is tuned when it is asked for."""
    import eirene_train

    torch, dist = start()
    group = dist.new_group([0, 1])
    if dist.get_rank() > 1:
        return []
    before = eirene_train.explain("all_reduce", 256, "float32", group)
    became = eirene_train.tune(group, 0)
    sums(torch, dist, group)
    return [before, became, eirene_train.explain("all-reduce", 256, group=group)]


def native() -> str:
    """Without torch's groups."""
    import eirene_train

    group = eirene_train.world().everybody(60_000)
    assert eirene_train.explain("barrier", group=group) == eirene_train.explain("barrier", 0, "uint8", group)
    return eirene_train.tune(group, 0.0)


def mistakes() -> list[str]:
    import eirene_train

    said = []
    calls: list[Any] = [
        lambda: eirene_train.tune(),
        lambda: eirene_train.tune(budget=-1.0),
        lambda: eirene_train.tune(budget=float("nan")),
        lambda: eirene_train.explain("allreduce", -1),
        lambda: eirene_train.explain("allreduce", 1, "float31"),
    ]
    for call in calls:
        try:
            call()
        except eirene_train.InvalidArgument as error:
            said.append(str(error))
    start()
    for call in (lambda: eirene_train.explain("gossip"), lambda: eirene_train.explain("barrier", group=object())):
        try:
            call()
        except eirene_train.InvalidArgument as error:
            said.append(str(error))
    return said


def test_the_default_group_measures_once_and_keeps_what_it_found(tmp_path: Path) -> None:
    variables = {"EIRENE_TRAIN_TUNING": "measure", "EIRENE_TRAIN_CACHE": str(tmp_path / "cache")}
    first = ranks.values(2, explained, variables=variables)
    (file,) = (tmp_path / "cache").iterdir()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    cases = json.loads(file.read_text())["cases"]
    assert {"allreduce"} <= {case["collective"] for case in cases}
    assert first[0] == first[1] and "on this topology at 1 KiB" in first[0][0]
    written = file.stat()
    assert ranks.values(2, explained, variables=variables) == first
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    thresholds = ranks.values(2, explained, variables=variables | {"EIRENE_TRAIN_TUNING": "off"})
    assert "measured" not in thresholds[0][0]


def test_a_sub_group_is_tuned_when_asked(tmp_path: Path) -> None:
    variables = {"EIRENE_TRAIN_TUNING": "measure", "EIRENE_TRAIN_CACHE": str(tmp_path)}
    before, became, after = ranks.values(3, sub_group, variables=variables)[0]
    assert "measured" not in before and became.startswith("measured 1 cases in ") and "measured" in after
    assert len(list(tmp_path.iterdir())) == 2


def test_groups_of_the_world_are_tuned_without_torch(tmp_path: Path) -> None:
    variables = {"EIRENE_TRAIN_TUNING": "again", "EIRENE_TRAIN_CACHE": str(tmp_path)}
    said = ranks.values(2, native, variables=variables)
    assert said[0].endswith(f"kept in {next(tmp_path.iterdir())}") and said[1].startswith("measured 1 cases")


def test_an_algorithm_that_is_asked_for_is_taken() -> None:
    variables = {"EIRENE_TRAIN_ALGORITHM": "allreduce=ring:2;broadcast=chain"}
    for small, rooted in ranks.values(3, explained, variables=variables):
        assert small == "allreduce of 1024 bytes on 3 ranks of 1 node: ring/2: asked for by `allreduce=ring:2`"
        assert rooted.startswith("broadcast of 140000 bytes on 3 ranks of 1 node: chain/1: asked for by `broadcast=chain`")


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("EIRENE_TRAIN_ALGORITHM", "allreduce=quick", "allreduce has no algorithm `quick`; it has exchange"),
        ("EIRENE_TRAIN_TUNING", "fast", "it may be off, read, measure, again"),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(variable: str, value: str, said: str) -> None:
    for answer in ranks.run(2, explained, variables={variable: value}):
        assert isinstance(answer, ranks.Died) and said in answer.errors


def test_mistakes_are_named() -> None:
    for said in ranks.values(1, mistakes):
        assert len(said) == 7
        assert "there is no process group yet" in said[0] and "no time" in said[1] and "no time" in said[2]
        assert "-1 elements" in said[3] and "float31" in said[4] and "gossip" in said[5] and "no process group of" in said[6]


def test_the_command_makes_rank_0_explain(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, torch.distributed as dist, eirene_train\n"
        "dist.init_process_group('eirene')\n"
        "for _ in range(3): dist.all_reduce(torch.ones(1000))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "eirene_train", "run", "-n", "2", "--explain", str(program)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "allreduce of 4000 bytes on 2 ranks of 1 node: " in line]
    assert len(lines) == 1 and lines[0].startswith("[0] eirene-train: "), done.stderr
