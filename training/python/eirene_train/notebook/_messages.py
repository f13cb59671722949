"""What a notebook and its ranks say to each other: messages of a few JSON fields and, behind them, bytes.

To rank 0 they go over its standard input, each with its length before it. From every rank they come as lines among whatever the cell's code, and
programs that it starts, write to the same output: each line begins with a token that is drawn for every start of ranks and is in no argument and no
variable, so nothing else can be taken for one by accident. A line is not longer than what a pipe takes in one piece, so that nobody writes into the
midst of it, nor than what srun passes on in one piece, which cuts longer lines where it labels them. Who writes the token on purpose is the person's
own program: there is nobody to be protected from.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import threading
from dataclasses import dataclass, field
from typing import Any

__all__ = ["LONGEST", "Message", "Parts", "Sender", "pack", "unpack"]

LONGEST = 1 << 30
"""Bytes of a message: what is more does not belong in a notebook's memory, and is refused."""

# A pipe takes 4096 bytes in one piece (PIPE_BUF), srun 1024 (MAX_MSG_LEN of slurmstepd, in SLURM 22.05 as in 24.11). The token, the rank, the mark
# and the end of the line have their share of that.
_PIECE = (1024 - 64) // 4 * 3


@dataclass
class Message:
    """One message. `kind` says what it is, `fields` what JSON can say, `content` the rest."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    content: bytes = b""


def pack(message: Message) -> bytes:
    """As bytes, without their length."""
    head = json.dumps({"kind": message.kind, **message.fields}).encode("ascii", "surrogatepass")
    return head + b"\n" + message.content


def unpack(data: bytes) -> Message:
    """From bytes.

    Raises:
        ValueError: they are no message.
    """
    head, _, content = data.partition(b"\n")
    fields = json.loads(head)
    if not isinstance(fields, dict) or not isinstance(fields.get("kind"), str):
        raise ValueError("a message without a kind")
    return Message(fields.pop("kind"), fields, content)


class Sender:
    """A rank's side: writes messages as lines.

    Ctrl-C must not cut a message off in its midst: who handles it asks `puts_off` first.
    """

    def __init__(self, token: str, rank: int) -> None:
        self._depth = 0
        self._interrupted = False
        self._begin = f"{token} {rank} ".encode()
        self._lock = threading.RLock()

    def send(self, message: Message, descriptor: int) -> None:
        """Writes a message; it is all there when this returns.

        Raises:
            ValueError: it is too long.
            OSError: nobody reads any more.
        """
        data = pack(message)
        if len(data) > LONGEST:
            raise ValueError(f"{len(data) / 1e9:.1f} GB are more than a notebook is sent at once ({LONGEST / 1e9:.1f} GB)")
        is_main = threading.current_thread() is threading.main_thread()
        self._depth += is_main
        try:
            self._write(data, descriptor)
        finally:
            self._depth -= is_main
        if is_main and self._interrupted and not self._depth:
            self._interrupted = False
            raise KeyboardInterrupt

    def puts_off(self) -> bool:
        """Asked by a signal's handler, which runs in the main thread: whether that is sending. Then it raises KeyboardInterrupt by itself, later."""
        self._interrupted = self._depth > 0
        return self._interrupted

    def _write(self, data: bytes, descriptor: int) -> None:
        with self._lock:
            for begin in range(0, len(data), _PIECE):
                piece = base64.b64encode(data[begin : begin + _PIECE])
                mark = b". " if begin + _PIECE >= len(data) else b"+ "
                line = self._begin + mark + piece + b"\n"
                while line:
                    line = line[os.write(descriptor, line) :]


class Parts:
    """The notebook's side of one output: takes lines apart into messages and everything else."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._unfinished: dict[int, list[bytes]] = {}

    def take(self, line: bytes) -> tuple[bytes, tuple[int, Message] | None]:
        """What stood before a message in this line (all of it, if there is none), and the rank and message that it completes."""
        at = line.find(self._token)
        if at < 0:
            return line, None
        words = line[at:].split()
        try:
            _, rank_word, mark, piece = words
            rank, part = int(rank_word), base64.b64decode(piece, validate=True)
        except (ValueError, binascii.Error):
            # Cut off where its writer was killed.
            return line[:at], None
        parts = self._unfinished.setdefault(rank, [])
        parts.append(part)
        if mark != b".":
            return line[:at], None
        del self._unfinished[rank]
        try:
            return line[:at], (rank, unpack(b"".join(parts)))
        except ValueError:
            return line[:at], None
