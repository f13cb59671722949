"""The Python kernel of Eirene's images: ipykernel that listens on unix sockets only.

A compute node is shared, and everybody on it can connect to a TCP port of 127.0.0.1. Jupyter's own channels follow the
connection file, which says ``ipc`` here; two things in ipykernel do not. The pipe that brings the output of forked child processes
is bound to 127.0.0.1, and the debugger listens there. The first is moved beside the other channels, the second is left out.
"""

import os

import zmq
from ipykernel import debugger, kernelapp
from ipykernel.iostream import IOPubThread
from zmq.eventloop.zmqstream import ZMQStream

__all__ = ["EireneKernelApp"]


class UnixIOPubThread(IOPubThread):
    """Sends output; takes that of child processes from a unix socket beside the channel it sends on."""

    def _setup_pipe_in(self) -> None:
        # Messages of children begin with these bytes: nothing else that finds the socket can speak for them.
        self._pipe_uuid = os.urandom(16)
        self._pipe_endpoint = self.socket.last_endpoint.rstrip(b"\0").decode() + "-pipe"
        receiver = self.socket.context.socket(zmq.PULL)
        receiver.linger = 0
        receiver.bind(self._pipe_endpoint)
        self._pipe_in = ZMQStream(receiver, self.io_loop)
        self._pipe_in.on_recv(self._handle_pipe_msg)

    def _setup_pipe_out(self) -> tuple[zmq.Context, zmq.Socket]:
        # Runs in the child: a context does not outlive a fork.
        context = zmq.Context()
        sender = context.socket(zmq.PUSH)
        sender.linger = 3000
        sender.connect(self._pipe_endpoint)
        return context, sender


class EireneKernelApp(kernelapp.IPKernelApp):
    """ipykernel's application, refusing every transport that others on the node could reach."""

    def init_sockets(self) -> None:
        """Opens the channels."""
        if self.transport != "ipc":
            self.log.critical("kernels of this image talk over `ipc` only, not over `%s`", self.transport)
            self.exit(1)
        super().init_sockets()


# ipykernel has no setting for either.
kernelapp.IOPubThread = UnixIOPubThread
debugger._is_debugpy_available = False
