"""The text: what the OSU benchmarks print, and the same with a column for each contender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .figures import Summary, best_mpi, higher_is_better, ratio

__all__ = ["TITLES", "block_header", "block_row", "comparison_header", "comparison_row", "ratio_names", "ratios"]

TITLES = {
    "allreduce": "Allreduce Latency Test",
    "bcast": "Broadcast Latency Test",
    "reduce_scatter": "Reduce_scatter Latency Test",
    "allgather": "Allgather Latency Test",
    "latency": "Latency Test",
    "bandwidth": "Bandwidth Test",
    "overlap": "Non-blocking Allreduce Latency Test",
}
_FIRST = 10
_COLUMN = 18
# The columns of one contender's table: title and figure.
_PLAIN = {"latency": (("Latency(us)", "avg"),), "bandwidth": (("Bandwidth(MB/s)", "avg"),)}
_COLLECTIVE = (("Avg Latency(us)", "avg"),)
_FULL = (*_COLLECTIVE, ("Min Latency(us)", "min"), ("Max Latency(us)", "max"))
_OVERLAP = (("Overall(us)", "avg"), ("Compute(us)", "compute"), ("Pure Comm.(us)", "pure"), ("Overlap(%)", "overlap"))


def _columns(kind: str, full: bool) -> tuple[tuple[str, str], ...]:
    if kind == "overlap":
        return _OVERLAP
    return _PLAIN.get(kind) or (_FULL if full else _COLLECTIVE)


def block_header(kind: str, contender: str, notes: Sequence[str], full: bool) -> list[str]:
    """The head of one contender's table, as OSU has it; what is not OSU's is in comments."""
    titles = [title for title, _ in _columns(kind, full)] + (["Iterations"] if full else [])
    lines = [f"# Eirene {TITLES[kind]}", f"# Contender: {contender}", *(f"# {note}" for note in notes)]
    if kind == "overlap":
        lines.append("# Overall = Coll. Init + Compute + Wait")
    return [*lines, f"{'# Size':<{_FIRST}}" + "".join(f"{title:>{_COLUMN}}" for title in titles)]


def block_row(summary: Summary, full: bool) -> str:
    """One size of one contender."""
    cells = [f"{summary.figures[figure]:>{_COLUMN}.2f}" for _, figure in _columns(summary.kind, full)]
    if full:
        cells.append(f"{summary.iterations:>{_COLUMN}}")
    return f"{summary.bytes:<{_FIRST}}" + "".join(cells)


def ratio_names(contenders: Sequence[str], kind: str) -> list[str]:
    """The columns of ratios between these contenders: how many times better ours is than the best MPI, and than gloo."""
    ours = [(name, label) for name, label in (("eirene", "eirene"), ("eirene-arena", "arena")) if name in contenders]
    others = [label for label, there in (("mpi", any(name.startswith("mpi:") for name in contenders)), ("gloo", "gloo" in contenders)) if there]
    return [f"{label}/{other}" if higher_is_better(kind) else f"{other}/{label}" for other in others for _, label in ours]


def ratios(row: Mapping[str, Summary], names: Sequence[str], figure: str = "avg") -> dict[str, float | None]:
    """The ratios of these names for one size; none where a contender is missing."""
    found: dict[str, float | None] = {}
    for name in names:
        parts = set(name.split("/"))
        ours = row.get("eirene-arena" if "arena" in parts else "eirene")
        theirs = best_mpi(row, figure) if "mpi" in parts else row.get("gloo")
        found[name] = ratio(ours, theirs, figure)
    return found


def comparison_header(kind: str, contenders: Sequence[str], notes: Sequence[str]) -> list[str]:
    """The head of a table with a column for each contender and each ratio."""
    title = _columns(kind, False)[0][0]
    names = [*contenders, *ratio_names(contenders, kind)]
    return [
        f"# Eirene {TITLES[kind]}",
        *(f"# {note}" for note in notes),
        f"# {title} of each contender; ratios: how many times better the one under the stroke is"
        if not higher_is_better(kind)
        else f"# {title} of each contender; ratios: how many times better the one over the stroke is",
        f"{'# Size':<{_FIRST}}" + "".join(f"{name:>{_width(name)}}" for name in names),
    ]


def comparison_row(size: int, row: Mapping[str, Summary], contenders: Sequence[str], kind: str) -> str:
    """One size; a minus where a contender has dropped out."""
    cells = []
    for name in contenders:
        summary = row.get(name)
        cells.append(f"{'-' if summary is None else format(summary.figures['avg'], '.2f'):>{_width(name)}}")
    for name, value in ratios(row, ratio_names(contenders, kind)).items():
        cells.append(f"{'-' if value is None else format(value, '.2f'):>{_width(name)}}")
    return f"{size:<{_FIRST}}" + "".join(cells)


def _width(name: str) -> int:
    return max(_COLUMN, len(name) + 2)
