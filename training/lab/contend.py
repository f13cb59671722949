"""Allreduce between emulated nodes: eirene and gloo in turns, both worlds alive, the one that waits asleep.

``contend.py`` is run in a lab (``eirene-train-nodes with 2 -- python contend.py``), starts both worlds by ``eirene-train run`` on the lab's
nodes, and lets them measure one after the other. ``contend.py rank BACKEND PATH`` is one of their ranks.

A round is a few calls of one world, each begun together; a call takes as long as its slowest rank takes. A world's figure is the median of
its rounds' medians.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

BACKENDS = ("eirene", "gloo")
#: How long a world may take to come up, or a round.
PATIENCE = 120.0
INTERFACE = "eth0"


def lines_of(connection: socket.socket) -> Generator[Any, None, None]:
    """What the other end says, one JSON value a line."""
    with connection.makefile("r", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def say(connection: socket.socket, value: Any) -> None:
    """Says a JSON value."""
    connection.sendall(json.dumps(value).encode() + b"\n")


def be_rank(backend: str, path: str) -> None:
    """One rank: joins its world, then measures when it is told to.

    Args:
        backend: ``eirene`` or ``gloo``.
        path: directory with the socket on which is said what to do.
    """
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if backend == "eirene":
        import eirene_train  # noqa: F401  (makes the backend known)

        dist.init_process_group("eirene")
    else:
        os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE
        dist.init_process_group("gloo", init_method=f"file://{path}/gloo", rank=rank, world_size=size)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(f"{path}/socket")
    say(connection, {"backend": backend, "rank": rank})
    for order in lines_of(connection):
        buffer = torch.empty(order["bytes"] // 4)
        expected = float(size * (size + 1) // 2)
        times = []
        for _ in range(order["calls"]):
            buffer.fill_(rank + 1)
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(buffer)
            times.append(time.perf_counter() - began)
            if not bool((buffer == expected).all()):
                raise SystemExit(f"{backend} computed something wrong on rank {rank}")
        say(connection, times)
    dist.barrier()
    dist.destroy_process_group()


class World:
    """A world of one backend and the connections to its ranks."""

    def __init__(self, backend: str, nodes: int, ranks: int, path: str) -> None:
        """Starts it.

        Args:
            backend: ``eirene`` or ``gloo``.
            nodes: how many of the lab's nodes.
            ranks: how many ranks on each.
            path: directory for its sockets.
        """
        self.backend = backend
        run = [sys.executable, "-m", "eirene_train", "run", "--nodes", f"node[1-{nodes}]", "--ranks-per-node", str(ranks)]
        self.process = subprocess.Popen([*run, "--", sys.executable, __file__, "rank", backend, path])
        self.ranks: list[tuple[socket.socket, Generator[Any, None, None]]] = []

    def round(self, size: int, calls: int) -> list[float]:
        """Measures some calls.

        Args:
            size: bytes of the buffer.
            calls: how many.

        Returns:
            Seconds for each, of the rank that took longest.
        """
        for connection, _ in self.ranks:
            say(connection, {"bytes": size, "calls": calls})
        return [max(call) for call in zip(*(next(lines) for _, lines in self.ranks), strict=True)]

    def end(self) -> int:
        """Lets the ranks go; their exit code."""
        for connection, lines in self.ranks:
            connection.shutdown(socket.SHUT_WR)
            lines.close()
            connection.close()
        return self.process.wait(timeout=PATIENCE)


def sent(nodes: int) -> int:
    """Bytes that all nodes have sent so far, as their interfaces count them."""
    tool = os.environ["EIRENE_TRAIN_RSH"].split()[0]
    asked = [[tool, "bytes", f"node{node}"] for node in range(1, nodes + 1)]
    said = [subprocess.run(words, capture_output=True, text=True, check=True).stdout for words in asked]
    return sum(int(re.findall(r"\d+", line)[0]) for line in said)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Both worlds in turns.

    Args:
        arguments: of the command.

    Returns:
        All figures.
    """
    size = arguments.bytes
    with tempfile.TemporaryDirectory() as path, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{path}/socket")
        listener.listen()
        listener.settimeout(PATIENCE)
        worlds = {backend: World(backend, arguments.nodes, arguments.ranks, path) for backend in BACKENDS}
        for _ in range(len(worlds) * arguments.nodes * arguments.ranks):
            connection, _ = listener.accept()
            connection.settimeout(PATIENCE)
            lines = lines_of(connection)
            worlds[next(lines)["backend"]].ranks.append((connection, lines))
        rounds: dict[str, list[list[float]]] = {backend: [] for backend in BACKENDS}
        wire = dict.fromkeys(BACKENDS, 0)
        load = []
        for world in worlds.values():
            world.round(size, 1)
        for number in range(arguments.rounds):
            # Who begins changes from round to round.
            order = BACKENDS if number % 2 == 0 else BACKENDS[::-1]
            for backend in order:
                before = sent(arguments.nodes)
                rounds[backend].append(worlds[backend].round(size, arguments.calls))
                wire[backend] += sent(arguments.nodes) - before
            load.append(os.getloadavg()[0])
        codes = [world.end() for world in worlds.values()]
    if any(codes):
        raise SystemExit("a world has failed")
    each = arguments.rounds * arguments.calls * arguments.nodes * size
    return {
        "nodes": arguments.nodes,
        "ranks_per_node": arguments.ranks,
        "rate": arguments.rate,
        "congestion": Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip(),
        "bytes": size,
        "load": load,
        "seconds": rounds,
        "median": {backend: statistics.median(map(statistics.median, rounds[backend])) for backend in BACKENDS},
        "least": {backend: min(map(min, rounds[backend])) for backend in BACKENDS},
        "sent_by_a_node_in_buffers": {backend: wire[backend] / each for backend in BACKENDS},
    }


def main() -> None:
    """The command."""
    if sys.argv[1:2] == ["rank"]:
        be_rank(sys.argv[2], sys.argv[3])
        return
    parser = argparse.ArgumentParser(description="Allreduce between emulated nodes: eirene against gloo.")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2, help="on each node")
    parser.add_argument("--bytes", type=int, default=100_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=3, help="of each world in a round")
    parser.add_argument("--rate", default="1gbit", help="of the lab's wires, for the record")
    parser.add_argument("--results", type=Path, help="directory for the raw figures")
    arguments = parser.parse_args()
    figures = measure(arguments)
    print(f"allreduce of {arguments.bytes} bytes, {arguments.nodes} nodes of {arguments.ranks} ranks, {arguments.rate}:")
    for backend in BACKENDS:
        median, least = figures["median"][backend] * 1e3, figures["least"][backend] * 1e3
        share = figures["sent_by_a_node_in_buffers"][backend]
        print(f"{backend:>8} {median:9.1f} ms, least {least:9.1f} ms, a node sends {share:.3f} times the buffer")
    print(f"   ratio {figures['median']['gloo'] / figures['median']['eirene']:9.2f}    load {max(figures['load']):.1f} at most")
    if arguments.results:
        at = time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime())
        arguments.results.mkdir(parents=True, exist_ok=True)
        path = arguments.results / f"nodes-{at}.json"
        path.write_text(json.dumps({"bench": "nodes", "at": at, "figures": figures}, indent=2) + "\n")
        print(f"raw figures: {path.resolve()}")


if __name__ == "__main__":
    main()
