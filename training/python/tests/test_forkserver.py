"""Forked ranks are what the other tests take them for: new processes that can be found, and that end with their stand-ins and as these say."""

from __future__ import annotations

import marshal
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import forkserver
import launchers
import pytest
import ranks


def who() -> tuple[int, bytes, str, str | None, bool]:
    found = Path("/proc/self/environ").read_bytes().split(b"\0")
    marks = [entry for entry in found if entry.startswith(forkserver.MARK.encode())]
    return os.getpid(), b" ".join(marks), os.getcwd(), os.environ.get("EIRENE_TEST_WORD"), os.getpgid(0) == os.getpid()


def ended(how: str) -> None:
    if how == "exit":
        raise SystemExit(7)
    os.kill(os.getpid(), getattr(signal, how))


def waiting(file: str) -> None:
    Path(file).with_suffix(".part").write_text(str(os.getpid()))
    Path(file).with_suffix(".part").rename(file)
    signal.pause()


@pytest.mark.parametrize("alone", [False, True])
def test_ranks_are_new_processes_with_the_variables_and_the_mark_they_are_given(alone: bool, traces: launchers.Traces) -> None:
    (name, mark), *_ = traces.variables.items()
    worlds = [ranks.values(2, who, alone=alone, variables=traces.variables | {"EIRENE_TEST_WORD": word}) for word in ("one", "two")]
    assert len({process for world in worlds for process, *_ in world}) == 4
    for world, word in zip(worlds, ("one", "two"), strict=True):
        assert [rest for _, *rest in world] == [[f"{name}={mark}".encode(), os.getcwd(), word, True]] * 2
    traces.assert_none()


@pytest.mark.parametrize(("how", "code"), [("exit", 7), ("SIGKILL", -9), ("SIGTERM", -15), ("SIGABRT", -6)])
def test_a_stand_in_ends_as_its_rank_does(how: str, code: int) -> None:
    (answer,) = ranks.run(1, ended, how, alone=True)
    assert isinstance(answer, ranks.Died) and answer.code == code, answer


@pytest.mark.skipif(ranks.REFERENCE, reason="the rank is told its place in the real runtime's variables")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_rank_ends_with_its_stand_in(number: signal.Signals, tmp_path: Path) -> None:
    file = tmp_path / "process"
    (tmp_path / "call").write_bytes(pickle.dumps((__file__, "waiting", (str(file),))))
    variables = os.environ | ranks.meeting(str(tmp_path)) | ranks.place(0, 1)
    with subprocess.Popen(forkserver.command("ranks:be_a_rank", str(tmp_path)), env=variables) as stand_in:
        while not file.exists():
            assert stand_in.poll() is None
            time.sleep(0.02)
        rank = os.pidfd_open(int(file.read_text()))
        stand_in.send_signal(number)
        assert stand_in.wait(60) == -number
    deadline = time.monotonic() + 60
    while True:
        try:
            signal.pidfd_send_signal(rank, 0)
        except ProcessLookupError:
            break
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.close(rank)


def test_the_server_ends_with_whoever_started_it() -> None:
    program = "import forkserver, os; print(forkserver.address(), flush=True); os.kill(os.getpid(), 9)"
    # No directory of pytest's: a socket's path has to be short.
    with tempfile.TemporaryDirectory() as directory:
        variables = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "TMPDIR": directory}
        path = subprocess.run([sys.executable, "-c", program], env=variables, stdout=subprocess.PIPE, text=True).stdout.strip()
        deadline = time.monotonic() + 120
        while Path(path).parent.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_stand_in_that_ends_before_it_is_answered_disturbs_nobody(tmp_path: Path) -> None:
    variables = {key: value for key, value in os.environb.items() if key != forkserver.MARK.encode()}
    order = marshal.dumps((("test_forkserver:waiting", str(tmp_path / "process")), str(tmp_path), variables, [0]))
    for _ in range(20):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            server.connect(forkserver.address())
            with open(os.devnull) as nothing:
                socket.send_fds(server, [order], [nothing.fileno()])
    assert ranks.values(1, who, alone=True)
