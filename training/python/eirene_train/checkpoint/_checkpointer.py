"""Saves what is trained while the training goes on, loads the newest that is complete, and hears when the scheduler wants the training to end."""

from __future__ import annotations

import os
import secrets
import signal
import time
import warnings
from collections.abc import Iterable, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, cast

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from .. import __version__
from ..errors import InvalidArgument
from ._directory import Directory, Found, find, partial_name, sees
from ._ranks import Agreement, Ranks
from ._signals import Signals
from ._state import Tree
from ._writer import read, silence_alone, write
from .errors import CheckpointError

__all__ = ["Checkpointer", "Saved", "load_latest"]

# How long a rank that heard a signal may wait for a call in which the others hear of it, in seconds. SLURM leaves 30 (KillWait) by default.
_WITHIN = 1.0


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was begun.

    Attributes:
        step: the step it is of.
        stall_s: seconds for which `save` held up this rank: until the earlier checkpoint was written, if it was not, and for the copy of the state
            into memory of its own. With ``wait=True`` also for the writing.
        write_s: seconds from then until it was complete; none: it is not yet.
        bytes: how much all ranks wrote together; none: not yet.
    """

    step: int
    stall_s: float
    write_s: float | None = None
    bytes: int | None = None


class Checkpointer:
    """Checkpoints of a training, in a directory that all its ranks share.

        with Checkpointer("checkpoints", every=timedelta(minutes=10)) as checkpointer:
            state = {"training": Training(model, optimizer), "random": PerRank(RandomState())}
            done = checkpointer.load_latest(state) or 0
            while done < steps:
                train(done)
                done += 1
                if checkpointer.should_stop():
                    checkpointer.save(done, state, wait=True)
                    sys.exit(75)
                if checkpointer.due(done):
                    checkpointer.save(done, state)

    **Whoever stops before the end leaves with another status than 0.** A program that ends with 0 has finished, as far as a scheduler can tell, and
    is not started again; 75 is EX_TEMPFAIL of sysexits(3).

    **What is on the disk is whole.** A checkpoint is written under another name, synced, and renamed when all ranks have written theirs. Whoever is
    killed, and whenever, the newest complete one is there. Left-overs of runs that have ended are removed with the next one that is saved.

    **The training stops for a copy alone.** `save` copies the state into memory of its own, which is kept for the next time, and returns; a thread
    writes it. So a rank needs memory for its share of the state twice. A `save` that comes before the earlier checkpoint is written waits for it
    first (``busy="wait"``), or is left out on all ranks (``busy="skip"``).

    **Errors of the writing** are raised by the next call of `save`, `should_stop`, `wait` or `close`, on all ranks in the same call. The training may
    catch them and go on; the earlier checkpoints are as they were.

    Everything but `last` is a collective: all ranks of the group make the same calls in the same order. With a process group the backend may be
    ``eirene``, ``gloo`` or any other; without `init_process_group`, a process alone.

    Args:
        directory: where. One training at a time writes there; evaluation reads by `load_latest` of this module.
        keep: how many complete checkpoints stay; while the next is written, there is room needed for one more.
        group: the ranks that make checkpoints together; none: all.
        every: how often `due` says yes: a number of steps, or a time by rank 0's clock; none: never.
        busy: what a `save` does while the earlier checkpoint is still being written.
        signals: by which schedulers say that the end is near. SLURM sends SIGTERM before it ends a job by time limit, preemption or scancel, and what
            ``--signal`` asks for before that.
        timeout: how long a rank that has written waits for the others to.

    Attributes:
        last: the checkpoint that was begun last; none: there is none.

    Raises:
        CheckpointError: the directory cannot be written in, is not the same for all ranks, or another run writes there.
        InvalidArgument: `keep` or `every` is no positive number.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        keep: int = 2,
        group: dist.ProcessGroup | None = None,
        every: int | timedelta | None = None,
        busy: Literal["wait", "skip"] = "wait",
        signals: Iterable[int] = (signal.SIGTERM, signal.SIGUSR1),
        timeout: timedelta = timedelta(minutes=30),
    ) -> None:
        if keep < 1:
            raise InvalidArgument(f"`keep` is {keep}; at least one checkpoint has to stay")
        if every is not None and (every.total_seconds() if isinstance(every, timedelta) else every) <= 0:
            raise InvalidArgument(f"`every` is {every}; it is a number of steps, or a time between two checkpoints")
        if busy not in ("wait", "skip"):
            raise InvalidArgument(f"`busy` is `{busy}`; a save can `wait` for the earlier one, or `skip`")
        self.last: Saved | None = None
        self._every = every
        self._busy = busy
        self._signals = Signals(signals)
        self._path = Path(directory).absolute()
        self._count = 0
        self._ranks = Ranks(group)
        self._directory = self._take(keep)
        self._ranks.make_writing(timeout)
        if self._ranks.alone:
            silence_alone()
        # Copies go into memory that it keeps; a GPU's through pinned memory.
        self._stager = DefaultStager(StagingOptions(torch.cuda.is_available(), False, False, torch.cuda.is_available()))
        self._thread = ThreadPoolExecutor(1, "eirene-checkpoint")
        self._writing: Future[Saved] | None = None
        self._stopping = Agreement(self._ranks, _WITHIN)
        self._timing = Agreement(self._ranks, _WITHIN)
        self._stops = False
        self._begun_step = 0
        self._begun_at = time.monotonic()
        self._is_closed = False

    def _take(self, keep: int) -> Directory | None:
        """Takes the directory on rank 0; the others look whether it is theirs too."""
        self._run = run = self._ranks.from_first(secrets.token_hex(6))
        taken, failure = None, None
        if self._ranks.rank == 0:
            try:
                taken = Directory(self._path, run, keep)
            except Exception as error:
                failure = error
        self._ranks.check(failure, f"checkpoints cannot be written in `{self._path}`")
        try:
            refusal = None if taken is not None else sees(self._path, run)
            self._ranks.check(refusal, "checkpoints cannot be written")
        except BaseException:
            if taken is not None:
                taken.close()
            raise
        return taken

    def __enter__(self) -> Checkpointer:
        """Hears signals from here on.

        Raises:
            InvalidArgument: this is not the main thread, and there are signals to hear.
        """
        self._signals.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Closes it. Where the training has failed, what is being written is still waited for, and that error stays the one that is raised."""
        if error is None:
            self.close()
            return
        late = self._outcome()
        if late is not None:
            warnings.warn(f"while the training failed: {late}", RuntimeWarning, stacklevel=2)
        self._end()

    def close(self) -> None:
        """Waits for what is being written, gives the directory back and hears no more signals. Calling it again does nothing.

        Raises:
            CheckpointError: what was being written could not be.
        """
        if self._is_closed:
            return
        try:
            self.wait()
        finally:
            self._end()

    def _end(self) -> None:
        self._signals.stop()
        if self._is_closed:
            return
        self._is_closed = True
        self._thread.shutdown(wait=True)
        self._stager.close()
        if self._directory is not None:
            self._directory.close()
        self._ranks.close()

    def save(self, step: int, state: MutableMapping[str, Any], *, wait: bool = False) -> bool:
        """Saves the state: copies it, and has it written while the training goes on.

        Args:
            step: how many steps were done; a checkpoint of the same step is replaced.
            state: by name: models, `Training`, schedulers and others that have `state_dict` and `load_state_dict`, tensors, values that can be
                pickled, dictionaries and lists of them, `PerRank` of any. All ranks have the same names.
            wait: whether to return only when it is complete; then nothing is left out.

        Returns:
            Whether it was begun; not where it was left out, see `busy`.

        Raises:
            CheckpointError: the earlier checkpoint could not be written, some rank's state not copied, or, with `wait`, this one not written.
            InvalidArgument: a step below 0, or a state that could not be loaded again.
        """
        began = time.perf_counter()
        self._must_be_open()
        if step < 0:
            raise InvalidArgument(f"the step is {step}; it is how many steps were done")
        if self._busy == "skip" and not wait and self._ranks.largest([self._is_writing()])[0]:
            return False
        failure: BaseException | None = self._outcome()
        leaves: dict[str, Any] = {}
        if failure is None:
            try:
                # At once, not by a future: it was told so.
                leaves = cast("dict[str, Any]", self._stager.stage(Tree(state, self._ranks.rank, self._ranks.size).leaves))
            except Exception as error:
                failure = error
        self._ranks.check(failure, f"the state of step {step} was not saved")
        self._begun_step, self._begun_at = step, time.monotonic()
        self.last = Saved(step, time.perf_counter() - began)
        self._count += 1
        self._writing = self._thread.submit(self._write, self.last, self._path / partial_name(step, self._run, self._count), leaves)
        if wait:
            self.wait()
            self.last = replace(self.last, stall_s=time.perf_counter() - began)
        return True

    def _write(self, saved: Saved, partial: Path, leaves: dict[str, Any]) -> Saved:
        """In the thread: writes what was copied."""
        began = time.perf_counter()
        record = {"ranks": self._ranks.size, "torch": torch.__version__, "eirene_train": __version__}

        def prepare() -> None:
            if self._directory is not None:
                self._directory.sweep(partial)

        def complete() -> None:
            assert self._directory is not None
            self._directory.commit(partial, saved.step, record)

        try:
            written = write(self._ranks, partial, leaves, prepare, complete)
        except Exception as error:
            if self._directory is not None:
                self._directory.discard(partial)
            what = f"the checkpoint of step {saved.step} was not written"
            ranks = error.ranks if isinstance(error, CheckpointError) else ()
            raise CheckpointError(f"{what}: {error}", ranks) from error
        return replace(saved, write_s=time.perf_counter() - began, bytes=written)

    def _is_writing(self) -> bool:
        return self._writing is not None and not self._writing.done()

    def _outcome(self) -> CheckpointError | None:
        """Waits for what is being written. What it failed of, if it did, once."""
        if self._writing is None:
            return None
        writing, self._writing = self._writing, None
        try:
            done = writing.result()
        except CheckpointError as error:
            return error
        assert self.last is not None
        self.last = replace(done, stall_s=self.last.stall_s)
        return None

    def wait(self) -> None:
        """Waits until what is being written is complete.

        Raises:
            CheckpointError: it could not be written.
        """
        self._must_be_open()
        self._ranks.check(self._outcome(), "no checkpoint")

    def should_stop(self) -> bool:
        """Whether any rank was sent one of the signals: from some call on, on all ranks from the same one.

        Made to be called after every step. Ranks ask each other about once in a second, by one small allreduce; the calls between count down. So the
        answer is late by up to a second, or by a step where that takes longer.

        Raises:
            CheckpointError: the checkpoint that was being written could not be.
        """
        self._must_be_open()
        if self._stops:
            return True
        failed = self._writing is not None and self._writing.done() and self._writing.exception() is not None
        stops, has_failed = self._stopping.ask(self._signals.heard is not None, failed)
        if has_failed:
            # It fails on all ranks, if not at the same time.
            self.wait()
        self._stops = stops
        return stops

    def due(self, step: int) -> bool:
        """Whether it is time for a checkpoint, as `every` says, since the last one was begun or loaded; the same on all ranks.

        Where `every` is a time, ranks ask rank 0 about once in a second, as in `should_stop`.
        """
        self._must_be_open()
        if self._every is None:
            return False
        if isinstance(self._every, int):
            return step - self._begun_step >= self._every
        passed = time.monotonic() - self._begun_at >= self._every.total_seconds()
        return self._timing.ask(passed and self._ranks.rank == 0)[0]

    def load_latest(self, state: MutableMapping[str, Any]) -> int | None:
        """Loads the newest complete checkpoint, on whatever number of ranks; see `load_latest` of this module."""
        self._must_be_open()
        self.wait()
        step = _load(self._path, state, self._ranks)
        self._begun_step, self._begun_at = step or 0, time.monotonic()
        return step

    def _must_be_open(self) -> None:
        if self._is_closed:
            raise InvalidArgument("this Checkpointer is closed")


def load_latest(directory: str | os.PathLike[str], state: MutableMapping[str, Any], *, group: dist.ProcessGroup | None = None) -> int | None:
    """Loads the newest complete checkpoint in a directory: the one that was written last.

    One with a file that is missing, too short or cannot be read is named in a warning on rank 0, and the one before it is taken; all ranks take the
    same. It may have been written by another number of ranks. Models, `Training`, other things with a state and tensors take it over where they are;
    plain values are replaced in `state`. What the checkpoint holds besides is left alone.

    A training may be writing in the directory meanwhile; what it removes just then, because it has newer ones, counts as damaged here.

    Args:
        directory: where; all ranks see it.
        state: what `Checkpointer.save` was given.
        group: the ranks that load together; none: all, or this process alone.

    Returns:
        The step it is of; none: there is no checkpoint, and the state is as it was.

    Raises:
        CheckpointError: there are checkpoints, but none of them can be read; or it holds something else than the state asks for. The state may then
            be loaded in part.
    """
    ranks = Ranks(group)
    try:
        return _load(Path(directory).absolute(), state, ranks)
    finally:
        ranks.close()


def _load(directory: Path, state: MutableMapping[str, Any], ranks: Ranks) -> int | None:
    damaged = []
    for found in _found(directory, ranks):
        damage = found.damage
        if damage is None:
            tree, failure = None, None
            try:
                tree = Tree(state, ranks.rank, ranks.size, found.ranks)
            except Exception as error:
                failure = error
            ranks.check(failure, f"the state for step {found.step} was not loaded")
            assert tree is not None
            damage = read(ranks, found.path, tree.leaves)
            if damage is None:
                try:
                    tree.put_back()
                except Exception as error:
                    failure = error
                ranks.check(failure, f"the state of step {found.step} was not loaded")
                return found.step
        damaged.append(f"`{found.path.name}`: {damage}")
        if ranks.rank == 0:
            warnings.warn(f"checkpoint `{found.path}` is damaged: {damage}; the one before it is taken", RuntimeWarning, stacklevel=3)
    if damaged:
        raise CheckpointError(f"no checkpoint in `{directory}` can be read: {'; '.join(damaged)}")
    return None


def _found(directory: Path, ranks: Ranks) -> list[Found]:
    """What rank 0 sees there."""
    found: list[Found] = []
    failure = None
    if ranks.rank == 0:
        try:
            found = find(directory) if directory.exists() else []
        except OSError as error:
            failure = error
    ranks.check(failure, f"`{directory}` cannot be read")
    return ranks.from_first(found)
