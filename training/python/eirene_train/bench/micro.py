"""The tests of calls: rounds, contender by contender, size by size.

The JSON (`Report.wire`), every time in microseconds and every size in bytes:

- `schema`: ``eirene-train-bench/1``; `test`; `ranks`; `type` of the elements; `device`; `bound_to`: the processor of each rank, or none;
  `nodes`: each with its `ranks`, none where all are on this machine.
- `machine`: see `machine.facts`; `load`: load averages at `start` and `end`.
- `contenders`: `name`, the `columns` measured in it, `launcher`, `library`, `environment`, and its `versions`.
- `left_out`: contenders that did not take part: `name`, `reason`; `failed`: those that dropped out: `name`, `kind`, `reason`, `tail`.
- `explanations`: by kind and size, how Eirene carries the call out (with ``--explain``).
- `samples`: every round, see `figures.Sample`; `summaries`: medians of rounds, see `figures.Summary`; `ratios`: by size, from their averages.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import cases, machine, places, table
from .cases import Case
from .contenders import CHOICES, Contender, compared
from .figures import Sample, Summary, over_ranks, summarise
from .places import HERE, Places
from .team import Failure, Team, assemble

__all__ = ["Plan", "Report", "add_options", "bound", "exit_code", "main", "measure", "positive", "say"]

# What a contender may use of the processors in the others' turns before a reader is told.
_IDLE_SHARE = 0.05
_IDLE_SECONDS = 0.5


@dataclass
class Plan:
    """What to measure, and on what.

    Attributes:
        test: the command's name of it.
        cases: in this order.
        contenders: what is compared.
        left_out: what is not, with the reason.
        ranks: in each contender.
        rounds: of each case.
        cores: the processor of each rank; none: the system moves them.
        device: `cpu` or `cuda`.
        start_seconds: how long all contenders may take to start.
        round_seconds: how long one may take for a round.
        explain: whether to ask Eirene how it carries each case out.
        places: where the ranks are.
    """

    test: str
    cases: list[Case]
    contenders: list[Contender]
    left_out: list[tuple[str, str]] = field(default_factory=list)
    ranks: int = 2
    rounds: int = 7
    cores: list[int] | None = None
    device: str = "cpu"
    start_seconds: float = 180.0
    round_seconds: float = 120.0
    explain: bool = False
    places: Places = HERE


@dataclass
class Report:
    """What came out; `wire` is the JSON that is described above."""

    plan: Plan
    machine: dict[str, Any] = field(default_factory=machine.facts)
    load: dict[str, list[float]] = field(default_factory=dict)
    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    explanations: dict[str, dict[int, str]] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)

    def row(self, kind: str, size: int) -> dict[str, Summary]:
        """One size's medians of rounds, by contender."""
        chosen = [sample for sample in self.samples if sample.kind == kind and sample.bytes == size]
        return {summary.contender: summary for summary in summarise(chosen)}

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        plan = self.plan
        names = [name for contender in plan.contenders for name, _ in contender.columns]
        return {
            "schema": "eirene-train-bench/1",
            "test": plan.test,
            "ranks": plan.ranks,
            "type": plan.cases[0].type,
            "device": plan.device,
            "rounds": plan.rounds,
            "bound_to": plan.cores,
            "nodes": [{"name": name, "ranks": count} for name, count in zip(plan.places.nodes, plan.places.counts, strict=True)] or None,
            "machine": self.machine,
            "load": self.load,
            "contenders": [_described(contender, self.versions[contender.name]) for contender in plan.contenders if contender.name in self.versions],
            "left_out": [{"name": name, "reason": reason} for name, reason in self.left_out],
            "failed": [{"name": one.name, "kind": one.kind, "reason": one.reason, "tail": one.tail} for one in self.failed],
            "explanations": self.explanations,
            "samples": [sample.wire() for sample in self.samples],
            "summaries": [summary.wire() for summary in summarise(self.samples)],
            "ratios": [
                {"kind": case.kind, "bytes": case.bytes} | table.ratios(self.row(case.kind, case.bytes), table.ratio_names(names, case.kind))
                for case in plan.cases
            ],
        }


