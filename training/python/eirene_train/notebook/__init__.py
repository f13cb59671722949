"""Notebook cells that run on several ranks: ``%load_ext eirene_train.notebook``, then cells that begin with ``%%eirene -n 4``.

Ranks live between cells and keep their variables; what the notebook has and what the ranks have are told apart, and go from one to the other by
``%eirene push`` and ``%eirene pull``. IPython is needed by who loads the extension, and by nobody else.

Which room does what: `_magic` reads what people write, `_session` starts ranks and hears them, `_run` follows one request to its end, `_screen` and
`_folding` show it, `_failures` says who failed how; on the ranks, `_worker` carries requests out and `_streams` is what the code prints to.
`_messages` is what both sides say to each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

__all__ = ["load_ipython_extension", "progress", "unload_ipython_extension"]

T = TypeVar("T")


def load_ipython_extension(shell: Any = None) -> None:
    """What ``%load_ext eirene_train.notebook`` calls.

    Raises:
        ImportError: nobody runs cells here.
    """
    if shell is None or not hasattr(shell, "register_magic_function"):
        raise ImportError(
            "`eirene_train.notebook` is an extension of IPython, which does not run here; "
            "in a notebook, load it with `%load_ext eirene_train.notebook`"
        )
    from ._magic import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """What ``%unload_ext eirene_train.notebook`` calls: the ranks end."""
    from ._magic import unload

    unload(shell)


def progress(iterable: Iterable[T], total: int | None = None) -> Iterator[T]:
    """Goes through something, and shows below the cell how far the slowest rank is. Elsewhere than in a cell on ranks it shows nothing.

    Args:
        total: how many there are, where `iterable` does not know.
    """
    from ._worker import tell_progress

    if total is None:
        try:
            total = len(iterable)  # type: ignore[arg-type]
        except TypeError:
            total = None
    count = 0
    tell_progress(0, total)
    for item in iterable:
        yield item
        count += 1
        tell_progress(count, total)
    tell_progress(count, count)
