"""Cells on ranks, in a real kernel: what people see, what ranks keep, and what is left when something dies."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import launchers
import notebooks
import pytest
from deep import DEEP
from eirene_train.notebook._magic import Notebook as Magic
from eirene_train.notebook._magic import _cell_parser
from eirene_train.notebook._run import Following
from eirene_train.notebook._session import Event, Session, Wanted
from notebooks import Notebook

RANKS = "eirene_train.notebook.rank"


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Notebook, launchers.Traces]]:
    """One kernel for tests that leave it as it was."""
    traces = launchers.Traces()
    with notebooks.notebook(traces.variables) as notebook:
        yield notebook, traces
    traces.assert_none()
    traces.clear()


@pytest.fixture
def notebook(shared: tuple[Notebook, launchers.Traces]) -> Notebook:
    return shared[0]


@pytest.fixture
def processes(shared: tuple[Notebook, launchers.Traces]) -> launchers.Traces:
    return shared[1]


def ranks_of(traces: launchers.Traces) -> list[int]:
    """The processes of ranks."""
    return traces.processes(lambda words: RANKS in words and "run" not in words)


def wait_for(path: str) -> str:
    """Code that goes on when there is a file."""
    return f"import os, time\nwhile not os.path.exists({path!r}): time.sleep(0.01)\n"


WHO = "import eirene_train\nrank = eirene_train.world().rank\n"


def test_lines_have_their_ranks_before_them_and_those_of_all_are_one(notebook: Notebook) -> None:
    shown = notebook.fine(f"%%eirene -n 3\n{WHO}print('from all')\nprint('from', rank)\nprint('in the end')")
    assert shown.lines[0] == "[0-2] from all" and shown.lines[-1] == "[0-2] in the end"
    assert sorted(shown.lines[1:-1]) == ["[0] from 0", "[1] from 1", "[2] from 2"]
    shown = notebook.fine("%%eirene\nif rank: print('from two')")
    assert sorted(shown.lines) == ["[1] from two", "[2] from two"]


def test_output_is_there_while_the_cell_runs(notebook: Notebook, tmp_path: Path) -> None:
    (one, all_of_them) = (tmp_path / name for name in ("one", "all"))
    code = f"if rank == 1: print('one speaks')\n{wait_for(str(one))}print('all speak')\n{wait_for(str(all_of_them))}print('end')"
    # The cell goes on only because its lines were seen.
    shown = notebook.fine(f"%%eirene -n 3\n{WHO}{code}", when={"[1] one speaks": one.touch, "[0-2] all speak": all_of_them.touch})
    assert shown.lines == ["[1] one speaks", "[0-2] all speak", "[0-2] end"]


def test_ranks_keep_their_variables_and_rank_0_shows_the_last_value(notebook: Notebook) -> None:
    table = "class Table:\n    def _repr_html_(self): return '<b>table</b>'\n    def __repr__(self): return 'plain'"
    notebook.fine(f"%%eirene -n 3\n{WHO}kept = rank * 10\n{table}")
    assert notebook.fine("%%eirene -n 3\nkept + 1").displays == [{"text/plain": "1"}]
    assert notebook.fine("%%eirene\nTable()").displays == [{"text/plain": "plain", "text/html": "<b>table</b>"}]
    assert notebook.fine("%%eirene\nkept;").displays == []
    assert sorted(notebook.fine("%%eirene --all\nkept").lines) == ["[0] 0", "[1] 10", "[2] 20"]
    assert notebook.fine("%%eirene --all\n'same'").lines == ["[0-2] 'same'"]
    fresh = notebook.run("%%eirene --fresh\nkept")
    assert "NameError: name 'kept' is not defined" in fresh.error and "3 ranks of before are ended" in fresh.stderr


def test_other_options_start_other_ranks_and_say_so(notebook: Notebook, processes: launchers.Traces) -> None:
    notebook.fine("%%eirene -n 3\n1")
    before = ranks_of(processes)
    shown = notebook.fine(f"%%eirene -n 2\n{WHO}print(eirene_train.world().size)")
    assert shown.lines == ["[0-1] 2"] and "3 ranks of before are ended, with all variables there" in shown.stderr
    assert len(ranks_of(processes)) == 2 and not set(before) & set(ranks_of(processes))
    assert "2 ranks, started 0 min" in notebook.fine("%eirene status").stdout
    assert "have ended" in notebook.fine("%eirene stop").stdout
    assert ranks_of(processes) == [] and "no ranks run" in notebook.fine("%eirene status").stdout


def test_stderr_and_programs_and_all_scripts_come_through(notebook: Notebook) -> None:
    code = "import os, subprocess, sys\nprint('żółć ✓ 漢字')\nprint('oh', file=sys.stderr)\nos.write(1, b'no end')\n"
    code += "subprocess.run(['echo', 'a program'])\n"
    shown = notebook.fine(f"%%eirene -n 2\n{code}print('no end either', end='')\nsys.stdout.buffer.write('bytes ü'.encode())\nNone")
    assert shown.lines[0] == "[0-1] żółć ✓ 漢字" and "[0-1] oh\n" in shown.stderr
    assert "no enda program" in shown.stdout and shown.lines[-1] == "[0-1] no end eitherbytes ü"
    assert "token" not in shown.stdout


def test_a_forked_child_writes_as_a_program_does(notebook: Notebook) -> None:
    code = "import multiprocessing\nprint('unfinished ', end='')\nchild = multiprocessing.get_context('fork').Process(target=print, args=('from a child',))"
    shown = notebook.fine(f"%%eirene -n 2\n{code}\nchild.start(); child.join()\nprint('and finished', child.exitcode)")
    # A machine that is busy may let one rank's child come later than the other's; that ranks were started is said without a label.
    said = {line.partition("] ")[2] for line in shown.lines if line.startswith("[")}
    assert said == {"from a child", "unfinished and finished 0"}


def test_progress_bars_of_ranks_are_shown_in_one_place(notebook: Notebook, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    bar = f"import sys\nprint('\\r10%\\r20%', end='', file=sys.stderr, flush=True)\n{wait_for(str(seen))}print('\\r100%', file=sys.stderr)"
    shown = notebook.fine(f"%%eirene -n 2\n{bar}", when={"[0-1] 20%": seen.touch})
    assert shown.stderr == "[0-1] 100%\n"
    seen.unlink()
    wait = wait_for(str(seen)).strip().replace("\n", "\n        ")
    loop = f"for item in eirene_train.notebook.progress(range(4)):\n    if rank and item == 1:\n        {wait}"
    shown = notebook.fine(f"%%eirene -n 2\n{WHO}import eirene_train.notebook\n{loop}", when={"25% 1/4 (rank 1, the slowest)": seen.touch})
    assert "done: 0-1" in shown.states[-1] and "100% 4/4" in shown.states[-1]


def test_values_go_to_ranks_and_come_back(notebook: Notebook) -> None:
    notebook.fine("%%eirene -n 3\n" + WHO)
    notebook.fine("big, word = list(range(100_000)), 'ü'\n%eirene push big word")
    notebook.fine("%%eirene\nloss = len(big) + rank; copy = big + [word]; bad = lambda: 0\nclass Own: pass\nown = Own()")
    assert notebook.fine("%eirene pull loss\nloss").value == "100000"
    assert notebook.fine("%eirene pull loss word --rank 2\nloss, word").value == "(100002, 'ü')"
    pulled = notebook.fine("%eirene pull loss copy --rank all\nloss, [one == big + [word] for one in copy]")
    assert pulled.value == "([100000, 100001, 100002], [True, True, True])"


def test_what_is_pushed_comes_whole_though_an_interrupt_comes_in_its_midst(notebook: Notebook) -> None:
    notebook.fine("%%eirene --fresh -n 2\nimport os\nkept, process = 9, os.getpid()")
    first = int(notebook.fine("%eirene pull process\nprocess").value)
    # What takes its time on the ranks can be interrupted there, whenever they come to it.
    notebook.fine("import time\nclass Slow:\n    def __reduce__(self): return time.sleep, (600,)\nslow, big = Slow(), bytes(1 << 25)")
    # Rank 0 reads nothing before the interrupt: a pipe takes 64 KiB, the rest waits.
    os.kill(first, signal.SIGSTOP)

    def interrupt() -> None:
        notebook.interrupt()
        os.kill(first, signal.SIGCONT)

    try:
        shown = notebook.run("%eirene push big slow", when={"pushing: 0-1": interrupt})
    finally:
        os.kill(first, signal.SIGCONT)
    assert shown.error.startswith("ranks 0-1: KeyboardInterrupt"), shown
    assert notebook.fine("%%eirene\nprint(kept, 'big' in globals())").lines == ["[0-1] 9 False"]
    notebook.fine("%eirene push big")
    assert notebook.fine("%%eirene\nprint(len(big))").lines == [f"[0-1] {1 << 25}"]


def test_ranks_that_do_not_take_what_is_pushed_are_killed_by_the_second_interrupt(notebook: Notebook, processes: launchers.Traces) -> None:
    notebook.fine("%%eirene --fresh -n 2\nimport os\nprocess = os.getpid()")
    first = int(notebook.fine("big = bytes(1 << 25)\n%eirene pull process\nprocess").value)
    os.kill(first, signal.SIGSTOP)
    told = "eirene: ranks 0-1 did not hear of the interrupt yet: what they are sent is still on its way, and is not cut off; interrupt once more"
    shown = notebook.run("%eirene push big", when={"pushing: 0-1": notebook.interrupt, told: notebook.interrupt})
    assert "ranks 0-1: killed" in shown.error and "the ranks were killed, as the interrupt was not heeded" in shown.error
    assert ranks_of(processes) == []
    assert notebook.fine("%%eirene\nprint('new')").lines == ["[0-1] new"]


def test_what_cannot_be_read_ends_the_ranks_and_is_told(notebook: Notebook, processes: launchers.Traces, tmp_path: Path) -> None:
    def gone() -> bool:
        deadline = time.monotonic() + 60
        while (left := processes.processes(lambda words: RANKS in words)) and time.monotonic() < deadline:
            time.sleep(0.02)
        return not left

    notebook.fine("%%eirene -n 2\nimport time")
    notebook.fine(
        "import os, threading, time\n"
        "def damage(what):\n    os.write(get_ipython()._eirene_notebook._session._process.stdin.fileno(), what)\n"
        f"def damage_later(what):\n    while not os.path.exists({str(tmp_path / 'now')!r}): time.sleep(0.01)\n    damage(what)"
    )
    # While no cell runs.
    notebook.fine("damage((5).to_bytes(8, 'little') + b'no {x')")
    assert gone() and "no ranks run" in notebook.fine("%eirene status").stdout
    shown = notebook.fine("%%eirene\nimport time\nprint('new')")
    told = "what the notebook sent cannot be read ("
    assert shown.lines == ["[0-1] new"] and f"new ranks are started, for those of before are gone: {told}JSONDecodeError: " in shown.stderr
    # While one does.
    notebook.fine("threading.Thread(target=damage_later, args=(b'\\xff' * 8,)).start()")
    shown = notebook.run("%%eirene\nprint('begun')\ntime.sleep(600)", when={"[0-1] begun": (tmp_path / "now").touch})
    sentence, _, rest = shown.error.partition("\n\n")
    assert sentence == f"the ranks ended, because {told}ValueError: {(1 << 64) - 1} bytes are no message)"
    assert rest == "the ranks' variables are lost; the next %%eirene cell starts new ones" and gone()
    assert notebook.fine("%%eirene\nprint('again')").lines == ["[0-1] again"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("%eirene push nothing", "%eirene push: there is no `nothing` in the notebook"),
        ("%eirene push os", "%eirene push: `os` cannot be pickled: TypeError: cannot pickle 'module' object"),
        ("%eirene push", "the following arguments are required: NAME"),
        ("%eirene pull nothing --rank all", "ranks 0-1: NameError: there is no `nothing`; a cell must have given it a value"),
        ("%eirene pull bad", "rank 0: ValueError: `bad` cannot be pickled: "),
        ("%eirene pull own", "%eirene pull: `own` cannot be made in the notebook: AttributeError"),
        ("%eirene pull bad --rank 2", "there is no rank `2`; it is 0 to 1, or all"),
        ("%eirene frobnicate", "there is no `frobnicate`; it is push, pull, status or stop"),
        ("%%eirene -n 0\n1", "0 ranks cannot run a cell"),
        ("%%eirene -n many\n1", "`many` is no number of ranks"),
        ("%%eirene --timeout never\n1", "`never` is no number of seconds"),
        ("%%eirene --bogus\n1", "there is no option `--bogus`"),
        ("%%eirene -n '\n1", "no closing quotation"),
        ("%%eirene\nfine = 1\nx = = 1", "line 3 of the cell: invalid syntax: `x = = 1`"),
        ("%%eirene\n!ls", "shell and magic commands are the notebook's own"),
        ("%%eirene --nodes c[1- -n 2\n1", "the ranks did not start: "),
    ],
)
def test_what_makes_no_sense_is_told_in_one_sentence(notebook: Notebook, line: str, sentence: str) -> None:
    notebook.fine("%%eirene -n 2\nbad = lambda: 0\nclass Own: pass\nown = Own()")
    notebook.fine("import os")
    shown = notebook.run(line)
    assert shown.status == "error" and sentence in shown.error and shown.error.count("\n") == 0, shown
    if "\n" not in line or "=" in line:
        # Nothing was sent.
        assert notebook.run("%%eirene\nfine").kind == "RanksFailed"


def test_ranks_that_failed_in_the_same_way_are_told_together(notebook: Notebook) -> None:
    code = "def check(rank):\n    if rank == 1:\n        raise ValueError('only\\none')\n    return [][rank]\ncheck(rank)"
    shown = notebook.run(f"%%eirene -n 4\n{WHO}{code}")
    assert shown.kind == "RanksFailed"
    together, alone = shown.error.split("\n\n")
    assert together.startswith("ranks 0, 2-3: IndexError: list index out of range\nTraceback (most recent call last):\n  File \"<cell ")
    assert ", line 8, in <module>\n    check(rank)\n" in together and ", line 7, in check\n    return [][rank]\n" in together
    assert alone.startswith("rank 1: ValueError: only\none\nTraceback") and "raise ValueError('only\\none')" in alone
    assert "eirene_train" not in shown.error
    # What differs is told by rank.
    shown = notebook.run("%%eirene\nraise KeyError(rank // 2)")
    assert shown.error.startswith("ranks 0-3: KeyError\n[0-1] 0\n[2-3] 1\nTraceback")
    assert notebook.fine("%%eirene\nprint('alive')").lines == ["[0-3] alive"]


def test_a_rank_that_exits_from_a_cell_stays(notebook: Notebook) -> None:
    notebook.fine(f"%%eirene -n 2\n{WHO}import sys")
    assert notebook.fine("%%eirene\nprint('early'); sys.exit()\nprint('late')").lines == ["[0-1] early"]
    shown = notebook.run("%%eirene\nif rank: sys.exit(3)")
    assert shown.error.startswith("rank 1: SystemExit: 3\n")
    assert notebook.fine("%%eirene\nprint(sys.argv is not None)").lines == ["[0-1] True"]


def test_who_waits_for_a_failed_rank_is_told_and_can_be_interrupted(notebook: Notebook) -> None:
    notebook.fine(f"%%eirene -n 3\n{WHO}import time; kept = 1")
    hint = "eirene: rank 1 failed (ValueError), and ranks 0, 2 still run; if they wait for what does not come, interrupt the cell"
    shown = notebook.run("%%eirene\nif rank == 1: raise ValueError('no')\nwhile True: time.sleep(60)", when={hint: notebook.interrupt})
    assert shown.error.startswith("ranks 0, 2: KeyboardInterrupt\n") and "\n\nrank 1: ValueError: no\n" in shown.error
    assert notebook.fine("%%eirene\nprint(kept)").lines == ["[0-2] 1"]


def test_an_interrupt_reaches_all_ranks_and_they_keep_their_variables(notebook: Notebook) -> None:
    notebook.fine("%%eirene -n 3\nkept = 7")
    code = "import time\nprint('begun', flush=True)\nwhile True:\n    sum(range(1000))\n    time.sleep(0.001)"
    shown = notebook.run(f"%%eirene\n{code}", when={"[0-2] begun": notebook.interrupt})
    assert "KeyboardInterrupt" in shown.error and "<cell " in shown.error and "_worker" not in shown.error
    assert "3 ranks, started" in notebook.fine("%eirene status").stdout
    # Also in the midst of output, which stays whole.
    shown = notebook.run("%%eirene\nwhile True: print('y' * 5000)", when={"y" * 5000: notebook.interrupt})
    assert "KeyboardInterrupt" in shown.error
    assert notebook.fine("%%eirene\nprint(kept)").lines == ["[0-2] 7"]


def test_a_cell_whose_time_is_over_is_interrupted(notebook: Notebook) -> None:
    notebook.fine("%%eirene -n 2\nkept = 8")
    shown = notebook.run("%%eirene --timeout 0.5\nimport time\ntime.sleep(600)")
    assert "the cell's time of 0.5 s is over; ranks 0-1 are interrupted" in shown.stderr and shown.error.startswith("ranks 0-1: KeyboardInterrupt")
    assert notebook.fine("%%eirene --timeout 100\nprint(kept)").lines == ["[0-1] 8"]


def test_a_rank_that_does_not_heed_is_killed_by_the_second_interrupt(notebook: Notebook, processes: launchers.Traces) -> None:
    notebook.fine("mine = 5")
    notebook.fine(f"%%eirene -n 2\n{WHO}import signal, time")
    code = "if rank: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])\nprint('begun')\ntime.sleep(600)"
    told = "eirene: rank 1 did not heed the interrupt yet"
    shown = notebook.run(f"%%eirene\n{code}", when={"[0-1] begun": notebook.interrupt, told: notebook.interrupt})
    assert "rank 1: killed" in shown.error and "the ranks were killed, as the interrupt was not heeded: the ranks' variables are lost" in shown.error
    assert ranks_of(processes) == []
    shown = notebook.fine("%%eirene\nprint('new')")
    assert shown.lines == ["[0-1] new"] and "new ranks are started, for those of before are gone" in shown.stderr
    assert notebook.fine("mine").value == "5"


def test_an_interrupted_collective_ends_the_world_and_says_what_is_lost(notebook: Notebook) -> None:
    start = "import torch, torch.distributed as dist\ndist.init_process_group('eirene')\nrank, one = dist.get_rank(), torch.ones(3)"
    notebook.fine(f"%%eirene -n 2\n{start}")
    shown = notebook.fine("%%eirene\ndist.all_reduce(one)\nprint(one.tolist())")
    assert shown.lines == ["[0-1] [2.0, 2.0, 2.0]"]
    code = "print('begun')\nif rank: dist.all_reduce(one)\nelse:\n    import time; time.sleep(600)"
    shown = notebook.run(f"%%eirene\n{code}", when={"[0-1] begun": notebook.interrupt})
    assert "KeyboardInterrupt" in shown.error
    lost = "the ranks' world has ended (a collective call was interrupted, which cannot be taken back): the ranks' variables are lost"
    assert shown.error.endswith(f"{lost}; the next %%eirene cell starts new ones")
    assert "no ranks run" in notebook.fine("%eirene status").stdout
    assert notebook.fine("%%eirene\nprint('dist' in globals())").lines == ["[0-1] False"]


def test_a_rank_that_is_killed_is_named_and_the_notebook_stays(notebook: Notebook, processes: launchers.Traces) -> None:
    notebook.fine("mine = [1, 2]")
    notebook.fine(f"%%eirene -n 3\n{WHO}import os, signal, time")
    shown = notebook.run("%%eirene\nprint('last words')\nif rank == 1: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(600)")
    first, *others = shown.error.split("\n")
    assert first == "rank 1 was killed (signal 9)" and others[0] == "ranks 0, 2 were ended because of that"
    assert "[1] last words" in shown.stdout or "[0-2] last words" in shown.stdout
    assert others[-1] == "the ranks' variables are lost; the next %%eirene cell starts new ones" and ranks_of(processes) == []
    assert notebook.fine("mine").value == "[1, 2]"
    shown = notebook.fine("%%eirene\nprint('again')")
    assert shown.lines == ["[0-2] again"] and "new ranks are started, for those of before are gone: rank 1 was killed (signal 9)" in shown.stderr
    # Between cells as well.
    os.kill(ranks_of(processes)[-1], signal.SIGKILL)
    deadline = time.monotonic() + 60
    while processes.processes(lambda words: RANKS in words) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert "no ranks run" in notebook.fine("%eirene status").stdout
    shown = notebook.fine("%%eirene\nprint('once more')")
    assert shown.lines == ["[0-2] once more"] and "for those of before are gone: rank 2 was killed (signal 9)" in shown.stderr


def test_a_rank_that_leaves_without_a_word_is_named(notebook: Notebook, processes: launchers.Traces) -> None:
    notebook.fine(f"%%eirene -n 2\n{WHO}import os, time")
    shown = notebook.run("%%eirene\nif rank: os._exit(0)")
    assert shown.error.startswith("rank 1 ended in the midst of the cell\n") and ranks_of(processes) == []
    notebook.fine(f"%%eirene -n 2\n{WHO}import os, time")
    shown = notebook.run("%%eirene\nif not rank: os._exit(4)\ntime.sleep(600)")
    assert shown.error.startswith("rank 0 ended with exit code 4\nrank 1 was ended because of that\n")
    assert notebook.fine("%%eirene\nprint('again')").lines == ["[0-1] again"]


def test_a_flood_of_output_is_cut_and_the_kernel_lives(notebook: Notebook) -> None:
    shown = notebook.fine("%%eirene -n 2\nfor _ in range(40_000): print('f' * 99)\nprint('over')")
    assert 500_000 < len(shown.stdout) < 3_500_000 and "of output are left out here" in shown.stderr
    assert notebook.fine("%%eirene\nprint('fine')").lines == ["[0-1] fine"]


def test_a_flood_of_values_is_cut_as_well(notebook: Notebook) -> None:
    shown = notebook.fine("%%eirene -n 2\nfor _ in range(100): display('v' * 90_000)")
    assert 500_000 < sum(len(data["text/plain"]) for data in shown.displays) < 3_500_000 and "of output are left out here" in shown.stderr
    assert notebook.fine("%%eirene\n'fine'").displays == [{"text/plain": "'fine'"}]


def test_a_cell_may_use_torch_as_a_program_does(notebook: Notebook) -> None:
    code = "import torch, torch.distributed as dist\ndist.init_process_group('eirene')\n"
    code += "t = torch.ones(2) * (dist.get_rank() + 1)\ndist.all_reduce(t)\nprint(t.tolist())"
    assert notebook.fine(f"%%eirene --fresh -n 2\n{code}").lines == ["[0-1] [3.0, 3.0]"]
    # The notebook's own messages and torch's do not disturb each other.
    for _ in range(3):
        assert notebook.fine("%%eirene\ndist.all_reduce(t)\ndist.barrier()\nprint(dist.get_world_size())").lines == ["[0-1] 2"]
    assert notebook.fine("%eirene pull t --rank all\n[one.tolist() for one in t]").value == "[[24.0, 24.0], [24.0, 24.0]]"


def test_a_training_in_cells_that_is_warned_is_saved_and_new_ranks_go_on(notebook: Notebook, tmp_path: Path) -> None:
    start = """import os, torch, torch.distributed as dist
