"""The arithmetic: from ranks to a round, from rounds to a figure, from figures to ratios. Nothing here knows torch or processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median, stdev
from typing import Any

__all__ = ["Sample", "Summary", "best_mpi", "confidence", "higher_is_better", "over_ranks", "ratio", "summarise"]


@dataclass(frozen=True)
class Sample:
    """One round of one contender.

    Attributes:
        contender: the column's name.
        kind: the case's.
        bytes: the message's size.
        round: from 0.
        iterations: calls that counted, in each rank.
        warmup: calls before them.
        figures: over all ranks, see `over_ranks`.
        ranks: what each rank measured: microseconds, MB/s (bandwidth), percent (overlap).
        idle_seconds: how long the ranks had slept before.
        idle_cpu_seconds: processor time they used meanwhile, all together; about none, or the others' figures are spoilt.
    """

    contender: str
    kind: str
    bytes: int
    round: int
    iterations: int
    warmup: int
    figures: dict[str, float]
    ranks: list[dict[str, float]]
    idle_seconds: float
    idle_cpu_seconds: float

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Summary:
    """A contender's medians of rounds for one size.

    Attributes:
        figures: as in `Sample`, each the median of the rounds'.
        rounds: how many there were.
    """

    contender: str
    kind: str
    bytes: int
    iterations: int
    rounds: int
    figures: dict[str, float]

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def higher_is_better(kind: str) -> bool:
    """Whether a case's main figure is a rate, not a time."""
    return kind == "bandwidth"


def over_ranks(ranks: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """A round's figures from those of its ranks; ranks that had nothing to measure are empty.

    Returns:
        `avg`, `min`, `max`: over the ranks' averages, as OSU has them; `fastest`: the fastest single call; all others, `median` (of a rank's calls)
        among them: the mean over ranks.

    Raises:
        ValueError: no rank measured anything.
    """
    counted = [rank for rank in ranks if rank]
    if not counted:
        raise ValueError("no rank measured anything")
    figures = {name: fmean(rank[name] for rank in counted) for name in counted[0]}
    if "avg" in figures:
        figures["min"] = min(rank["avg"] for rank in counted)
        figures["max"] = max(rank["avg"] for rank in counted)
    if "fastest" in figures:
        figures["fastest"] = min(rank["fastest"] for rank in counted)
    return figures


def summarise(samples: Iterable[Sample]) -> list[Summary]:
    """Medians of rounds, in the order in which contender and size first came."""
    groups: dict[tuple[str, int, str], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.kind, sample.bytes, sample.contender), []).append(sample)
    return [
        Summary(
            contender,
            kind,
            size,
            rounds[0].iterations,
            len(rounds),
            {name: median(sample.figures[name] for sample in rounds) for name in rounds[0].figures},
        )
        for (kind, size, contender), rounds in groups.items()
    ]


def best_mpi(row: Mapping[str, Summary], figure: str) -> Summary | None:
    """Of one size's summaries by contender, the best MPI's; none where there is none."""
    found = [summary for name, summary in row.items() if name.startswith("mpi:")]
    if not found:
        return None
    choose = max if higher_is_better(found[0].kind) else min
    return choose(found, key=lambda summary: summary.figures[figure])


def ratio(ours: Summary | None, theirs: Summary | None, figure: str) -> float | None:
    """How many times better ours is; none where one of the two is missing or nothing."""
    if ours is None or theirs is None:
        return None
    mine, other = ours.figures[figure], theirs.figures[figure]
    above, below = (mine, other) if higher_is_better(ours.kind) else (other, mine)
    return above / below if below > 0 else None


def confidence(values: Sequence[float]) -> tuple[float, float]:
    """Mean and the half width of its band, 1.96 standard deviations, as Horovod's benchmark prints them."""
    return fmean(values), 1.96 * stdev(values) if len(values) > 1 else 0.0
