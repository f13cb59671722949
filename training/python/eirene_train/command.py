"""The command ``eirene-train``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from . import _native

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        arguments: without the program's name; none: those of this process.

    Returns:
        The exit code: of ``run``, the first failed rank's; of ``doctor``, 0 without problems and 1 with. ``bench`` does not return: this
        process becomes ``python -m eirene_train.bench``.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    return _native.command(["eirene-train", *given])
