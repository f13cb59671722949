"""Executes a notebook, and leaves it executed beside itself: `python3 -c THIS NOTEBOOK EXECUTED`.

What the cells print is printed here too, as it comes. The executed notebook is written after every cell, so what was done is there however
this ends. Kernels talk over `ipc` sockets: everybody on the node could reach a TCP port.

SIGTERM and SIGINT interrupt the cell. SIGUSR1, by which a program is told that its time limit or a preemption is near, is for the kernel as it is
for a script: if it has a handler. The cells' ranks get it from whoever has started them.
"""

import asyncio
import contextlib
import os
import re
import signal
import sys

try:
    import nbformat
    from jupyter_core.paths import jupyter_runtime_dir
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError
    from traitlets.config import Config
except ImportError as error:
    sys.exit(f"this image cannot execute notebooks: it has no `{error.name}`; take one with Jupyter, or run a script")


# How long a cell may take to end when it is interrupted, less than what the scheduler leaves to the job.
PATIENCE_S = 15


class Ended(Exception):
    """Somebody asked for the end, and it has come."""


def handles(pid, number):
    """Whether a process has a handler for a signal (proc(5), `SigCgt`)."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as status:
        caught = next(line.split()[1] for line in status if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)


class Client(NotebookClient):
    """Prints what cells print, and keeps what they left."""

    def __init__(self, notebook, executed, **options):
        super().__init__(notebook, **options)
        self.executed = executed
        self.cells = sum(cell.cell_type == "code" for cell in notebook.cells)
        self.done = 0
        self.ended = ""
        self.task = None

    def end(self, number):
        """A signal asks for the end: the cell is interrupted, and ends as if it had failed, or is given up."""
        self.ended = signal.Signals(number).name
        self.interrupting = asyncio.ensure_future(self.km.interrupt_kernel())
        asyncio.get_running_loop().call_later(PATIENCE_S, self.task.cancel)

    def warn(self):
        """The end is near. To a kernel that has no handler this would be the end, and what the kernel has started is not asked."""
        pid = getattr(self.km.provisioner, "pid", None)
        # It may have ended in between.
        with contextlib.suppress(OSError):
            if pid is not None and handles(pid, signal.SIGUSR1):
                os.kill(pid, signal.SIGUSR1)

    def keep(self):
        """Writes the notebook as it is now: whole, or not at all."""
        beside = f"{self.executed}.new"
        with open(beside, "w", encoding="utf-8") as file:
            nbformat.write(self.nb, file)
        os.replace(beside, self.executed)

    def output(self, outs, msg, display_id, cell_index):
        """An output of a cell has come."""
        content = msg["content"]
        if msg["msg_type"] == "stream":
            print(content["text"], end="", flush=True)
        elif msg["msg_type"] == "error":
            # Colours are for terminals.
            print(re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(content["traceback"])), file=sys.stderr, flush=True)
        return super().output(outs, msg, display_id, cell_index)

    async def async_execute_cell(self, cell, cell_index, *arguments, **options):
        """Executes one cell."""
        if self.task is None:
            # In place of nbclient's own handlers, which take the kernel away and leave it at that.
            self.task = asyncio.current_task()
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self.end, number)
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self.warn)
        if self.ended:
            # The cell before took the interrupt for an error that it may have.
            raise Ended
        if cell.cell_type == "code":
            self.done += 1
            print(f"cell {self.done} of {self.cells}", flush=True)
        try:
            return await super().async_execute_cell(cell, cell_index, *arguments, **options)
        except asyncio.CancelledError:
            raise Ended from None
        finally:
            self.keep()


def main(path, executed):
    """All of it; gives the exit status."""
    try:
        notebook = nbformat.read(path, as_version=4)
    except Exception as error:
        return f"`{path}` is no notebook: {error}"
    kernel = notebook.metadata.get("kernelspec", {}).get("name", "python3")
    # Without a name of its own the kernel would put its sockets into the notebook's directory.
    os.makedirs(jupyter_runtime_dir(), mode=0o700, exist_ok=True)
    name = os.path.join(jupyter_runtime_dir(), "kernel-run")
    config = Config({"KernelManager": {"transport": "ipc", "connection_file": f"{name}.json", "ip": f"{name}-ipc"}})
    resources = {"metadata": {"path": os.path.dirname(path)}}
    client = Client(notebook, executed, timeout=None, kernel_name=kernel, resources=resources, config=config)
    try:
        client.keep()
    except OSError as error:
        return f"the executed notebook cannot be written: {error}"
    print(f"the executed notebook is `{executed}`", flush=True)
    try:
        client.execute()
    except (CellExecutionError, DeadKernelError, Ended) as error:
        how = "failed" if isinstance(error, CellExecutionError) else "lost its kernel"
        how = f"was ended by {client.ended}" if client.ended else how
        return f"cell {client.done} of {client.cells} {how}"
    except RuntimeError as error:
        return f"the kernel `{kernel}` did not start: {error}"
    finally:
        client.keep()
    return 0


sys.exit(main(*sys.argv[1:]))
