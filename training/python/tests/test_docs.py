"""The code in the people's first training: it is taken out of the page and run, so what the page shows is what runs.

Ranks are on this machine here; what the page says of several nodes is what the tests of the cluster try.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import launchers
import notebooks
import pytest

PAGE = Path(__file__).parents[3] / "docs" / "first-training.md"


def section(number: int) -> str:
    """What stands below a numbered headline."""
    _, *parts = re.split(r"^## (\d+)\. .*$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))[str(number)]


def code(text: str, begin: str = "") -> list[str]:
    """The code between fences that begins like that, without the language."""
    found = re.findall(r"^```\w*\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [one for one in found if one.startswith(begin)]


def steps(lines: list[str]) -> list[int]:
    """The steps after which rank 0 has said its loss."""
    return [int(found[1]) for line in lines if (found := re.fullmatch(r"\[0\] step (\d+): loss [\d.]+", line.rstrip()))]


def test_the_cells_run_and_later_ones_find_what_earlier_ones_left(traces: launchers.Traces) -> None:
    load, learn, look = code(section(2), "%")
    verbs = re.findall(r"^\| `(%eirene \w+)[^`]*` \|", section(2), flags=re.MULTILINE)
    assert learn.startswith("%%eirene -n 4\n") and look.startswith("%%eirene\n")
    assert verbs == ["%eirene pull", "%eirene push", "%eirene status", "%eirene stop"]
    with notebooks.notebook(traces.variables) as notebook:
        notebook.fine(load)
        shown = notebook.fine(learn)
        begun = [found[1] for line in shown.lines if (found := re.fullmatch(r"\[(\d)\] rank \1 of 4 on \S+", line))]
        assert sorted(begun) == ["0", "1", "2", "3"] and steps(shown.lines) == [20, 40, 60, 80, 100]
        (right,) = (float(data["text/plain"]) for data in shown.displays)
        (loss,) = (float(data["text/plain"]) for data in notebook.fine(look).displays)
        assert right > 0.8 and 0 < loss < 0.5
        assert float(notebook.fine("%eirene pull right\nright").value) == pytest.approx(right)
        notebook.fine("x = 7\n%eirene push x")
        assert notebook.fine("%%eirene\nprint(x)").lines == ["[0-3] 7"]
        assert re.search(r"; \S+: 0-3$", notebook.fine("%eirene status").stdout.rstrip())
        assert "have ended" in notebook.fine("%eirene stop").stdout
    traces.assert_none()


def test_the_program_goes_on_where_it_was_and_leaves_undone_when_it_is_warned(tmp_path: Path) -> None:
    (program,), (command,) = code(section(3), "import "), code(section(3), "eirene-train run ")
    words = command.split()
    assert words == ["eirene-train", "run", "-n", "4", "train.py"] and program.count("STEPS = 200\n") == 1
    run: list[str] = [sys.executable, "-m", "eirene_train", "run"]

    def checkpoints() -> list[int]:
        return sorted(int(path.name.removeprefix("step-")) for path in (tmp_path / "digits-checkpoints").glob("step-*"))

    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 120, "cwd": tmp_path}
    done = subprocess.run([*run, *words[2:]], **options)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    begun = [found[1] for line in lines if (found := re.fullmatch(r"\[(\d)\] rank \1 of 4 on \S+", line))]
    assert sorted(begun) == ["0", "1", "2", "3"] and steps(lines) == list(range(20, 201, 20))
    right = re.fullmatch(r"\[0\] ([\d.]+)% of the digits that no rank has seen are read right", lines[-1])
    assert right is not None and float(right[1]) > 80
    assert checkpoints() == [150, 200]

    # Once more, on other ranks and with more to do than is done before the warning comes.
    (tmp_path / "train.py").write_text(program.replace("STEPS = 200\n", "STEPS = 1_000_000\n"), encoding="utf-8")
    warned = subprocess.Popen([*run, "-n", "2", "train.py"], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert warned.stdout is not None
    said = []
    for line in warned.stdout:
        said.append(line)
        if steps([line]):
            break
    warned.send_signal(signal.SIGUSR1)
    said += warned.stdout.readlines()
    assert warned.wait(60) == 75
    assert steps(said)[0] == 220 and not any("read right" in line for line in said)
    assert checkpoints()[-1] >= steps(said)[-1]
