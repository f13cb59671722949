"""The ranks of a notebook: started by a launcher, spoken to through its standard input, heard through its outputs, ended with it.

The launcher is a program of its own with a session (setsid) of its own, so what Jupyter does to its kernel's processes does not reach it. It has its
standard input from this process alone: when this process ends, however that happens, the ranks see the end of their input and end as well.

What ranks are told is written by a thread of its own, for an interrupt of the kernel's is raised in the main thread, wherever that is just then. A
message that it cut off would make the next one the rest of this one, to ranks that wait for that. So whatever is begun is sent whole, or the session
is over.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import IO, Any

from ._failures import names
from ._messages import LONGEST, Message, Parts, pack
from ._streams import as_seen

__all__ = ["Event", "Session", "Wanted"]

# What is read and not yet shown; then the ranks wait.
_MOST_EVENTS = 512
# What is written at once: between two of these is looked whether the session is closed.
_PIECE = 1 << 20
_LAUNCHERS_WORDS = 60
_LONGEST_LINE = 1 << 20
_END_SECONDS = 8.0
_LABEL = re.compile(rb"\[(\d+)\] ")
_DEATH = re.compile(r"eirene-train: .*rank (\d+) \(on .*, pid \d+\) (?:was killed by signal (\d+)|exited with code (\d+))")
# In a session the agent says it, on the node, among the rank's own lines on stderr.
_DEATH_IN_SESSION = re.compile(r"\[eirene\] (rank (\d+) on \S+ (?:was killed by signal SIG\w+|ended with status \d+))")
_WAY = re.compile(r"eirene-train: (\d+ ranks? on .+)")
FINE = re.compile(r"eirene-train: preflight: .+ fine \(.+")
"""What the launcher says of nodes and links in which nothing is wrong."""
_FAILURE = re.compile(r"eirene-train: the run failed: (.+)")


@dataclass(frozen=True)
class Wanted:
    """Which ranks were asked for."""

    ranks: int
    nodes: str | None = None
    exclude: str | None = None
    # Whether nodes are tried before they start; of ranks that run it makes no others.
    preflight: bool = field(default=True, compare=False)

    def command(self) -> list[str]:
        """What starts them."""
        nodes = [] if self.nodes is None else ["--nodes", self.nodes]
        exclude = [] if self.exclude is None else ["--exclude", self.exclude]
        preflight = [] if self.preflight else ["--no-preflight"]
        program = ["-m", "eirene_train.notebook.rank"]
        return [sys.executable, "-m", "eirene_train", "run", "--stdin", "--ranks", str(self.ranks), *nodes, *exclude, *preflight, *program]


@dataclass
class Event:
    """Something that was heard: a message or a line of a rank (none: the launcher itself), or the end of an output."""

    rank: int | None = None
    message: Message | None = None
    stream: str = "stdout"
    line: str | None = None
    interrupt: bool = False


class Session:
    """Ranks that were started, until they end."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.started = time.monotonic()
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.hosts: dict[int, str] = {}
        self.deaths: dict[int, str] = {}
        self.words: deque[str] = deque(maxlen=_LAUNCHERS_WORDS)
        # In a session: on which nodes the ranks are, how they find each other and why so.
        self.way: str | None = None
        self.open_outputs = 2
        self._room = threading.Semaphore(_MOST_EVENTS)
        self._is_closed, self._is_whole = False, True
        self._requests = 0
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        # Messages that were to be sent, and that were.
        self._begun = self._sent = 0
        token = secrets.token_hex(16)
        # A notebook's own way to show figures is none for the ranks.
        environment = {name: value for name, value in os.environ.items() if not (name == "MPLBACKEND" and value.startswith("module://"))}
        self._process = subprocess.Popen(
            wanted.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, env=environment
        )
        for name, pipe in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
            assert pipe is not None
            threading.Thread(target=self._read, args=(name, pipe, Parts(token)), name=f"eirene-{name}", daemon=True).start()
        assert self._process.stdin is not None
        threading.Thread(target=self._write, args=(self._process.stdin,), name="eirene-stdin", daemon=True).start()
        self.send(Message("hello", {"token": token}))

    @property
    def is_whole(self) -> bool:
        """Whether all ranks are there, as far as is known."""
        return self._is_whole and self._process.poll() is None

    @property
    def is_sending(self) -> bool:
        """Whether something that ranks are told is still on its way to them."""
        return self._sent < self._begun

    def request(self, kind: str, fields: dict[str, Any], content: bytes = b"") -> int:
        """Asks all ranks for something; the number by which they answer."""
        self._requests += 1
        self.send(Message(kind, {**fields, "request": self._requests}, content))
        return self._requests

    def send(self, message: Message) -> None:
        """Tells rank 0, and waits for nothing. Whether it hears it is seen by its answer, or its end.

        Raises:
            ValueError: it is too much.
        """
        data = pack(message)
        if len(data) > LONGEST:
            raise ValueError(f"{len(data) / 1e9:.1f} GB are more than ranks are sent at once ({LONGEST / 1e9:.1f} GB)")
        self._begun += 1
        self._outbox.put(data)

    def taken(self) -> None:
        """Says that an event was taken and dealt with, so that there is room for another."""
        self._room.release()

    def note(self, word: str) -> None:
        """Takes a word of the launcher's own, which may tell of a death."""
        self.words.append(word)
        if found := _DEATH.match(word):
            rank, number, code = found.groups()
            how = f"rank {rank} was killed (signal {number})" if number else f"rank {rank} ended with exit code {code}"
            self.deaths.setdefault(int(rank), how)
        elif found := _DEATH_IN_SESSION.fullmatch(word):
            # SLURM kills the others for the first one's sake, and the agent tells of them as well.
            if not self.deaths or not found[1].endswith(" SIGKILL"):
                self.deaths.setdefault(int(found[2]), found[1])
        elif found := _WAY.fullmatch(word):
            self.way = self.way or found[1]

    def last_words(self) -> str:
        """Why the launcher has ended, in one line, where no rank's death says it all: its reason, or else what it said of anything but the start."""
        for word in self.words:
            if found := _FAILURE.fullmatch(word):
                return found[1]
        rest = [word for word in self.words if word.strip() and not _WAY.fullmatch(word) and not FINE.fullmatch(word)]
        return " ".join(word.removeprefix("eirene-train: ").removeprefix("[eirene] ").strip() for word in rest)

    def where(self) -> str:
        """Which ranks are on which hosts, for people."""
        hosts: dict[str, list[int]] = {}
        for rank, host in sorted(self.hosts.items()):
            hosts.setdefault(host, []).append(rank)
        return "; ".join(f"{host}: {names(ranks)}" for host, ranks in hosts.items())

    def kill(self) -> None:
        """Ends the ranks without asking them."""
        # The launcher takes the first signal for a wish, and the second, whichever it is, for impatience. Two of one kind may come as one.
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def close(self) -> None:
        """Ends the ranks and waits until they are gone; harmless where they are."""
        # Whoever writes to the ranks closes their input, be it in the midst of a message.
        self._outbox.put(None)
        # Nobody shows what is still said, and nobody waits for that.
        self._is_closed = True
        self._room.release(2)
        for end in (None, self.kill, self._process.kill):
            if end is not None:
                end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
                return

    def _write(self, pipe: IO[bytes]) -> None:
        with pipe:
            try:
                while (data := self._outbox.get()) is not None:
                    for part in (len(data).to_bytes(8, "little"), data):
                        rest = memoryview(part)
                        while rest and not self._is_closed:
                            rest = rest[os.write(pipe.fileno(), rest[:_PIECE]) :]
                    self._sent += 1
            except OSError:
                # Nobody reads any more. How rank 0 has ended is the launcher's to tell.
                self._is_whole = False

    def _read(self, stream: str, pipe: IO[bytes], parts: Parts) -> None:
        with pipe:
            while line := pipe.readline(_LONGEST_LINE):
                text, found = parts.take(line.rstrip(b"\n"))
                label = _LABEL.match(text)
                rank = None if label is None else int(label[1])
                said = text if label is None else text[label.end() :]
                if stream == "stderr" and (death := _DEATH_IN_SESSION.fullmatch(_as_text(said))) and int(death[2]) == rank:
                    # Not the rank's word.
                    rank = None
                if (found is not None and found[1].kind in ("ended", "damaged")) or (rank is None and _tells_of_death(_as_text(said))):
                    self._is_whole = False
                if found is not None:
                    if said:
                        self._put(Event(rank=rank, stream=stream, line=_as_text(said)))
                    self._put(Event(rank=found[0], stream=stream, message=found[1]))
                elif said or len(text) == len(line.rstrip(b"\n")):
                    self._put(Event(rank=rank, stream=stream, line=_as_text(said)))
        self._is_whole = False
        self._put(Event(stream=stream))

    def _put(self, event: Event) -> None:
        if not self._is_closed:
            self._room.acquire()
        self.events.put(event)


def _tells_of_death(word: str) -> bool:
    return bool(_DEATH.match(word) or _DEATH_IN_SESSION.fullmatch(word))


def _as_text(line: bytes) -> str:
    return as_seen(line.decode("utf-8", "replace"))
