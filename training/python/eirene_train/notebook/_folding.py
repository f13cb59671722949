"""Lines of all ranks in one column, each with its rank before it; a line that all ranks have said stands there once.

A line waits at most `PATIENCE_SECONDS` for the others to say the same, which nobody notices; then it is shown as its rank's own. A rank that has
finished can say nothing more, so nobody waits for it. Every rank's lines stay in their order; of lines whose time is over, those go first that keep
another one from being the same everywhere.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass

from ._failures import names

__all__ = ["PATIENCE_SECONDS", "Folding", "Line"]

PATIENCE_SECONDS = 0.1
# Lines of one rank that wait at most: with more, it is a flood, and waits for nobody.
_MOST = 200

Value = dict[str, str]


@dataclass(frozen=True)
class Line:
    """A line of an output."""

    stream: str
    text: str


class _Rank:
    def __init__(self) -> None:
        self.waiting: deque[tuple[float, Line | Value]] = deque()
        self.lines: Counter[Line] = Counter()
        self.is_finished = False

    def pop(self) -> Line | Value:
        shown = self.waiting.popleft()[1]
        if isinstance(shown, Line):
            self.lines[shown] -= 1
            if not self.lines[shown]:
                del self.lines[shown]
        return shown


class Folding:
    """Time is a parameter, in seconds."""

    def __init__(self, size: int) -> None:
        self._ranks = [_Rank() for _ in range(size)]

    def add(self, rank: int, stream: str, text: str, now: float) -> None:
        """A rank has said a line."""
        line = Line(stream, text)
        self._ranks[rank].waiting.append((now, line))
        self._ranks[rank].lines[line] += 1

    def add_value(self, rank: int, value: Value, now: float) -> None:
        """A rank shows a value, which waits for nobody, but for its rank's own lines."""
        self._ranks[rank].waiting.append((now, value))

    def finish(self, rank: int) -> None:
        """A rank says nothing more."""
        self._ranks[rank].is_finished = True

    def next(self) -> float | None:
        """When something will have waited long enough; none if nothing waits."""
        return min((rank.waiting[0][0] + PATIENCE_SECONDS for rank in self._ranks if rank.waiting), default=None)

    def take(self, now: float) -> Iterator[Line | Value]:
        """What can be shown now: labelled lines, and values."""
        while heads := {rank: waiting.waiting[0] for rank, waiting in enumerate(self._ranks) if waiting.waiting}:
            value = next((rank for rank, (_, shown) in heads.items() if not isinstance(shown, Line)), None)
            if value is not None:
                yield self._ranks[value].pop()
                continue
            first = next(iter(heads.values()))[1]
            if len(heads) == len(self._ranks) and all(shown == first for _, shown in heads.values()):
                for everyone in self._ranks:
                    everyone.pop()
                yield _labelled(range(len(self._ranks)), first)
                continue
            ready = [rank for rank, (since, shown) in heads.items() if self._is_ready(rank, since, shown, now)]
            if not ready:
                return
            rank = min(ready, key=lambda rank: (self._is_everywhere(heads[rank][1]), heads[rank][0]))
            yield _labelled([rank], self._ranks[rank].pop())

    def _is_ready(self, rank: int, since: float, shown: Line | Value, now: float) -> bool:
        """Whether a line need not wait any longer for the others to say the same."""
        hopeless = any(other.is_finished and shown not in other.lines for other in self._ranks if isinstance(shown, Line))
        return hopeless or now >= since + PATIENCE_SECONDS or len(self._ranks[rank].waiting) > _MOST

    def _is_everywhere(self, shown: Line | Value) -> bool:
        return isinstance(shown, Line) and all(shown in rank.lines for rank in self._ranks)


def _labelled(ranks: range | list[int], shown: Line | Value) -> Line:
    assert isinstance(shown, Line)
    return Line(shown.stream, f"[{names(ranks)}] {shown.text}")
