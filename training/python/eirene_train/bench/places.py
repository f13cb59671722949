"""Where ranks are: all on this machine, or dealt out over nodes that `ssh` reaches, which in a session are the session's own.

Ranks of the first node come first, as with every launcher that is compared. A node's name is what the shell, the launchers and the ranks know it by.
"""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HERE", "Places", "chosen"]

# Nodes of the session this is in, and the person's own remote shell, as `eirene-train run` has it.
_SESSION_NODES = "EIRENE_NODES"
_SHELL = "EIRENE_TRAIN_RSH"
_SSH = ("ssh", "-T", "-o", "BatchMode=yes")
# What says on another node where programs and libraries are.
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Places:
    """The node of each rank.

    Attributes:
        nodes: in the order of their ranks; none: this machine.
        counts: ranks on each.
        shell: the remote shell, which gets a node and a command behind it.
    """

    nodes: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    shell: tuple[str, ...] = _SSH

    @property
    def several(self) -> bool:
        """Whether ranks may be on other machines."""
        return bool(self.nodes)

    @property
    def text(self) -> str:
        """For a table's head: ` on 2 nodes (c1, c2)`; nothing where all are here."""
        if not self.nodes:
            return ""
        return f" on {len(self.nodes)} node{'s' if len(self.nodes) > 1 else ''} ({', '.join(self.nodes)})"

    def node_of(self, rank: int) -> str | None:
        """The node a rank is on; none where it is to be started here."""
        return next((None if _is_here(node) else node for node, ranks in self._ranks() if rank in ranks), None)

    def number_on_its_node(self, rank: int) -> int:
        """How many ranks of its node come before this one."""
        return next((rank - ranks.start for _, ranks in self._ranks() if rank in ranks), rank)

    def for_launcher(self, family: str, environment: Mapping[str, str]) -> list[str]:
        """What a launcher must be told, beside the number of ranks.

        Args:
            family: `eirene`, `openmpi` or `mpich`.
            environment: variables that ranks need, of which Open MPI's takes none along unasked.
        """
        if not self.nodes:
            return []
        slots = ",".join(f"{node}:{count}" for node, count in zip(self.nodes, self.counts, strict=True))
        if family == "eirene":
            return ["--nodes", ",".join(self.nodes)]
        if family == "mpich":
            return ["-hosts", slots]
        passed_on = [name for name in _PASSED_ON if name in os.environ]
        return ["--host", slots, *(word for name in [*passed_on, *environment] for word in ("-x", name))]

    def command(self, rank: int, program: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """The words that start one rank: the program itself, or what has it run on the rank's node."""
        node = self.node_of(rank)
        if node is None:
            return list(program)
        passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        variables = [f"{name}={value}" for name, value in (passed_on | dict(environment)).items()]
        return [*self.shell, node, shlex.join(["exec", "env", *variables, *program])]

    def directory(self) -> Path | None:
        """Where files lie that all nodes see: in the home directory; none: anywhere here."""
        if not self.nodes:
            return None
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cache

    def _ranks(self) -> list[tuple[str, range]]:
        begin, found = 0, []
        for node, count in zip(self.nodes, self.counts, strict=True):
            found.append((node, range(begin, begin + count)))
            begin += count
        return found


HERE = Places()


def chosen(named: str | None, here: bool, ranks: int) -> Places:
    """Where the ranks of a test are to be.

    Args:
        named: nodes with commas, or `all` those of the session; none: the same where there are several and `ranks` are enough, else this machine.
        here: all on this machine, whatever there is.
        ranks: how many in all.

    Raises:
        ValueError: there is no such session, or the list makes no sense.
    """
    session = os.environ.get(_SESSION_NODES, "").split()
    if here:
        if named is not None:
            raise ValueError("`--here` and `--nodes` contradict each other")
        return HERE
    if named is None:
        nodes = session if len(session) > 1 else []
    elif named == "all":
        if not session:
            raise ValueError("`--nodes all` are those of a session of several nodes, which this is not: name them, as `c1,c2`")
        nodes = session
    else:
        nodes = [node.strip() for node in named.split(",")]
        if any(not node or node.startswith("-") or not set(node).isdisjoint("[] \t:") for node in nodes) or len(set(nodes)) < len(nodes):
            raise ValueError(f"`{named}` is no list of nodes: write each once, as `c1,c2`")
    if not nodes:
        return HERE
    # As `eirene-train run` deals them out.
    each, more = divmod(ranks, len(nodes))
    counts = [count for number in range(len(nodes)) if (count := each + (number < more))]
    shell = tuple(os.environ[_SHELL].split()) if os.environ.get(_SHELL) else _SSH
    return Places(tuple(nodes[: len(counts)]), tuple(counts), shell)


def _is_here(node: str) -> bool:
    own = socket.gethostname()
    return node in (own, own.partition(".")[0], "localhost", "127.0.0.1")
