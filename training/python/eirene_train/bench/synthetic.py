"""``bench synthetic``: images a second in training a model on made-up data, with the flags and the output of Horovod's synthetic benchmark.

It starts its ranks itself; under a launcher (``eirene-train run``, srun, mpirun, torchrun) it is one of the launcher's ranks instead. With
``--compare`` a team of one rank and one of all ranks take turns, and the ratio of the two is what the further ranks bring.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from .. import launched
from . import machine
from .contenders import eirene, gloo, nccl
from .figures import confidence
from .micro import bound, positive, say
from .team import Failure, Team, assemble

__all__ = ["DESCRIPTION", "MODELS", "Rates", "add_options", "lines_after", "lines_before", "main", "scaling", "trained", "wire"]

DESCRIPTION = "Trains a model on made-up images and prints images a second, as Horovod's synthetic benchmark does."
# Named here too, so that the command line needs no torch; a test holds the two lists together.
MODELS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "tiny")
_BACKENDS = ("eirene", "gloo", "nccl")


@dataclass
class Rates:
    """Images a second and rank, of one team.

    Attributes:
        ranks: in the team.
        device: `CPU` or `GPU`.
        iterations: of each, the mean over ranks.
    """

    ranks: int
    device: str
    iterations: list[float] = field(default_factory=list)

    @property
    def total(self) -> float:
        """The median of the iterations, of all ranks together."""
        return median(self.iterations) * self.ranks

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        mean, half = confidence(self.iterations)
        return {"ranks": self.ranks, "img_per_second_per_rank": self.iterations, "mean": mean, "half_width": half, "median_total": self.total}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Horovod's options, then ours."""
    option = parser.add_argument
    option("--fp16-allreduce", action="store_true", help="send gradients as 16-bit numbers")
    option("--model", choices=MODELS, default="resnet50", help="the model (default: resnet50)")
    option("--batch-size", type=positive, default=32, help="images in a batch of one rank's (default: 32)")
    option("--num-warmup-batches", type=int, default=10, help="batches that do not count (default: 10)")
    option("--num-batches-per-iter", type=positive, default=10, help="batches in an iteration (default: 10)")
    option("--num-iters", type=positive, default=10, help="iterations (default: 10)")
    option("--no-cuda", action="store_true", help="train on the processors; so it is here unless the backend is nccl")
    option("--use-adasum", action="store_true", help=argparse.SUPPRESS)
    option("-n", "--ranks", type=positive, help="ranks to start (default: one a processor)")
    option("--backend", choices=_BACKENDS, default="eirene", help="who averages gradients (default: eirene); nccl trains on GPUs")
    option("--arena", action="store_true", help="gradients in a GradArena instead of DistributedDataParallel's buckets")
    option("--image-size", type=positive, default=224, help="height and width of the images (default: 224)")
    option("--threads", type=positive, default=1, help="threads of each rank (default: 1)")
    option("--compare", action="store_true", help="one rank and all ranks in turns, and what the further ranks bring")
    option("--bind", action=argparse.BooleanOptionalAction, help="keep rank i on processor i (default: where there are enough)")
    option("--json", type=Path, metavar="FILE", help="keep the raw data of every iteration")
    option("--time-limit", type=float, default=1800.0, metavar="SECONDS", help="for one iteration (default: 1800)")
    option("--start-limit", type=float, default=180.0, metavar="SECONDS", help="for the start of all ranks (default: 180)")


def main(options: argparse.Namespace) -> int:
    """Runs the benchmark and prints it.

    Returns:
        0; 1 where a team failed.

    Raises:
        ValueError: the options contradict each other, or ask for what there is not.
    """
    _refuse(options)
    if options.ranks is None and not options.compare and launched() is not None:
        return _as_rank(options)
    ranks = options.ranks or len(machine.cores())
    if options.compare and ranks < 2:
        raise ValueError("`--compare` needs at least 2 ranks beside the one")
    load = machine.load()
    try:
        teams = trained(options, [1, ranks] if options.compare else [ranks])
    except Failure as failure:
        say(failure.told())
        return 1
    if options.compare:
        print(f"Scaling: {scaling(teams[0], teams[1]):.2f} x of one rank on {ranks} {teams[1].device}(s)", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(wire(options, teams, load), indent=1) + "\n", encoding="utf-8")
    return 0


