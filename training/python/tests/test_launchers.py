"""Whoever starts the ranks: they are one world, a step of DDP is what one process computes, and when one is killed nothing is left."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import launchers
import pytest
import ranks
from deep import DEEP, assert_within

pytestmark = pytest.mark.skipif(ranks.REFERENCE, reason="about real launchers and the real runtime")

# In the deep tests everybody knows by then what has happened.
SOON = 5.0


@pytest.fixture(params=launchers.NAMES)
def launcher(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "srun":
        with launchers.slurm():
            yield request.param
    else:
        yield request.param


def step() -> Any:
    """Who this rank is, a sum over all ranks, and the gradients of one step of DDP beside those of one process on all ranks' data."""
    import torch
    import torch.distributed as dist

    import eirene_train

    dist.init_process_group("eirene")
    rank, size = dist.get_rank(), dist.get_world_size()
    total = torch.full((1001,), float(rank + 1))
    dist.all_reduce(total)

    torch.manual_seed(3)
    layers = [torch.nn.Linear(7, 33), torch.nn.Tanh(), torch.nn.Linear(33, 1)]
    model = torch.nn.Sequential(*layers).double()
    data = torch.randn(4 * size, 7, dtype=torch.float64)
    model(data).square().mean().backward()
    wanted = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    parallel(data[4 * rank : 4 * rank + 4]).square().mean().backward()
    difference = max(float((parameter.grad - right).abs().max()) for parameter, right in zip(model.parameters(), wanted, strict=True))
    answer = rank, size, sorted(set(total.tolist())), difference, eirene_train.launched()
    dist.destroy_process_group()
    return answer


SAYS = {"run": "eirene-train run", "mpirun": "PMIx", "mpiexec": "PMI", "srun": "PMIx", "torchrun": "torchrun"}


@pytest.mark.parametrize("size", [2, 4] if DEEP else [2])
def test_a_step_of_ddp_is_what_one_process_computes(launcher: str, size: int, traces: launchers.Traces) -> None:
    answers = ranks.values(size, step, launcher=launchers.command(launcher, size), variables=traces.variables)
    for rank, (said, of, totals, difference, launched) in enumerate(answers):
        assert (said, of, totals) == (rank, size, [size * (size + 1) / 2])
        assert difference < 1e-10
        assert launched == SAYS[launcher]
    traces.assert_none()


def step_by_mpi() -> Any:
    """The same, who carries out an allreduce, and which of the libraries in this process are an MPI."""
    import eirene_train

    answer = step()
    explained = eirene_train.explain("allreduce", 1001, group=eirene_train.world().everybody(60_000))
    mapped = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    libraries = {fields[5] for fields in mapped if len(fields) == 6 and "/libmpi" in fields[5]}
    return *answer, explained, libraries


def test_by_the_standard_abi_of_mpi_5(traces: launchers.Traces) -> None:
    library = launchers.of_wheel("mpich", "libmpi_abi.so.1")
    asked = {"EIRENE_TRAIN_MPI": str(library), "EIRENE_TRAIN_TRANSPORT": "mpi", "EIRENE_TRAIN_ALGORITHM": "allreduce=mpi"}
    command = [str(launchers.of_wheel("mpich", "mpiexec.hydra")), "-n", "2"]
    answers = ranks.values(2, step_by_mpi, launcher=command, variables=traces.variables | asked)
    for rank, (said, of, totals, difference, launched, explained, libraries) in enumerate(answers):
        assert (said, of, totals, launched) == (rank, 2, [3.0], "PMI")
        assert difference < 1e-10
        assert "MPI's own" in explained
        assert libraries == {str(library)}
    traces.assert_none()


