"""Starts the image's kernel and server once, at the end of the build, and looks for anything that others on a node could reach."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jupyter_client.manager import KernelManager

LISTENING = "0A"
PROGRAM = """
import multiprocessing, os
import matplotlib.pyplot as plt
import numpy as np
import numpy.testing
plt.plot(np.arange(3))
child = multiprocessing.get_context("fork").Process(target=lambda: print("child", flush=True))
child.start()
child.join()
print("answer", 6 * 7, flush=True)
"""
REPORT = "import eirene; raise SystemExit(not eirene.report(step=12, loss=0.25))"


def reachable() -> list[str]:
    """Listening TCP sockets and abstract unix sockets of this network namespace."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            if line.split()[3] == LISTENING:
                found.append(f"{table}: {line.split()[1]}")
    for line in Path("/proc/net/unix").read_text().splitlines():
        path = line.split()[-1]
        if path.startswith("@"):
            found.append(f"abstract socket {path}")
    return found


def until(condition, what: str, seconds: float = 60) -> None:
    """Waits for a condition; the build fails when it does not come true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"{what}: not within {seconds} s")
        time.sleep(0.05)


def check_kernel(directory: str) -> None:
    """A kernel runs code, its children's output arrives, and it listens nowhere."""
    text = []

    def collect(message: dict) -> None:
        if message["msg_type"] == "stream":
            text.append(message["content"]["text"])

    manager = KernelManager(transport="ipc", connection_file=f"{directory}/kernel.json")
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        reply = client.execute_interactive(PROGRAM, timeout=60, output_hook=collect)
        if reply["content"]["status"] != "ok":
            sys.exit(f"the kernel answered {reply['content']}")
        # The child's words may come later than the answer; running nothing reads what has come.
        until(
            lambda: client.execute_interactive("", timeout=60, output_hook=collect) and "child" in "".join(text),
            "the output of a child process",
        )
        if "answer 42" not in "".join(text):
            sys.exit(f"the kernel printed {text}")
        features = client.kernel_info(reply=True, timeout=60)["content"].get("supported_features", [])
        if "debugger" in features or reachable():
            sys.exit(f"a kernel is reachable: {reachable()}, features {features}")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def check_refusal(directory: str) -> None:
    """A kernel that is told to use TCP ends at once."""
    manager = KernelManager(transport="tcp", connection_file=f"{directory}/tcp.json")
    manager.start_kernel(stderr=subprocess.DEVNULL)
    try:
        until(lambda: not manager.is_alive(), "a kernel over TCP ends")
    finally:
        manager.shutdown_kernel(now=True)


def check_report(directory: str) -> None:
    """What a program reports arrives where the session listens."""
    path = f"{directory}/report.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(path)
        heard.settimeout(60)
        environment = os.environ | {"EIRENE_REPORT_SOCKET": path}
        # Elsewhere than in the folder of the build, so that it is the installed one.
        subprocess.run([sys.executable, "-c", REPORT], check=True, env=environment, cwd=directory, timeout=60)
        told = json.loads(heard.recv(4096))
    if told != {"step": 12, "loss": 0.25}:
        sys.exit(f"`eirene.report` sent {told}")


def check_server(directory: str) -> None:
    """The server answers on its unix socket and listens nowhere else."""
    path = f"{directory}/lab.sock"
    environment = os.environ | {"JUPYTER_RUNTIME_DIR": directory}
    arguments = ["--allow-root", "--no-browser", f"--ServerApp.sock={path}", "--IdentityProvider.token="]
    server = subprocess.Popen(["jupyter", "lab", *arguments], env=environment, cwd=directory, stderr=subprocess.DEVNULL)

    def answers() -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(10)
                connection.connect(path)
                connection.sendall(b"GET /lab HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                return connection.recv(15) == b"HTTP/1.1 200 OK"
        except OSError:
            return False

    try:
        until(answers, "the server answers")
        if reachable():
            sys.exit(f"the server is reachable: {reachable()}")
    finally:
        server.terminate()
        server.wait(30)


def main() -> None:
    """All of it."""
    with tempfile.TemporaryDirectory() as directory:
        check_kernel(directory)
        check_refusal(directory)
        check_report(directory)
        check_server(directory)


main()