def measure(plan: Plan, done: Callable[[Report, Case], None]) -> Report:
    """Measures all cases.

    Args:
        plan: what.
        done: called after each case.

    Returns:
        What came out; also where contenders failed, which are in it.
    """
    report = Report(plan, left_out=list(plan.left_out))
    report.load["start"] = machine.load()
    for name, reason in plan.left_out:
        say(f"{name} left out: {reason}")
    with assemble(plan.contenders, plan.ranks, plan.cores, plan.start_seconds, plan.places) as (teams, failures):
        for failure in failures:
            report.left_out.append((failure.name, failure.reason))
            say(failure.told("left out"))
        report.versions = {team.name: team.versions for team in teams}
        for case in plan.cases:
            for number in range(plan.rounds):
                for team in list(teams):
                    try:
                        if number == 0 and plan.explain and team.name == "eirene":
                            _explain(report, team, case)
                        report.samples += _round(team, case, number, plan.round_seconds)
                    except Failure as failure:
                        report.failed.append(failure)
                        say(failure.told(f"dropped at {case.kind} of {case.bytes} bytes"))
                        teams.remove(team)
                        team.close()
            done(report, case)
    report.load["end"] = machine.load()
    _tell_of_idlers(report.samples, plan.ranks)
    return report


def _round(team: Team, case: Case, number: int, seconds: float) -> list[Sample]:
    samples = []
    for column, buffers in team.contender.columns:
        if buffers == "memcpy" and case.kind != "allreduce":
            continue
        answers = team.ask({"do": "measure", "case": dataclasses.replace(case, buffers=buffers).wire()}, seconds)
        ranks = [answer["figures"] for answer in answers]
        slept, used = max(answer["idle_seconds"] for answer in answers), sum(answer["idle_cpu_seconds"] for answer in answers)
        samples.append(Sample(column, case.kind, case.bytes, number, case.iterations, case.warmup, over_ranks(ranks), ranks, slept, used))
    return samples


def _explain(report: Report, team: Team, case: Case) -> None:
    text = team.ask({"do": "explain", "case": case.wire()}, report.plan.round_seconds)[0]["text"]
    report.explanations.setdefault(case.kind, {})[case.bytes] = text
    say(text)


def _tell_of_idlers(samples: Sequence[Sample], ranks: int) -> None:
    """Says which contenders used the processors in the others' turns, and so spoilt their figures."""
    slept: dict[str, list[float]] = {}
    for sample in samples:
        both = slept.setdefault(sample.contender, [0.0, 0.0])
        both[0] += sample.idle_seconds * ranks
        both[1] += sample.idle_cpu_seconds
    for name, (seconds, used) in slept.items():
        if used > _IDLE_SHARE * seconds and used > _IDLE_SECONDS:
            say(f"{name} used {used:.1f} s of the processors in the others' turns, which spoils their figures")


def _described(contender: Contender, versions: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": contender.name,
        "columns": [name for name, _ in contender.columns],
        "launcher": list(contender.launcher or ()),
        "library": str(contender.library) if contender.library else None,
        "environment": dict(contender.environment),
        "versions": versions,
    }


_FLOOR = "memcpy is the floor: as much copied by the C library, in ordinary memory or an arena, whichever a rank does faster"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the tests of calls; those that OSU's have are spelt as there."""
    option = parser.add_argument
    option("-n", "--ranks", type=positive, default=2, help="ranks of each contender (default: 2)")
    option("--nodes", metavar="NODE,…", help="nodes the ranks are on, or `all` (default: a session's nodes, where it has several, else this machine)")
    option("--here", action="store_true", help="all ranks on this machine, in a session of several nodes too")
    option("-m", "--message-size", metavar="[MIN:]MAX", help="message sizes in bytes, doubling")
    option("-i", "--iterations", type=positive, help="calls that count, a round (default: by size, 200 to 5)")
    option("-x", "--warmup", type=_not_negative, help="calls before them (default: by size, 20 to 2)")
    option("-f", "--full", action="store_true", help="a table for each contender, with minimum, maximum and iterations")
    option("-T", "--type", choices=list(cases.ITEM_BYTES), default="float32", help="of the elements (default: float32)")
    option("-W", "--window-size", type=positive, default=64, help="messages under way in the bandwidth test (default: 64)")
    option("-d", "--device", choices=["cpu", "cuda"], default="cpu", help="cuda: NCCL on GPUs beside the others, which stay in host memory")
    option("--rounds", type=positive, default=7, help="rounds of each size, in which the contenders take turns (default: 7)")
    option("--contenders", metavar="NAME,…", help=f"some of {', '.join(CHOICES)} (default: all); {_FLOOR}")
    option("--mpi", metavar="NAME,…", default="all", help="MPIs, as `openmpi-4.1.4`; `all` that are found (default), or `none`")
    option("--bind", action=argparse.BooleanOptionalAction, help="keep rank i on processor i (default: on one machine, with enough)")
    option("--json", type=Path, metavar="FILE", help="keep the raw data of every round")
    option("--explain", action="store_true", help="say how Eirene carries out each size, and why")
    option("--time-limit", type=float, default=120.0, metavar="SECONDS", help="for one round of one contender (default: 120)")
    option("--start-limit", type=float, default=180.0, metavar="SECONDS", help="for the start of all contenders (default: 180)")


