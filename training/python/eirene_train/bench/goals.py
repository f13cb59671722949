"""``bench goals``: whether the runtime is as fast as it is meant to be, each goal with the ratio that was measured.

All goals are ratios of medians of rounds, from one run, and of a round's median call rather than its mean: on a machine that does other things too,
a mean is mostly about those. "Best MPI" is for each size the fastest MPI in that run, called through the same Python path:
its non-blocking collective, which in Open MPI takes 1.5 to 3 times as long as the blocking one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import cases, machine, micro, synthetic, table
from .cases import Case
from .contenders import compared
from .figures import Summary, best_mpi, ratio
from .team import Failure

__all__ = ["DESCRIPTION", "ELSEWHERE", "GOALS", "Goal", "Result", "add_options", "judged", "line", "main"]

DESCRIPTION = "Measures what Eirene's speed is meant to be on this machine, and prints each goal, the ratio measured, and whether it is met."

_KB, _MB = 1 << 10, 1 << 20
_CORES = 2
# The figure of `figures.over_ranks` that goals are about.
_FIGURE = "median"


@dataclass(frozen=True)
class Goal:
    """One goal about an allreduce.

    Attributes:
        ranks: in each contender.
        bytes: the message's size.
        ours: the column that is meant to be faster.
        theirs: `mpi` for the best one, `gloo`, or `memcpy` for the floor.
        least: the ratio that meets it, theirs to ours.
    """

    ranks: int
    bytes: int
    ours: str
    theirs: str
    least: float

    @property
    def text(self) -> str:
        """In words."""
        size = f"{self.bytes // _MB} MB" if self.bytes >= _MB else f"{self.bytes // _KB} KB"
        way = {"eirene": "staged", "eirene-arena": "arena"}[self.ours]
        if self.theirs == "memcpy":
            return f"{self.ranks} ranks, {size} {way}: at least {100 * self.least:.0f} % of the memcpy floor"
        them = "the best MPI" if self.theirs == "mpi" else self.theirs
        yielding = ", told to yield" if self.theirs == "mpi" and self.ranks > 2 else ""
        return f"{self.ranks} ranks, {size} {way}: at least {self.least:g} x {them}{yielding}"


GOALS = (
    Goal(2, 4 * _KB, "eirene", "gloo", 17),
    Goal(2, _MB, "eirene", "mpi", 1.5),
    Goal(2, _MB, "eirene-arena", "mpi", 3.5),
    Goal(2, 16 * _MB, "eirene", "mpi", 1.6),
    Goal(2, 16 * _MB, "eirene-arena", "mpi", 3),
    Goal(2, 16 * _MB, "eirene-arena", "gloo", 12),
    Goal(2, 100 * _MB, "eirene", "mpi", 3),
    Goal(2, 100 * _MB, "eirene-arena", "memcpy", 0.7),
    Goal(4, 4 * _KB, "eirene", "mpi", 2),
    Goal(4, _MB, "eirene", "mpi", 2),
    Goal(4, 16 * _MB, "eirene", "mpi", 2),
)
_SCALING = 1.89
_SCALING_TEXT = f"synthetic benchmark, 2 ranks of one thread each: at least {_SCALING:g} x one rank"
# Goals that need more than this machine as it is, and where they are measured.
ELSEWHERE = {"two emulated nodes of 2 ranks, 100 MB over 1 Gbit/s: at least 1.45 x gloo": "`bench/nodes` in Eirene's source measures it, as root"}


@dataclass(frozen=True)
class Result:
    """What became of a goal.

    Attributes:
        text: the goal.
        least: the ratio that meets it; none where it is measured elsewhere.
        measured: the ratio that was measured; none where it was not.
        reason: why not.
        against: the contender it was measured against.
    """

    text: str
    least: float | None
    measured: float | None
    reason: str = ""
    against: str = ""

    @property
    def state(self) -> str:
        """`met`, `missed` or `not measured`."""
        if self.measured is None or self.least is None:
            return "not measured"
        return "met" if self.measured >= self.least else "missed"


def judged(goal: Goal, row: Mapping[str, Summary]) -> Result:
    """A goal by the summaries of its size."""
    ours = row.get(goal.ours)
    theirs = best_mpi(row, _FIGURE) if goal.theirs == "mpi" else row.get(goal.theirs)
    measured = ratio(ours, theirs, _FIGURE)
    missing = [name for name, found in ((goal.ours, ours), (goal.theirs, theirs)) if found is None]
    reason = f"there is no figure of {' and '.join(missing)}" if missing else ""
    return Result(goal.text, goal.least, measured, reason, theirs.contender if theirs else "")


def line(result: Result) -> str:
    """A goal as it is printed."""
    if result.measured is None:
        return f"{result.state:<14}{'':>8}  {result.text} ({result.reason})"
    against = f" ({result.against})" if result.against.startswith("mpi:") else ""
    return f"{result.state:<14}{result.measured:>8.2f}  {result.text}{against}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options."""
    option = parser.add_argument
    option("--json", type=Path, default=Path("eirene-goals.json"), metavar="FILE", help="the raw data (default: eirene-goals.json)")
    option("--rounds", type=micro.positive, default=7, help="rounds of each size (default: 7)")
    option("--mpi", metavar="NAME,…", default="all", help="MPIs, as `openmpi-4.1.4`; `all` that are found (default), or `none`")
    option("--quick", action="store_true", help="fewer calls, smaller images: to see that it works, not to believe")
    option("--check", action="store_true", help="exit with 1 where a goal is missed")
    option("--time-limit", type=float, default=300.0, metavar="SECONDS", help="for one round of one contender (default: 300)")
    option("--start-limit", type=float, default=300.0, metavar="SECONDS", help="for the start of all contenders (default: 300)")


