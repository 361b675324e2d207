"""The process of one group of nodes: python -m gshare.stage N, where N is its control socket, which run starts; or python -m gshare stage, which
attaches to a run in another container.

It reads one message of each edge that leads to it, runs its nodes, and writes one to each edge that leads away: also for a request that has failed or
is late, so that every edge has all requests in their order.
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
        """descriptors are those of this process by the numbers in the configuration; None: they are the same."""
        self._control = control
        self._graph = load_class(config["target"])().graph()
        self._names: List[str] = config["nodes"]
        def here(memory: int, link: int, slots: int, slot_bytes: int) -> Tuple[int, int, int, int]:
            return (memory, link, slots, slot_bytes) if descriptors is None else (descriptors[memory], descriptors[link], slots, slot_bytes)

        self._in = [Receiver(*here(*e)) for e in config["in"]]
        self._out: List[Tuple[Sender, List[str]]] = [(Sender(*here(*e["ends"])), e["values"]) for e in config["out"]]

    def load(self) -> None:
        """Loads all components, so that no request waits for it."""
        for module in self._modules():
            module.load(device())
            module.load(device())  # the first one may have loaded PyTorch, and with it found a device

    def serve(self) -> None:
        """Runs requests until the control socket says stop, or closes."""
        while True:
            messages = self._receive()
            if messages is None:
                return
            first = messages[0]
            if any(m.sequence != first.sequence for m in messages):
                raise Error(f"edges are out of order: {[m.sequence for m in messages]}")
            self._pass_on(first.sequence, first.deadline, *self._run(messages))

    def _receive(self) -> Optional[List[Message]]:
        """Waits for a message on each edge, or for the end (None)."""
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
        """Does what the control socket says. False: stop."""
        if self._control.recv(says.MAX_BYTES) == says.EVICT:
            for module in self._modules():
                module.evict()
            self._control.send(says.EVICTED)
            return True
        return False

    def _modules(self) -> List[Module]:
        return [node.module for node in self._graph.nodes if node.name in self._names]

    def _run(self, messages: List[Message]) -> Tuple[bool, Any]:
        """Returns whether the request has failed, and its values or the error."""
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
    """Returns the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # these are for the process that has started this one, which then closes the pipeline
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return run(socket.socket(fileno=int(sys.argv[1])))


def attached(folder: str, name: str, timeout: float) -> int:
    """Runs the stage of that name of the function whose head is at the folder. Returns the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # which process 1 of a container would ignore
    life, control, descriptors = attach(folder, name, timeout)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends when the head does, which answers what was begun
    with life:
        try:
            status = run(control, descriptors)
        except ConnectionError:
            return 0  # the head has given up, perhaps for want of another stage
        if status == says.PEER_GONE:
            try:
                life.send(says.PEER_LOST)
            except OSError:
                pass
    return status


def run(control: socket.socket, descriptors: Optional[Dict[int, int]] = None) -> int:
    """Runs a stage by what its control socket says. Returns the exit status."""
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
    """Reports whether the pipeline is being closed, if its edges are closed at the same time."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    return bool(poll.poll(0))


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # not to wait for threads of the components
