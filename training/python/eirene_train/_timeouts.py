"""How long what is done beside torch's own calls may wait for the other ranks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from .errors import InvalidArgument

__all__ = ["milliseconds_of"]

_OTHERWISE = timedelta(minutes=30)


def milliseconds_of(group: dist.ProcessGroup | None, timeout: timedelta | None = None) -> int:
    """A time-out, or else that of a group's calls, whichever backend it has, as far as torch tells.

    Args:
        group: torch's; none: the default group, where there is one.
        timeout: what was asked for; none: nothing was.

    Returns:
        Milliseconds; half an hour's, torch's usual time-out, where nobody says anything.

    Raises:
        InvalidArgument: a time-out that is no time.
    """
    if timeout is None:
        if group is None and dist.is_available() and dist.is_initialized():
            group = dist.group.WORLD
        timeout = _OTHERWISE if group is None else _of(group) or _OTHERWISE
    elif timeout <= timedelta():
        raise InvalidArgument(f"a time-out of {timeout} is none; it says how long to wait for the other ranks")
    return max(1, int(timeout.total_seconds() * 1000))


def _of(group: dist.ProcessGroup) -> timedelta | None:
    """What a group's backend keeps: each has options with a time-out, on the CPU or an accelerator."""
    for device in ("cpu", "cuda"):
        backend: Any
        try:
            backend = group._get_backend(torch.device(device))
            timeout = getattr(getattr(backend, "options", None), "_timeout", None)
        except RuntimeError:
            continue  # It has none for such tensors, or one that keeps no options.
        if isinstance(timeout, timedelta):
            return timeout
    return None
