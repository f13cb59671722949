"""Training throughput for the charts of the session, by itself: how many steps an optimizer makes a second.

torch tells whoever asks after each step of any optimizer (`register_optimizer_step_post_hook`), so it does not matter how gradients were
averaged. Rank 0 counts, and reports as `report` does; it costs a look at the clock each step.
"""

from __future__ import annotations

import os
import time
import weakref
from typing import Any

from .reports import VARIABLE, own_names, send

__all__ = ["NAME", "Throughput", "count_steps"]

#: What the charts call it.
NAME = "steps_per_second"
#: Seconds between two reports, at least.
_EVERY_S = 2.0


class Throughput:
    """Counts the steps of the first optimizer it hears of, until that is gone; then of the next. A second one, as for the other half of a GAN, steps
    in the same loop."""

    def __init__(self) -> None:
        self._counted: weakref.ref[Any] | None = None
        self._since = 0.0
        self._steps = 0

    def stepped(self, optimizer: Any, now: float) -> float | None:
        """Counts a step that has just been made.

        Args:
            optimizer: whose; only its identity matters.
            now: `time.monotonic()`.

        Returns:
            Steps a second since the last time, once there is something to tell. A step that alone takes longer than that is told too.
        """
        counted = self._counted() if self._counted is not None else None
        if counted is None:
            # The first step ends at the time from which is counted.
            self._counted, self._since, self._steps = weakref.ref(optimizer), now, 0
            return None
        if counted is not optimizer:
            return None
        self._steps += 1
        passed = now - self._since
        if passed < _EVERY_S:
            return None
        rate = self._steps / passed
        self._since, self._steps = now, 0
        return rate


_counting = False


def count_steps(rank: int) -> None:
    """Begins to report in rank 0 of a session; elsewhere, or when it was begun before, nothing happens.

    A program that reports the name itself is left to it.
    """
    global _counting
    if _counting or rank != 0 or not os.environ.get(VARIABLE):
        return
    _counting = True
    from torch.optim.optimizer import register_optimizer_step_post_hook

    throughput = Throughput()

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        rate = throughput.stepped(optimizer, time.monotonic())
        if rate is not None and NAME not in own_names:
            send({NAME: rate})

    register_optimizer_step_post_hook(after)
