"""What a program says of itself, for the charts of its session: losses, rates, steps.

A report is one JSON object of names and numbers, a datagram to the socket that ``EIRENE_REPORT_SOCKET`` names. Any program can send one; this
is the short way from Python, and needs neither torch nor a group.
"""

from __future__ import annotations

import json
import math
import os
import re
import socket
from collections.abc import Mapping

__all__ = ["VARIABLE", "own_names", "report", "send"]

#: The variable that says where the socket is; without it nobody listens.
VARIABLE = "EIRENE_REPORT_SOCKET"
_NAME = re.compile("[a-z_][a-z0-9_]{0,31}")
_MOST_NAMES = 32
#: Up to here a double tells whole numbers apart, and up to here values are taken.
_MOST = 2.0**53

_sender: tuple[int, socket.socket] | None = None
#: Names that the program has reported itself: whoever reports for it (`throughput`) leaves them to it.
own_names: set[str] = set()


def report(**values: float) -> bool:
    """Shows values in the charts of the session, such as ``report(step=12, loss=0.25, images_per_second=810)``.

    It never waits and never fails because nobody listens: outside a session, or when more comes than is looked at (the last value of each name
    every 5 s is what a chart shows), nothing happens. Report from one rank: all ranks of a node have the same lines. A tensor of one element is
    taken as its value, which waits for its GPU as ``item()`` does.

    Args:
        values: names of small letters, ``_`` and, behind the first, digits, at most 32 of them, at most 32 at once and 64 in a session; numbers.
            What is not finite or beyond 2**53, such as a loss that became NaN, is left out.

    Returns:
        Whether something was sent.

    Raises:
        ValueError: a name that is no name, or more than 32 at once.
        TypeError: a value that is no number.
    """
    if len(values) > _MOST_NAMES:
        msg = f"{len(values)} values in one report: at most {_MOST_NAMES} are taken"
        raise ValueError(msg)
    for name in values:
        if not _NAME.fullmatch(name):
            msg = f"`{name}` cannot be reported: names are 1 to 32 small letters, digits and `_`, and begin with no digit"
            raise ValueError(msg)
    for name, value in values.items():
        # `float` would read them, and what is text in one report and a number in the next is a mistake.
        if isinstance(value, (str, bytes, bytearray, memoryview)):
            msg = f"`{name}` is {type(value).__name__}, and only numbers are reported"
            raise TypeError(msg)
    own_names.update(values)
    return send(values)


def send(values: Mapping[str, float]) -> bool:
    """Sends these, whose names are known to be good; as `report` otherwise."""
    numbers = {name: float(value) for name, value in values.items()}
    finite = {name: value for name, value in numbers.items() if math.isfinite(value) and abs(value) <= _MOST}
    path = os.environ.get(VARIABLE)
    if not path or not finite:
        return False
    try:
        _socket().sendto(json.dumps(finite).encode(), path)
    except OSError:
        # Nobody listens now, or more comes than is looked at.
        return False
    return True


def _socket() -> socket.socket:
    """One socket for each process: a child of fork(2) makes its own."""
    global _sender
    if _sender is None or _sender[0] != os.getpid():
        sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sender.setblocking(False)
        _sender = (os.getpid(), sender)
    return _sender[1]
