"""What a launcher starts in a rank's place: has the rank forked by the fork server, and is signalled, and ends, as if it were the rank.

Started as ``python -I -S stand_in.py SOCKET CALL [ARGUMENT…]``; the rank gets this process's variables, working directory and descriptors.
"""

from __future__ import annotations

import marshal
import os
import signal
import socket
import sys


def main(path: str, *call: str) -> int:
    """Asks for the rank and waits for it; ends by the signal that ended it, or returns its exit code."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(path)
        descriptors = _inherited()
        order = marshal.dumps((call, os.getcwd(), dict(os.environb), descriptors))
        socket.send_fds(server, [order], descriptors)
        said = server.recv(32)
        if said:
            _pass_signals_on(int(said))
            said = server.recv(32)
    if not said:
        print("the fork server has ended", file=sys.stderr)
        return 1
    code = int(said)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _pass_signals_on(rank: int) -> None:
    """Has what this process is sent sent to the rank and its helpers."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: os.killpg(rank, number))


def _inherited() -> list[int]:
    """The descriptors that whoever started this process left open for it."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if os.get_inheritable(number):
                found.append(number)
        except OSError:
            continue  # The one the directory was read by.
    return sorted(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
