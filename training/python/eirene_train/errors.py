"""What can go wrong, each with the ranks it is about.

The runtime raises these; their messages are whole sentences' worth and name ranks of the world, whatever sub-group the call was for.
"""

from __future__ import annotations

# As in the package's own file, which says why.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "Aborted",
    "ConnectionLost",
    "EireneError",
    "InvalidArgument",
    "LaunchError",
    "MemoryShortage",
    "Mismatch",
    "PeerDied",
    "PeerLeft",
    "ResourceExhausted",
    "SystemFailure",
    "TimedOut",
    "WorldEnded",
]


class EireneError(RuntimeError):
    """Everything the training runtime raises by itself."""


class TimedOut(EireneError, TimeoutError):
    """Some ranks did not come in time.

    Attributes:
        missing: the ranks of the world that nothing was heard of; empty where that is not known.
    """

    def __init__(self, message: str, missing: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.missing = tuple(missing)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.missing))


class PeerDied(EireneError):
    """Another rank's process ended in the middle of the run.

    Attributes:
        rank: whose, in the world.
    """

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.rank))


class PeerLeft(EireneError):
    """Another rank left the world in good order while it was still needed.

    Attributes:
        rank: who, in the world.
    """

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.rank))


class Aborted(EireneError):
    """A rank gave up and told the others.

    Attributes:
        rank: who, in the world.
    """

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.rank))


class ConnectionLost(EireneError, ConnectionError):
    """The connection to another rank broke, and nothing was heard of its end.

    Attributes:
        rank: whose, in the world.
    """

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.rank))


class Mismatch(EireneError):
    """Ranks called different things, or the same thing with different shapes, types or reductions."""


class InvalidArgument(EireneError, ValueError):
    """A call that cannot mean anything: an unknown type, a rank out of range, a second world."""


class WorldEnded(EireneError):
    """The world was left, or had failed before."""


class MemoryShortage(EireneError, MemoryError):
    """The system gave no memory to share."""


class ResourceExhausted(EireneError):
    """This rank is so far behind another that no more of what that one sends is kept for it.

    Attributes:
        rank: whom it is behind, in the world.
    """

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.rank))


class SystemFailure(EireneError):
    """The system or the MPI library refused something; the message says what."""


class LaunchError(EireneError):
    """How this process was started could not be made sense of, or its ranks could not meet; the message says the cure."""
