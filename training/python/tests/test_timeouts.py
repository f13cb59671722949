"""How long a GradArena and the hook wait for a rank that stays away: as long as their process group does, unless they are told."""

from __future__ import annotations

from typing import Any

import pytest
import ranks
from deep import assert_within

# Also for making groups, and for two steps, on a busy machine.
SECONDS = 10


def stayed_away(how: str) -> tuple[str, tuple[int, ...], float]:
    """What the others hear, and when, if a rank takes part in two steps but not in the next; where the time-out is said in one way or another."""
    import time
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    import eirene_train

    short = timedelta(seconds=SECONDS)
    dist.init_process_group("gloo" if how == "hook" else "eirene")
    # To make groups takes its time where ranks come one by one.
    dist.barrier()
    model: Any = torch.nn.Linear(200, 200)
    if how == "hook":
        model = torch.nn.parallel.DistributedDataParallel(model)
        model.register_comm_hook(dist.new_group(timeout=short), eirene_train.comm_hook)
    elif how == "argument":
        arena = eirene_train.GradArena(model, timeout=short)
    else:
        arena = eirene_train.GradArena(model, dist.new_group(timeout=short))

    def step() -> None:
        model(torch.ones(1, 200)).sum().backward()
        if how != "hook":
            arena.reduce()

    # In the second one, DDP agrees on its buckets, over gloo.
    step()
    step()
    began = time.monotonic()
    try:
        if dist.get_rank() == 1:
            eirene_train.world().everybody(60_000)
        else:
            step()
    except Exception as error:
        return f"{type(error).__name__}: {error}", getattr(error, "missing", ()), time.monotonic() - began
    return "nothing was raised", (), 0.0


def time_outs() -> list[int]:
    """Of a group that has none by name, of the default one, and of another."""
    from datetime import timedelta

    import torch.distributed as dist

    from eirene_train import InvalidArgument
    from eirene_train._timeouts import milliseconds_of

    found = [milliseconds_of(None)]
    dist.init_process_group("eirene", timeout=timedelta(seconds=60))
    found += [milliseconds_of(None), milliseconds_of(dist.new_group(timeout=timedelta(seconds=90)))]
    dist.set_timeout(timedelta(seconds=70))
    found += [milliseconds_of(None), milliseconds_of(None, timedelta(seconds=80))]
    try:
        milliseconds_of(None, timedelta(seconds=-1))
    except InvalidArgument:
        found.append(0)
    return found


@pytest.mark.skipif(ranks.REFERENCE, reason="the reference does not name who is missing")
@pytest.mark.parametrize("how", ["argument", "group", "hook"])
def test_a_rank_that_stays_away_is_named_when_the_group_s_time_is_over(how: str) -> None:
    first, _, third = ranks.run(3, stayed_away, how)
    for said, missing, seconds in (first, third):
        # Whoever gives up first tells the others. torch's futures hand on the words alone.
        assert "TimedOut" in said or "Aborted" in said, said
        assert "rank 1" in said and (missing == (1,) or how == "hook" or "Aborted" in said), (said, missing)
        assert_within(5 * SECONDS, seconds)
    assert any("TimedOut" in said for said, *_ in (first, third)), (first, third)


def test_backends_that_keep_no_options_wait_as_long_as_torch_does() -> None:
    from eirene_train._timeouts import milliseconds_of

    class Backend:
        @property
        def options(self) -> Any:
            raise RuntimeError("Backend does not implement getBackendOptions")

    class Group:
        def _get_backend(self, device: Any) -> Backend:
            return Backend()

    group: Any = Group()
    assert milliseconds_of(group) == 1_800_000


def test_time_outs_are_the_group_s_unless_asked_for() -> None:
    assert ranks.values(2, time_outs) == [[1_800_000, 60_000, 90_000, 70_000, 80_000, 0]] * 2
