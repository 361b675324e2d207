"""Converts the measurements in a build file to spec.pipeline of a GPUFunction."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List

from .errors import GraphError
from .measure import VERSION

CONTEXT_MIB = 300  # approximate memory of a CUDA context, which build does not measure
_PROFILE = re.compile(r"[1-9]g\.[1-9][0-9]{0,3}gb(\+me|\+me\.all|\+gfx|-me)?")


def spec(file: str, batch: int = 1, context_mib: int = CONTEXT_MIB) -> str:
    """Returns the YAML of spec.pipeline, indented by two spaces, from a build file. It uses the times of requests with batch items, measured on
    MIG instances; their kinds of slices are named by their profiles. Each stage gets context_mib more memory than was measured, as it may run in
    a process of its own. Raises GraphError if the file is not a build file, or if a stage was not measured on a MIG instance."""
    with open(file, encoding="utf-8") as f:
        try:
            built = json.load(f)
            if built["version"] != VERSION:
                raise GraphError(f"{file} has version {built['version']}, not {VERSION}")
            lines = ["  pipeline:", f"    transfer: {_duration(built['transferNanoseconds'])}", "    stages:"]
            for node in built["nodes"]:
                lines += _stage(file, node, batch, context_mib)
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise GraphError(f"{file} is not a build file: {type(e).__name__}: {e}") from None
    return "\n".join(lines) + "\n"


def _stage(file: str, node: Dict[str, Any], batch: int, context_mib: int) -> List[str]:
    times = {
        kind: t["nanoseconds"] for kind, measured in sorted(node["times"].items()) if _PROFILE.fullmatch(kind) for t in measured if t["batch"] == batch
    }
    if not times:
        kinds = ", ".join(sorted(node["times"]))
        raise GraphError(f"{file} has no time of {node['name']} at a batch of {batch} on a MIG instance, only on {kinds}: run build on one, with --kind and its profile")
    lines = [f"    - name: {json.dumps(node['name'])}"]
    if node.get("after"):
        lines.append(f"      dependsOn: {json.dumps(node['after'])}")
    lines.append(f"      memory: {-(-node['memoryBytes'] // (1 << 20)) + context_mib}Mi")
    lines.append("      times: [" + ", ".join(f"{{profile: {kind}, time: {_duration(t)}}}" for kind, t in times.items()) + "]")
    return lines


def _duration(nanoseconds: int) -> str:
    """Formats a duration as Kubernetes parses it, in whole microseconds, rounded up."""
    return f"{max(1, -(-nanoseconds // 1000))}us"
