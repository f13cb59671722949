"""The package as others meet it: without torch, in any order of imports, by name only, typed."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import ranks
from deep import assert_within

ROOT = Path(__file__).parent.parent
real = pytest.mark.skipif(ranks.REFERENCE, reason="about the real extension module")


def python(program: str, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments, "-c", program], capture_output=True, text=True, timeout=120, cwd="/", **options)  # type: ignore[call-overload,no-any-return]


WITHOUT_TORCH = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "numpy"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
sys.meta_path.insert(0, NoTorch())
"""


@real
def test_the_command_starts_without_what_it_does_not_need() -> None:
    done = python(
        """
import sys
before = set(sys.modules)
import eirene_train.command
more = {name for name in set(sys.modules) - before if not name.startswith("eirene_train")}
print(*sorted(more))
import eirene_train as package
assert set(package.__all__) <= set(dir(package)) and package.__version__ != "0"
from eirene_train import tune, world
assert world is package.world and callable(tune)
"""
    )
    assert done.returncode == 0, done.stderr
    # In a container every module is some round trips through FUSE.
    assert len(done.stdout.split()) < 10, done.stdout


@real
def test_everything_but_the_tensors_works_without_torch() -> None:
    done = python(
        WITHOUT_TORCH
        + """
import ctypes
import eirene_train
from eirene_train import _native
world = eirene_train.world()
numbers = (ctypes.c_float * 3)(1, 2, 3)
world.everybody(1000).allreduce(ctypes.addressof(numbers), 3, _native.dtype("float32"), _native.op("sum"), 1000)
assert (world.rank, world.size, list(numbers)) == (0, 1, [1, 2, 3])
assert len(world.arena(1 << 16)) >= 1 << 16
try:
    eirene_train.GradArena
except ImportError as error:
    print(error)
eirene_train.leave()
try:
    eirene_train.world()
except eirene_train.InvalidArgument as error:
    print(error)
"""
    )
    assert done.returncode == 0, done.stderr
    assert "GradArena` needs PyTorch" in done.stdout and "the world was left" in done.stdout


@real
@pytest.mark.parametrize("imports", ["import torch.distributed as dist, eirene_train", "import eirene_train, torch.distributed as dist"])
def test_the_order_of_imports_does_not_matter(imports: str) -> None:
    done = python(imports + "\ndist.init_process_group('eirene', init_method='eirene://')\nprint(dist.get_backend(), dist.get_world_size())")
    assert done.stdout.split() == ["eirene", "1"], done.stderr


@real
def test_importing_it_does_not_import_torch() -> None:
    assert python("import sys, eirene_train; print('torch' in sys.modules)").stdout.strip() == "False"


@real
def test_nobody_started_us_is_said_as_torch_says_it() -> None:
    done = python("import torch.distributed as dist, eirene_train; dist.init_process_group('eirene')")
    assert done.returncode != 0 and "RANK expected, but not set" in done.stderr


@real
def test_an_older_torch_is_told_what_works() -> None:
    done = python(
        "import torch; torch.__version__ = '2.13.0'; import torch.distributed as dist, eirene_train\n"
        "dist.init_process_group('eirene', store=dist.HashStore(), rank=0, world_size=1)"
    )
    assert "needs torch 2.14 or newer, and this is 2.13.0" in done.stderr


@real
def test_the_command_has_honest_exit_codes() -> None:
    command = [sys.executable, "-m", "eirene_train", "run", "-n", "2"]
    good = subprocess.run([*command, "-c", "print('hello')"], capture_output=True, text=True, timeout=60, cwd="/")
    assert good.returncode == 0 and sorted(good.stdout.split("\n")[:2]) == ["[0] hello", "[1] hello"]
    bad = "import eirene_train, sys; sys.exit(7 if eirene_train.world().rank == 1 else 0)"
    assert subprocess.run([*command, "-c", bad], capture_output=True, timeout=60, cwd="/").returncode == 7


