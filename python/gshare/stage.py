"""The process of one stage, which is a group of nodes. gshare.run starts it as python -m gshare.stage N, where N is the descriptor of its control
socket; in a container of its own it is python -m gshare stage, which attaches to a head in another container.

For each request it reads one message from every incoming edge, runs its nodes, and writes one message to every outgoing edge. It does so even
for requests that have failed or are late, so that every edge carries all requests in order.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from . import control as says
from .call import MAX_TEXT, Late, NodeFailed, caller, device, load_class
from .edge import Gone, Message, Receiver, Sender
from .errors import Error, NotTransferable
from .graph import Node
from .module import Module
from .process import attach


class Stage:
    """The nodes, edges and control socket of this process."""

    def __init__(self, control: socket.socket, config: Dict[str, Any], descriptors: Optional[Dict[int, int]] = None) -> None:
        """descriptors maps the numbers in the configuration to descriptors of this process; None: they are the same."""
        self._control = control
        self._graph = load_class(config["target"])().graph()
        self._names: List[str] = config["nodes"]
        def here(memory: int, link: int, slots: int, slot_bytes: int) -> Tuple[int, int, int, int]:
            return (memory, link, slots, slot_bytes) if descriptors is None else (descriptors[memory], descriptors[link], slots, slot_bytes)

        self._in = [Receiver(*here(*e)) for e in config["in"]]
        self._out: List[Tuple[Sender, List[str]]] = [(Sender(*here(*e["ends"])), e["values"]) for e in config["out"]]

    def load(self) -> None:
        """Loads all components, so that no request waits for that."""
        for module in self._modules():
            module.load(device())
            module.load(device())  # the first load may have imported PyTorch, so that there now is a device

    def serve(self) -> None:
        """Runs requests until the control socket says stop or is closed."""
        while True:
            messages = self._receive()
            if messages is None:
                return
            first = messages[0]
            if any(m.sequence != first.sequence for m in messages):
                raise Error(f"edges are out of order: {[m.sequence for m in messages]}")
            self._pass_on(first.sequence, first.deadline, *self._run(messages))

    def _receive(self) -> Optional[List[Message]]:
        """Waits for one message from each incoming edge and returns them, or None if the stage is to stop."""
        messages: Dict[int, Message] = {}
        while len(messages) < len(self._in):
            poll = select.poll()
            poll.register(self._control, select.POLLIN)
            waiting = {edge.fileno(): i for i, edge in enumerate(self._in) if i not in messages}
            for edge in waiting:
                poll.register(edge, select.POLLIN)
            ready = [fd for fd, _ in poll.poll()]
            if self._control.fileno() in ready and not self._obey():
                return None
            for fd in ready:
                if fd in waiting:
                    messages[waiting[fd]] = self._in[waiting[fd]].receive()
        return [messages[i] for i in range(len(self._in))]

    def _obey(self) -> bool:
        """Executes a command from the control socket. Returns False if the stage is to stop."""
        if self._control.recv(says.MAX_BYTES) == says.EVICT:
            for module in self._modules():
                module.evict()
            self._control.send(says.EVICTED)
            return True
        return False

    def _modules(self) -> List[Module]:
        return [node.module for node in self._graph.nodes if node.name in self._names]

    def _run(self, messages: List[Message]) -> Tuple[bool, Any]:
        """Runs the nodes on a request. Returns whether it failed, and its values or the error."""
        for m in messages:
            if m.failed:
                return True, m.value
        deadline = messages[0].deadline

        def check(node: Node) -> None:
            if deadline and time.monotonic_ns() >= deadline:
                raise Late(node.name)

        values: Dict[str, Any] = {}
        for m in messages:
            values.update(m.value)
        try:
            self._graph.run(self._names, values, caller(check))
        except Late as e:
            return True, ["late", str(e)]
        except NodeFailed as e:
            return True, ["failed", *e.args]
        return False, values

    def _pass_on(self, sequence: int, deadline: int, failed: bool, result: Any) -> None:
        reserved = [edge.reserve() for edge, _ in self._out]
        lengths = []
        if not failed:
            try:
                for (edge, names), slot in zip(self._out, reserved):
                    lengths.append(edge.write(slot, {name: result[name] for name in names}))
            except NotTransferable as e:
                failed, result = True, ["failed", self._names[-1], "NotTransferable", str(e)[:MAX_TEXT]]
        if failed:
            lengths = [edge.write(slot, result) for (edge, _), slot in zip(self._out, reserved)]
        for (edge, _), slot, length in zip(self._out, reserved, lengths):
            edge.post(slot, length, sequence, deadline, failed)


def main() -> int:
    """Runs a stage that gshare.run has started. Returns the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles these signals and then closes the pipeline
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return run(socket.socket(fileno=int(sys.argv[1])))


def attached(folder: str, name: str, timeout: float) -> int:
    """Attaches to the head whose socket is in the folder, and runs the stage of that name. Returns the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # without a handler, process 1 of a container ignores SIGTERM
    life, control, descriptors = attach(folder, name, timeout)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the head first completes requests in progress, and this process ends when the head does
    with life:
        try:
            status = run(control, descriptors)
        except ConnectionError:
            return 0  # the head has given up, perhaps because another stage is missing
        if status == says.PEER_GONE:
            try:
                life.send(says.PEER_LOST)
            except OSError:
                pass
    return status


def run(control: socket.socket, descriptors: Optional[Dict[int, int]] = None) -> int:
    """Runs a stage according to the configuration and commands on its control socket. Returns the exit status."""
    try:
        stage = Stage(control, json.loads(control.recv(says.MAX_BYTES)), descriptors)
        stage.load()
    except Exception as e:
        control.send(says.FAILED + f"{type(e).__name__}: {e}"[:MAX_TEXT].encode())
        raise
    control.send(says.READY)
    try:
        stage.serve()
    except Gone:
        return 0 if _stopped(control) else says.PEER_GONE
    return 0


def _stopped(control: socket.socket) -> bool:
    """Reports whether an edge is gone because the pipeline is being closed: in that case the control socket is readable too."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    return bool(poll.poll(0))


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # does not wait for threads of the components
