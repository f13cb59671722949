"""The directory that checkpoints lie in: what counts, who may write, how one becomes complete, and what may be cleared away.

Knows files alone, neither torch nor other ranks; what is here is done by rank 0, but for `sees`. Names in the directory:

- ``step-000123``: a checkpoint. It is written under another name and renamed when every byte of it is on the disk, so whatever has this name
  was once whole. ``complete.json`` in it says how large each file was then.
- ``step-000123.partial-RUN-N``: one that is being written, or was when its run died.
- ``step-000123.replaced-RUN-N``: an earlier one of the same step, while the new one takes its name. If the new one never did, it counts.
- ``step-000123.removed-RUN-N``: one that is being removed.
- ``.writers``: who writes here. The run that does holds a lock on it, and a line in it tells each run's number, machine and job.

A left-over is removed on evidence that its writer is gone, never by its age:

- it is this run's own, or
- this run holds the lock, and the writer would hold it here too if it lived: it was on this machine (by the kernel's boot id), or the file
  system is one that no other machine writes to; locks of network file systems are not believed, as not all reach other machines, or
- it was this SLURM job before it was requeued (``SLURM_RESTART_COUNT``): SLURM ends a job on all its nodes before it starts it again.

What else is left over stays, and is named in a warning.

Sources: rename(2): the new name shows the old or the new thing at any moment; fsync(2): a file's name is only as safe as its directory, which
wants an fsync of its own; fcntl(2), "Advisory record locking": the lock goes with the process, and forked children do not have it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import socket
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .errors import CheckpointError

__all__ = ["Directory", "Found", "find", "partial_name", "sees", "sync_directory"]

COMPLETE = "complete.json"
_WRITERS = ".writers"
_NAME = re.compile(r"step-(\d{6,})(?:\.(partial|replaced|removed)-([0-9a-f]+)-\d+)?")
# File systems of this machine alone, as the kernel calls them.
_LOCAL = frozenset(("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"))
_NO_LOCKS = frozenset((errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL))

# Directories that this process writes checkpoints in, by device and inode: a process's own locks are no obstacle to it.
_in_use: set[tuple[int, int]] = set()


@dataclass(frozen=True)
class Found:
    """A checkpoint in the directory.

    Attributes:
        path: its directory.
        step: the step it is of.
        number: how many were complete before it, in its directory; what was written later has the greater one.
        ranks: how many wrote it.
        damage: what is wrong with it; none: every file is there in its full length.
    """

    path: Path
    step: int
    number: int
    ranks: int
    damage: str | None


def partial_name(step: int, run: str, count: int) -> str:
    """The name under which a checkpoint is written; the same on all ranks."""
    return f"step-{step:06d}.partial-{run}-{count}"


def find(directory: Path) -> list[Found]:
    """What is in a directory, the newest first: what was written last, and before it what cannot tell when it was written."""
    found = []
    names = {entry.name for entry in directory.iterdir()}
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None or match[2] not in (None, "replaced"):
            continue
        whole = f"step-{match[1]}"
        if name == whole or whole not in names:
            found.append(_look(directory / name, int(match[1])))
    return sorted(found, key=lambda one: (one.number < 0, one.number, one.step), reverse=True)


def _look(path: Path, step: int) -> Found:
    try:
        record = json.loads((path / COMPLETE).read_bytes())
        number, ranks, files = int(record["number"]), int(record["ranks"]), dict(record["files"])
    except FileNotFoundError:
        return Found(path, step, -1, 0, f"`{COMPLETE}` is missing")
    except (ValueError, KeyError, TypeError, OSError) as error:
        return Found(path, step, -1, 0, f"`{COMPLETE}` cannot be read: {error}")
    for name, wanted in files.items():
        try:
            length = (path / name).stat().st_size
        except OSError as error:
            what = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be looked at: {error.strerror}"
            return Found(path, step, number, ranks, f"`{name}` {what}")
        if length != wanted:
            return Found(path, step, number, ranks, f"`{name}` has {length} bytes of {wanted}")
    return Found(path, step, number, ranks, None)


class Directory:
    """The right to write checkpoints in a directory, until it is closed or this process ends.

    Args:
        path: where; made if it is not there.
        run: this run's id, in hexadecimal digits.
        keep: how many complete checkpoints stay.

    Raises:
        CheckpointError: one cannot write there, or another run does.
    """

    def __init__(self, path: Path, run: str, keep: int) -> None:
        self.path = path
        self._run = run
        self._keep = keep
        self._count = 0
        self._named: set[str] = set()
        self._me: dict[str, Any] = {"run": run, "boot": _boot(), "host": socket.gethostname(), "process": os.getpid(), "job": _job(), "since": _now()}
        try:
            path.mkdir(parents=True, exist_ok=True)
            status = path.stat()
            self._key = status.st_dev, status.st_ino
            if self._key in _in_use:
                raise CheckpointError(f"this process writes checkpoints in `{path}` already; give each Checkpointer a directory of its own")
            self._file = os.open(path / _WRITERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise CheckpointError(f"checkpoints cannot be written in `{path}`: {error.strerror}") from error
        _in_use.add(self._key)
        try:
            self._writers = self._join()
        except BaseException:
            self.close()
            raise

    def _join(self) -> dict[str, dict[str, Any]]:
        """Takes the lock, and writes this run down. The runs that have left something over, by their ids."""
        known = _writers(os.pread(self._file, 1 << 20, 0))
        self._locked = False
        try:
            # A lock of the process, not of the open file: a loader's workers that outlive a killed trainer for a while must not hold up the next.
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._locked = True
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                other = known[-1] if known else {}
                if not self._was_me(other):
                    raise CheckpointError(
                        f"another run writes checkpoints in `{self.path}`: process {other.get('process', '?')} on `{other.get('host', '?')}`, since "
                        f"{other.get('since', '?')}; end it, or give this one a directory of its own"
                    ) from error
            elif error.errno not in _NO_LOCKS:
                raise CheckpointError(f"`{self.path / _WRITERS}` cannot be locked: {error.strerror}") from error
        left = {match[3] for entry in self.path.iterdir() if (match := _NAME.fullmatch(entry.name)) and match[3]}
        writers = [one for one in known if one["run"] in left] + [self._me]
        try:
            # Whoever is killed between these two lines leaves at most lines too many; they are of runs that left nothing over.
            os.pwrite(self._file, (content := "".join(json.dumps(one) + "\n" for one in writers).encode()), 0)
            os.ftruncate(self._file, len(content))
            os.fsync(self._file)
        except OSError as error:
            raise CheckpointError(f"checkpoints cannot be written in `{self.path}`: {error.strerror}") from error
        return {one["run"]: one for one in writers}

    def close(self) -> None:
        """Gives the lock back. Calling it again does nothing."""
        if self._key in _in_use:
            _in_use.remove(self._key)
            os.close(self._file)

    def _name(self, step: int, state: str) -> Path:
        self._count += 1
        return self.path / f"step-{step:06d}.{state}-{self._run}-{self._count}"

    def commit(self, partial: Path, step: int, record: Mapping[str, Any]) -> None:
        """Makes what was written a checkpoint, and removes those that are no longer kept.

        Args:
            partial: where it was written; every file in it is on the disk.
            step: the step it is of.
            record: what its ``complete.json`` says besides.

        Raises:
            OSError: the file system does not take it.
        """
        files = {entry.name: entry.stat().st_size for entry in sorted(partial.iterdir())}
        number = 1 + max((one.number for one in find(self.path)), default=0)
        whole = {"step": step, "number": number, "time": _now(), "run": self._run, **record, "files": files}
        descriptor = os.open(partial / COMPLETE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(whole, file, indent=1)
            file.flush()
            os.fsync(descriptor)
        sync_directory(partial)
        final = self.path / f"step-{step:06d}"
        if final.exists():
            # No rename puts one directory in the place of another that holds something.
            final.rename(self._name(step, "replaced"))
        partial.rename(final)
        sync_directory(self.path)
        # It is complete, whatever becomes of the others; the next one tries again.
        with contextlib.suppress(OSError):
            self._prune()
            self.sweep()

    def _prune(self) -> None:
        """Removes what is no longer kept. What is damaged does not count, and goes when what is older than it goes."""
        found = find(self.path)
        whole = [one for one in found if one.damage is None]
        if len(whole) <= self._keep:
            return
        oldest = whole[self._keep - 1]
        for one in found:
            # What cannot tell when it was written is as old as its step.
            if one.number < oldest.number if one.number >= 0 else one.step < oldest.step:
                # Renamed first: from here on nobody takes it for one that is damaged.
                one.path.rename(self._name(one.step, "removed"))

    def sweep(self, writing: Path | None = None) -> None:
        """Removes left-overs, as far as their writers are known to be gone, and warns of the others, once each.

        Args:
            writing: what this run is writing.
        """
        for entry in list(self.path.iterdir()):
            match = _NAME.fullmatch(entry.name)
            if match is None or match[2] is None or entry == writing:
                continue
            whole = self.path / f"step-{match[1]}"
            if match[2] == "replaced" and not whole.exists():
                # Its run was killed between two renames.
                if self._is_gone(match[3]):
                    entry.rename(whole)
            elif match[2] != "partial" or self._is_gone(match[3]):
                # What is still removed by another, or written by a rank that has not noticed its run's end, is left for the next time.
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name not in self._named:
                self._named.add(entry.name)
                warnings.warn(
                    f"`{entry}` was left over by a run of which it is not known that it has ended; remove it if nothing writes to it any more",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def discard(self, partial: Path) -> None:
        """Removes what could not be written to its end."""
        shutil.rmtree(partial, ignore_errors=True)

    def _is_gone(self, run: str) -> bool:
        """Whether a run surely writes no more, but for what this one is writing."""
        if run == self._run:
            return True
        writer = self._writers.get(run)
        if self._was_me(writer):
            return True
        return self._locked and (_is_local(self.path) or writer is not None and writer.get("boot") == self._me["boot"])

    def _was_me(self, writer: Mapping[str, Any] | None) -> bool:
        """Whether that was this SLURM job before it was requeued."""
        mine, theirs = self._me["job"], (writer or {}).get("job")
        if not mine or not theirs or (mine["id"], mine["cluster"]) != (theirs["id"], theirs["cluster"]):
            return False
        return bool(theirs["restarts"] < mine["restarts"])


def sees(directory: Path, run: str) -> str | None:
    """Why a rank other than 0 cannot write in the directory that rank 0 has taken for this run; none: it can."""
    try:
        known = _writers((directory / _WRITERS).read_bytes())
    except OSError as error:
        return f"cannot read `{directory / _WRITERS}`: {error.strerror}"
    if not known or known[-1]["run"] != run:
        return f"sees another `{directory}` than rank 0; checkpoints need a directory that all ranks share"
    if not os.access(directory, os.W_OK | os.X_OK):
        return f"must not write in `{directory}`"
    return None


def sync_directory(path: Path) -> None:
    """Makes the names in a directory survive a power failure, on file systems that know of it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # fsync(2): a file system may have nothing to do for directories, and then says so.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _writers(content: bytes) -> list[dict[str, Any]]:
    """The runs that a `.writers` tells of; lines that were cut off tell of none."""
    known = []
    for line in content.splitlines():
        with contextlib.suppress(ValueError):
            one = json.loads(line)
            if isinstance(one, dict) and isinstance(one.get("run"), str):
                known.append(one)
    return known


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"unknown-{os.getpid()}"


def _job() -> dict[str, Any] | None:
    job = os.environ.get("SLURM_JOB_ID")
    restarts = os.environ.get("SLURM_RESTART_COUNT", "0")
    if not job or not restarts.isdigit():
        return None
    return {"id": job, "cluster": os.environ.get("SLURM_CLUSTER_NAME", ""), "restarts": int(restarts)}


def _is_local(path: Path) -> bool:
    """Whether no other machine writes to this file system, as far as the kernel's table of mounts tells; see proc_pid_mountinfo(5)."""
    place = str(path.resolve())
    best, kind = "", ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            before, _, after = line.partition(" - ")
            mount = before.split(" ")[4]
            inside = place == mount or place.startswith(mount.rstrip("/") + "/")
            # Of two at one place, the later lies above.
            if inside and len(mount) >= len(best):
                best, kind = mount, after.split(" ")[0]
    return kind in _LOCAL


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
