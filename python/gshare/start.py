"""Starts functions."""

from __future__ import annotations

import inspect
import json
import os
from typing import List, Optional, Sequence, Tuple, Type, Union

from .call import FROM_FILE, load_class
from .errors import GraphError
from .pipeline import Pipeline
from .process import Head, Passed, Process, spawn
from .runner import Runner, Whole
from .staged import Staged

Stages = Sequence[Sequence[str]]

STAGES_VERSION = 1


def run(
    function: Union[Type[Pipeline], str],
    stages: Union[Stages, str, None] = None,
    devices: Optional[Sequence[str]] = None,
    slots: int = 2,
    slot_bytes: int = 4 << 20,
    start_timeout: float = 120,
    attach: Optional[str] = None,
    here: Optional[str] = None,
) -> "Runner":
    """Starts a function, and returns once it is loaded.

    function is a subclass of Pipeline, or where to find one: "module:Class" or "file.py:Class".

    stages lists, for each process, the names of the nodes that it runs; or it names a file of stages that gshare-lab cut has written, which
    also has the devices. Without stages, the function runs whole in this process. devices lists the value of CUDA_VISIBLE_DEVICES for each
    process, such as the UUID of a MIG device.

    slots is the number of values that an edge between two processes has room for; an edge has room for one more per stage that it
    bypasses, so that all stages can be busy. Each value takes at most slot_bytes.

    attach is a folder that several containers mount. With it, each stage is python -m gshare stage in a container of its own, which has its
    device, and devices are the names of the stages. Only the stage named by here is started by this process, in its own container and on
    its own device.

    Raises GraphError, or StageLost if a stage does not start within start_timeout seconds.
    """
    kind = load_class(function) if isinstance(function, str) else function
    graph = kind().graph()
    if isinstance(stages, str):
        if devices is not None:
            raise GraphError(f"{stages} has the devices of its stages: pass no others")
        stages, devices = read_stages(stages)
    if attach is not None and (stages is None or devices is None):
        raise GraphError("attach needs stages, and their names as devices")
    if stages is None:
        if devices is not None:
            raise GraphError("devices are for stages: this process already has its device")
        return Whole(graph)
    groups = [list(stage) for stage in stages]
    if devices is not None and len(devices) != len(groups):
        raise GraphError(f"{len(devices)} devices for {len(groups)} stages")
    target = function if isinstance(function, str) else _target(kind)
    if attach is None:
        return Staged(target, graph, groups, devices, slots, slot_bytes, start_timeout, spawn)
    names = list(devices or ())
    if here is not None and here not in names:
        raise GraphError(f"there is no stage {here!r}, only {names}")
    head = Head(attach, [name for name in names if name != here], start_timeout)

    def start(nodes: List[str], name: Optional[str], passed: Passed) -> Process:
        return spawn(nodes, None, passed) if name == here else head.start(nodes, name, passed)

    try:
        return Staged(target, graph, groups, devices, slots, slot_bytes, start_timeout, start)
    finally:
        head.close()


def read_stages(file: str) -> Tuple[Stages, Sequence[str]]:
    """Returns the nodes and the device of each process from a file that gshare-lab cut has written. Raises GraphError if it is not such a file."""
    with open(file, encoding="utf-8") as f:
        return parse_stages(f.read(), file)


def parse_stages(text: str, file: str) -> Tuple[Stages, Sequence[str]]:
    """Like read_stages, from the text of a file; file is its name in errors."""
    try:
        content = json.loads(text)
        if content["version"] != STAGES_VERSION:
            raise GraphError(f"{file} has version {content['version']}, not {STAGES_VERSION}")
        laid = [segment for stage in content["stages"] for segment in stage]
        nodes, devices = [segment["nodes"] for segment in laid], [segment["slice"] for segment in laid]
    except (ValueError, KeyError, TypeError) as e:
        raise GraphError(f"{file} is not a file of stages: {e!r}") from None
    if not all(isinstance(d, str) for d in devices) or not all(isinstance(n, list) and all(isinstance(m, str) for m in n) for n in nodes):
        raise GraphError(f"{file} is not a file of stages: nodes and slices have names")
    return nodes, devices


def _target(kind: Type[Pipeline]) -> str:
    """Returns the module or file, and the name, by which another process can load a class."""
    if "<locals>" in kind.__qualname__:
        raise GraphError(f"{kind.__qualname__} is local to a function: other processes cannot import it")
    if kind.__module__ == "__main__" or kind.__module__.startswith(FROM_FILE):
        try:
            return f"{os.path.abspath(inspect.getfile(kind))}:{kind.__qualname__}"
        except (TypeError, OSError):
            raise GraphError(f"{kind.__qualname__} was typed in: other processes can only import it from a file") from None
    return f"{kind.__module__}:{kind.__qualname__}"
