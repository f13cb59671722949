"""Notebooks for tests: a real kernel of Jupyter's, its cells, and what they showed."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

__all__ = ["Notebook", "Shown", "notebook"]

# Of a cell, on a machine that does other things besides: trainings of four ranks take twenty seconds where nothing else runs.
_PATIENCE_SECONDS = 240.0


@dataclass
class Shown:
    """What a cell showed."""

    status: str = ""
    stdout: str = ""
    stderr: str = ""
    error: str = ""
    kind: str = ""
    value: str = ""
    displays: list[dict[str, str]] = field(default_factory=list)
    states: list[str] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        """Of stdout, in order."""
        return self.stdout.splitlines()


class Notebook:
    """A kernel with the extension loaded."""

    def __init__(self, manager: KernelManager) -> None:
        self.manager = manager
        self.client = manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=_PATIENCE_SECONDS)
        assert self.run("%load_ext eirene_train.notebook").status == "ok"
        # Ranks of a busy machine say the same seconds apart; how long a line waits for the others has tests of its own.
        assert self.run("import eirene_train.notebook._folding as folding; folding.PATIENCE_SECONDS = 5.0; del folding").status == "ok"

    def run(self, code: str, when: dict[str, Callable[[], Any]] | None = None) -> Shown:
        """Runs a cell. As soon as one of the texts in `when` is shown, what is given for it is done, once."""
        when = dict(when or {})
        shown = Shown()
        request = self.client.execute(code)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"the cell did not end; so far: {shown}") from None
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            _note(shown, kind, content)
            for text in [text for text in when if text in shown.stdout + shown.stderr or any(text in state for state in shown.states)]:
                when.pop(text)()
        assert not when, f"never shown: {list(when)}; but {shown}"
        reply = self.client.get_shell_msg(timeout=_PATIENCE_SECONDS)
        while reply["parent_header"].get("msg_id") != request:
            reply = self.client.get_shell_msg(timeout=_PATIENCE_SECONDS)
        shown.status = reply["content"]["status"]
        return shown

    def fine(self, code: str, **options: Any) -> Shown:
        """The same, for cells that must not fail."""
        shown = self.run(code, **options)
        assert shown.status == "ok", shown
        return shown

    def interrupt(self) -> None:
        """What the button in a notebook does."""
        self.manager.interrupt_kernel()


def _note(shown: Shown, kind: str, content: dict[str, Any]) -> None:
    if kind == "stream" and content["name"] == "stdout":
        shown.stdout += content["text"]
    elif kind == "stream":
        shown.stderr += content["text"]
    elif kind == "error":
        shown.error, shown.kind = "\n".join(content["traceback"]), content["ename"]
    elif kind == "execute_result":
        shown.value = content["data"]["text/plain"]
    elif kind in ("display_data", "update_display_data"):
        if content.get("transient", {}).get("display_id"):
            shown.states.append(content["data"]["text/plain"])
        else:
            shown.displays.append(content["data"])


@contextlib.contextmanager
def notebook(variables: dict[str, str]) -> Iterator[Notebook]:
    """A kernel in an environment that has these variables besides."""
    # A socket's path has 107 characters at most.
    place = tempfile.mkdtemp(prefix="nb.")
    manager = KernelManager(transport="ipc", connection_file=str(Path(place, "kernel.json")))
    manager.ip = str(Path(place, "s"))
    try:
        manager.start_kernel(env={**os.environ, **variables}, cwd=place)
        kernel = Notebook(manager)
        try:
            yield kernel
        finally:
            kernel.client.stop_channels()
    finally:
        manager.shutdown_kernel(now=not manager.is_alive())
        shutil.rmtree(place, ignore_errors=True)
