"""A rank of a contender: meets the others, then sleeps until the driver says what to do.

Started as ``python -m eirene_train.bench.worker ORDER``, ORDER being JSON from `team`, by whatever launcher the contender has. An order is a line
of JSON with a verb, `do`; the answer is a line, with `error` and `trace` where the order failed and `wrong` where a result was not what it must be.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["SECRET", "SOCKET", "WrongResult", "main", "pid_space"]

# In the directory of a team: where it is reached by ranks of this machine, and what those of others must know.
SOCKET = "socket"
SECRET = "secret"

# Who started this process, by what it left: our own launcher, Open MPI's, any PMIx, Hydra, or the driver itself.
_RANK_VARIABLES = ("EIRENE_TRAIN_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK")


class WrongResult(Exception):
    """A call gave something else than it must."""


def main(arguments: list[str]) -> int:
    """Is a rank.

    Args:
        arguments: the order, as JSON.

    Returns:
        The exit code.
    """
    order = json.loads(arguments[0])
    rank = _rank()
    if order["cores"]:
        # Before anything starts a thread, so that all threads stay there.
        os.sched_setaffinity(0, {order["cores"][rank % len(order["cores"])]})
    connection = _connect(order, rank)
    threading.Thread(target=_end_with_the_driver, args=(connection,), daemon=True).start()
    try:
        session = _join(order, rank)
    except Exception as error:  # noqa: BLE001 - whatever it is, the driver reports it
        _send(connection, _failed(error))
        return 1
    _send(connection, session.facts())
    return _serve(connection, session)


def pid_space() -> str:
    """Where this process's number means this process: the machine's boot, and the space of process numbers in it."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"


def _connect(order: dict[str, Any], rank: int) -> socket.socket:
    """The driver, which then knows of this process."""
    directory = Path(order["directory"])
    hello = {"rank": rank, "pid": os.getpid(), "space": pid_space()}
    if order["address"] is None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(str(directory / SOCKET))
    else:
        try:
            hello["secret"] = (directory / SECRET).read_text(encoding="ascii")
        except OSError as error:
            raise SystemExit(f"rank {rank} on {socket.gethostname()}: all nodes must have the same home directory: {error}") from error
        host, port = order["address"]
        connection = socket.create_connection((host, port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _send(connection, hello)
    return connection


def _rank() -> int:
    for name in _RANK_VARIABLES:
        if name in os.environ:
            return int(os.environ[name])
    raise SystemExit(f"no launcher said which rank this is: none of {', '.join(_RANK_VARIABLES)} is set")


def _join(order: dict[str, Any], rank: int) -> Any:
    # Torch is imported here, after the driver knows of this process.
    from .measure import Session

    if order["store"] is None:
        meeting = f"file://{Path(order['directory'], 'store')}"
    else:
        # The driver serves the store, and no rank need be where it is.
        meeting = f"tcp://{order['address'][0]}:{order['store']}"
    return Session(order["backend"], rank, order["ranks"], order["local"][rank], meeting, order["library"])


def _serve(connection: socket.socket, session: Any) -> int:
    from . import training

    verbs: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"measure": session.measure, "explain": session.explain}
    trainer = training.Trainer(session.rank, session.size, session.device)
    verbs |= {"train-setup": trainer.setup, "train": trainer.train}
    lines = connection.makefile("rb")
    slept_from = time.monotonic(), time.process_time()
    while line := lines.readline():
        order = json.loads(line)
        if order["do"] == "end":
            session.end()
            return 0
        idle = {"idle_seconds": time.monotonic() - slept_from[0], "idle_cpu_seconds": time.process_time() - slept_from[1]}
        try:
            answer = verbs[order["do"]](order)
        except WrongResult as error:
            answer = {"wrong": str(error)}
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver reports it
            answer = _failed(error)
        _send(connection, answer | idle)
        slept_from = time.monotonic(), time.process_time()
    return 1


def _failed(error: Exception) -> dict[str, Any]:
    return {"error": f"{type(error).__name__}: {error}", "trace": "".join(traceback.format_exception(error))}


def _send(connection: socket.socket, answer: dict[str, Any]) -> None:
    connection.sendall(json.dumps(answer).encode() + b"\n")


def _end_with_the_driver(connection: socket.socket) -> None:
    """Ends this process when the driver is gone, whatever it is waiting for in the meantime."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    poll.poll()
    os._exit(1)


if __name__ == "__main__":
    # The same module as others import: `WrongResult` must be one class.
    from eirene_train.bench import worker

    sys.exit(worker.main(sys.argv[1:]))