def bound(ranks: int, bind: bool | None, places: Places = HERE) -> list[int] | None:
    """The processor of each rank, or none when they are not kept on one.

    Raises:
        ValueError: the processors are other nodes'.
    """
    if places.several:
        if bind:
            raise ValueError("`--bind` is for ranks on one machine: the processors of other nodes are not known here")
        return None
    here = machine.cores()
    if bind is False or (bind is None and ranks > len(here)):
        return None
    return [here[rank % len(here)] for rank in range(ranks)]


def main(test: str, options: argparse.Namespace, contenders: list[Contender] | None = None) -> int:
    """Runs a test and prints it.

    Args:
        test: one of `cases.TESTS`.
        options: see `add_options`.
        contenders: instead of those the options name.

    Returns:
        0; 1 where a contender dropped out, gave a wrong result, or where Eirene, if asked for, did not start.

    Raises:
        ValueError: the options contradict each other; the message says how.
    """
    if options.ranks < 2:
        raise ValueError("a collective needs at least 2 ranks")
    left_out: list[tuple[str, str]] = []
    where = places.chosen(options.nodes, options.here, options.ranks)
    if contenders is None:
        contenders, left_out = compared(test, options.ranks, len(machine.cores()), options.contenders, options.mpi, options.device, where)
    chosen = cases.cases_of(test, options.message_size, options.type, options.iterations, options.warmup, options.window_size, options.ranks)
    plan = Plan(
        test,
        chosen,
        contenders,
        left_out,
        options.ranks,
        options.rounds,
        bound(options.ranks, options.bind, where),
        options.device,
        options.start_limit,
        options.time_limit,
        options.explain,
        where,
    )
    report = measure(plan, _Printer(plan, options.full))
    if options.json is not None:
        options.json.write_text(json.dumps(report.wire(), indent=1) + "\n", encoding="utf-8")
    return exit_code(report)


def exit_code(report: Report) -> int:
    """1 where something was measured badly or not at all, else 0: a contender that is not here is no failure, Eirene is."""
    missing = {contender.name for contender in report.plan.contenders} - set(report.versions)
    return 1 if report.failed or not report.samples or "eirene" in missing else 0


class _Printer:
    """Prints each case as soon as it is done; whole tables of contenders at the end of a kind."""

    def __init__(self, plan: Plan, full: bool) -> None:
        self._plan = plan
        self._names = [name for contender in plan.contenders for name, _ in contender.columns]
        self._full = full
        self._open: str | None = None

    def __call__(self, report: Report, case: Case) -> None:
        last = case == [other for other in self._plan.cases if other.kind == case.kind][-1]
        ran = [name for name in self._names if any(sample.contender == name and sample.kind == case.kind for sample in report.samples)]
        if self._full or case.kind == "overlap" or len(self._names) == 1:
            if last:
                self._blocks(report, case.kind, ran)
            return
        if self._open != case.kind:
            self._open = case.kind
            # Contenders that never started have no column; one that drops out later keeps it.
            self._shown = ran
            print(*table.comparison_header(case.kind, ran, self._notes()), sep="\n", flush=True)
        row = report.row(case.kind, case.bytes)
        print(table.comparison_row(case.bytes, row, self._shown, case.kind), flush=True)
        if last:
            print(flush=True)

    def _blocks(self, report: Report, kind: str, names: Sequence[str]) -> None:
        rows = [(case, report.row(kind, case.bytes)) for case in self._plan.cases if case.kind == kind]
        for name in names:
            print(*table.block_header(kind, name, self._notes(), self._full), sep="\n")
            print(*(table.block_row(row[name], self._full) for _, row in rows if name in row), sep="\n", end="\n\n", flush=True)

    def _notes(self) -> list[str]:
        plan = self._plan
        where = "each rank on a processor of its own" if plan.cores and len(set(plan.cores)) == plan.ranks else "ranks share processors"
        if plan.cores is None:
            where = "ranks not bound"
        return [f"{plan.ranks} ranks{plan.places.text}, {plan.cases[0].type}, {where}; medians of {plan.rounds} interleaved rounds"]


def say(text: str) -> None:
    """Tells the reader, not the program that reads the table."""
    print("\n".join(f"# {line}" for line in text.splitlines()), file=sys.stderr, flush=True)


def positive(text: str) -> int:
    """An option that is a number of things, at least one."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is not at least 1")
    return number


def _not_negative(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"`{text}` is less than 0")
    return number
