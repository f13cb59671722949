"""What only the deep tests do: they run with EIRENE_TEST_DEEP, on a machine that has nothing else to do."""

from __future__ import annotations

import os

__all__ = ["DEEP", "assert_within"]

DEEP = bool(os.environ.get("EIRENE_TEST_DEEP"))


def assert_within(longest: float, seconds: float, said: object = None) -> None:
    """The product promises to take less than `longest`. Only the deep tests measure it: a busy machine takes longer."""
    assert not DEEP or seconds < longest, (seconds, longest, said)
