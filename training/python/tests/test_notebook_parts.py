"""The notebook's parts, each alone: what goes over the wire, how lines are folded, how much is let through, how failures are told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from eirene_train.notebook import _failures, _folding, _messages
from eirene_train.notebook._allowance import Allowance
from eirene_train.notebook._failures import Failure
from eirene_train.notebook._folding import PATIENCE_SECONDS, Folding, Line
from eirene_train.notebook._messages import Message, Parts, Sender
from eirene_train.notebook._screen import Screen
from eirene_train.notebook._session import Session, Wanted
from eirene_train.notebook._streams import Values, as_seen

TOKEN = "0123456789abcdef"


def written(say: Callable[[Sender, int], None], rank: int) -> list[bytes]:
    """What a rank writes that says something to a descriptor."""
    reader, writer = os.pipe()

    def write() -> None:
        say(Sender(TOKEN, rank), writer)
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    with open(reader, "rb") as pipe:
        lines = pipe.readlines()
    thread.join()
    return lines


def sent(*messages: Message, rank: int = 3) -> list[bytes]:
    """What a rank writes for these messages."""

    def say(sender: Sender, to: int) -> None:
        for message in messages:
            sender.send(message, to)

    return written(say, rank)


def test_messages_come_out_as_they_went_in_and_no_line_is_longer_than_a_pipe_and_srun_take_at_once() -> None:
    messages = [Message("a"), Message("b", {"x": [1, "ü\n", None]}, b"\x00\n" * 50_000), Message("c", {}, os.urandom(4096))]
    lines, parts = sent(*messages), Parts(TOKEN)
    assert len(lines) > 100 and max(map(len, lines)) <= 1024
    taken = [parts.take(line.rstrip(b"\n")) for line in lines]
    assert [found for _, found in taken if found] == [(3, message) for message in messages]
    assert all(before == b"" for before, _ in taken)


def test_what_stands_before_a_message_is_output_and_ranks_do_not_mix() -> None:
    big = Message("big", {}, b"x" * 10_000)
    first, second = sent(big, rank=1), sent(big, rank=2)
    parts = Parts(TOKEN)
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]
    mixed[2] = b"[1] half a line" + mixed[2]
    taken = [parts.take(line.rstrip(b"\n")) for line in mixed]
    assert [found for _, found in taken if found] == [(1, big), (2, big)]
    assert [before for before, _ in taken if before] == [b"[1] half a line"]


@pytest.mark.parametrize(
    "line",
    [b"plain", b"", TOKEN.encode(), TOKEN.encode() + b" 1 . !!!!", TOKEN.encode() + b" x . YQ==", TOKEN.encode() + b" 1 . YQ==", b"0123 1 . YQ=="],
)
def test_what_is_no_message_is_none(line: bytes) -> None:
    before, found = Parts(TOKEN).take(line)
    assert found is None and before in (line, b"")


def test_a_message_of_impossible_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_messages, "LONGEST", 1000)
    with pytest.raises(ValueError, match="more than a notebook is sent at once"):
        Sender(TOKEN, 0).send(Message("a", {}, b"x" * 1000), -1)


class Said(Wanted):
    """Ranks in a session of which this was said on stderr, and no more."""

    lines: list[str] = []

    def command(self) -> list[str]:
        return ["sh", "-c", 'printf "%s\\n" "$@" >&2', "sh", *self.lines]


def heard(*lines: str) -> tuple[Session, list[tuple[int | None, str]]]:
    """What becomes of these lines of the launcher's: which are whose."""
    Said.lines = list(lines)
    session, shown = Session(Said(2)), []
    while session.open_outputs:
        event = session.events.get(timeout=20)
        session.taken()
        if event.line is None:
            session.open_outputs -= 1
        elif event.rank is None:
            session.note(event.line)
        else:
            shown.append((event.rank, event.line))
    session.close()
    return session, shown


WAY = "2 ranks on 2 nodes (c1, c2), by PMIx, for the image's Open MPI 5.0.7"


@pytest.mark.parametrize("how", ["was killed by signal SIGKILL", "ended with status 3"])
def test_in_a_session_the_agent_s_word_of_a_death_is_understood_and_no_rank_s_line(how: str) -> None:
    session, shown = heard(f"eirene-train: {WAY}", "[1] last words", f"[1] [eirene] rank 1 on c2 {how}")
    assert session.way == WAY and session.deaths == {1: f"rank 1 on c2 {how}"}
    assert shown == [(1, "last words")] and not session.is_whole
    # Who is killed for another's sake is no cause.
    session, _ = heard(f"[1] [eirene] rank 1 on c2 {how}", "[0] [eirene] rank 0 on c1 was killed by signal SIGKILL")
    assert list(session.deaths) == [1]
    # Nobody speaks for another rank, and who says only nearly the same is not dead.
    _, shown = heard(f"[0] [eirene] rank 1 on c2 {how}", f"[1] [eirene] rank 1 on c2 {how}?")
    assert [rank for rank, _ in shown] == [0, 1]


