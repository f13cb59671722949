"""Facts about the machine and the software, for whoever reads figures later."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["cores", "facts", "load"]


def cores() -> list[int]:
    """The processors this process may run on."""
    return sorted(os.sched_getaffinity(0))


def load() -> list[float]:
    """The load average over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def facts() -> dict[str, Any]:
    """What does not change while a benchmark runs."""
    return {
        "cpu": _cpu(),
        "cores": len(cores()),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "torch": _version("torch"),
        "eirene_train": _version("eirene-train"),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
