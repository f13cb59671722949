"""The examples' notebooks: they are what Jupyter takes, hold nothing of whoever wrote them, and do what they say in a real kernel.

Their ranks are on this machine here; the tests of the cluster and of the browser run one on two nodes.
"""

from __future__ import annotations

import re
from pathlib import Path

import launchers
import nbformat
import notebooks
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ["ddp-digits", "fsdp2", "pipeline-1f1b", "tensor-parallel"]

SPOILED = "losses = [each[::-1] for each in losses] if isinstance(losses[0], list) else losses[::-1]"


def cells(name: str) -> list[str]:
    """The code of a notebook, cell by cell."""
    book = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    return [cell.source for cell in book.cells if cell.cell_type == "code"]


def test_no_notebook_is_left_out_of_these_tests() -> None:
    assert sorted(path.stem for path in EXAMPLES.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_are_valid_explain_themselves_and_hold_no_outputs(name: str) -> None:
    book = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=nbformat.NO_CONVERT)
    nbformat.validate(book)
    assert book.metadata.kernelspec.name == "python3"
    assert [cell.cell_type for cell in (book.cells[0], book.cells[-1])] == ["markdown"] * 2
    assert "## Change it and see" in book.cells[-1].source
    for cell in book.cells:
        assert not cell.metadata and max(map(len, cell.source.split("\n"))) <= 150
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_run_on_four_ranks_learn_and_check_that(name: str, traces: launchers.Traces) -> None:
    *first, check = cells(name)
    assert check.startswith("assert ") and first[-1].endswith("%eirene stop")
    with notebooks.notebook(traces.variables) as notebook:
        said = [line for code in first for line in notebook.fine(code).lines]
        begun = [found[1] for line in said if (found := re.fullmatch(r"\[\d\] (?:rank|stage) (\d) of 4 (?:is )?on \S+", line))]
        assert sorted(begun) == ["0", "1", "2", "3"]
        losses = [float(found[1]) for line in said if (found := re.search(r"(?:epoch|step) \d+: loss ([\d.]+)", line))]
        assert len(losses) >= 6 and losses[-1] < 0.3 * losses[0]
        assert said[-1] == "the ranks have ended"
        assert notebook.fine(check).lines[0].startswith("loss ")
        # The check of a training that learns nothing fails.
        notebook.fine(SPOILED)
        assert notebook.run(check).kind == "AssertionError"
    traces.assert_none()
