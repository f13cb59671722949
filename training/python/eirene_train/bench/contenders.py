"""What is compared, and how each is started."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from . import mpis
from .places import HERE, Places

__all__ = ["CHOICES", "Contender", "Unknown", "by_mpi", "clean_environment", "compared", "eirene", "gloo", "nccl"]

CHOICES = ("eirene", "arena", "memcpy", "mpi", "gloo", "nccl")

# What launchers leave for their ranks: this may itself be started by one, and its own ranks are not that one's.
_LAUNCHERS_OWN = ("EIRENE_TRAIN_", "OMPI_", "PMI_", "PMIX_", "PRTE_", "HYDRA", "HYDI_", "MPI_LOCAL", "SLURM_", "TORCHELASTIC_")
# One thread a rank, and what it says at once.
_QUIET = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
_RANKS_OWN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK", "ROLE_RANK")


class Unknown(ValueError):
    """A contender was asked for that does not exist; the message says which there are."""


@dataclass(frozen=True)
class Contender:
    """A team to be: one world, one backend of torch's.

    Attributes:
        name: `eirene`, `mpi:openmpi-4.1.4`, `gloo`, `nccl`.
        backend: torch's name of it.
        columns: what is measured in this world, as names of columns, each with where its buffers lie (`Case.buffers`).
        launcher: starts all ranks, given ``-n RANKS`` and a program; none: each rank is started by itself, and told where to meet.
        environment: variables for it.
        library: the file that has to be in the ranks' memory, or the contender is not what its name says.
        program: what a rank is.
        family: whose command line the launcher has: `eirene`, `openmpi` or `mpich`.
    """

    name: str
    backend: str
    columns: tuple[tuple[str, str], ...]
    launcher: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    library: Path | None = None
    program: tuple[str, ...] = (sys.executable, "-m", "eirene_train.bench.worker")
    family: str = "eirene"

    def started(self, ranks: int, places: Places, order: str) -> list[tuple[list[str], dict[str, str]]]:
        """The processes that bring its ranks up: words and variables of each.

        Args:
            ranks: how many.
            places: where.
            order: what each rank is told.
        """
        own, clean = dict(self.environment), clean_environment()
        rank = [*self.program, order]
        if self.launcher is not None:
            there = places.for_launcher(self.family, _QUIET | own)
            return [([*self.launcher, *there, "-n", str(ranks), *rank], clean | own)]
        numbered = [own | {"RANK": str(number)} for number in range(ranks)]
        return [(places.command(number, rank, _QUIET | variables), clean | variables) for number, variables in enumerate(numbered)]


def eirene(*buffers: str) -> Contender:
    """Eirene by its own launcher.

    Args:
        buffers: any of `tensor`, `arena`, `memcpy`; none: `tensor`.
    """
    names = {"tensor": "eirene", "arena": "eirene-arena", "memcpy": "memcpy"}
    columns = tuple((names[where], where) for where in buffers or ("tensor",))
    return Contender("eirene", "eirene", columns, (sys.executable, "-m", "eirene_train", "run", "--no-labels"))


def gloo(memcpy: bool = False, places: Places = HERE) -> Contender:
    """Torch's gloo, over this machine's loopback, or between nodes over what their names stand for."""
    columns = (("gloo", "tensor"), *((("memcpy", "memcpy"),) if memcpy else ()))
    return Contender("gloo", "gloo", columns, environment={} if places.several else {"GLOO_SOCKET_IFNAME": "lo"})


def nccl() -> Contender:
    """Torch's NCCL, on as many GPUs as there are ranks."""
    return Contender("nccl", "nccl", (("nccl", "tensor"),))


def by_mpi(installed: mpis.Installed, places: Places = HERE) -> Contender:
    """An MPI's own non-blocking collectives and messages, called by the same backend as Eirene's, on the caller's memory.

    Open MPI's blocking all-reduce is 1.5 to 3 times as fast as its non-blocking one.
    """
    variables = {"EIRENE_TRAIN_TRANSPORT": "mpi", "EIRENE_TRAIN_ALGORITHM": "mpi", "EIRENE_TRAIN_MPI": str(installed.library)}
    name = f"mpi:{installed.name}"
    environment = installed.environment | variables
    family = installed.name.partition("-")[0]
    if places.several and family == "mpich":
        # Hydra gives a world no name, by which ranks on several nodes know each other.
        environment = environment | {"EIRENE_TRAIN_WORLD": secrets.token_hex(8)}
    return Contender(name, "eirene", ((name, "tensor"),), installed.launcher, environment, installed.library, family=family)


def compared(
    test: str, ranks: int, processors: int, chosen: str | None, mpi: str, device: str, places: Places = HERE
) -> tuple[list[Contender], list[tuple[str, str]]]:
    """The contenders of a test.

    Args:
        test: the command's name of it.
        ranks: how many in each.
        processors: how many there are.
        chosen: some of `CHOICES`, with commas; none: all that fit.
        mpi: `all`, `none`, or names as they are printed, with commas.
        device: `cpu`, or `cuda` to add NCCL.
        places: where ranks are.

    Returns:
        Them, and what was left out, each with the reason.

    Raises:
        Unknown: something asked for does not exist.
    """
    wanted = list(CHOICES) if chosen is None else chosen.split(",")
    for name in wanted:
        if name not in CHOICES:
            raise Unknown(f"there is no contender `{name}`; there are {', '.join(CHOICES)}")
    # The floor is a fact about memory, printed beside the collective that is nearest to it.
    memcpy = "memcpy" in wanted and test == "allreduce"
    ours = [where for where, name in (("tensor", "eirene"), ("arena", "arena")) if name in wanted]
    found: list[Contender] = []
    left_out: list[tuple[str, str]] = []
    if ours or (memcpy and "gloo" not in wanted):
        found.append(eirene(*ours, *(["memcpy"] if memcpy else [])))
    if "mpi" in wanted and mpi != "none":
        chosen_mpis, left_out = _mpis(mpi, max(places.counts, default=ranks) > processors)
        found += [by_mpi(installed, places) for installed in chosen_mpis]
    if "gloo" in wanted:
        found.append(gloo(memcpy and not ours, places))
    if "nccl" in wanted:
        if device == "cuda":
            found.append(nccl())
        elif chosen is not None:
            left_out.append(("nccl", "it is for GPUs; add `--device cuda`"))
    if not found:
        raise Unknown("there is nothing to compare: no contender is left")
    return found, left_out


def _mpis(mpi: str, oversubscribed: bool) -> tuple[list[mpis.Installed], list[tuple[str, str]]]:
    installed, refused = mpis.find(oversubscribed)
    left_out = [(f"mpi:{name}", reason) for name, reason in refused]
    if mpi == "all":
        if not installed:
            left_out.append(("mpi", "no MPI was found in PATH or beside this Python; install one, or `pip install openmpi mpich`"))
        return installed, left_out
    names = [name.removeprefix("mpi:") for name in mpi.split(",")]
    by_name = {one.name: one for one in installed}
    for name in names:
        if name not in by_name:
            raise Unknown(f"there is no MPI `{name}` here; found: {', '.join(by_name) or 'none'}")
    return [by_name[name] for name in names], []


def clean_environment() -> dict[str, str]:
    """This process's variables without those by which a launcher says that it started this process; one thread a rank."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHERS_OWN) and name not in _RANKS_OWN}
    return kept | _QUIET
