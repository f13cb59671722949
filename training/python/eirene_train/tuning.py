"""Which algorithm carries out a collective, and why; measuring which ones are fast.

What is taken rests on three things, the first that has an answer:

1. ``EIRENE_TRAIN_ALGORITHM``: ``allreduce=ring:8;broadcast=binomial``, or one name for all collectives that have it. ``p2p=mpi`` gives messages
   between two ranks to MPI as they are, also within a node; ``mpi`` does so for everything.
2. What was measured. Once for each topology (ranks on nodes, processor, cores) the first default group measures for about two seconds, and
   rank 0 keeps the table in ``$EIRENE_TRAIN_CACHE``, ``$XDG_CACHE_HOME/eirene-train`` or ``~/.cache/eirene-train``. ``EIRENE_TRAIN_TUNING``
   says otherwise: ``off``, ``read`` (only what was measured before is used) or ``again``.
3. Thresholds.

What rank 0's environment says holds for all ranks. ``EIRENE_TRAIN_EXPLAIN=1``, or ``eirene-train run --explain``, makes rank 0 say on stderr
what is chosen and why, once for each kind of call.
"""

from __future__ import annotations

import sys
from typing import Any

from . import _native
from .errors import InvalidArgument

__all__ = ["BUDGET_SECONDS", "explain", "tune"]

BUDGET_SECONDS = 2.0


def tune(group: Any = None, budget: float = BUDGET_SECONDS) -> str:
    """Takes what was measured on such a topology before, or measures which algorithms are fast for a group.

    The default process group does this by itself when it is made; sub-groups go by thresholds until they are tuned. All ranks of the group
    call it, while nothing else of the group's is under way.

    Args:
        group: a process group of the backend ``eirene`` or a `Group`; none: the default process group.
        budget: about how many seconds measuring may take.

    Returns:
        What became of it, in a sentence.

    Raises:
        InvalidArgument: there is no such group, or the budget is no time.
        EireneError: as for any collective.
    """
    if not 0 <= budget < 1e6:
        raise InvalidArgument(f"a budget of {budget} seconds is no time")
    return _native_group(group).tune(int(budget * 1000))


def explain(collective: str, elements: int = 0, dtype: Any = "float32", group: Any = None) -> str:
    """Which algorithm a collective would be carried out by, and why. Asks nobody: any rank may call it.

    Args:
        collective: ``allreduce``, ``broadcast``, ``reduce``, ``reduce_scatter``, ``all_gather``, ``all_to_all``, ``gather``, ``scatter`` or
            ``barrier``.
        elements: of the whole buffer of one rank: of the input of a reduce-scatter, of the output of an allgather.
        dtype: the elements' type, as torch's or by name.
        group: as for `tune`.

    Returns:
        A line of text.

    Raises:
        InvalidArgument: there is no such collective, type or group.
    """
    if elements < 0:
        raise InvalidArgument(f"{elements} elements are no number of elements")
    plain = collective.replace("-", "_")
    name = {"allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all"}.get(plain, plain)
    code = _native.dtype(str(dtype).removeprefix("torch."))
    return _native_group(group).explain(_native.collective(name), code, elements)


def _native_group(group: Any) -> _native.Group:
    if isinstance(group, _native.Group):
        return group
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_initialized():
        raise InvalidArgument("there is no process group yet: call torch.distributed.init_process_group, or give a group of world()")
    chosen = distributed.group.WORLD if group is None else group
    from .backend import EireneBackend, EireneGroup

    backend = chosen._backend if isinstance(chosen, EireneGroup) else None
    if backend is None and isinstance(chosen, distributed.ProcessGroup):
        backend = chosen._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
    if not isinstance(backend, EireneBackend):
        raise InvalidArgument("this is no process group of the backend `eirene`")
    return backend.group
