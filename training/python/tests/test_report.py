"""Reports for the charts of a session: what arrives, what is left out, and that nothing ever waits.

There are two that report: `eirene_train`, and the module `eirene` of the images, which is there without the package, too.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import eirene_train

MODULE = Path(__file__).parents[3] / "containers" / "images" / "jupyter" / "eirene.py"
Report = Callable[..., bool]


def of_the_images() -> ModuleType:
    """The images' module. It is not imported from there: byte code would become a part of the recipe."""
    module = ModuleType("eirene")
    exec(compile(MODULE.read_text(encoding="utf-8"), str(MODULE), "exec"), module.__dict__)
    return module


@pytest.fixture(params=["eirene_train", "eirene"])
def report(request: pytest.FixtureRequest) -> Report:
    if request.param == "eirene_train":
        return eirene_train.report
    module = of_the_images()
    # As in an image without the package.
    vars(module)["sys"] = SimpleNamespace(modules={})
    report: Report = module.report
    return report


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    path = tmp_path / "report.sock"
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.bind(str(path))
    heard.settimeout(20)
    monkeypatch.setenv("EIRENE_REPORT_SOCKET", str(path))
    return heard


def test_values_arrive_as_one_object(listener: socket.socket, report: Report) -> None:
    assert report(step=12, loss=-0.25)
    assert json.loads(listener.recv(4096)) == {"step": 12.0, "loss": -0.25}


def test_names_may_have_digits_behind_the_first_letter(listener: socket.socket, report: Report) -> None:
    assert report(f1=0.5, top5=0.25, _1=1)
    assert json.loads(listener.recv(4096)) == {"f1": 0.5, "top5": 0.25, "_1": 1.0}


def test_what_is_no_finite_number_is_left_out(listener: socket.socket, report: Report) -> None:
    assert report(loss=float("nan"), rate=float("inf"), huge=1e300, step=1)
    assert json.loads(listener.recv(4096)) == {"step": 1.0}
    assert not report(loss=float("nan"))


@pytest.mark.parametrize("name", ["Loss", "1loss", "5", "a" * 33, "größe", "a²", "a b", "a\n", ""])
def test_what_is_no_name_is_an_error(listener: socket.socket, report: Report, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be reported"):
        report(**{name: 1.0})


def test_what_is_no_number_or_too_much_is_an_error(report: Report) -> None:
    with pytest.raises(TypeError):
        report(loss=None)
    with pytest.raises(ValueError, match="33 values"):
        report(**{"a" * (n + 1) if n < 32 else "b": 1.0 for n in range(33)})


@pytest.mark.parametrize("text", ["0.5", "abc", "", b"0.5", bytearray(b"1"), memoryview(b"1")])
def test_text_is_no_number_even_where_it_reads_as_one(listener: socket.socket, report: Report, text: object) -> None:
    with pytest.raises(TypeError, match="`loss` is .*, and only numbers are reported"):
        report(step=1, loss=text)
    assert report(step=2)
    assert json.loads(listener.recv(4096)) == {"step": 2.0}, "nothing of the refused one was sent"


def test_a_tensor_of_one_element_is_its_value(listener: socket.socket, report: Report) -> None:
    torch = pytest.importorskip("torch")
    assert report(loss=torch.tensor(0.5))
    assert json.loads(listener.recv(4096)) == {"loss": 0.5}


def test_without_a_listener_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: Report) -> None:
    monkeypatch.delenv("EIRENE_REPORT_SOCKET", raising=False)
    assert not report(loss=1)
    monkeypatch.setenv("EIRENE_REPORT_SOCKET", str(tmp_path / "nowhere"))
    assert not report(loss=1)


def test_who_reports_faster_than_is_looked_at_does_not_wait(listener: socket.socket, report: Report) -> None:
    sent = 0
    while report(step=sent):
        sent += 1
    assert sent > 0, "the socket was full at some time, and nobody waited"


def test_a_child_reports_with_a_socket_of_its_own(listener: socket.socket, report: Report) -> None:
    assert report(step=1)
    child = os.fork()
    if child == 0:
        os._exit(0 if report(step=2) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert [json.loads(listener.recv(4096))["step"] for _ in range(2)] == [1.0, 2.0]


def test_the_images_module_leaves_it_to_the_package_where_that_is_used(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    from eirene_train import reports

    monkeypatch.setattr(reports, "own_names", set())
    assert of_the_images().report(steps_per_second=3)
    assert json.loads(listener.recv(4096)) == {"steps_per_second": 3.0}
    assert reports.own_names == {"steps_per_second"}, "the package does not report it as well"


class _Optimizer:
    """Something whose identity can be looked at."""


def test_throughput_is_of_one_optimizer_between_two_reports() -> None:
    from eirene_train.throughput import Throughput

    throughput, first, second = Throughput(), _Optimizer(), _Optimizer()
    rates = []
    for step in range(10):
        rates.append(throughput.stepped(first, 100 + step / 2))
        assert throughput.stepped(second, 100.1 + step / 2) is None, "it steps in the same loop"
    assert [rate for rate in rates if rate is not None] == [2.0, 2.0]
    assert throughput.stepped(first, 200) == pytest.approx(2 / 96, abs=0.01), "a slow step is told too"
    del first
    assert throughput.stepped(second, 300) is None, "the first is gone, and counting begins anew"
    assert throughput.stepped(second, 302) == 0.5


_TRAINS = """
import sys, time, torch, eirene_train
model = torch.nn.Linear(4, 4)
arena = eirene_train.GradArena(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
end = time.monotonic() + 5
if sys.argv[1:]:
    eirene_train.report(steps_per_second=-1)
while time.monotonic() < end:
    model(torch.ones(1, 4)).sum().backward()
    arena.reduce()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02)
"""


@pytest.mark.parametrize("own", [False, True])
def test_training_reports_its_steps_by_itself_unless_the_program_does(listener: socket.socket, own: bool) -> None:
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-c", _TRAINS, *(["own"] if own else [])], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    listener.setblocking(False)
    heard = []
    while True:
        try:
            heard.append(json.loads(listener.recv(4096)))
        except BlockingIOError:
            break
    if own:
        assert heard == [{"steps_per_second": -1.0}]
    else:
        assert heard, "two seconds of five have passed"
        assert all(0 < report["steps_per_second"] < 50 for report in heard), heard
