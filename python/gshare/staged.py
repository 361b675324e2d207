"""A function that runs in stages, each a process of its own with its own device."""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Dict, List, Optional, Sequence, Set

from . import control as says
from . import edge
from .call import NodeFailed, failing
from .errors import Closed, DeadlineExceeded, Error, NodeError, StageLost
from .graph import HEAD, Flow, Graph, depths, flows, resolve
from .process import Process, Start
from .runner import Runner, monotonic_deadline, named


class _Pending:
    """A request in the pipeline. missing counts the edges from which its values have not arrived yet."""

    def __init__(self, values: Dict[str, Any], edges: int) -> None:
        self.future: "Future[Any]" = Future()
        self.future.set_running_or_notify_cancel()  # so that callers cannot cancel it; the pipeline completes it
        self.values, self.missing = values, edges
        self.error: Any = None


class Staged(Runner):
    """A function in stages. Several requests are in the pipeline at a time, and their results come in the order of the requests."""

    def __init__(
        self, target: str, graph: Graph, groups: List[List[str]], devices: Optional[Sequence[str]], slots: int, slot_bytes: int,
        start_timeout: float, start: Start,
    ) -> None:
        self._graph, self._starter = graph, start
        self._processes: List[Process] = []
        self._out: List["tuple[edge.Sender, List[str]]"] = []
        self._in: List[edge.Receiver] = []
        self._submit = threading.Lock()  # protects the edges to the stages, and _next
        self._state = threading.Lock()  # protects _pending and _over
        self._pending: Dict[int, _Pending] = {}
        self._over: Optional[Error] = None
        self._idle = threading.Condition(self._state)
        self._next = 0
        self._wake, self._woken = socket.socketpair()
        try:
            self._start(target, groups, devices, slots, (slot_bytes + 65535) // 65536 * 65536)
            self._await_ready(time.monotonic() + start_timeout)
        except BaseException:
            self._end(kill=True)
            raise
        self._collector = threading.Thread(target=self._collect, name="gshare-collect", daemon=True)
        self._collector.start()

    @property
    def pids(self) -> List[int]:
        """The process IDs of the stages that this process has started."""
        return [p.pid for p in self._processes if p.pid is not None]

    # Start.

    def _start(self, target: str, groups: List[List[str]], devices: Optional[Sequence[str]], slots: int, slot_bytes: int) -> None:
        found = flows(self._graph, groups)
        depth = depths(len(groups), [(f.sender, f.receiver) for f in found])
        passed: List[List[int]] = [[] for _ in groups]  # descriptors to pass to each process
        config: List[Dict[str, Any]] = [{"target": target, "nodes": names, "in": [], "out": []} for names in groups]
        opened: Set[int] = set()
        try:
            for flow in found:
                span = (max(depth) + 1 if flow.receiver == HEAD else depth[flow.receiver]) - (-1 if flow.sender == HEAD else depth[flow.sender])
                many = slots + span - 1  # an edge that bypasses stages needs room for the requests that are in them
                ends = edge.make(many, slot_bytes)
                opened.update(ends)
                self._connect(flow, ends, many, slot_bytes, passed, config, opened)
            for i, names in enumerate(groups):
                process = self._starter(names, None if devices is None else devices[i], passed[i])
                self._processes.append(process)
                process.control.send(json.dumps(config[i]).encode())
        finally:
            for fd in opened:
                os.close(fd)

    def _connect(
        self, flow: Flow, ends: edge.Ends, slots: int, slot_bytes: int, passed: List[List[int]], config: List[Dict[str, Any]], opened: Set[int]
    ) -> None:
        for end, owner, link in (("out", flow.sender, ends.sender), ("in", flow.receiver, ends.receiver)):
            memory = os.dup(ends.memory)
            if owner != HEAD:
                opened.add(memory)
                passed[owner] += [memory, link]
                place = [memory, link, slots, slot_bytes]
                config[owner][end].append({"ends": place, "values": flow.values} if end == "out" else place)
                continue
            opened.discard(link)
            if end == "out":
                self._out.append((edge.Sender(memory, link, slots, slot_bytes), list(flow.values)))
            else:
                self._in.append(edge.Receiver(memory, link, slots, slot_bytes))

    def _await_ready(self, until: float) -> None:
        for process in self._processes:
            process.control.settimeout(max(0.001, until - time.monotonic()))
            try:
                answer = process.control.recv(says.MAX_BYTES)
            except (socket.timeout, ConnectionError) as e:
                raise StageLost(f"stage {process.nodes} did not start: {e}") from None
            if answer != says.READY:
                text = answer.decode(errors="replace")[len(says.FAILED) :] or self._how_ended(process)
                raise StageLost(f"stage {process.nodes} did not start: {text}")

    def _how_ended(self, process: Process) -> str:
        """Returns, as a clause, how a process that has closed its control socket ended."""
        select.select([process], [], [], 10)
        return f"it {process.ended() or 'has ended'}"

    # Requests.

    def __call__(self, *inputs: Any, timeout: Optional[float] = None) -> Any:
        deadline = monotonic_deadline(timeout)
        future = self.submit(*inputs, timeout=timeout)
        try:
            return future.result(None if not deadline else max(0, deadline - time.monotonic_ns()) / 1e9)
        except FutureTimeout:
            raise DeadlineExceeded("the request was in the pipeline at its deadline") from None

    def submit(self, *inputs: Any, timeout: Optional[float] = None) -> "Future[Any]":
        """Sends a request, and returns the future of its result. While the pipeline is full it waits, up to timeout seconds. Raises the same
        errors as a call. Callbacks of the future must not send requests, since no results are read while they run."""
        deadline = monotonic_deadline(timeout)
        values = named(self._graph, inputs)
        if not self._submit.acquire(timeout=-1 if timeout is None else max(0, timeout)):
            raise DeadlineExceeded("the pipeline was full until the deadline")
        try:
            return self._send(values, deadline)
        except edge.Gone:
            with self._state:
                self._idle.wait_for(lambda: self._over is not None, 10)
                raise self._over or StageLost("a stage is gone") from None
        finally:
            self._submit.release()

    def _send(self, values: Dict[str, Any], deadline: int) -> "Future[Any]":
        if self._over is not None:
            raise self._over
        reserved: List[int] = []
        try:
            for sender, _ in self._out:
                reserved.append(sender.reserve(deadline))
            lengths = [s.write(slot, {name: values[name] for name in names}) for (s, names), slot in zip(self._out, reserved)]
            pending = _Pending(values, len(self._in))
            with self._state:
                if self._over is not None:
                    raise self._over
                self._pending[self._next] = pending
        except BaseException:
            for (sender, _), slot in zip(self._out, reserved):
                sender.cancel(slot)
            raise
        for (sender, _), slot, length in zip(self._out, reserved, lengths):
            sender.post(slot, length, self._next, deadline)
        self._next += 1
        return pending.future

    # Results.

    def _collect(self) -> None:
        poll = select.poll()
        receivers = {receiver.fileno(): receiver for receiver in self._in}
        for fd in [*receivers, self._woken.fileno(), *(p.fileno() for p in self._processes)]:
            poll.register(fd, select.POLLIN)
        try:
            while True:
                ready = [fd for fd, _ in poll.poll()]
                for fd in ready:
                    if fd in receivers:
                        self._take(receivers[fd].receive())
                if self._woken.fileno() in ready:
                    return
                if any(p.fileno() in ready for p in self._processes):
                    self._fail(self._lost())
                    return
        except edge.Gone:
            self._fail(self._lost())
        except Exception as e:
            self._fail(StageLost(f"a stage broke the rules of an edge: {e}"))

    def _take(self, message: edge.Message) -> None:
        with self._state:
            pending = self._pending[message.sequence]
            if message.failed:
                pending.error = message.value
            else:
                pending.values.update(message.value)
            pending.missing -= 1
            if pending.missing:
                return
            del self._pending[message.sequence]
            self._idle.notify_all()
        if pending.error is None:
            try:
                with failing("output"):
                    result = resolve(self._graph.output, pending.values)
            except NodeFailed as e:
                pending.future.set_exception(NodeError(*e.args))
            else:
                pending.future.set_result(result)
        elif pending.error[0] == "late":
            pending.future.set_exception(DeadlineExceeded(f"the deadline passed before node {pending.error[1]}"))
        else:
            pending.future.set_exception(NodeError(*pending.error[1:]))

    def _lost(self) -> Error:
        """Returns an error that names the stage that was lost first. The others ended because their edges were closed."""
        until = time.monotonic() + 1
        while True:
            for process in self._processes:
                how = process.ended()
                if how:
                    return StageLost(f"stage {process.nodes} {how}")
            if time.monotonic() > until:
                return StageLost("a stage has closed its edges")
            time.sleep(0.01)

    def _fail(self, error: Error) -> None:
        with self._state:
            self._over = self._over or error
            pending, self._pending = self._pending, {}
            self._idle.notify_all()
        for p in pending.values():
            p.future.set_exception(error)

    # End.

    def evict(self) -> None:
        with self._submit:
            if self._over is not None:
                raise self._over
            for process in self._processes:
                process.control.settimeout(60)
                try:
                    process.control.send(says.EVICT)
                    answer = process.control.recv(says.MAX_BYTES)
                except (OSError, socket.timeout) as e:
                    raise StageLost(f"stage {process.nodes} was not evicted: {e}") from None
                if answer != says.EVICTED:
                    raise StageLost(f"stage {process.nodes} has ended")

    def close(self, timeout: float = 30) -> None:
        """Like Runner.close. Requests that are not complete after timeout seconds raise Closed."""
        with self._submit:
            with self._state:
                if self._over is None:
                    self._idle.wait_for(lambda: not self._pending or self._over is not None, timeout)
                self._over = self._over or Closed("the pipeline was closed")
        self._fail(Closed("the pipeline was closed"))
        self._end(kill=False)

    def _end(self, kill: bool) -> None:
        with self._submit:
            processes, self._processes = self._processes, []
            for process in processes:
                try:
                    process.control.send(says.STOP)
                except OSError:
                    pass  # the process is gone
        self._wake.close()
        if hasattr(self, "_collector"):
            self._collector.join()
        for sender, _ in self._out:
            sender.close()
        for receiver in self._in:
            receiver.close()
        for process in processes:
            process.close(kill)
        self._woken.close()
