"""A team from the driver's side: its processes, what they are told, and their end.

Ranks connect to a socket in a directory only this user can enter, or where some are on other nodes to a port, with a secret out of such a directory
that all nodes see. They are spoken to in lines of JSON; between two orders they sleep in a read. A rank that dies, says nothing for too long or fails is an error with its name and the last it wrote; however the driver ends, the
ranks end with it, for they watch their connection.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .contenders import Contender
from .places import HERE, Places
from .worker import SECRET, SOCKET, pid_space

__all__ = ["Failure", "Team", "assemble"]

_TAIL_LINES = 15
_ORDERLY_SECONDS = 8.0
_KILLED_SECONDS = 5.0
_HELLO_SECONDS = 10.0
_LONGEST_HELLO = 4096
# When one rank has failed, how long the others are given to say that they have too.
_OTHERS_SECONDS = 1.0


class Failure(Exception):
    """A contender that cannot go on.

    Attributes:
        name: whose.
        kind: `unstarted`, `died`, `hung`, `wrong` (a result was not what it must be) or `error`.
        reason: what happened.
        tail: the last lines its processes wrote; of an `error`, where it was raised.
        explained: whether the reason is a rank's own words, so that a reader need not see the tail.
    """

    def __init__(self, name: str, kind: str, reason: str, tail: str, explained: bool) -> None:
        super().__init__(f"{name} {reason}")
        self.name = name
        self.kind = kind
        self.reason = reason
        self.tail = tail
        self.explained = explained

    def told(self, what: str = "") -> str:
        """For a reader: `what` became of it, why, and the last lines where the reason does not say it all."""
        tail = [] if self.explained else [f"  | {line}" for line in self.tail.splitlines()]
        return "\n".join([f"{self.name}{what and f' {what}:'} {self.reason}", *tail])


@dataclass
class _Rank:
    connection: socket.socket
    # Not a number that may be another process's by now; none where it had ended before it could be asked for, or is another node's.
    process: int | None
    buffer: bytes = b""

    def line(self) -> dict[str, Any] | None:
        """The next whole line, if there is one."""
        head, newline, rest = self.buffer.partition(b"\n")
        if not newline:
            return None
        self.buffer = rest
        answer: dict[str, Any] = json.loads(head)
        return answer


class Team:
    """One contender's ranks.

    Args:
        contender: what they are.
        ranks: how many.
        cores: the processor each rank is kept on; none: the system moves them.
        places: where they are.
    """

    def __init__(self, contender: Contender, ranks: int, cores: Sequence[int] | None, places: Places = HERE) -> None:
        self.contender = contender
        self.size = ranks
        self.versions: dict[str, Any] = {}
        self._cores = cores
        self._places = places
        self._stack = contextlib.ExitStack()
        self._directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="eirene-bench-", dir=places.directory())))
        self._log = self._stack.enter_context(open(self._directory / "log", "w+b"))  # noqa: SIM115 - closed by the stack
        # What a rank on another node must know to be taken for one.
        self._secret = secrets.token_hex(32)
        # Where ranks that nobody launches meet, when not all are here.
        self._store: Any = None
        self._listener = self._stack.enter_context(self._listen())
        self._processes: list[subprocess.Popen[bytes]] = []
        # Descriptors that become readable when the process ends, as those of ranks do.
        self._ends: list[int] = []
        self._ranks: dict[int, _Rank] = {}
        # Ranks are busy, or wait for each other for ever: they are not asked to end.
        self._lost = False

    def _listen(self) -> socket.socket:
        if self._places.several:
            secret = self._directory / SECRET
            secret.touch(mode=0o600)
            secret.write_text(self._secret, encoding="ascii")
            # Room for strangers, too.
            return socket.create_server(("", 0), backlog=self.size + 128)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self._directory / SOCKET))
        listener.listen(self.size)
        return listener

    @property
    def name(self) -> str:
        """The contender's."""
        return self.contender.name

    @property
    def port(self) -> int | None:
        """Where ranks on other nodes come; none where all are here."""
        return self._listener.getsockname()[1] if self._places.several else None

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts the processes, and does not wait for them.

        Raises:
            Failure: the launcher is not there.
        """
        order = {
            "directory": str(self._directory),
            "address": [socket.gethostname(), self.port] if self._places.several else None,
            "store": self._store_port() if self._places.several and self.contender.launcher is None else None,
            "backend": self.contender.backend,
            "ranks": self.size,
            "local": [self._places.number_on_its_node(rank) for rank in range(self.size)],
            "cores": self._cores,
            "library": str(self.contender.library) if self.contender.library else None,
        }
        commands = self.contender.started(self.size, self._places, json.dumps(order))
        try:
            for command, variables in commands:
                process = subprocess.Popen(
                    command, env=variables, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True
                )
                self._processes.append(process)
                self._ends.append(os.pidfd_open(process.pid))
        except OSError as error:
            raise self._failure("unstarted", f"could not be started: {error}") from error

    def meet(self, deadline: float) -> None:
        """Waits until all ranks are ready.

        Args:
            deadline: by `time.monotonic`.

        Raises:
            Failure: they will not be.
        """
        watched: list[Any] = [self._listener, *self._ends]
        while len(self._ranks) < self.size:
            ready = select.select(watched, [], [], max(deadline - time.monotonic(), 0.0))[0]
            if self._listener in ready:
                self._admit()
            elif ready:
                raise self._failure("unstarted", f"ended with {self._ended()} before all of its ranks had come")
            else:
                raise self._failure("unstarted", f"did not start: {len(self._ranks)} of {self.size} ranks came in time")
        answers = self._answers(deadline, "unstarted")
        self.versions = answers[0]

    def ask(self, order: dict[str, Any], seconds: float) -> list[dict[str, Any]]:
        """Has all ranks carry out an order.

        Args:
            order: `do` is the verb, see `worker`.
            seconds: how long they may take.

        Returns:
            Their answers in rank order.

        Raises:
            Failure: a rank died, failed, found a wrong result, or did not answer in time.
        """
        line = json.dumps(order).encode() + b"\n"
        for number, rank in self._ranks.items():
            try:
                rank.connection.sendall(line)
            except OSError:
                self._lost = True
                raise self._failure("died", f"died: rank {number} is gone") from None
        return self._answers(time.monotonic() + seconds, "hung")

    def close(self) -> None:
        """Ends all processes, in good order where that is possible; afterwards nothing of them is left."""
        try:
            if not self._lost and len(self._ranks) == self.size:
                for rank in self._ranks.values():
                    with contextlib.suppress(OSError):
                        rank.connection.sendall(b'{"do": "end"}\n')
                if self._all_end(_ORDERLY_SECONDS):
                    return
            self._signal(signal.SIGTERM)
            if not self._all_end(_KILLED_SECONDS / 2):
                self._kill_ranks()
                self._all_end(_KILLED_SECONDS / 2)
        finally:
            self._signal(signal.SIGKILL)
            self._kill_ranks()
            for process in self._processes:
                process.wait()
            for rank in self._ranks.values():
                rank.connection.close()
                if rank.process is not None:
                    os.close(rank.process)
            for descriptor in self._ends:
                os.close(descriptor)
            self._ranks.clear()
            self._ends.clear()
            self._processes.clear()
            self._stack.close()

    def _store_port(self) -> int:
        # Torch takes seconds to import, and is needed here for nothing else.
        from torch._C._distributed_c10d import TCPStore

        self._store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        port: int = self._store.port
        return port

    def _kill_ranks(self) -> None:
        for rank in self._ranks.values():
            if rank.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(rank.process, signal.SIGKILL)

    def _admit(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(_HELLO_SECONDS)
        try:
            hello = json.loads(connection.makefile("rb", buffering=0).readline(_LONGEST_HELLO))
            if self._places.several and not secrets.compare_digest(str(hello.get("secret")), self._secret):
                # A stranger on the network, of whom nobody needs to hear.
                connection.close()
                return
        except (OSError, ValueError, AttributeError) as error:
            connection.close()
            if self._places.several:
                return
            raise self._failure("unstarted", f"sent a rank that did not say who it is: {error}") from error
        connection.settimeout(None)
        if hello["rank"] in self._ranks:
            connection.close()
            raise self._failure("unstarted", f"sent two processes that call themselves rank {hello['rank']}: worlds of their own")
        process = None
        if hello["space"] == pid_space():
            with contextlib.suppress(ProcessLookupError):
                process = os.pidfd_open(hello["pid"])
        self._ranks[hello["rank"]] = _Rank(connection, process)

    def _answers(self, deadline: float, late: str) -> list[dict[str, Any]]:
        """One line from every rank; `late` is the kind of failure it is when there is none."""
        # Until all have answered they are busy, or worse: no time for an orderly end.
        self._lost = True
        answers: dict[int, dict[str, Any]] = {}
        gone: list[int] = []
        waiting = {rank.connection: number for number, rank in self._ranks.items()}
        while waiting:
            ready = select.select(list(waiting), [], [], max(deadline - time.monotonic(), 0.0))[0]
            if not ready:
                break
            for connection in ready:
                number = waiting.pop(connection)
                answer = self._receive(self._ranks[number])
                if answer is None:
                    gone.append(number)
                else:
                    answers[number] = answer
                if answer is None or "error" in answer or "wrong" in answer:
                    # That this team is lost is known; the others, who may wait for the one for ever, may add their side.
                    deadline = min(deadline, time.monotonic() + _OTHERS_SECONDS)
        if wrong := _by_rank(answers, "wrong"):
            raise Failure(self.name, "wrong", f"gave a wrong result: {wrong}", self._tail(), True)
        errors = _by_rank(answers, "error")
        unstarted = late == "unstarted"
        if gone:
            raise self._failure("unstarted" if unstarted else "died", f"died: rank {gone[0]} is gone{errors and f'; {errors}'}")
        if errors:
            trace = _by_rank(answers, "trace")
            raise Failure(self.name, "unstarted" if unstarted else "error", f"failed: {errors}", trace, True)
        if waiting:
            missing = ", ".join(str(number) for number in sorted(waiting.values()))
            raise self._failure(late, f"did not answer in time: rank {missing} is missing")
        self._lost = False
        return [answers[number] for number in range(self.size)]

    def _receive(self, rank: _Rank) -> dict[str, Any] | None:
        """The rank's line; none when it is gone."""
        while (line := rank.line()) is None:
            try:
                part = rank.connection.recv(1 << 16)
            except OSError:
                return None
            if not part:
                return None
            rank.buffer += part
        return line

    def _ended(self) -> str:
        codes = [process.poll() for process in self._processes]
        return ", ".join(f"signal {-code}" if code < 0 else f"code {code}" for code in codes if code is not None)

    def _all_end(self, seconds: float) -> bool:
        """Waits for the processes, launcher and ranks."""
        deadline = time.monotonic() + seconds
        waiting = self._ends + [rank.process for rank in self._ranks.values() if rank.process is not None]
        while waiting:
            ready = select.select(waiting, [], [], max(deadline - time.monotonic(), 0.0))[0]
            if not ready:
                return False
            waiting = [descriptor for descriptor in waiting if descriptor not in ready]
        return True

    def _signal(self, number: int) -> None:
        for process in self._processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)

    def _failure(self, kind: str, reason: str) -> Failure:
        return Failure(self.name, kind, reason, self._tail(), False)

    def _tail(self) -> str:
        written = (self._directory / "log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(written.splitlines()[-_TAIL_LINES:])


def _by_rank(answers: dict[int, dict[str, Any]], key: str) -> str:
    """What ranks said under a key, and which; the same words once."""
    said: dict[str, list[int]] = {}
    for number, answer in sorted(answers.items()):
        if key in answer:
            said.setdefault(answer[key], []).append(number)
    return "; ".join(f"rank {', '.join(map(str, numbers))}: {text}" for text, numbers in said.items())


@contextlib.contextmanager
def assemble(
    contenders: Sequence[Contender], ranks: int, cores: Sequence[int] | None, seconds: float, places: Places = HERE
) -> Iterator[tuple[list[Team], list[Failure]]]:
    """Teams of these contenders, ended at the end however it comes.

    Args:
        contenders: what they are.
        ranks: in each.
        cores: the processors that ranks are kept on; none: they are not.
        seconds: how long they may take to start, together.
        places: where the ranks are.

    Returns:
        Those that are ready, and why the others are not.
    """
    teams: list[Team] = []
    failures: list[Failure] = []
    with contextlib.ExitStack() as stack:
        starting: list[Team] = []
        for contender in contenders:
            team = stack.enter_context(Team(contender, ranks, cores, places))
            try:
                team.start()
                starting.append(team)
            except Failure as failure:
                failures.append(failure)
        deadline = time.monotonic() + seconds
        for team in starting:
            try:
                team.meet(deadline)
                teams.append(team)
            except Failure as failure:
                failures.append(failure)
                team.close()
        yield teams, failures
