"""One request to the ranks, from the moment they are asked until all have answered or cannot any more."""

from __future__ import annotations

import itertools
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ._failures import Failure, RanksFailed, Refused, names, told, who
from ._folding import Folding, Line
from ._messages import Message
from ._screen import Screen, amount
from ._session import FINE, Event, Session

__all__ = ["Answers", "Following"]

# How long ranks may take to heed Ctrl-C before people are told, and before a cell whose time is over is ended all the same.
_HEED_SECONDS = 3.0
_OVERDUE_SECONDS = 10.0
# How often is looked at what is true now, if nothing comes.
_LOOK_SECONDS = 0.5
# How long the launcher's last words are awaited once it has ended.
_LAST_WORDS_SECONDS = 6.0
# How long after the first failure people are told that others still run.
_HINT_SECONDS = 3.0
_BAR = 24
# How the launcher begins what it says of nodes and links, and what is in it where it starts nothing.
_PREFLIGHT = "eirene-train: preflight: "
_NOT_STARTED = "Nothing was started"
# Events that are dealt with before something is shown, and the time that passes then before more is: a flood comes in large pieces.
_MOST_AT_ONCE = 500
_BETWEEN_LINES_SECONDS = 0.05

Answers = dict[int, bytes]


class Following:
    """Follows a request. If the ranks are lost for good, `lost` says so in a sentence, and `why` in a few words."""

    def __init__(self, session: Session, screen: Screen, all_values: bool = False, timeout: float | None = None) -> None:
        self._session, self._screen, self._all_values, self._timeout = session, screen, all_values, timeout
        self._size = session.wanted.ranks
        self._shown_at = 0.0
        self._folding = Folding(self._size)
        self._begin = time.monotonic()
        self._answers: Answers = {}
        self._failures: dict[int, Failure] = {}
        self._ended: dict[str, Any] | None = None
        # Why ranks have ended that could not read what they were sent.
        self._damage: str | None = None
        self._gone: set[int] = set()
        # Ranks whose stderr is not told to the end.
        self._loud = set(range(self._size))
        self._progress: dict[int, tuple[int, int | None]] = {}
        self._so_far: dict[int, str] = {}
        self._first_failure: float | None = None
        self._hinted = False
        self._interrupted_at: float | None = None
        self._warned = self._overdue = self._killed = False
        self.lost: str | None = None
        self.why = ""

    def until_ready(self) -> None:
        """Waits until all ranks have been started.

        Raises:
            Refused: they cannot be.
        """
        with self._interruptible():
            while len(self._session.hosts) < self._size and self._session.open_outputs:
                self._hear(None)
                self._show(f"starting {self._size} ranks")
                if self._interrupted_at is not None and not self._killed:
                    self._kill()
        if len(self._session.hosts) < self._size:
            self._flush()
            deaths = [self._session.deaths[rank] for rank in sorted(self._session.deaths)]
            why = "; ".join(deaths) or self._session.last_words() or "the launcher ended without a word"
            why = "the start was interrupted" if self._killed else why
            raise Refused(f"the ranks did not start: {why}")

    def until_done(self, ask: Callable[[], int], does: str = "running") -> Answers:
        """Asks, and waits for all answers.

        Args:
            ask: tells the ranks, and gives the number by which they answer.

        Raises:
            RanksFailed: a rank failed, or is no more.
        """
        with self._interruptible():
            # Not before: an interrupt in between would leave ranks to what nobody waits for.
            request = ask()
            while self._pending() and self._session.open_outputs:
                self._hear(request)
                self._watch(request)
                self._show(self._status(does))
        self._flush()
        return self._judge()

    def bury(self) -> str:
        """Ends what is left of ranks that ended while nothing was asked of them, shows what they said, and tells why they are gone."""
        self._session.close()
        self._drain()
        deaths = "; ".join(self._session.deaths[rank] for rank in sorted(self._session.deaths))
        return deaths or self._damage or "they ended while no cell ran"

    # What comes.

    def _hear(self, request: int | None) -> None:
        """Waits for something, deals with all that has come, and shows it."""
        event = self._next()
        for _ in range(_MOST_AT_ONCE):
            if event is None:
                break
            self._deal(event, request)
            try:
                event = self._session.events.get_nowait()
            except queue.Empty:
                event = None
        if event is not None:
            self._deal(event, request)
        now = time.monotonic()
        if now >= self._shown_at + _BETWEEN_LINES_SECONDS:
            self._shown_at = now
            self._show_lines(now)

    def _next(self) -> Event | None:
        now, folded = time.monotonic(), self._folding.next()
        times = [now + _LOOK_SECONDS, self._screen.next()]
        if self._interrupted_at is not None:
            times.append(self._interrupted_at + _HEED_SECONDS)
        if self._timeout is not None:
            times.append(self._begin + self._timeout)
        # What is past was looked at in the round before.
        wait = min(at for at in times if at > now)
        if folded is not None:
            wait = min(wait, max(folded, self._shown_at + _BETWEEN_LINES_SECONDS))
        try:
            return self._session.events.get(timeout=max(0.001, wait - now))
        except queue.Empty:
            return None

    def _deal(self, event: Event, request: int | None) -> None:
        now = time.monotonic()
        if event.interrupt:
            self._interrupt(request)
            return
        self._session.taken()
        if event.message is not None and event.rank is not None:
            self._message(event.rank, event.message, request, now)
        elif event.line is None:
            self._session.open_outputs -= 1
        elif event.rank is not None and event.rank < self._size:
            self._folding.add(event.rank, event.stream, event.line, now)
        else:
            self._session.note(event.line)
            # What was found of nodes is shown while the ranks start; why none do is said by the one who waits for them.
            if event.line.startswith(_PREFLIGHT) and _NOT_STARTED not in event.line:
                self._screen.say(event.line.removeprefix("eirene-train: "), wrong=FINE.fullmatch(event.line) is None)

    def _message(self, rank: int, message: Message, request: int | None, now: float) -> None:
        fields = message.fields
        match message.kind:
            case "ready":
                self._session.hosts[rank] = str(fields["host"])
            case "lines":
                self._so_far.pop(rank, None)
                for line in message.content.decode("utf-8", "replace").removesuffix("\n").split("\n"):
                    self._folding.add(rank, str(fields["stream"]), line, now)
            case "line_so_far":
                self._so_far[rank] = message.content.decode("utf-8", "replace")
            case "missing":
                missing = amount(int(fields["bytes"]))
                self._folding.add(rank, "stderr", f"({missing} of output are left out here: that is more than a notebook can show)", now)
            case "value":
                self._value(rank, fields["data"], now)
            case "progress":
                self._progress[rank] = (int(fields["done"]), fields["total"])
            case "ended":
                self._end(fields)
            case "damaged":
                self._damage = f"what the notebook sent cannot be read ({fields['reason']})"
                self._gone.add(rank)
            case "quiet" if fields["request"] == request:
                self._loud.discard(rank)
            case "done" if fields["request"] == request:
                self._done(rank, message, now)
        if rank not in self._loud and rank in self._answers:
            self._folding.finish(rank)

    def _done(self, rank: int, message: Message, now: float) -> None:
        self._answers[rank] = message.content
        self._so_far.pop(rank, None)
        if message.fields["failure"]:
            self._failures[rank] = Failure.of_fields(message.fields["failure"])
            self._first_failure = self._first_failure or now
        if message.fields["ended"]:
            self._end(message.fields["ended"])

    def _value(self, rank: int, data: dict[str, str], now: float) -> None:
        if not self._all_values:
            self._folding.add_value(rank, data, now)
            return
        for line in data["text/plain"].split("\n"):
            self._folding.add(rank, "stdout", line, now)

    def _end(self, reason: dict[str, Any]) -> None:
        self._ended = self._ended or reason
        if reason["gone"] is not None:
            self._gone.add(int(reason["gone"]))

    # What is awaited.

    def _pending(self) -> list[int]:
        return [rank for rank in range(self._size) if (rank not in self._answers or rank in self._loud) and rank not in self._gone]

    def _watch(self, request: int) -> None:
        now = time.monotonic()
        running = [rank for rank in self._pending() if rank not in self._answers]
        if self._timeout is not None and now >= self._begin + self._timeout and not self._overdue:
            self._overdue = True
            if running:
                self._screen.say(f"the cell's time of {self._timeout:g} s is over; {who(running)} {'is' if len(running) == 1 else 'are'} interrupted")
            if self._interrupted_at is None:
                self._interrupt(request)
        since = self._interrupted_at
        if since is not None and not self._warned and now >= since + _HEED_SECONDS and running:
            self._warned = True
            why = f"{who(running)} did not heed the interrupt yet: busy in native code, or waiting for something that cannot be interrupted"
            if self._session.is_sending:
                why = f"{who(running)} did not hear of the interrupt yet: what they are sent is still on its way, and is not cut off"
            self._screen.say(f"{why}; interrupt once more to kill all ranks, whose variables are lost then")
        if since is not None and self._overdue and not self._killed and now >= since + _OVERDUE_SECONDS:
            self._kill()
        if self._first_failure is not None and not self._hinted and now >= self._first_failure + _HINT_SECONDS and running and since is None:
            self._hinted = True
            failed = sorted(self._failures)
            kind = self._failures[failed[0]].kind
            self._screen.say(f"{who(failed)} failed ({kind}), and {who(running)} still run; if they wait for what does not come, interrupt the cell")

    # Ctrl-C.

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """As long as ranks are awaited, Ctrl-C is theirs."""
        if threading.current_thread() is not threading.main_thread():
            # Signals are the main thread's; a cell that runs elsewhere is not interrupted by them.
            yield
            return
        former = signal.signal(signal.SIGINT, lambda *_: self._session.events.put(Event(interrupt=True)))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, former)

    def _interrupt(self, request: int | None) -> None:
        if self._warned:
            self._kill()
            return
        self._interrupted_at = self._interrupted_at or time.monotonic()
        if request is not None:
            self._session.send(Message("interrupt", {"request": request}))

    def _kill(self) -> None:
        if not self._killed:
            self._killed = True
            self._session.kill()

    # What is shown.

    def _show(self, text: str) -> None:
        self._screen.status(text)

    def _seconds(self) -> str:
        seconds = int(time.monotonic() - self._begin)
        return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min {seconds % 60} s"

    def _status(self, does: str) -> str:
        failed = sorted(self._failures)
        done = [rank for rank in self._answers if rank not in self._failures]
        running = [rank for rank in range(self._size) if rank not in self._answers and rank not in self._gone]
        parts = [f"{does}: {names(running)}" if running else "", f"done: {names(done)}" if done else "", f"failed: {names(failed)}" if failed else ""]
        lines = [" · ".join([part for part in parts if part] + [self._seconds()])]
        if self._progress:
            lines.append(self._bar())
        states: dict[str, list[int]] = {}
        for rank, text in sorted(self._so_far.items()):
            states.setdefault(text, []).append(rank)
        lines += [f"[{names(ranks)}] {text}" for text, ranks in states.items()]
        return "\n".join(lines)

    def _bar(self) -> str:
        def share(rank: int) -> float:
            done, total = self._progress[rank]
            return done / total if total else float(done)

        slowest = min(self._progress, key=share)
        done, total = self._progress[slowest]
        if not total:
            return f"{done} (rank {slowest}, the slowest)"
        filled = min(_BAR, _BAR * done // total)
        return f"[{'#' * filled}{'.' * (_BAR - filled)}] {100 * done // total}% {done}/{total} (rank {slowest}, the slowest)"

    def _flush(self) -> None:
        for rank in range(self._size):
            self._folding.finish(rank)
        self._show_lines(time.monotonic() + 1.0)

    def _show_lines(self, now: float) -> None:
        # Many lines at once are as quick to show as one.
        for stream, group in itertools.groupby(self._folding.take(now), lambda shown: shown.stream if isinstance(shown, Line) else ""):
            if stream:
                self._screen.lines(stream, [shown.text for shown in group if isinstance(shown, Line)])
            else:
                for shown in group:
                    assert not isinstance(shown, Line)
                    self._screen.value(shown)

    # What became of it.

    def _judge(self) -> Answers:
        missing = [rank for rank in range(self._size) if rank not in self._answers]
        if not missing and not self._ended and not self._damage:
            self._screen.end(f"{self._status('running')}")
            if self._failures:
                raise told(self._failures)
            return self._answers
        self._screen.end(self._status("ended"))
        # The launcher tells of deaths before it ends.
        if missing:
            self._session.close()
            self._drain()
        self.lost, deaths = self._fates(missing)
        self.why = self._damage or "; ".join(deaths) or "their world had ended"
        self._session.close()
        # Ranks that end interrupt their cell, which is nobody's failure.
        failures = {rank: failure for rank, failure in self._failures.items() if not (self._damage and failure.kind == "KeyboardInterrupt")}
        if not failures and not deaths:
            return self._answers
        raise _with(told(failures, deaths), self.lost)

    def _drain(self) -> None:
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while self._session.open_outputs and time.monotonic() < deadline:
            try:
                self._deal(self._session.events.get(timeout=0.2), None)
            except queue.Empty:
                continue
        self._flush()

    def _fates(self, missing: list[int]) -> tuple[str, list[str]]:
        """Why the ranks are lost, as a sentence, and the lines that tell who ended how."""
        renewal = "the ranks' variables are lost; the next %%eirene cell starts new ones"
        if self._killed:
            return f"the ranks were killed, as the interrupt was not heeded: {renewal}", [f"{who(missing)}: killed"] if missing else []
        if self._damage:
            return renewal, [f"the ranks ended, because {self._damage}"]
        deaths = [self._session.deaths[rank] for rank in sorted(self._session.deaths) if rank in missing]
        silent = [rank for rank in missing if rank in self._gone and rank not in self._session.deaths]
        deaths += [f"rank {rank} ended in the midst of the cell" for rank in silent]
        if missing and not deaths:
            deaths.append(f"{who(missing)} ended: {self._session.last_words() or 'the launcher is gone'}")
            others: list[int] = []
        else:
            others = [rank for rank in missing if rank not in self._session.deaths and rank not in silent]
        if others:
            deaths.append(f"{who(others)} {'was' if len(others) == 1 else 'were'} ended because of that")
        if not missing and self._ended is not None:
            why = "a collective call was interrupted, which cannot be taken back" if self._interrupted_at is not None else self._ended["reason"]
            return f"the ranks' world has ended ({why}): {renewal}", []
        return renewal, deaths


def _with(error: RanksFailed, sentence: str) -> RanksFailed:
    return RanksFailed(str(error), f"{error.text}\n\n{sentence}")
