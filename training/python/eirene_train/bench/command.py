"""The command ``eirene-train bench``."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from . import goals, micro, synthetic
from .cases import TESTS

__all__ = ["main", "parser"]

_SUMMARIES = {
    "allreduce": "a sum over all ranks, beside the time of copying as much memory",
    "bcast": "a message of rank 0's to all",
    "reduce_scatter": "a sum over all ranks, a share of it to each",
    "allgather": "everybody's message to everybody",
    "p2p": "latency and bandwidth between two ranks",
    "overlap": "how much of a sum over all ranks is hidden behind computing",
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="eirene-train bench",
        description="Measures Eirene, the MPIs of this machine and gloo (NCCL on GPUs) in interleaved rounds in one run.",
    )
    verbs = top.add_subparsers(dest="test", required=True, metavar="TEST")
    for test in TESTS:
        micro.add_options(verbs.add_parser(test, help=_SUMMARIES[test], description=f"Measures {_SUMMARIES[test]}."))
    synthetic.add_options(verbs.add_parser("synthetic", help="training on made-up images", description=synthetic.DESCRIPTION))
    goals.add_options(verbs.add_parser("goals", help="whether Eirene is as fast as it is meant to be", description=goals.DESCRIPTION))
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        arguments: without the program's name; none: those of this process.

    Returns:
        The exit code: 0; 1 where something failed or gave a wrong result; 2 where the command line makes no sense; 128 + N after signal N.
    """
    top = parser()
    options = top.parse_args(arguments)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        if options.test == "synthetic":
            return synthetic.main(options)
        if options.test == "goals":
            return goals.main(options)
        return micro.main(options.test, options)
    except ValueError as error:
        print(f"eirene-train bench: {error}", file=sys.stderr)
        return 2
    except _Ended as ended:
        return 128 + ended.signal
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        signal.signal(signal.SIGTERM, before)


class _Ended(BaseException):
    """A signal asked for the end; like KeyboardInterrupt it passes through everything and lets it clean up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


def _interrupt(number: int, _: FrameType | None) -> None:
    raise _Ended(number)
