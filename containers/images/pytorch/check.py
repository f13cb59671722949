"""Runs once at the end of the build: what the image is for works, and nothing lies in it that should not."""

import os
import re
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

# Processor time, which does not depend on what else the machine does. Measured: 1.6 s; without byte code 5.2 s.
IMPORT_LIMIT_S = 4
# What packages ask for and this image leaves out; requirements.txt and ../jupyter/requirements.txt say why.
LEFT_OUT = re.compile(r"debugpy|setuptools|triton|cuda-\w+|nvidia-\S+")
# Beside them, the examples need nothing.
IMPORTS = """
import torch, torch.distributed as dist
from torch.distributed.checkpoint import async_save, load, save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
import eirene_train, numpy, scipy, sklearn
"""
# A GPU that is asked for is an error in torch's own words, also where somebody asks by NCCL.
WITHOUT_GPU = """
import torch, torch.distributed as dist
assert not torch.cuda.is_available() and torch.cuda.device_count() == 0 and not torch.accelerator.is_available()
for ask in (lambda: torch.ones(1, device="cuda"), lambda: dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)):
    try:
        ask()
    except (RuntimeError, ValueError, AssertionError) as error:
        print(type(error).__name__, error)
    else:
        raise SystemExit("CUDA was asked for and there was no error")
"""
TRAINING = """
import os, sys
import torch, torch.distributed as dist
from sklearn.datasets import load_digits
from torch.distributed.checkpoint import load, save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("eirene")
rank = dist.get_rank()
tensor = torch.full((1000,), float(rank + 1))
dist.all_reduce(tensor)
assert tensor.eq(3).all(), tensor
pixels, digits = load_digits(return_X_y=True)
pixels = torch.tensor(pixels / 16, dtype=torch.float32)[rank::2]
digits = torch.tensor(digits)[rank::2]
mesh = init_device_mesh("cpu", (2,))
assert distribute_tensor(torch.arange(8.0), mesh, [Shard(0)]).full_tensor().sum() == 28

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

for wrapped in (DistributedDataParallel(model()), fully_shard(model(), mesh=mesh)):
    optimizer = torch.optim.Adam(wrapped.parameters(), 0.03)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(wrapped(pixels), digits)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0], losses
    print(type(wrapped).__name__, losses[0], losses[-1])
state = {"model": wrapped.state_dict()}
save(state, checkpoint_id=sys.argv[1])
load(state, checkpoint_id=sys.argv[1])
dist.destroy_process_group()
"""


def python(code: str) -> str:
    """What a program printed; the build fails with it."""
    return subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout


def check_import() -> None:
    """torch is there within the time, and what training is written with."""
    # The first one reads the files from the disk.
    taken = min(float(python("import time, torch; print(time.process_time())")) for _ in range(2))
    print(f"import torch: {taken:.1f} s of processor time")
    if taken > IMPORT_LIMIT_S:
        sys.exit(f"`import torch` took {taken:.1f} s of processor time, more than {IMPORT_LIMIT_S} s")
    python(IMPORTS)
    print(python(WITHOUT_GPU))


def check_training(directory: Path) -> None:
    """Two ranks train on the digits, data-parallel and sharded, and keep what they learnt."""
    program = directory / "train.py"
    program.write_text(TRAINING)
    environment = os.environ | {"EIRENE_TRAIN_TUNING": "off"}
    command = ["eirene-train", "run", "-n", "2", str(program), str(directory / "checkpoint")]
    subprocess.run(command, check=True, env=environment, timeout=300)


def check_packages() -> None:
    """Nothing that a package needs is missing but what was left out on purpose."""
    said = subprocess.run(["pip", "check"], stdout=subprocess.PIPE, text=True, timeout=300).stdout
    for line in said.splitlines():
        missing = re.fullmatch(r"\S+ \S+ requires (\S+), which is not installed\.", line)
        if not (missing and LEFT_OUT.fullmatch(missing[1])):
            sys.exit(f"pip says: {line}")


def check_mpi() -> None:
    """The training runtime finds and starts Open MPI, and so does Open MPI's own launcher."""
    said = subprocess.run(["eirene-train", "doctor"], stdout=subprocess.PIPE, text=True, timeout=300).stdout
    if not re.search(r"ok +Open MPI \S+ started", said):
        sys.exit(f"`eirene-train doctor` starts no Open MPI: {said}")
    code = "import eirene_train; world = eirene_train.world(); print(f'rank {world.rank} of {world.size}')"
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable, "-c", code]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout
    if sorted(output.splitlines()) != ["rank 0 of 2", "rank 1 of 2"]:
        sys.exit(f"two ranks under mpirun said: {output}")


def check_leftovers() -> None:
    """No caches of the build, and nothing that everybody may write to."""
    root = os.stat("/").st_dev
    for cache in (Path.home() / ".cache/pip", Path("/root/.cache"), Path("/var/cache/apt")):
        if cache.exists():
            sys.exit(f"`{cache}` was left by the build")
    for folder, folders, files in os.walk("/"):
        folders[:] = [name for name in folders if os.lstat(os.path.join(folder, name)).st_dev == root]
        for name in folders + files:
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            if mode & stat.S_IWOTH and not stat.S_ISLNK(mode) and not (stat.S_ISDIR(mode) and mode & stat.S_ISVTX):
                sys.exit(f"everybody may write to `{path}`")


def main() -> None:
    """All of it."""
    with tempfile.TemporaryDirectory() as directory:
        check_import()
        check_packages()
        check_training(Path(directory))
        check_mpi()
    print("JupyterLab", subprocess.run(["jupyter", "lab", "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    check_leftovers()


main()
