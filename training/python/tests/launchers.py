"""The launchers of this machine, a SLURM for a test, and what launchers and ranks leave behind."""

from __future__ import annotations

import importlib.metadata
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import forkserver

__all__ = ["NAMES", "Traces", "command", "of_wheel", "slurm", "two_nodes"]

NAMES = ["run", "mpirun", "mpiexec", "srun", "torchrun"]
_FIXTURE = Path(__file__).parents[2] / "launch" / "tests" / "fixture" / "slurm"


def command(name: str, size: int) -> list[str]:
    """The command of a launcher, up to the program, for so many ranks."""
    if name == "run":
        return [sys.executable, "-m", "eirene_train", "run", "-n", str(size)]
    if name == "torchrun":
        # Its own default port may be somebody's.
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        return [sys.executable, "-m", "torch.distributed.run", "--no-python", "--master-port", str(port), "--nproc-per-node", str(size)]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    program, package, *options = {
        "mpirun": ["mpirun.openmpi", "openmpi-bin", *root, "--oversubscribe", "-n", str(size)],
        "mpiexec": ["mpiexec.mpich", "mpich", "-n", str(size)],
        "srun": ["srun", "slurm-client", "--mpi=pmix", "--overcommit", "--nodes=1", "--ntasks", str(size)],
    }[name]
    assert shutil.which(program), f"`{program}` is not installed: deploy/packages {program}={package}"
    return [program, *options]


def of_wheel(package: str, name: str) -> Path:
    """A file of a Python package, by its name."""
    files = importlib.metadata.files(package) or []
    return next(Path(file.locate()).resolve() for file in files if file.name == name)


@contextmanager
def slurm() -> Iterator[None]:
    """A SLURM of its own; `srun` finds it by SLURM_CONF. It ends with this process at the latest."""
    # Whoever kills this process's group leaves it the time to tidy up.
    holder = subprocess.Popen([_FIXTURE, "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert holder.stdin is not None and holder.stdout is not None
    try:
        conf = holder.stdout.readline().strip()
        assert conf, "SLURM does not start; it has said why on stderr"
        os.environ["SLURM_CONF"] = conf
        yield
    finally:
        os.environ.pop("SLURM_CONF", None)
        holder.stdin.close()
        holder.wait()


# Starts its arguments as two ranks; each sees a boot id of its own, by which the runtime knows machines apart.
_ON_TWO_NODES = """
import os, subprocess, sys
from pathlib import Path
started = []
for rank in range(2):
    boot = Path(sys.argv[1], f"boot{rank}")
    boot.write_text(f"00000000-0000-0000-0000-00000000000{rank}")
    place = dict(RANK=str(rank), SIZE="2", LOCAL_RANK="0", LOCAL_SIZE="1", NODE=str(rank), NODES="a,b")
    environment = os.environ | {f"EIRENE_TRAIN_{name}": value for name, value in place.items()}
    script = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
    started.append(subprocess.Popen(["unshare", "-rm", "sh", "-c", script, str(boot), *sys.argv[2:]], env=environment))
sys.exit(max(process.wait() for process in started))
"""


def two_nodes(directory: Path) -> tuple[list[str], dict[str, str]]:
    """The command, up to the program, that starts two ranks which take each other for another node's, and the variables it needs.

    Args:
        directory: an empty one, for as long as the ranks run.
    """
    secret = directory / "secret"
    secret.touch(0o600)
    secret.write_text(secrets.token_hex(16))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    meeting = {"EIRENE_TRAIN_SECRET_FILE": str(secret), "EIRENE_TRAIN_MEETING": f"tcp://127.0.0.1:{port}", "EIRENE_TRAIN_WORLD": "test"}
    return [sys.executable, "-c", _ON_TWO_NODES, str(directory)], meeting


class Traces:
    """What is started with `variables` is known by a mark and keeps its files in a directory: afterwards, nothing of it may be left."""

    def __init__(self) -> None:
        self._mark = f"{forkserver.MARK}={secrets.token_hex(8)}"
        self._base = Path(tempfile.mkdtemp(prefix="eirene-traces."))

    @property
    def variables(self) -> dict[str, str]:
        """For the environment of what is started."""
        name, value = self._mark.split("=")
        return {name: value} | {place: str(self._base) for place in ("XDG_RUNTIME_DIR", "HOME", "TMPDIR")}

    def processes(self, which: Callable[[list[str]], bool] = lambda _: True) -> list[int]:
        """Those that carry the mark, whoever their parents are, and whose command is like that."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self._mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    words = (entry / "cmdline").read_text(errors="replace").split("\0")
                    if which(words):
                        found.append(int(entry.name))
            except OSError:
                continue  # It has ended meanwhile.
        return sorted(found)

    def assert_none(self, seconds: float = 60.0) -> None:
        """No process within so many seconds, and then no directory and no socket. Shared memory has no name and goes with its processes."""
        deadline = time.monotonic() + seconds
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not self.processes(), [Path(f"/proc/{process}/cmdline").read_bytes() for process in self.processes()]
        assert not [path for path in self._base.iterdir() if path.name.startswith("eirene")], list(self._base.iterdir())
        assert str(self._base) not in Path("/proc/net/unix").read_text()

    def clear(self) -> None:
        """Ends what is left all the same, at the end of a test."""
        for process in self.processes():
            os.kill(process, signal.SIGKILL)
        shutil.rmtree(self._base, ignore_errors=True)