def main(options: argparse.Namespace) -> int:
    """Measures all goals and prints them.

    Returns:
        0; 1 where a contender failed, or, with ``--check``, a goal is missed.

    Raises:
        ValueError: an MPI was asked for that is not here, or there is only one processor.
    """
    here = machine.cores()
    if len(here) < _CORES:
        raise ValueError(f"the goals are about {_CORES} processors, and there is {len(here)}")
    # All of them, whatever the machine has: four ranks share two processors.
    os.sched_setaffinity(0, here[:_CORES])
    results: list[Result] = []
    raw: dict[str, Any] = {"schema": "eirene-train-bench-goals/1", "machine": machine.facts(), "runs": []}
    failed = False
    for ranks in sorted({goal.ranks for goal in GOALS}):
        report = micro.measure(_plan(options, ranks), _show)
        raw["runs"].append(report.wire())
        failed = failed or micro.exit_code(report) != 0
        results += [judged(goal, report.row("allreduce", goal.bytes)) for goal in GOALS if goal.ranks == ranks]
    try:
        training, measured = _synthetic(options)
        raw["synthetic"] = training
        results.append(Result(_SCALING_TEXT, _SCALING, measured))
    except Failure as failure:
        failed = True
        micro.say(failure.told())
        results.append(Result(_SCALING_TEXT, _SCALING, None, failure.reason))
    results += [Result(text, None, None, where) for text, where in ELSEWHERE.items()]
    raw["goals"] = [asdict(result) | {"state": result.state} for result in results]
    options.json.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    print(f"{'':<14}{'ratio':>8}  goal", *map(line, results), f"raw data: {options.json}", sep="\n")
    missed = options.check and any(result.state == "missed" for result in results)
    return 1 if failed or missed else 0


def _plan(options: argparse.Namespace, ranks: int) -> micro.Plan:
    processors = len(machine.cores())
    contenders, left_out = compared("allreduce", ranks, processors, None, options.mpi, "cpu")
    chosen = []
    for size in sorted({goal.bytes for goal in GOALS if goal.ranks == ranks}):
        iterations, warmup = cases.repeats(size)
        if options.quick:
            iterations, warmup = 2, 1
        chosen.append(Case("allreduce", size, iterations=iterations, warmup=warmup))
    return micro.Plan(
        "allreduce",
        chosen,
        contenders,
        left_out,
        ranks,
        options.rounds,
        micro.bound(ranks, None),
        start_seconds=options.start_limit,
        round_seconds=options.time_limit,
        explain=True,
    )


def _synthetic(options: argparse.Namespace) -> tuple[dict[str, Any], float]:
    """Horovod's model and batch, one batch an iteration, or something small with ``--quick``."""
    parser = argparse.ArgumentParser()
    synthetic.add_options(parser)
    usual = ["--model", "resnet50", "--num-warmup-batches", "1", "--num-batches-per-iter", "1", "--num-iters", str(options.rounds)]
    small = ["--batch-size", "4", "--image-size", "64"] if options.quick else []
    chosen = parser.parse_args([*usual, *small, "--ranks", "2", "--compare", "--start-limit", str(options.start_limit)])
    load = machine.load()
    one, two = synthetic.trained(chosen, [1, 2])
    return synthetic.wire(chosen, [one, two], load), synthetic.scaling(one, two)


def _show(report: micro.Report, case: Case) -> None:
    """Progress, as rows of the usual table on stderr."""
    row = report.row(case.kind, case.bytes)
    names = list(row)
    if case == report.plan.cases[0]:
        print(*table.comparison_header(case.kind, names, [f"{report.plan.ranks} ranks"]), sep="\n", file=sys.stderr)
    print(table.comparison_row(case.bytes, row, names, case.kind), file=sys.stderr, flush=True)