def trained(options: argparse.Namespace, sizes: Sequence[int]) -> list[Rates]:
    """Trains in teams of these sizes, which take turns, and prints each iteration of the largest.

    Args:
        options: see `add_options`.
        sizes: ranks of each team, the largest last.

    Raises:
        Failure: a team could not go on.
    """
    device = "GPU" if options.backend == "nccl" else "CPU"
    rates = [Rates(size, device) for size in sizes]
    print(*lines_before(options, rates[-1]), sep="\n", flush=True)
    with _teams(options, sizes) as teams:
        order = {
            "do": "train-setup",
            "model": options.model,
            "batch_size": options.batch_size,
            "image_size": options.image_size,
            "threads": options.threads,
            "arena": options.arena,
            "fp16": options.fp16_allreduce,
        }
        print("Running warmup...", flush=True)
        for team in teams:
            team.ask(order, options.time_limit)
            if options.num_warmup_batches:
                team.ask({"do": "train", "batches": options.num_warmup_batches}, options.time_limit)
        print("Running benchmark...", flush=True)
        for number in range(options.num_iters):
            for team, rate in zip(teams, rates, strict=True):
                answers = team.ask({"do": "train", "batches": options.num_batches_per_iter}, options.time_limit)
                rate.iterations.append(sum(answer["images"] / answer["seconds"] for answer in answers) / len(answers))
            print(_iteration(number, rates[-1]), flush=True)
    for rate in reversed(rates):
        print(*lines_after(rate), sep="\n", flush=True)
    return rates


def scaling(one: Rates, many: Rates) -> float:
    """How many times as many images as one rank."""
    return many.total / one.total


def lines_before(options: argparse.Namespace, rates: Rates) -> list[str]:
    """What stands before the first batch."""
    return [f"Model: {options.model}", f"Batch size: {options.batch_size}", f"Number of {rates.device}s: {rates.ranks}"]


def lines_after(rates: Rates) -> list[str]:
    """What stands after the last."""
    mean, half = confidence(rates.iterations)
    return [
        f"Img/sec per {rates.device}: {mean:.1f} +-{half:.1f}",
        f"Total img/sec on {rates.ranks} {rates.device}(s): {mean * rates.ranks:.1f} +-{half * rates.ranks:.1f}",
    ]


def wire(options: argparse.Namespace, teams: Sequence[Rates], load: list[float]) -> dict[str, Any]:
    """The JSON: `options`, `machine`, `load`, every iteration of each team under `teams`, and `scaling` where two were compared."""
    given = {name: value for name, value in vars(options).items() if isinstance(value, str | int | float | bool | None)}
    return {
        "schema": "eirene-train-bench-synthetic/1",
        "options": given,
        "machine": machine.facts(),
        "load": {"start": load, "end": machine.load()},
        "teams": [rates.wire() for rates in teams],
        "scaling": scaling(teams[0], teams[-1]) if len(teams) > 1 else None,
    }


def _iteration(number: int, rates: Rates) -> str:
    return f"Iter #{number}: {rates.iterations[-1]:.1f} img/sec per {rates.device}"


def _refuse(options: argparse.Namespace) -> None:
    if options.use_adasum:
        raise ValueError("`--use-adasum`: there is no Adasum here; gradients are averaged, which is Horovod's default")
    if options.backend == "nccl" and options.no_cuda:
        raise ValueError("`--backend nccl` trains on GPUs, and `--no-cuda` forbids it")
    if options.arena and options.backend != "eirene":
        raise ValueError(f"`--arena` keeps gradients in Eirene's memory; it does not go with `--backend {options.backend}`")
    if options.arena and options.fp16_allreduce:
        raise ValueError("`--fp16-allreduce` sends a copy, and `--arena` is there so that there is none; choose one")


def _as_rank(options: argparse.Namespace) -> int:
    """One of the ranks of a launcher's."""
    import torch
    import torch.distributed as dist

    from .training import Trainer

    dist.init_process_group(options.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    gpu = options.backend == "nccl"
    device = torch.device("cuda", rank % torch.cuda.device_count()) if gpu else torch.device("cpu")
    rates = Rates(size, "GPU" if gpu else "CPU")
    trainer = Trainer(rank, size, device)

    def tell(*lines: str) -> None:
        if rank == 0:
            print(*lines, sep="\n", flush=True)

    tell(*lines_before(options, rates), "Running warmup...")
    trainer.setup(vars(options) | {"fp16": options.fp16_allreduce})
    if options.num_warmup_batches:
        trainer.train({"batches": options.num_warmup_batches})
    tell("Running benchmark...")
    for number in range(options.num_iters):
        took = trainer.train({"batches": options.num_batches_per_iter})
        rates.iterations.append(took["images"] / took["seconds"])
        tell(_iteration(number, rates))
    tell(*lines_after(rates))
    dist.destroy_process_group()
    return 0


@contextlib.contextmanager
def _teams(options: argparse.Namespace, sizes: Sequence[int]) -> Iterator[list[Team]]:
    """A team of each size.

    Raises:
        Failure: one did not start.
    """
    contender = {"eirene": eirene(), "gloo": gloo(), "nccl": nccl()}[options.backend]
    with contextlib.ExitStack() as stack:
        teams = []
        for size in sizes:
            ready, failures = stack.enter_context(assemble([contender], size, bound(size, options.bind), options.start_limit))
            if failures:
                raise failures[0]
            teams += ready
        yield teams