@real
def test_the_doctor_sees_python_and_torch() -> None:
    import torch

    command = [sys.executable, "-m", "eirene_train", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd="/")
    report = json.loads(done.stdout)
    assert done.returncode == (0 if report["ok"] else 1)
    found = {finding["id"]: finding for section in report["sections"] for finding in section["findings"]}
    assert found["python.torch"]["level"] == "ok" and found["python.torch"]["value"] == torch.__version__
    assert "PyBackend" in found["python.torch"]["fact"] and found["trial.ranks"]["level"] == "ok"
    quick = subprocess.run([*command, "--quick"], capture_output=True, text=True, timeout=120, cwd="/")
    assert "not imported, as asked" in quick.stdout and "trial.ranks" not in quick.stdout


@real
def test_facts_without_torch_or_with_a_broken_one() -> None:
    import os
    import tempfile

    from eirene_train.facts import facts

    assert facts(quick=True)["imported"] is False
    with tempfile.TemporaryDirectory() as folder:
        broken = Path(folder) / "torch.py"
        broken.write_text("raise OSError('libc10.so: cannot open shared object file')")
        environment = {**os.environ, "PYTHONPATH": folder}
        command = [sys.executable, "-m", "eirene_train", "doctor", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd="/", env=environment)
        assert done.returncode == 1 and "cannot be imported: OSError: libc10.so" in done.stdout, done.stderr
        broken.write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd="/", env=environment)
        assert "Python does not answer" in done.stdout and "trial.ranks" in done.stdout, done.stderr


@real
def test_bench_belongs_to_python() -> None:
    done = subprocess.run([sys.executable, "-m", "eirene_train", "bench", "--help"], capture_output=True, text=True, timeout=120, cwd="/")
    assert "eirene_train.bench" in done.stdout + done.stderr or "usage" in done.stdout


