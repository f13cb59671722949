"""torch's distributed checkpointing, one checkpoint at a time: written under another name and then renamed, read back and judged.

What each rank writes is planned by torch (`torch.distributed.checkpoint`, DCP): whole tensors are divided among the ranks, sharded ones written by
those who hold them, and read back by whoever needs which part, so another number of ranks reads it as well. The files are torch's own format.
Names and values come here flat, see `_state`, so torch's planners are told not to flatten them once more.

Source: https://docs.pytorch.org/docs/stable/distributed.checkpoint.html.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from ._directory import sync_directory
from ._ranks import Ranks, reason
from .errors import CheckpointError

__all__ = ["read", "silence_alone", "write"]

# What torch says where a reader fails to read its table of contents.
_UNREADABLE = "global metadata read failed: "
_ALONE = "torch.distributed is disabled, unavailable or uninitialized"


class _Writer(FileSystemWriter):
    """torch's writer of files, which syncs what it writes; here also the directory, and rank 0 completes the checkpoint at the end.

    torch calls `finish` on rank 0 when all ranks have written, and tells all ranks how it went: what fails there fails everywhere.
    """

    def __init__(self, path: Path, prepare: Callable[[], None], complete: Callable[[], None]) -> None:
        super().__init__(path, single_file_per_rank=True, sync_files=True, overwrite=False)
        self._prepare = prepare
        self._complete = complete

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        with _as_system_error():
            self._prepare()
            return super().prepare_local_plan(plan)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        with _as_system_error():
            written = super().write_data(plan, planner)
            # On a file system of several machines, by each that has put names into it.
            sync_directory(Path(self.path))
            return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        with _as_system_error():
            super().finish(metadata, results)
            self._complete()


class _Reader(FileSystemReader):
    """torch's reader of files; it takes no number of a rank, so torch looks for no table of contents of a rank's own, as there is one for all."""

    def read_metadata(self) -> Metadata:
        try:
            return super().read_metadata()
        except Exception as error:
            raise ValueError(f"`.metadata` cannot be read: {reason(error)}") from error


class _as_system_error:
    """Raises the system's own error where torch has wrapped it: what it is wrapped in is all that would reach the other ranks."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        at = error
        while at is not None and not isinstance(at, OSError):
            at = at.__cause__ or at.__context__
        if at is not None and at is not error:
            raise OSError(at.errno, at.strerror, at.filename) from error


def silence_alone() -> None:
    """Without a process group torch warns at every checkpoint that there is none; where there is none, that is no news."""
    warnings.filterwarnings("ignore", message=_ALONE)


def write(ranks: Ranks, path: Path, leaves: dict[str, Any], prepare: Callable[[], None], complete: Callable[[], None]) -> int:
    """Writes a checkpoint, together with the other ranks, in the group for it.

    Args:
        path: where; a name that is not there yet.
        leaves: tensors in the CPU's memory, and values, by their names.
        prepare: what every rank does before.
        complete: what rank 0 does when all files are on the disk.

    Returns:
        How many bytes all ranks wrote.

    Raises:
        CheckpointError: on all ranks alike, where any could not write.
    """
    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    try:
        writer = _Writer(path, prepare, complete)
        metadata = save(leaves, storage_writer=writer, planner=planner, process_group=ranks.writing, no_dist=ranks.alone)
    except CheckpointException as error:
        failed = {ranks.in_world(rank): failure for rank, (failure, _) in sorted(error.failures.items())}
        each = "; ".join(f"rank {rank}: {reason(failure)}" for rank, failure in failed.items())
        raise CheckpointError(each, tuple(failed)) from error
    return sum(place.length for place in (metadata.storage_data or {}).values())


def read(ranks: Ranks, path: Path, leaves: dict[str, Any]) -> str | None:
    """Reads a checkpoint: tensors into the memory they have, other values in their places.

    Returns:
        What is wrong with it, where it cannot be read; the same on all ranks.

    Raises:
        CheckpointError: it can be read, and holds something else than is asked for.
    """
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_ALONE)
            load(leaves, storage_reader=_Reader(path), planner=planner, process_group=ranks.group, no_dist=ranks.alone)
    except CheckpointException as error:
        failed = {ranks.in_world(rank): failure for rank, (failure, _) in sorted(error.failures.items())}
        each = "; ".join(f"rank {rank}: {reason(failure).partition(_UNREADABLE)[2] or reason(failure)}" for rank, failure in failed.items())
        # Before the first tensor is read torch looks for what is asked for; that fails where it is not there, or where the table cannot be read.
        if error.args[0] != "read" and not any(_UNREADABLE in str(failure) for failure in failed.values()):
            raise CheckpointError(f"checkpoint `{path}` holds something else than is asked for: {each}", tuple(failed)) from error
        return each
    return None
