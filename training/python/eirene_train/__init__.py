"""Eirene's training runtime: a process group for stock PyTorch that needs no MPI, no address and no port.

    import torch.distributed as dist
    import eirene_train

    dist.init_process_group("eirene")

Importing it makes the backend ``eirene`` known to torch, whichever of the two is imported first. Without torch everything but the backend,
`GradArena` and `comm_hook` works; asking for those says so.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._native import Group, Region, Work, World, launched
from ._world import joined, leave, world
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

from .reports import report
from .tuning import explain, tune

if TYPE_CHECKING:
    from .arena import GradArena
    from .hook import comm_hook

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

try:
    __version__ = version("eirene-train")
except PackageNotFoundError:
    __version__ = "0"

_OLDEST_TORCH = (2, 15)
_WITH_TORCH = {"GradArena": "arena", "comm_hook": "hook"}


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module `eirene_train` has no attribute `{name}`")
    from importlib import import_module

    try:
        return getattr(import_module(f".{_WITH_TORCH[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"`eirene_train.{name}` needs PyTorch, which is not installed here; the rest works without") from error


class _WhenTorchComes(MetaPathFinder):
    """Registers the backend as soon as torch has been imported, without importing it for those who do not need it."""

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
            f"the backend `eirene` needs torch 2.15 or newer, and this is {found}: older ones have no backends in Python. "
            "`eirene_train.world()`, `GradArena` and, beside gloo, `comm_hook` work with it"
        )

    distributed.Backend.register_backend("eirene", refuse, devices=["cpu"])


if "torch" in sys.modules:
    _register()
else:
    sys.meta_path.insert(0, _WhenTorchComes())
