"""Reports for the charts of a session: what arrives, what is left out, and that nothing ever waits."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

import eirene_train


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    path = tmp_path / "report.sock"
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.bind(str(path))
    heard.settimeout(20)
    monkeypatch.setenv("EIRENE_REPORT_SOCKET", str(path))
    return heard


def test_values_arrive_as_one_object(listener: socket.socket) -> None:
    assert eirene_train.report(step=12, loss=-0.25)
    assert json.loads(listener.recv(4096)) == {"step": 12.0, "loss": -0.25}


def test_what_is_no_finite_number_is_left_out(listener: socket.socket) -> None:
    assert eirene_train.report(loss=float("nan"), rate=float("inf"), huge=1e300, step=1)
    assert json.loads(listener.recv(4096)) == {"step": 1.0}
    assert not eirene_train.report(loss=float("nan"))


@pytest.mark.parametrize("name", ["Loss", "loss1", "a" * 33, "größe", "a b", ""])
def test_what_is_no_name_is_an_error(listener: socket.socket, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be reported"):
        eirene_train.report(**{name: 1.0})


def test_what_is_no_number_or_too_much_is_an_error() -> None:
    with pytest.raises(TypeError):
        eirene_train.report(loss=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="33 values"):
        eirene_train.report(**{"a" * (n + 1) if n < 32 else "b": 1.0 for n in range(33)})


def test_a_tensor_of_one_element_is_its_value(listener: socket.socket) -> None:
    torch = pytest.importorskip("torch")
    assert eirene_train.report(loss=torch.tensor(0.5))
    assert json.loads(listener.recv(4096)) == {"loss": 0.5}


def test_without_a_listener_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EIRENE_REPORT_SOCKET", raising=False)
    assert not eirene_train.report(loss=1)
    monkeypatch.setenv("EIRENE_REPORT_SOCKET", str(tmp_path / "nowhere"))
    assert not eirene_train.report(loss=1)


def test_who_reports_faster_than_is_looked_at_does_not_wait(listener: socket.socket) -> None:
    sent = 0
    while eirene_train.report(step=sent):
        sent += 1
    assert sent > 0, "the socket was full at some time, and nobody waited"


def test_a_child_reports_with_a_socket_of_its_own(listener: socket.socket) -> None:
    assert eirene_train.report(step=1)
    child = os.fork()
    if child == 0:
        os._exit(0 if eirene_train.report(step=2) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert [json.loads(listener.recv(4096))["step"] for _ in range(2)] == [1.0, 2.0]
