"""Learns, survives being stopped or killed, and goes on where it was: `eirene-train run -n 2 resume.py`, twice, on any number of ranks.

What is learned is a curve, made here. Every rank learns from its share of each batch under FSDP2, and every 10 steps a checkpoint is written while
the training goes on. SIGTERM and SIGUSR1, which batch systems send before they end a job, make all ranks save once more and leave with status 75.
"""

import argparse
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import eirene_train  # noqa: F401 - makes the backend known
from eirene_train.checkpoint import Checkpointer, PerRank, RandomState, Training


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn a curve, and go on where it was.")
    parser.add_argument("--directory", default="checkpoints", help="where checkpoints lie; all ranks see it")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--backend", default="eirene")
    arguments = parser.parse_args()

    dist.init_process_group(arguments.backend)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1))
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    # Ranks draw numbers of their own.
    torch.manual_seed(1 + dist.get_rank())

    state = {"training": Training(model, optimizer), "random": PerRank(RandomState())}
    with Checkpointer(arguments.directory, every=10) as checkpointer:
        done = checkpointer.load_latest(state) or 0
        first = dist.get_rank() == 0
        if first:
            print(f"on from step {done}" if done else "from the start", flush=True)
        while done < arguments.steps:
            places = torch.rand(64, 1) * 6
            optimizer.zero_grad()
            loss = (model(places) - places.sin()).square().mean()
            loss.backward()
            optimizer.step()
            done += 1
            if first and done % 10 == 0:
                print(f"step {done}: loss {loss.item():.4f}", flush=True)
            if checkpointer.should_stop():
                checkpointer.save(done, state, wait=True)
                if first:
                    print(f"stopped after step {done}", flush=True)
                # EX_TEMPFAIL of sysexits(3). With 0 the training would count as finished, and whoever took the nodes would not start it again.
                sys.exit(75)
            if checkpointer.due(done) or done == arguments.steps:
                checkpointer.save(done, state)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
