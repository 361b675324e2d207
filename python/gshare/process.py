"""The processes of stages, as seen by the program that runs the pipeline: its own children, or processes in other containers that attach to it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from typing import Callable, Dict, List, Optional

from . import control as says
from .errors import GraphError, StageLost

Passed = List[int]  # file descriptors that are passed to a stage


class Process:
    """A started stage. control is the socket on which it receives commands."""

    def __init__(self, nodes: List[str], control: socket.socket) -> None:
        self.nodes, self.control = nodes, control
        self.pid: Optional[int] = None  # unknown if it runs in another container

    def fileno(self) -> int:
        """Returns a descriptor that becomes readable when the process ends."""
        raise NotImplementedError

    def ended(self) -> Optional[str]:
        """Returns how the process ended: None while it runs, "" if it ended only because another stage did."""
        raise NotImplementedError

    def close(self, kill: bool) -> None:
        """Releases a process that was told to stop. A child is killed first if kill is set, and waited for."""
        raise NotImplementedError


# Start starts the process of the stage with these nodes, on its device, and passes it the descriptors.
Start = Callable[[List[str], Optional[str], Passed], Process]


class Child(Process):
    """A stage that is a child of this process."""

    def __init__(self, nodes: List[str], control: socket.socket, popen: "subprocess.Popen[bytes]") -> None:
        super().__init__(nodes, control)
        self._popen, self.pid = popen, popen.pid
        self._pidfd = os.pidfd_open(popen.pid)

    def fileno(self) -> int:
        return self._pidfd

    def ended(self) -> Optional[str]:
        status = self._popen.poll()
        if status is None:
            return None
        if status == says.PEER_GONE:
            return ""
        return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"

    def close(self, kill: bool) -> None:
        if kill:
            self._popen.kill()
        try:
            self._popen.wait(10)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self.control.close()
        os.close(self._pidfd)


def spawn(nodes: List[str], visible: Optional[str], passed: Passed) -> Process:
    """Starts a child with this value of CUDA_VISIBLE_DEVICES; with None it sees the devices that this process sees."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(os.path.abspath(p or ".") for p in sys.path))
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible  # takes effect only if set before the process first calls CUDA
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        popen = subprocess.Popen(
            [sys.executable, "-m", "gshare.stage", str(theirs.fileno())],
            stdin=subprocess.DEVNULL, env=environment, pass_fds=[*passed, theirs.fileno()],
        )
    return Child(nodes, control, popen)


class Attached(Process):
    """A stage in another container of the pod. life is its connection to this process, which is open as long as it runs."""

    def __init__(self, nodes: List[str], control: socket.socket, life: socket.socket) -> None:
        super().__init__(nodes, control)
        self._life = life
        self._ended: Optional[str] = None

    def fileno(self) -> int:
        return self._life.fileno()

    def ended(self) -> Optional[str]:
        if self._ended is None:
            try:
                self._ended = "" if self._life.recv(says.MAX_BYTES, socket.MSG_DONTWAIT) == says.PEER_LOST else "has ended"
            except BlockingIOError:
                pass
            except ConnectionError:
                self._ended = "has ended"
        return self._ended

    def close(self, kill: bool) -> None:
        self.control.close()  # this ends the process; the kubelet restarts its container
        self._life.close()


class Head:
    """Accepts the stages of other containers, which attach to a socket in a folder that the containers share."""

    def __init__(self, folder: str, names: List[str], timeout: float) -> None:
        """names are the names of the expected stages, which have timeout seconds to attach."""
        if len(set(names)) != len(names):
            raise GraphError(f"stages that attach need names of their own, not {names}")
        self._all, self._names, self._until = tuple(names), names, time.monotonic() + timeout
        self._waiting: Dict[str, socket.socket] = {}
        self._path = socket_in(folder)
        try:
            os.unlink(self._path)  # the socket of an earlier head
        except FileNotFoundError:
            pass
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self._path)
        os.chmod(self._path, 0o666)  # containers of the pod may run as other users
        self._listener.listen(len(names))

    def start(self, nodes: List[str], name: Optional[str], passed: Passed) -> Process:
        """Waits until the stage of that name attaches, and passes it the descriptors. Raises StageLost if it does not attach in time."""
        assert name is not None
        while name not in self._waiting:
            self._accept(name)
        life = self._waiting.pop(name)
        self._names.remove(name)
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                socket.send_fds(life, [json.dumps(passed).encode()], [theirs.fileno(), *passed])
            except OSError as e:
                raise StageLost(f"stage {name} did not start: {e}") from None
        return Attached(nodes, control, life)

    def _accept(self, wanted: str) -> None:
        """Accepts one stage, or rejects it if its name is unknown or has been handed out already. wanted is the name to report on a timeout."""
        self._listener.settimeout(max(0.001, self._until - time.monotonic()))
        try:
            life, _ = self._listener.accept()
            life.settimeout(max(0.001, self._until - time.monotonic()))
            name = life.recv(says.MAX_BYTES).decode(errors="replace")
        except socket.timeout:
            raise StageLost(f"stage {wanted} did not attach at {self._path}") from None
        except ConnectionError:
            return
        life.settimeout(None)
        before = self._waiting.pop(name, None)
        if before is not None:  # that process ended, and its container was restarted
            before.close()
        if name in self._names:
            self._waiting[name] = life
            return
        with life:
            try:
                life.send(says.FAILED + f"no stage {name[:64]!r} is expected, of {list(self._all)}".encode())
            except OSError:
                pass

    def close(self) -> None:
        """Stops accepting stages, and drops those that wait."""
        for life in self._waiting.values():
            life.close()
        self._listener.close()


def socket_in(folder: str) -> str:
    """Returns the path of the head's socket in the folder that the containers share."""
    return os.path.join(folder, "gshare-head.sock")


def attach(folder: str, name: str, timeout: float) -> "tuple[socket.socket, socket.socket, Dict[int, int]]":
    """Attaches this process to a head as a stage. Returns its connection, which must stay open as long as it runs, its control socket, and its
    descriptors by the numbers that the configuration uses for them. Waits up to timeout seconds for a head; raises StageLost if there is none,
    or GraphError if the head does not expect a stage of this name."""
    until = time.monotonic() + timeout
    while True:
        life = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            life.connect(socket_in(folder))
            life.send(name.encode())
            text, received, _, _ = socket.recv_fds(life, says.MAX_BYTES, 253)
        except (FileNotFoundError, ConnectionError) as e:
            text, received, why = b"", [], str(e)
        else:
            why = "it has ended"
        if received:
            numbers: List[int] = json.loads(text)
            return life, socket.socket(fileno=received[0]), dict(zip(numbers, received[1:]))
        life.close()
        if text.startswith(says.FAILED):
            raise GraphError(text[len(says.FAILED) :].decode(errors="replace"))
        if time.monotonic() > until:
            raise StageLost(f"no head at {socket_in(folder)}: {why}")
        time.sleep(0.1)  # the head's container may start later, or be restarting