def spawned(program: str, directory: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A program that calls torch.multiprocessing.spawn, run as its own; spawned processes read its file again."""
    file = directory / "program.py"
    with socket.create_server(("127.0.0.1", 0)) as free:
        file.write_text(program.replace("29500", str(free.getsockname()[1])))
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    environment |= variables | {"OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, timeout=240, cwd=directory)


def test_spawned_processes_are_ranks_as_the_readme_has_it(tmp_path: Path, traces: launchers.Traces) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    program = next(block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "multiprocessing.spawn" in block)
    begin = '    dist.init_process_group("eirene")\n'
    assert begin in program
    step = (
        "    total = torch.full((1001,), rank + 1.0)\n    dist.all_reduce(total)\n"
        "    open(f'said{rank}', 'w').write(f'{dist.get_rank()} of {dist.get_world_size()}: {total.unique().tolist()} by {eirene_train.launched()}')\n"
    )
    done = spawned(program.replace(begin, begin + step), tmp_path, traces.variables)
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"said{rank}").read_text() for rank in range(2)] == [f"{rank} of 2: [3.0] by torchrun" for rank in range(2)]
    traces.assert_none()


WITHOUT_VARIABLES = """
import torch
import torch.distributed as dist
import eirene_train

def train(rank, size):
    how = {
        "tcp": {"init_method": "tcp://127.0.0.1:29500"},
        "eirene": {"init_method": "eirene://"},
        "store": {"store": dist.HashStore()},
    }
    said = []
    for name, given in how.items():
        try:
            dist.init_process_group("eirene", rank=rank, world_size=size, **given)
        except eirene_train.InvalidArgument as error:
            said.append(f"{name}: {error}")
    said.append(f"joined: {eirene_train.joined()}")
    open(f"said{rank}", "w").write("\\n".join(said))

if __name__ == "__main__":
    torch.multiprocessing.spawn(train, args=(2,), nprocs=2)
"""


def test_spawned_processes_that_nobody_tells_their_rank_are_told_how(tmp_path: Path, traces: launchers.Traces) -> None:
    done = spawned(WITHOUT_VARIABLES, tmp_path, traces.variables)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        *refused, joined = (tmp_path / f"said{rank}").read_text().splitlines()
        assert [line.split(":")[0] for line in refused] == ["tcp", "eirene", "store"]
        for line in refused:
            assert f"rank {rank} of 2" in line and "leave" not in line
            assert all(word in line for word in ("RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT", "eirene-train run -n 2", "torchrun"))
        # They may still become ranks of that world.
        assert joined == "joined: False"
    traces.assert_none()


def endless() -> None:
    """Reduces without end; says which process this is when under way, and when an error came."""
    import torch
    import torch.distributed as dist

    import eirene_train

    torch.set_num_threads(1)
    dist.init_process_group("eirene")
    tensor = torch.ones(300_000)
    dist.all_reduce(tensor)
    try:
        # In one piece, for other ranks write to the same place. Who reads it may send a signal before this goes on.
        os.write(1, f"rank {dist.get_rank()} is {os.getpid()}\n".encode())
        while True:
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
    except (eirene_train.EireneError, KeyboardInterrupt) as error:
        # Whose clock is everybody's on this machine.
        os.write(1, f"rank {dist.get_rank()} raised at {time.monotonic()} {type(error).__name__}: {error}\n".encode())
        raise


class Endless:
    """Ranks that reduce without end under a launcher, in a group of their own."""

    def __init__(self, launcher: str, size: int, traces: launchers.Traces) -> None:
        program = [sys.executable, "-c", "import test_launchers; test_launchers.endless()"]
        # Ranks of a busy machine need time for their word.
        patience = ["--grace", "60"] if launcher == "run" else []
        environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
        environment |= traces.variables | {"PYTHONPATH": str(Path(__file__).parent), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
        self.launcher = subprocess.Popen(
            [*launchers.command(launcher, size), *patience, *program],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # The test may itself run where Ctrl-C is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        assert self.launcher.stdout is not None
        self.said = ""
        self.processes: dict[int, int] = {}
        while len(self.processes) < size:
            line = self.launcher.stdout.readline()
            assert line, self.said
            self.said += line
            words = line.split()
            if "rank" in words and "is" in words and words[-1].isdigit():
                self.processes[int(words[words.index("rank") + 1])] = int(words[-1])

    def end(self) -> int:
        """Waits for the launcher's end and reads what was said meanwhile."""
        self.said += self.launcher.communicate(timeout=240)[0]
        return self.launcher.returncode


# The other launchers in `make test` with ranks that are no Python: training/runtime/tests/launchers/killed.rs.
def stores() -> list[bool]:
    """Whether the default group's store is torch's own, by its backends."""
    import torch.distributed as dist

    found = []
    for backend in ("gloo", "cpu:gloo,cuda:gloo", "eirene", "cpu:eirene,cuda:gloo"):
        dist.init_process_group(backend)
        tensor = dist.distributed_c10d.torch.ones(1)
        dist.all_reduce(tensor)
        assert float(tensor[0]) == 2.0
        store = dist.distributed_c10d._get_default_store()
        while isinstance(store, dist.PrefixStore):
            store = store.underlying_store
        found.append(isinstance(store, dist.TCPStore))
        dist.barrier()
        dist.destroy_process_group()
        # The next one's store is at the same port.
        del store
    return found


@pytest.mark.skipif(ranks.REFERENCE, reason="about the variables of the real launcher")
def test_backends_that_are_not_ours_meet_as_torch_does() -> None:
    assert ranks.values(2, stores) == [[True, True, False, False]] * 2


@pytest.mark.parametrize(("launcher", "size"), [(name, size) for name in launchers.NAMES for size in (2, 4)] if DEEP else [("torchrun", 2)], indirect=["launcher"])
def test_when_a_rank_is_killed_the_others_are_told_soon_and_nothing_is_left(launcher: str, size: int, traces: launchers.Traces) -> None:
    run = Endless(launcher, size, traces)
    victim = size - 1
    killed = time.monotonic()
    os.kill(run.processes[victim], signal.SIGKILL)
    code = run.end()
    traces.assert_none()
    assert code != 0, run.said
    told = re.findall(r"rank (\d+) raised at ([\d.]+) (.*)", run.said)
    for _, at, error in told:
        assert f"rank {victim} has ended" in error, run.said
        assert_within(SOON, float(at) - killed, run.said)
    # Launchers may end the others before they have a word; srun leaves them be.
    assert launcher != "srun" or len(told) == size - 1, run.said
    # MPICH's knows processes, not ranks, and may name one that it ended itself.
    by_process = [f"BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID {process} " for process in run.processes.values()]
    names = [f"rank {victim} ", f"rank      : {victim}", *by_process]
    assert told or any(name in run.said.split(f"is {run.processes[victim]}\n", 1)[1] for name in names), run.said


@pytest.mark.parametrize("launcher", ["run", "torchrun"])
def test_ctrl_c_to_the_terminal_s_group_ends_all_soon_and_nothing_is_left(launcher: str, traces: launchers.Traces) -> None:
    run = Endless(launcher, 2, traces)
    began = time.monotonic()
    os.killpg(run.launcher.pid, signal.SIGINT)
    code = run.end()
    traces.assert_none()
    assert code != 0, run.said
    # torchrun looks after its ranks now and then.
    if launcher == "run":
        assert code == 128 + signal.SIGINT, (code, run.said)
        raised = [float(at) for at in re.findall(r"raised at ([\d.]+)", run.said)]
        assert len(raised) == 2, run.said
        assert_within(SOON, max(raised) - began, run.said)
