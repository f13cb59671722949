"""The runtime behind :mod:`eirene_train`.

Memory is named by address and number of elements; whoever calls keeps it alive and untouched until the call or its :class:`Work` is over.
Several parts are one flat list, ``[address, elements, address, elements, ...]``. Types, reductions and collectives are numbers that
:func:`dtype`, :func:`op` and :func:`collective` give by name. Times are milliseconds.
"""

from collections.abc import Sequence
from typing import final

def dtype(name: str) -> int:
    """The number of an element type: float32, float64, float16, bfloat16, int8, uint8 … uint64, bool."""

def op(name: str) -> int:
    """The number of a reduction: sum, avg, min, max, prod."""

def collective(name: str) -> int:
    """The number of a collective: all_reduce, broadcast, reduce, reduce_scatter, all_gather, all_to_all, gather, scatter, barrier."""

def launched() -> str | None:
    """Who started this process as a rank, as far as the environment tells; none when nobody did.

    Raises:
        LaunchError: the environment contradicts itself.
    """

def addresses() -> list[str]:
    """Addresses by which other ranks may reach this machine, the likeliest first; of the interfaces, or those addresses, that
    EIRENE_TRAIN_INTERFACE lists, if it does. The loopback, where there is nothing else.

    Raises:
        InvalidArgument: something listed is not there.
    """

def command(arguments: Sequence[str]) -> int:
    """Runs ``eirene-train`` with these arguments and returns its exit code."""

@final
class World:
    """All ranks of one run."""

    @staticmethod
    def join(timeout_ms: int) -> World:
        """Finds out who started this process and meets the other ranks.

        Raises:
            LaunchError: how it was started makes no sense.
            TimedOut: some ranks did not come.
        """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def local_size(self) -> int: ...
    @property
    def node(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def remarks(self) -> list[str]:
        """What people may want to know of how the world came about: variables that differ between ranks, files that are ignored."""

    def everybody(self, timeout_ms: int) -> Group:
        """A group of all ranks. Every call builds another one, on all ranks."""

    def group(self, ranks: Sequence[int], key: str, timeout_ms: int) -> Group:
        """A group of some ranks, in this order. Called by its members only, with the same key."""

    def arena(self, size: int) -> Region:
        """Memory of this rank's that the other ranks of the node can reach in place."""

    def well(self) -> None:
        """For who waits for something that is none of the world's calls.

        Raises:
            PeerDied: a rank has died.
            EireneError: the world has ended otherwise.
        """

    def derive(self, purpose: str) -> bytes:
        """A key of 32 bytes that only the ranks of this world have, for a use of its own. It never goes over the network.

        Raises:
            LaunchError: the world has one rank, which shares nothing with anybody.
        """

    def abandon(self, reason: str) -> None:
        """Ends the world for everybody, because this rank could not do what all have to do together; the others hear why."""

    def leave(self) -> None:
        """The orderly end; later calls fail."""

@final
class Seal:
    """One end of a connection whose frames nobody else can read or change (AES-256-GCM). Both ends count frames, so one that is missing,
    doubled or moved is refused like one that was altered; then the direction is dead."""

    def __new__(cls, ours: bytes, theirs: bytes) -> Seal:
        """With a key of 32 bytes for each direction, which nothing else uses.

        Raises:
            ValueError: a key of another length, or one key for both directions.
        """

    def seal(self, frame: bytes) -> bytes:
        """A frame as it goes over the wire, 16 bytes longer."""

    def open(self, sealed: bytes) -> bytes:
        """The frame that the other end sealed next.

        Raises:
            ConnectionError: what came is not that.
        """

@final
class Group:
    """Some ranks and their order of calls. Ranks in arguments are ranks within the group."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def ranks(self) -> list[int]:
        """The members, by their rank in the world."""

    @property
    def one_node(self) -> bool:
        """Whether all its ranks are on one node."""

    def allreduce(self, address: int, elements: int, dtype: int, op: int, timeout_ms: int) -> None:
        """Reduces in place and waits: the shortest way for the most frequent call."""

    def run(
        self, collective: int, root: int, dtype: int, op: int, inputs: Sequence[int], outputs: Sequence[int], timeout_ms: int
    ) -> None:
        """A collective, to its end."""

    def start(
        self, collective: int, root: int, dtype: int, op: int, inputs: Sequence[int], outputs: Sequence[int], timeout_ms: int
    ) -> Work:
        """A collective, in the background."""

    def send(self, to: int, tag: int, address: int, elements: int, dtype: int, timeout_ms: int) -> Work: ...
    def receive(self, source: int | None, tag: int, address: int, elements: int, dtype: int, timeout_ms: int) -> Work:
        """Receives from a rank, or from whoever sends first."""

    def monitored_barrier(self, timeout_ms: int, wait_all: bool) -> None:
        """A barrier whose failure names the ranks that are missing: all of them, or the first that is found. Ctrl-C ends it, and the world.

        Every rank is told what rank 0 finds, and where rank 0 does not come, that it is missing. A rank that comes when rank 0 has given up
        is told at once; the next barrier is another one.

        Raises:
            TimedOut: somebody did not come.
        """

    def tune(self, budget_ms: int) -> str:
        """Takes what was measured on such a topology before, or measures which algorithms are fast; says what became of it.

        Called by all ranks of the group, while nothing else of the group's is under way. ``EIRENE_TRAIN_TUNING`` says what is done:
        ``off`` nothing, ``read`` only what was measured before is used, ``measure`` (as if nothing was said), ``again`` always measures.
        """

    def explain(self, collective: int, dtype: int, elements: int) -> str:
        """Which algorithm would run, and why: asked for, measured, or by a threshold."""

    def explain_messages(self) -> str:
        """How a message between two ranks goes: through shared memory, over the network, or by MPI's own where that is asked for."""

@final
class Work:
    """Something under way."""

    def wait(self, timeout_ms: int | None = None) -> None: ...
    def is_done(self) -> bool:
        """Whether it is over, well or badly."""

    def source(self) -> int | None:
        """Of a receive that is over: the group's rank it came from."""

    def manner(self) -> tuple[str, int | None] | None:
        """Of a collective that has really begun: how the ranks come to each other's data, the same on all of them.

        ``in_place``: each reads and writes the others' memory. Otherwise by messages, because: ``small``: it is so little that they are quicker;
        ``chosen``: that was asked for or measured to be quicker; ``nodes``: not all ranks are on one node; ``unshared``: the buffers of a rank
        do not lie in an arena, and the number says which rank of the world.
        """

@final
class Region:
    """Shared memory, mapped as long as the object lives."""

    @property
    def address(self) -> int: ...
    def __len__(self) -> int: ...
