"""``eirene-train bench``: what Eirene does in a given time, beside MPI, gloo and NCCL, measured in one run.

    eirene-train bench allreduce -m 4096:16777216
    eirene-train bench synthetic --model resnet50 --compare
    eirene-train bench goals

A driver, which needs no torch, starts a *team* for each thing that is compared: a world of rank processes that stays alive and sleeps in a read
until it is told to run one round. The driver lets the teams take turns, A, B, C, A, B, C …, so that whatever else the machine does falls on all of
them alike, and reports medians of rounds. Every contender is called through torch.distributed, is kept on the same processors, and has its
results checked.

- `cases`: what is measured: tests, sizes, iterations.
- `contenders`, `mpis`: what is compared, and how each is started.
- `team`: a team from the driver's side; `worker`, `measure`, `training`: from a rank's.
- `micro`, `table`, `figures`, `machine`: rounds, their output, arithmetic, and facts about the machine.
- `synthetic`, `models`: training of a real model on made-up data; `goals`: whether the runtime is as fast as it is meant to be.
"""