class Late(Wanted):
    """A rank that reads nothing until there is a file, and then says what it was sent, and how many megabytes that was."""

    file: Path

    def command(self) -> list[str]:
        program = """
import json, os, sys, time
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
while head := sys.stdin.buffer.read(8):
    data = sys.stdin.buffer.read(int.from_bytes(head, "little"))
    print(json.loads(data.partition(b"\\n")[0])["kind"], len(data) // 1_000_000, flush=True)
"""
        return [sys.executable, "-I", "-S", "-c", program, str(self.file)]


def test_a_message_is_sent_whole_though_an_interrupt_comes_in_its_midst(tmp_path: Path) -> None:
    Late.file = tmp_path / "read"
    session = Session(Late(1))
    with pytest.raises(KeyboardInterrupt):
        session.send(Message("push", {}, bytes(10_000_000)))
        # Its reader has not begun, so it is in the midst of it for as long.
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        # Nothing is waited for: here it comes.
        time.sleep(60)
    assert session.is_sending
    session.send(Message("cell"))
    Late.file.touch()
    said = []
    while len(said) < 3 and (line := session.events.get(timeout=20).line) is not None:
        session.taken()
        said.append(line)
    session.close()
    assert said == ["hello 0", "push 10", "cell 0"]


def texts(folding: Folding, now: float) -> list[str]:
    return [shown.text if isinstance(shown, Line) else "value" for shown in folding.take(now)]


def test_a_line_of_all_ranks_is_shown_at_once_and_one_of_some_after_a_moment() -> None:
    folding = Folding(3)
    for rank in range(3):
        assert texts(folding, 0.0) == []
        folding.add(rank, "stdout", "same", 0.0)
    assert texts(folding, 0.0) == ["[0-2] same"] and folding.next() is None
    folding.add(1, "stdout", "one", 1.0)
    folding.add(2, "stdout", "two", 1.01)
    assert texts(folding, 1.0 + PATIENCE_SECONDS / 2) == [] and folding.next() == 1.0 + PATIENCE_SECONDS
    assert texts(folding, 1.0 + PATIENCE_SECONDS) == ["[1] one"]
    assert texts(folding, 2.0) == ["[2] two"]


def test_a_rank_s_lines_stay_in_order_and_what_differs_goes_first() -> None:
    folding = Folding(2)
    for number, (rank, text) in enumerate([(0, "own"), (0, "same"), (1, "same"), (1, "later")]):
        folding.add(rank, "stdout", text, number / 1000)
    assert texts(folding, 1.0) == ["[0] own", "[0-1] same", "[1] later"]
    # The same text on another output is something else, and crossed lines have no order that is everybody's.
    folding.add(0, "stdout", "x", 2.0)
    folding.add(1, "stderr", "x", 2.0)
    assert sorted(texts(folding, 3.0)) == ["[0] x", "[1] x"]
    for rank, order in enumerate(["ab", "ba"]):
        for text in order:
            folding.add(rank, "stdout", text, 4.0)
    assert sorted(texts(folding, 5.0)) in (["[0-1] a", "[0] b", "[1] b"], ["[0-1] b", "[0] a", "[1] a"])


def test_nobody_waits_for_a_rank_that_has_finished_and_a_flood_waits_for_nobody() -> None:
    folding = Folding(2)
    folding.finish(1)
    folding.add(0, "stdout", "alone", 0.0)
    assert texts(folding, 0.0) == ["[0] alone"]
    flood = Folding(2)
    for number in range(_folding._MOST + 10):
        flood.add(0, "stdout", str(number), 0.0)
    assert texts(flood, 0.0) == [f"[0] {number}" for number in range(10)]


def test_a_value_stands_behind_its_rank_s_lines_and_waits_for_nobody() -> None:
    folding = Folding(2)
    folding.add(0, "stdout", "before", 0.0)
    folding.add_value(0, {"text/plain": "1"}, 0.0)
    assert texts(folding, 0.0) == []
    folding.add(1, "stdout", "before", 0.01)
    assert texts(folding, 0.01) == ["[0-1] before", "value"]


def test_a_world_of_one_has_a_label_and_waits_for_nobody() -> None:
    folding = Folding(1)
    folding.add(0, "stdout", "text", 0.0)
    assert texts(folding, 0.0) == ["[0] text"]


def test_so_much_at_once_and_so_much_a_second_is_let_through() -> None:
    allowance = Allowance(1000, 100)
    assert allowance.takes(1000, 5.0) and not allowance.takes(1, 5.0)
    # After something was left out, there is a second's worth of room before anything passes.
    assert not allowance.takes(10, 5.5) and allowance.takes(100, 6.0)
    assert allowance.missing() == 11 and allowance.missing() == 0
    assert allowance.takes(1000, 100.0) and not allowance.takes(1000, 101.0)


