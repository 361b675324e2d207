"""Measures the nodes of a function, and writes a build file, from which the planner cuts stages. docs/pipelines.md defines its format."""

from __future__ import annotations

import json
import mmap
import os
import statistics
import sys
import tempfile
import time
import tracemalloc
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Type, Union

from . import codec, edge
from .call import device, load_class
from .errors import GraphError
from .graph import Graph, Node, resolve
from .pipeline import Pipeline

VERSION = 1
_Times = List[Dict[str, int]]


def build(
    function: Union[Type[Pipeline], str],
    example: Callable[[int], Any],
    file: Optional[str] = None,
    kind: str = "cpu",
    batches: Sequence[int] = (1,),
    repeats: int = 5,
    name: str = "",
) -> Dict[str, Any]:
    """Runs a function on examples, node by node, and returns the content of the build file, which is also written to file if one is named.

    example(batch) returns the inputs of a request with batch items: a tuple, or the input itself if there is only one. kind is the kind of
    slice on which this process runs, such as "1g.10gb". Times are medians of that many repeats. Times on other kinds of slices that the
    file already has are kept if its graph is the same; otherwise the file is replaced.
    """
    subject = load_class(function) if isinstance(function, str) else function
    graph = subject().graph()
    if not kind or not batches or min(batches) < 1 or repeats < 1 or len(set(batches)) != len(batches):
        raise ValueError("want the kind of slice, batches from 1 on, each once, and at least one repeat")
    measured = {node.name: _Measured() for node in graph.nodes}
    for batch in sorted(batches):
        inputs = example(batch)
        values = dict(zip(graph.inputs, inputs if isinstance(inputs, tuple) else (inputs,)))
        if len(values) != len(graph.inputs) or isinstance(inputs, tuple) and len(inputs) != len(values):
            raise GraphError(f"the example has other inputs than {', '.join(graph.inputs)}")

        def call(node: Node, known: Mapping[str, Any]) -> Any:
            return measured[node.name].measure(node, resolve(node.args, known), resolve(node.kwargs, known), batch, repeats)

        graph.run(measured, values, call)
    built = _content(graph, name or subject.__name__.lower(), kind, measured)
    if file is not None:
        _keep_others(built, file, kind)
        _write(built, file)
    return built


class _Measured:
    """The measurements of one node."""

    def __init__(self) -> None:
        self.times: _Times = []
        self.memory = 1
        self.takes: List[str] = []
        self.gives = ""
        self.output = 0  # bytes
        self.transfer = 0  # nanoseconds

    def measure(self, node: Node, args: Any, kwargs: Any, batch: int, repeats: int) -> Any:
        """Runs a node repeatedly and returns its output. Memory is measured in a first run, whose time does not count."""
        value, memory = _memory_of(node, lambda: node.module.call(*args, **kwargs))
        self.memory = max(self.memory, memory)
        times = []
        for _ in range(repeats):
            begin = time.perf_counter_ns()
            value = node.module.call(*args, **kwargs)
            _synchronize()
            times.append(time.perf_counter_ns() - begin)
        self.times.append({"batch": batch, "nanoseconds": max(1, int(statistics.median(times)))})
        size = codec.size(value)
        if not self.gives:
            self.takes = [codec.describe(a) for a in (*args, *kwargs.values())]
            self.gives, self.output = codec.describe(value), size
            self.transfer = _transfer_time(value, size, repeats)
        return value


def _memory_of(node: Node, call: Callable[[], Any]) -> Tuple[Any, int]:
    """Loads and calls a node. Returns its output and its peak memory in bytes: device memory if it runs on a GPU, else its weights and what
    Python allocated meanwhile."""
    tracemalloc.start()
    try:
        node.module.load(device())
        node.module.load(device())  # the first load may have imported PyTorch, so that there now is a device
        torch = sys.modules.get("torch")
        on_device = torch is not None and device() == "cuda"
        before = 0
        if torch is not None and on_device:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated() - node.module.memory()
        value = call()
        _synchronize()
        if torch is not None and on_device:
            return value, int(torch.cuda.max_memory_allocated() - before)
        return value, node.module.memory() + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _synchronize() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and device() == "cuda":
        torch.cuda.synchronize()


def _transfer_time(value: Any, size: int, repeats: int) -> int:
    """Returns how many nanoseconds an edge takes to carry a value."""
    page = max(mmap.PAGESIZE, edge.MIN_SLOT)
    slot_bytes = (size + page - 1) // page * page
    ends = edge.make(1, slot_bytes)
    sender = edge.Sender(os.dup(ends.memory), ends.sender, 1, slot_bytes)
    receiver = edge.Receiver(ends.memory, ends.receiver, 1, slot_bytes)
    times = []
    try:
        for i in range(repeats + 1):  # the first transfer, which touches new pages, does not count
            begin = time.perf_counter_ns()
            slot = sender.reserve()
            sender.post(slot, sender.write(slot, value), i, 0)
            receiver.receive()
            times.append(time.perf_counter_ns() - begin)
    finally:
        sender.close()
        receiver.close()
    return int(statistics.median(times[1:]))


def _content(graph: Graph, name: str, kind: str, measured: Dict[str, _Measured]) -> Dict[str, Any]:
    nodes = []
    for node in graph.nodes:
        m = measured[node.name]
        entry: Dict[str, Any] = {"name": node.name}
        if graph.after(node):
            entry["after"] = graph.after(node)
        if node.chance:
            entry["chancePerMille"] = node.chance
        entry.update(memoryBytes=m.memory, outputBytes=m.output, takes=m.takes, gives=m.gives, times={kind: m.times})
        nodes.append(entry)
    transfer = max(m.transfer for m in measured.values())
    return {"version": VERSION, "function": name, "inputs": list(graph.inputs), "transferNanoseconds": transfer, "nodes": nodes}


def _keep_others(built: Dict[str, Any], file: str, kind: str) -> None:
    """Adds the measurements on other kinds of slices from an existing file, if its graph is the same."""
    try:
        with open(file, encoding="utf-8") as f:
            old = json.load(f)
        if old["version"] != VERSION or _shape(old) != _shape(built):
            return
        for entry, former in zip(built["nodes"], old["nodes"]):
            entry["times"] = {**{k: t for k, t in former["times"].items() if k != kind}, **entry["times"]}
            entry["memoryBytes"] = max(entry["memoryBytes"], former["memoryBytes"])
        built["transferNanoseconds"] = max(built["transferNanoseconds"], old["transferNanoseconds"])
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise GraphError(f"{file} is not a build file: {e}") from None


def _shape(built: Dict[str, Any]) -> Any:
    return built["function"], built["inputs"], [(n["name"], n.get("after"), n.get("chancePerMille")) for n in built["nodes"]]


def _write(built: Dict[str, Any], file: str) -> None:
    """Replaces the file atomically."""
    folder = os.path.dirname(os.path.abspath(file))
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".gshare-", delete=False, encoding="utf-8") as f:
        try:
            json.dump(built, f, indent=2)
            f.write("\n")
            f.flush()
            os.fsync(f.fileno())
            os.chmod(f.name, 0o644)
            os.replace(f.name, file)
        except BaseException:
            os.unlink(f.name)
            raise