@real
@pytest.mark.parametrize("checker", [["mypy", "--config-file", "pyproject.toml"], ["mypy.stubtest", "eirene_train"]])
def test_types_are_as_the_stubs_say(checker: list[str], tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    extra, place = [], ROOT
    if "stubtest" in checker[0]:
        # The stub of the extension module, and everything else's own types, are compared with what is installed; where the sources lie, they would
        # be taken for it.
        settings = tmp_path / "mypy.ini"
        settings.write_text(f"[mypy]\ncache_dir = {tmp_path}\n[mypy-torch.*]\nfollow_imports = skip\n")
        extra, place = ["--allowlist", str(ROOT / "tests" / "stubtest_allowlist.txt"), "--mypy-config-file", str(settings)], Path("/")
    done = subprocess.run([sys.executable, "-m", *checker, *extra], capture_output=True, text=True, timeout=300, cwd=place)
    assert done.returncode == 0, done.stdout


def exchange() -> list[object]:
    """The store: on rank 0's table, from everywhere."""
    from datetime import timedelta

    from eirene_train import EireneError, _native, world
    from eirene_train._store import WorldStore

    here = world()
    store = WorldStore(here, timedelta(seconds=60))
    store.set(f"from{here.rank}", f"rank {here.rank}")
    said = [store.get(f"from{rank}").decode() for rank in range(here.size)]
    total = store.add("sum", here.rank + 1)
    store.wait([f"from{rank}" for rank in range(here.size)])
    assert 1 <= total <= 6
    while store.add("sum", 0) != sum(range(1, here.size + 1)):
        pass
    store.append("list", "x")
    while len(store.multi_get(["list"])[0]) < here.size:
        pass
    assert store.compare_set("once", "", str(here.rank)) == store.get("once")
    store.set_timeout(timedelta(seconds=0.1))
    try:
        store.get("never")
        late = "nothing"
    except EireneError as error:
        late = str(error)
    gone = store.delete_key(f"from{here.rank}")
    store.add("done", 1)
    while store.add("done", 0) < here.size:
        pass
    answer = [said, late, gone, store.check(["from0"]), sorted(store.list_keys()), store.num_keys()]
    # Rank 0 keeps the table: it stays until the others have asked their last.
    here.everybody(60_000).run(_native.collective("barrier"), 0, _native.dtype("uint8"), _native.op("sum"), [], [], 60_000)
    return answer


@pytest.mark.parametrize("size", [1, 3])
def test_the_store_is_one_for_all_ranks(size: int) -> None:
    for said, late, gone, still, keys, count in ranks.values(size, exchange):
        assert said == [f"rank {rank}" for rank in range(size)]
        assert "never" in late and gone and not still
        assert keys == ["done", "list", "once", "sum"] and count == 4


def strangers() -> list[str]:
    """Who does not know the secret is refused, and does not disturb, however many say nothing at all."""
    import secrets

    from eirene_train import _store, _wire

    def well() -> None:
        pass

    secret = secrets.token_bytes(32)
    listener, (target,) = _wire.listen(True, 1)
    server = _store._Server(_store._Table(), secret, 1, listener, 20.0)
    said = []
    for content in (b"", b"x" * 32, b"x" * 200):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
            stranger.connect("\0" + target)
            stranger.sendall(content)
            if not content:
                stranger.shutdown(socket.SHUT_WR)
            said.append("refused" if not stranger.recv(1000)[64:] else "let in")
    try:
        _wire._reached(target, secrets.token_bytes(32), 1, 5.0)
        said.append("believed")
    except OSError as error:
        said.append(str(error))
    # More than may stand there at a time, and all stay.
    silent = []
    for _ in range(2 * _wire._MOST_KNOCKS):
        silent.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        silent[-1].connect("\0" + target)
        silent[-1].sendall(b"x")
    frames = _wire.reach([target], secret, 1, 15.0, well)
    assert server.complete.wait(10)
    frames.send(bytes([_store._ADD]) + _store._pack(b"a", b"1"))
    said.append(repr(_store._unpack(frames.receive())))
    try:
        _wire.reach([target], secret, 2, 0.5, well)
        said.append("still listening")
    except TimeoutError:
        said.append("nobody listens")
    # Nobody keeps a stranger: each is told that it is over.
    for stranger in silent:
        stranger.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
        stranger.close()
    assert threading.active_count() < 10
    frames.connection.close()
    return said


def forked() -> tuple[str, list[str]]:
    """What a forked child is told by the store, and what is in it afterwards."""
    import os
    from datetime import timedelta

    from eirene_train import EireneError, _native, world
    from eirene_train._store import WorldStore

    here = world()
    store = WorldStore(here, timedelta(seconds=60))
    near, far = os.pipe()
    child = os.fork()
    if child == 0:
        said = b""
        for ask in (lambda: store.set("child", b"1"), lambda: store.get("parent"), store.num_keys):
            try:
                ask()
                said += b"answered"
            except EireneError as error:
                said += str(error).encode()
            said += b"|"
        os.write(far, said)
        os._exit(0)
    os.close(far)
    assert os.waitpid(child, 0)[1] == 0
    with open(near, encoding="utf-8") as heard:
        told = heard.read()
    # The parent's connection is as it was.
    store.set(f"parent{here.rank}", b"1")
    store.wait([f"parent{rank}" for rank in range(here.size)])
    keys = sorted(store.list_keys())
    here.everybody(60_000).run(_native.collective("barrier"), 0, _native.dtype("uint8"), _native.op("sum"), [], [], 60_000)
    return told, keys


def test_a_forked_child_has_no_part_in_the_store() -> None:
    for rank, (told, keys) in enumerate(ranks.values(2, forked)):
        *answers, rest = told.split("|")
        assert rest == "" and len(answers) == 3
        assert all(f"forked from the one that is rank {rank} " in answer for answer in answers), told
        assert keys == ["parent0", "parent1"]


def hasty() -> list[str]:
    """A rank that gives up before it hears that it is in is not taken for one that is, and may knock again; who never comes is named."""
    import secrets
    import struct

    from eirene_train import _store, _wire
    from eirene_train.errors import TimedOut

    def well() -> None:
        pass

    secret = secrets.token_bytes(32)
    listener, (target,) = _wire.listen(True, 1)
    server = _store._Server(_store._Table(), secret, 1, listener, 60.0)
    ours, me = secrets.token_bytes(32), struct.pack("<I", 1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as first:
        first.connect("\0" + target)
        first.sendall(ours)
        theirs = first.recv(64)[:32]
        first.sendall(me + _wire._proof(secret, b"client", ours, theirs, me))
        # Rank 0 has let it in, but it does not say that it knows.
        said = [str(len(first.recv(100))), str(server.complete.is_set())]
    frames = _wire.reach([target], secret, 1, 30.0, well)
    assert server.complete.wait(30) and server.failure is None
    frames.send(bytes([_store._COUNT]))
    said.append(repr(_store._unpack(frames.receive())))
    frames.connection.close()

    # Two are awaited, and one comes.
    listener, (target,) = _wire.listen(True, 2)
    server = _store._Server(_store._Table(), secret, 2, listener, 10.0)
    frames = _wire.reach([target], secret, 1, 30.0, well)
    assert server.complete.wait(30) and isinstance(server.failure, TimedOut)
    said += [str(server.failure), repr(server.failure.missing)]
    frames.connection.settimeout(30)
    said.append(repr(frames.connection.recv(1)))
    frames.connection.close()

    # A rank whose proof is read, and who is not told that it is in, does not take itself to be.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        name = "eirene-test-" + secrets.token_hex(16)
        listener.bind("\0" + name)
        listener.listen()
        knock = threading.Thread(target=answer_and_close, args=(listener, secret))
        knock.start()
        try:
            _wire._reached(name, secret, 1, 30.0)
            said.append("in")
        except ConnectionError as error:
            said.append(str(error))
        knock.join()
    return said


def answer_and_close(listener: socket.socket, secret: bytes) -> None:
    """Rank 0 up to the proof, which it reads, and does not let in whose it is."""
    from eirene_train import _wire

    connection, _ = listener.accept()
    with connection:
        theirs, ours = connection.recv(32), b"n" * 32
        connection.sendall(ours + _wire._proof(secret, b"server", theirs, ours, b""))
        connection.recv(100)


def bereft() -> tuple[str, int, float]:
    """One rank dies while the others wait for something in the store."""
    import os
    import signal
    import time
    from datetime import timedelta

    from eirene_train import EireneError, world
    from eirene_train._store import WorldStore

    here = world()
    store = WorldStore(here, timedelta(seconds=120))
    store.set(f"here{here.rank}", b"")
    store.wait([f"here{rank}" for rank in range(here.size)])
    if here.rank == here.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        store.wait(["never"])
    except EireneError as error:
        return type(error).__name__, getattr(error, "rank", -1), time.monotonic() - begin
    return "nothing", -1, 0.0


@real
def test_who_waits_in_the_store_hears_of_a_death() -> None:
    *answers, dead = ranks.run(3, bereft, alone=True)
    assert isinstance(dead, ranks.Died)
    for answer in answers:
        assert not isinstance(answer, (ranks.Failed, ranks.Died)), answer
        kind, rank, seconds = answer
        assert (kind, rank) == ("PeerDied", 2)
        assert_within(5.0, seconds)


def test_a_rank_is_in_the_store_when_both_sides_know_it() -> None:
    (said,) = ranks.values(1, hasty)
    assert said[:3] == ["36", "False", "[b'0']"]
    assert said[3] == "in 10 s these ranks did not connect to the store of rank 0: 2"
    assert said[4:] == ["(2,)", "b''", "the connection ended"]


def test_strangers_are_refused_by_the_store() -> None:
    (said,) = ranks.values(1, strangers)
    assert said == ["refused"] * 3 + ["not the rank 0 that is meant", "[b'1']", "nobody listens"]
