"""How much output is let through: a loop that prints without end must not fill the memory of a browser, nor of the kernel."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Allowance"]


@dataclass
class Allowance:
    """So many bytes at once, and so many a second after that. Time is a parameter, in seconds."""

    most: float
    a_second: float
    left: float = -1.0
    since: float = 0.0
    dropped: int = 0

    def takes(self, count: int, now: float) -> bool:
        """Whether so many bytes may pass now; those that may not are counted."""
        if self.left < 0:
            self.left, self.since = self.most, now
        self.left = min(self.most, self.left + (now - self.since) * self.a_second)
        self.since = now
        # Once something was left out, there is a pause worth reading first: not every other line is missing.
        if self.left < count or (self.dropped and self.left < min(self.most, self.a_second)):
            self.dropped += count
            return False
        self.left -= count
        return True

    def missing(self) -> int:
        """Bytes that were left out since the last time that this was asked."""
        dropped, self.dropped = self.dropped, 0
        return dropped
