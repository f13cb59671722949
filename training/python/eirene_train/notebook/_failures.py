"""Who failed how: what a rank says of an exception, and how the same failure of several ranks is told once."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

__all__ = ["Failure", "RanksFailed", "Refused", "describe", "names", "told"]

# Characters of a message, and of a traceback, that go to the notebook.
_LONGEST_MESSAGE = 8192
_LONGEST_STACK = 32768


class Refused(Exception):
    """What was asked for makes no sense, or cannot be; one sentence says why. IPython shows that sentence alone."""

    def _render_traceback_(self) -> list[str]:
        return [f"{self}"]


class RanksFailed(Exception):
    """A cell failed on some ranks. IPython shows its text, and not where in this package it was raised."""

    def __init__(self, headline: str, text: str) -> None:
        super().__init__(headline)
        self.text = text

    def _render_traceback_(self) -> list[str]:
        return self.text.split("\n")


@dataclass(frozen=True)
class Failure:
    """One rank's exception."""

    kind: str
    message: str
    stack: str

    def fields(self) -> dict[str, str]:
        """For a message."""
        return {"kind": self.kind, "message": self.message, "stack": self.stack}

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> Failure:
        """From a message."""
        return cls(*(str(fields.get(name, "")) for name in ("kind", "message", "stack")))


def describe(error: BaseException, within: str) -> Failure:
    """An exception of a cell; `within` is the file whose own frames are not the cell's business."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == within:
        trace = trace.tb_next
    told = traceback.TracebackException(type(error), error, trace, compact=True)
    # The last frames may be ours as well: what a signal's handler raises is raised there.
    while told.stack and told.stack[-1].filename == within:
        told.stack.pop()
    last = "".join(told.format_exception_only())
    stack = "".join(told.format()).removesuffix(last)
    kind = type(error).__qualname__
    if type(error).__module__ not in ("builtins", "__main__"):
        kind = f"{type(error).__module__}.{kind}"
    message = last.strip().removeprefix(kind).removeprefix(type(error).__qualname__).removeprefix(":").strip()
    return Failure(kind, message[:_LONGEST_MESSAGE], stack[-_LONGEST_STACK:].rstrip())


def names(ranks: Iterable[int]) -> str:
    """Ranks for people: ``0, 2-4``."""
    parts: list[str] = []
    run: list[int] = []
    for rank in [*sorted(set(ranks)), None]:
        if run and rank != run[-1] + 1:
            parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
            run = []
        if rank is not None:
            run.append(rank)
    return ", ".join(parts)


def who(ranks: Sequence[int]) -> str:
    """``rank 3`` or ``ranks 0, 2-4``."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {names(ranks)}"


def told(failures: dict[int, Failure], deaths: Sequence[str] = ()) -> RanksFailed:
    """All failures as one: those that happened at the same place in the same way are told once, and what their messages differ in by rank."""
    groups: dict[tuple[str, str], list[int]] = {}
    for rank in sorted(failures):
        groups.setdefault((failures[rank].kind, failures[rank].stack), []).append(rank)
    headlines, parts = list(deaths), []
    if deaths:
        parts.append("\n".join(deaths))
    for (kind, stack), ranks in groups.items():
        messages: dict[str, list[int]] = {}
        for rank in ranks:
            messages.setdefault(failures[rank].message, []).append(rank)
        first = next(iter(messages))
        headline = f"{who(ranks)}: {kind}" + (f": {first}" if first and len(messages) == 1 else "")
        each = [f"[{names(some)}] {message}" for message, some in messages.items()] if len(messages) > 1 else []
        headlines.append(headline.split("\n", 1)[0])
        parts.append("\n".join([headline, *each, *([stack] if stack else [])]))
    return RanksFailed("; ".join(headlines), "\n\n".join(parts))
