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
    """Starts a function, and returns when it is loaded.

    function is a subclass of Pipeline, or where it is: "module:Class" or "file.py:Class". stages are the names of the nodes of
    each process, or a file of stages that gshare-lab cut has written, with their devices; without, the function runs whole in this process. devices are what CUDA_VISIBLE_DEVICES is in each of these processes, such as the UUID
    of a MIG device. Edges between them have slots for so many values more than it takes to keep all stages busy, each of slot_bytes at
    most. With attach, a folder that containers share, stages are no processes of this one: each is python -m gshare stage in a container of its
    own with its device, and devices are their names; the one named here is a process of this container, and sees its device. Raises a GraphError, or StageLost if a stage does not start within start_timeout seconds.
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
    """Returns the nodes and the device of each process from a file that gshare-lab cut has written. Raises a GraphError if it is none."""
    with open(file, encoding="utf-8") as f:
        return parse_stages(f.read(), file)


def parse_stages(text: str, file: str) -> Tuple[Stages, Sequence[str]]:
    """As read_stages, of the text of a file."""
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
    """Returns where another process finds a class."""
    if "<locals>" in kind.__qualname__:
        raise GraphError(f"{kind.__qualname__} is local to a function: other processes cannot import it")
    if kind.__module__ == "__main__" or kind.__module__.startswith(FROM_FILE):
        try:
            return f"{os.path.abspath(inspect.getfile(kind))}:{kind.__qualname__}"
        except (TypeError, OSError):
            raise GraphError(f"{kind.__qualname__} was typed in: other processes can only import it from a file") from None
    return f"{kind.__module__}:{kind.__qualname__}"
