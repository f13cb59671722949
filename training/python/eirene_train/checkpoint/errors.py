"""What can go wrong with checkpoints."""

from __future__ import annotations

from typing import Any

from ..errors import EireneError

__all__ = ["CheckpointError"]


class CheckpointError(EireneError):
    """A checkpoint could not be written or read. It is raised on every rank in the same call, with the same message.

    Attributes:
        ranks: whom it happened to, in the world; empty where it is nobody's in particular.
    """

    def __init__(self, message: str, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.ranks))
