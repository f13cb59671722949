"""What is measured: tests, their sizes, and how often each is repeated."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["COLLECTIVES", "ITEM_BYTES", "TESTS", "Case", "cases_of", "repeats", "sizes"]

# The tests by the command's names, each with the kinds of cases it is made of.
TESTS: dict[str, tuple[str, ...]] = {
    "allreduce": ("allreduce",),
    "bcast": ("bcast",),
    "reduce_scatter": ("reduce_scatter",),
    "allgather": ("allgather",),
    "p2p": ("latency", "bandwidth"),
    "overlap": ("overlap",),
}
# What the runtime calls the collective behind a kind of case.
COLLECTIVES = {
    "allreduce": "all_reduce",
    "bcast": "broadcast",
    "reduce_scatter": "reduce_scatter",
    "allgather": "all_gather",
    "overlap": "all_reduce",
}
ITEM_BYTES = {"float32": 4, "float64": 8}

_LARGEST = {"latency": 4 << 20, "bandwidth": 4 << 20}
_LARGEST_COLLECTIVE = 1 << 20


@dataclass(frozen=True)
class Case:
    """One thing to measure in one round.

    Attributes:
        kind: `allreduce`, `bcast`, `reduce_scatter`, `allgather`, `latency`, `bandwidth` or `overlap`.
        bytes: the message's size as OSU counts it: of a rank's part (allgather), of a rank's whole input (reduce_scatter), else of the buffer.
        type: of the elements, `float32` or `float64`.
        iterations: calls that count.
        warmup: calls before them.
        window: messages under way at a time (bandwidth).
        buffers: where the message lies: `tensor`, ordinary memory; `arena`, memory the node shares. `memcpy` copies instead of calling.
    """

    kind: str
    bytes: int
    type: str = "float32"
    iterations: int = 100
    warmup: int = 10
    window: int = 64
    buffers: str = "tensor"

    @property
    def elements(self) -> int:
        """Elements in the message."""
        return self.bytes // ITEM_BYTES[self.type]

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def sizes(given: str | None, kind: str, item_bytes: int) -> list[int]:
    """Message sizes, doubling, as OSU's ``-m [MIN:]MAX`` names them.

    Args:
        given: `MAX`, `MIN:MAX`, `MIN:` or none for the default: one element to 1 MB (4 MB between two ranks).
        kind: the kind of case.
        item_bytes: bytes of an element; every size is at least that, and a multiple of it.

    Raises:
        ValueError: it is not of that form, or there is no size in it.
    """
    least, most = item_bytes, _LARGEST.get(kind, _LARGEST_COLLECTIVE)
    if given is not None:
        first, colon, last = given.rpartition(":")
        try:
            least = int(first) if first else least
            most = int(last) if last or not colon else most
        except ValueError:
            raise ValueError(f"`{given}` is not MAX or MIN:MAX in bytes") from None
    least = -(-max(least, 1) // item_bytes) * item_bytes
    found = []
    while least <= most:
        found.append(least)
        least *= 2
    if not found:
        raise ValueError(f"`{given}` leaves no message size; the smallest is one element, {item_bytes} bytes")
    return found


def repeats(size: int) -> tuple[int, int]:
    """Iterations and warm-up calls in one round: OSU's numbers about spread over the rounds, fewer where one call takes long."""
    if size <= 8 << 10:
        return 200, 20
    if size <= 1 << 20:
        return 50, 10
    if size <= 16 << 20:
        return 10, 3
    return 5, 2


def cases_of(
    test: str, message_sizes: str | None, element: str, iterations: int | None, warmup: int | None, window: int, ranks: int
) -> list[Case]:
    """The cases of a test in their order.

    Raises:
        ValueError: the sizes make no sense.
    """
    found = []
    for kind in TESTS[test]:
        for size in sizes(message_sizes, kind, ITEM_BYTES[element]):
            if kind == "reduce_scatter":
                # The same number of elements for every rank.
                share = ITEM_BYTES[element] * ranks
                size = -(-size // share) * share
            usual = repeats(size)
            if kind == "bandwidth":
                usual = max(usual[0] // 5, 2), max(usual[1] // 5, 1)
            case = Case(kind, size, element, usual[0] if iterations is None else iterations, usual[1] if warmup is None else warmup, window)
            if case not in found:
                found.append(case)
    return found
