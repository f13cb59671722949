"""What ``eirene-train doctor`` asks Python about itself: ``python -m eirene_train.facts``.

It answers in one line, in a process of its own: importing torch takes seconds, and may end the process where it is broken.
"""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

__all__ = ["facts"]

# Stands before the answer, among whatever else libraries write.
_ANSWER = "eirene-train-look: "


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def facts(quick: bool = False) -> dict[str, Any]:
    """Python's version and packages, and what torch has that the backend ``eirene`` needs.

    Args:
        quick: do not import torch; its version is then that of the package's metadata.

    Returns:
        Strings, truth values and lists of strings, by name; what is not there is None.
    """
    found: dict[str, Any] = {
        "version": platform.python_version(),
        "executable": sys.executable,
        "package": _installed("eirene-train"),
        "torch": _installed("torch"),
        "imported": False,
        "error": None,
        "py_backend": False,
        "backends": [],
        "cuda": None,
        "mpi4py": _installed("mpi4py"),
    }
    if quick or found["torch"] is None:
        return found
    try:
        import torch
        import torch.distributed as distributed
    except Exception as error:  # whatever a broken installation raises
        found["error"] = f"{type(error).__name__}: {error}"
        return found
    found.update(torch=torch.__version__, imported=True, cuda=torch.version.cuda)
    if distributed.is_available():
        has = {
            "gloo": distributed.is_gloo_available(),
            "nccl": distributed.is_nccl_available(),
            "mpi": distributed.is_mpi_available(),
            "ucc": distributed.is_ucc_available(),
        }
        found["backends"] = [name for name, there in has.items() if there]
        found["py_backend"] = _has_py_backend()
    return found


def _has_py_backend() -> bool:
    """Whether a class in Python can be a backend: torch's `Backend` can be made an instance of only where it can."""
    from torch._C import _distributed_c10d as core

    try:
        type("Probe", (core.Backend,), {})(0, 1)
    except (AttributeError, RuntimeError, TypeError):
        return False
    return True


if __name__ == "__main__":
    print(_ANSWER + json.dumps(facts("--quick" in sys.argv[1:])))
