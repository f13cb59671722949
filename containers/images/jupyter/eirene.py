"""What a program says of itself, for the charts of its session: ``eirene.report(step=12, loss=0.25)``.

A report is one JSON object of names and numbers, a datagram to the socket that ``EIRENE_REPORT_SOCKET`` names. This is in all of Eirene's images
and needs nothing; where `eirene_train` is used too, `eirene_train.report` is the same.
"""

import json
import math
import os
import re
import socket
import sys

__all__ = ["report"]

_NAME = re.compile("[a-z_][a-z0-9_]{0,31}")
_MOST_NAMES = 32
# Up to here a double tells whole numbers apart, and up to here values are taken.
_MOST = 2.0**53


def report(**values: float) -> bool:
    """Shows values in the charts of the session, such as ``report(step=12, loss=0.25)``, and says whether they were sent.

    It never waits and never fails because nobody listens: outside a session, or when more comes than is looked at (the last value of each name
    every 5 s is what a chart shows), nothing happens. Names are small letters, ``_`` and, behind the first, digits, at most 32 of them, at most 32
    at once and 64 in a session; others are a ValueError, and what is no number is a TypeError. What is not finite or beyond 2**53 is left out.
    """
    # It reports steps by itself, and has to know what the program reports instead.
    training = getattr(sys.modules.get("eirene_train"), "report", None)
    if training is not None:
        return training(**values)
    if len(values) > _MOST_NAMES:
        raise ValueError(f"{len(values)} values in one report: at most {_MOST_NAMES} are taken")
    for name in values:
        if not _NAME.fullmatch(name):
            raise ValueError(f"`{name}` cannot be reported: names are 1 to 32 small letters, digits and `_`, and begin with no digit")
    for name, value in values.items():
        # `float` would read them, and what is text in one report and a number in the next is a mistake.
        if isinstance(value, (str, bytes, bytearray, memoryview)):
            raise TypeError(f"`{name}` is {type(value).__name__}, and only numbers are reported")
    numbers = {name: float(value) for name, value in values.items()}
    finite = {name: value for name, value in numbers.items() if math.isfinite(value) and abs(value) <= _MOST}
    path = os.environ.get("EIRENE_REPORT_SOCKET")
    if not path or not finite:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(json.dumps(finite).encode(), path)
    except OSError:
        # Nobody listens now, or more comes than is looked at.
        return False
    return True