def shown(*values: dict[str, str]) -> list[Message]:
    """What a rank tells the notebook of these values."""

    def say(sender: Sender, to: int) -> None:
        showing = Values(sender, to)
        for value in values:
            showing.show(value)
        showing.finish()

    parts = Parts(TOKEN)
    return [found[1] for line in written(say, 0) if (found := parts.take(line.rstrip(b"\n"))[1])]


def test_of_many_values_some_are_let_through_and_the_rest_is_counted() -> None:
    value = {"text/plain": "v" * 30_000, "text/html": "h" * 60_000}
    told = shown(*[value] * 40)
    passed = [message.fields["data"] for message in told if message.kind == "value"]
    assert 11 <= len(passed) < 40 and all(data == value for data in passed)
    missing = sum(message.fields["bytes"] for message in told if message.kind == "missing")
    assert len(passed) * 90_000 + missing == 40 * 90_000


def test_a_value_that_is_too_large_is_shown_as_text() -> None:
    text = {"text/plain": "a picture"}
    assert shown(text | {"image/png": "p" * 999_991}) == [Message("value", {"data": text | {"image/png": "p" * 999_991}})]
    assert shown(text | {"image/png": "p" * 999_992}) == [Message("missing", {"bytes": 1_000_001}), Message("value", {"data": text})]


def test_the_screen_lets_through_so_many_values_of_all_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    published: list[dict[str, str]] = []
    screen = Screen(SimpleNamespace(display_pub=SimpleNamespace(publish=lambda data, _: published.append(data))))
    for _ in range(40):
        screen.value({"text/plain": "v" * 50_000, "text/html": "h" * 50_000})
    screen.end("over")
    assert 20 <= len(published) < 40
    assert f"eirene: {(40 - len(published)) / 10:.1f} MB of output are left out here" in capsys.readouterr().err


def test_ranks_are_written_as_people_write_them() -> None:
    assert _failures.names([]) == "" and _failures.names([4]) == "4" and _failures.names([3, 1, 2, 7, 9, 8]) == "1-3, 7-9"
    assert _failures.who([2]) == "rank 2" and _failures.who([0, 2]) == "ranks 0, 2"


def test_failures_are_told_once_for_each_place_and_kind() -> None:
    here, there = "File here", "File there"
    failures = [Failure("A", "x", here), Failure("A", "y", here), Failure("A", "x", there), Failure("B", "", here), Failure("A", "x", here)]
    error = _failures.told(dict(enumerate(failures)), ["rank 5 was killed (signal 9)"])
    assert error.text == "\n\n".join(
        [
            "rank 5 was killed (signal 9)",
            "ranks 0-1, 4: A\n[0, 4] x\n[1] y\nFile here",
            "rank 2: A: x\nFile there",
            "rank 3: B\nFile here",
        ]
    )
    assert str(error) == "rank 5 was killed (signal 9); ranks 0-1, 4: A; rank 2: A: x; rank 3: B"
    assert error._render_traceback_() == error.text.split("\n")


def test_exceptions_are_described_with_their_causes_and_without_our_own_frames() -> None:
    try:
        try:
            int("x")
        except ValueError as cause:
            raise subprocess.TimeoutExpired("it", 3) from cause
    except subprocess.TimeoutExpired as error:
        told = _failures.describe(error, "another file")
        own = _failures.describe(error, __file__)
    assert told.kind == "subprocess.TimeoutExpired" and told.message == "Command 'it' timed out after 3 seconds"
    assert "invalid literal for int()" in told.stack and "direct cause" in told.stack and told.stack.count("Traceback") == 2
    assert own.stack.count("Traceback") == 1


@pytest.mark.parametrize(("line", "seen"), [("a", "a"), ("a\rb", "b"), ("10%\r20%\r", "20%"), ("\r", ""), ("text\r", "text")])
def test_of_a_bar_the_last_state_is_seen(line: str, seen: str) -> None:
    assert as_seen(line) == seen


def test_the_package_and_the_ranks_need_no_ipython_and_the_extension_says_so() -> None:
    program = """
import sys
sys.modules["IPython"] = None
import eirene_train.notebook, eirene_train.notebook._magic, eirene_train.notebook._worker
assert list(eirene_train.notebook.progress(x for x in "abc")) == ["a", "b", "c"]
try:
    eirene_train.notebook.load_ipython_extension()
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd="/")
    assert done.returncode == 0, done.stderr
    (sentence,) = done.stdout.splitlines()
    assert "an extension of IPython, which does not run here" in sentence and "%load_ext eirene_train.notebook" in sentence
