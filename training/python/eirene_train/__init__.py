"""Eirene's training runtime: a process group for stock PyTorch that needs no MPI, no address and no port.

    import torch.distributed as dist
    import eirene_train

    dist.init_process_group("eirene")

Importing it makes the backend ``eirene`` known to torch, whichever of the two is imported first. Without torch everything but the backend,
`GradArena` and `comm_hook` works; asking for those says so.
"""

from __future__ import annotations

import sys

from ._native import Group, Region, Work, World, launched
from .errors import (
    Aborted,
    ConnectionLost,
    EireneError,
    InvalidArgument,
    LaunchError,
    MemoryShortage,
    Mismatch,
    PeerDied,
    PeerLeft,
    ResourceExhausted,
    SystemFailure,
    TimedOut,
    WorldEnded,
)

# What type checkers take for true. To import it from `typing` would cost every `eirene-train` some milliseconds, as would what is imported
# when it is asked for: a container's files come through FUSE.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from ._world import joined, leave, world
    from .arena import GradArena
    from .hook import comm_hook
    from .reports import report
    from .tuning import explain, tune

    __version__: str

__all__ = [
    "Aborted",
    "ConnectionLost",
    "EireneError",
    "GradArena",
    "Group",
    "InvalidArgument",
    "LaunchError",
    "MemoryShortage",
    "Mismatch",
    "PeerDied",
    "PeerLeft",
    "Region",
    "ResourceExhausted",
    "SystemFailure",
    "TimedOut",
    "Work",
    "World",
    "WorldEnded",
    "comm_hook",
    "explain",
    "joined",
    "launched",
    "leave",
    "report",
    "tune",
    "world",
]

_OLDEST_TORCH = (2, 14)

# Where what is imported on demand lies.
_MODULES = {
    "GradArena": "arena",
    "comm_hook": "hook",
    "explain": "tuning",
    "joined": "_world",
    "leave": "_world",
    "report": "reports",
    "tune": "tuning",
    "world": "_world",
}
_WITH_TORCH = ("GradArena", "comm_hook")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _MODULES:
        value = _imported(name)
    else:
        raise AttributeError(f"module `eirene_train` has no attribute `{name}`")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("eirene-train")
    except PackageNotFoundError:
        return "0"


def _imported(name: str) -> Any:
    from importlib import import_module

    try:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != "torch" or name not in _WITH_TORCH:
            raise
        raise ImportError(f"`eirene_train.{name}` needs PyTorch, which is not installed here; the rest works without") from error


class _WhenTorchComes:
    """A finder that registers the backend as soon as torch has been imported, without importing it for those who do not need it."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_register(module: ModuleType) -> None:
            load(module)
            _register()

        spec.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec


def _register() -> None:
    """Registers the backend where torch has what it takes; where it has not, asking for the backend says what is missing."""
    import torch
    import torch.distributed as distributed

    if not distributed.is_available():
        return
    found = torch.__version__
    if tuple(int(part) for part in found.split(".")[:2]) >= _OLDEST_TORCH:
        from .backend import register

        register()
        return

    def refuse(*_: Any) -> Any:
        raise ImportError(
            f"the backend `eirene` needs torch 2.14 or newer, and this is {found}: older ones have no backends in Python. "
            "`eirene_train.world()`, `GradArena` and, beside gloo, `comm_hook` work with it"
        )

    distributed.Backend.register_backend("eirene", refuse, devices=["cpu"])


if "torch" in sys.modules:
    _register()
else:
    sys.meta_path.insert(0, _WhenTorchComes())