from eirene_train.checkpoint import Checkpointer, Training
dist.init_process_group('eirene')
torch.manual_seed(dist.get_rank())
process, model = os.getpid(), torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters())
state = {'training': Training(model, optimizer), 'done': 0}
"""
    train = f"""with Checkpointer({str(tmp_path)!r}) as checkpointer:
    while not checkpointer.should_stop():
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        state['done'] += 1
        if state['done'] == 3: print('begun')
    checkpointer.save(state['done'], state, wait=True)
state['done']
"""
    load = f"""with Checkpointer({str(tmp_path)!r}) as checkpointer:
    step = checkpointer.load_latest(state)
step if step == state['done'] else (step, state['done'])
"""
    notebook.fine(f"%%eirene --fresh -n 3\n{start}")
    one = int(notebook.fine("%eirene pull process --rank 1\nprocess").value)
    # The scheduler's warning, to one of them.
    shown = notebook.fine(f"%%eirene --all\n{train}", when={"[0-2] begun": lambda: os.kill(one, signal.SIGUSR1)})
    begun, stopped = shown.lines
    assert begun == "[0-2] begun" and int(stopped.removeprefix("[0-2] ")) >= 3
    (weights,) = notebook.fine("%%eirene\nmodel.module.weight.tolist()[0]").displays
    # On another number of ranks, which have seen nothing of it.
    notebook.fine(f"%%eirene --fresh -n 2\n{start}")
    assert notebook.fine(f"%%eirene --all\n{load}").lines == [stopped.replace("[0-2]", "[0-1]")]
    (loaded,) = notebook.fine("%%eirene\nmodel.module.weight.tolist()[0]").displays
    assert json.loads(loaded["text/plain"]) == pytest.approx(json.loads(weights["text/plain"]))
    notebook.fine("%eirene stop")


@pytest.mark.skipif(not DEEP, reason="measures time")
def test_idle_ranks_burn_no_time_of_the_processors(notebook: Notebook, processes: launchers.Traces) -> None:
    notebook.fine("%%eirene -n 2\n1")

    def spent() -> float:
        stats = [Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split() for process in ranks_of(processes)]
        assert len(stats) == 2
        return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")

    before, begin = spent(), time.monotonic()
    # A measurement, which takes its time.
    while time.monotonic() < begin + 3:
        time.sleep(0.1)
    assert spent() - before < 0.05 * 3 * 2


def test_two_notebooks_do_not_see_each_other(notebook: Notebook, processes: launchers.Traces, traces: launchers.Traces) -> None:
    with notebooks.notebook(traces.variables) as other:
        notebook.fine("%%eirene -n 2\nmine = 1")
        other.fine("%%eirene -n 2\nits = 2")
        assert "NameError" in other.run("%%eirene\nmine").error and "NameError" in notebook.run("%%eirene\nits").error
        assert not set(ranks_of(processes)) & set(ranks_of(traces)) and len(ranks_of(traces)) == 2
        other.fine("%eirene stop")
        assert notebook.fine("%%eirene\nprint(mine)").lines == ["[0-1] 1"]
    traces.assert_none()


def test_ranks_may_be_on_several_hosts(traces: launchers.Traces, tmp_path: Path) -> None:
    # As ssh does: a host, and words for a shell there.
    shell = tmp_path / "shell"
    shell.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    shell.chmod(0o755)
    with notebooks.notebook(traces.variables | {"EIRENE_TRAIN_RSH": str(shell)}) as notebook:
        shown = notebook.fine(f"%%eirene -n 4 --nodes 127.0.0.2,127.0.0.3\n{WHO}import os, time\nprint('node', os.environ['EIRENE_TRAIN_NODE'])")
        assert sorted(shown.lines) == ["[0] node 0", "[1] node 0", "[2] node 1", "[3] node 1"]
        notebook.fine("given = list(range(100_000))\n%eirene push given")
        assert notebook.fine("%eirene pull rank given --rank all\nrank, [len(one) for one in given]").value == f"([0, 1, 2, 3], {[100_000] * 4})"
        begun = "[0-3] begun"
        shown = notebook.run("%%eirene\nprint('begun')\nwhile True: time.sleep(0.1)", when={begun: notebook.interrupt})
        assert shown.error.startswith("ranks 0-3: KeyboardInterrupt")
        shown = notebook.run("%%eirene\nif rank == 3: os.kill(os.getpid(), 9)\nwhile True: time.sleep(0.1)")
        assert shown.error.startswith("rank 3 was killed (signal 9)\nranks 0-2 were ended because of that")
    traces.assert_none()


@pytest.mark.parametrize("is_busy", [False, True])
def test_nothing_is_left_of_a_kernel_that_is_killed(traces: launchers.Traces, is_busy: bool) -> None:
    with notebooks.notebook(traces.variables) as notebook:
        notebook.fine("%%eirene -n 2\nimport time")
        assert len(ranks_of(traces)) == 2
        (kernel,) = traces.processes(lambda words: "ipykernel_launcher" in words)
        if is_busy:
            request = notebook.client.execute("%%eirene\nprint('begun')\nwhile True: time.sleep(0.1)")
            while "begun" not in str((message := notebook.client.get_iopub_msg(timeout=60))["content"].get("text")):
                assert message["parent_header"].get("msg_id") in (request, None)
        os.kill(kernel, signal.SIGKILL)
        traces.assert_none()


def test_unloading_ends_the_ranks(traces: launchers.Traces) -> None:
    with notebooks.notebook(traces.variables) as notebook:
        notebook.fine("%%eirene -n 2\n1")
        notebook.fine("%unload_ext eirene_train.notebook")
        assert ranks_of(traces) == []
        assert notebook.run("%%eirene -n 2\n1").status == "error"
    traces.assert_none()


def test_ranks_that_run_are_the_same_whether_nodes_were_tried_before() -> None:
    tried, untried = Wanted(2, "c[1-2]"), Wanted(2, "c[1-2]", preflight=False)
    assert tried == untried
    assert "--no-preflight" not in tried.command() and "--no-preflight" in untried.command()


@pytest.mark.parametrize(
    ("before", "line", "asked"),
    [
        ("-n 4", "-n 2 --exclude c2", ["--ranks", "2", "--exclude", "c2"]),
        ("-n 2 --exclude c2", "", ["--ranks", "2", "--exclude", "c2"]),
        ("-n 2 --exclude c2", "--nodes c1,c2", ["--ranks", "2", "--nodes", "c1,c2"]),
        ("-n 2 --nodes c1", "--exclude c2", ["--ranks", "2", "--exclude", "c2"]),
        ("-n 2 --exclude c2", "-n 4", ["--ranks", "4"]),
    ],
)
def test_a_node_is_left_out_as_its_refusal_says_until_somebody_says_otherwise(before: str, line: str, asked: list[str]) -> None:
    magic = Magic(None)
    magic._wanted = magic._wanted_by(_cell_parser().read(before.split()))
    command = magic._wanted_by(_cell_parser().read(line.split())).command()
    assert command[command.index("--ranks") : command.index("-m", command.index("--ranks"))] == asked


class _Heard:
    """A session that only takes words, and a screen that only keeps sentences."""

    wanted = Wanted(1)

    def __init__(self) -> None:
        self.noted: list[str] = []
        self.said: list[tuple[str, bool]] = []

    def taken(self) -> None: ...

    def note(self, word: str) -> None:
        self.noted.append(word)

    def say(self, sentence: str, wrong: bool = True) -> None:
        self.said.append((sentence, wrong))


def test_why_the_launcher_ended_is_its_reason_or_what_it_said_beside_the_start() -> None:
    start = ["eirene-train: preflight: 2 nodes, 1 link fine (0.6 GB/s, 67 us), 1.8 s", "eirene-train: 4 ranks on 2 nodes (c1, c2), by PMIx"]

    def last_words(*words: str) -> str:
        return Session.last_words(cast(Any, SimpleNamespace(words=[*start, *words])))

    assert last_words() == ""
    assert last_words("eirene-train: the run failed: the step was cancelled in SLURM") == "the step was cancelled in SLURM"
    assert last_words("eirene-train: preflight: node c2 is sick: it stopped", "srun: error: x") == "preflight: node c2 is sick: it stopped srun: error: x"


def test_what_was_found_of_nodes_is_shown_and_why_none_start_only_once() -> None:
    heard = _Heard()
    following = Following(cast(Any, heard), cast(Any, heard))
    lines = [
        "eirene-train: preflight: 2 nodes, 1 link fine (0.6 GB/s, 67 us), 1.8 s",
        "eirene-train: 2 ranks on 2 nodes (c1, c2)",
        "eirene-train: preflight: node c2 is sick: it stopped. Nothing was started: leave out what is sick",
        "eirene-train: preflight: the link between c1 and c2 is slow (0.1 GB/s)",
    ]
    for line in lines:
        following._deal(Event(stream="stderr", line=line), None)
    assert heard.noted == lines
    assert heard.said == [
        ("preflight: 2 nodes, 1 link fine (0.6 GB/s, 67 us), 1.8 s", False),
        ("preflight: the link between c1 and c2 is slow (0.1 GB/s)", True),
    ]
