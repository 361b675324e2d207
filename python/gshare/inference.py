"""Converts requests and answers of the Open Inference Protocol, version 2, over HTTP with JSON. Inputs become PyTorch tensors or NumPy arrays
if the function has imported one of these, else nested lists."""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Sequence

from .errors import NotTransferable

# Names of element types: those of the protocol, and those of PyTorch and NumPy.
TYPES = {
    "BOOL": "bool", "UINT8": "uint8", "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16", "FP32": "float32",
    "FP64": "float64",
}
_NAMES = {name: datatype for datatype, name in TYPES.items()}
_MAX_DIMENSIONS = 16


def inputs(request: Any, names: Sequence[str]) -> List[Any]:
    """Returns the inputs of a request in the order of names. Raises NotTransferable if the request does not have exactly these inputs."""
    if not isinstance(request, dict) or not isinstance(request.get("inputs"), list):
        raise NotTransferable("the request is no object with a list of inputs")
    found: Dict[str, Any] = {}
    for tensor in request["inputs"]:
        if not isinstance(tensor, dict) or not isinstance(tensor.get("name"), str):
            raise NotTransferable("an input has no name")
        name = tensor["name"]
        if name not in names or name in found:
            raise NotTransferable(f"the input {name[:64]!r} is there twice, or is none of {', '.join(names)}")
        found[name] = _value(name, tensor.get("datatype"), tensor.get("shape"), tensor.get("data"))
    missing = [name for name in names if name not in found]
    if missing:
        raise NotTransferable(f"the input {missing[0]!r} is missing")
    return [found[name] for name in names]


def outputs(result: Any) -> List[Dict[str, Any]]:
    """Returns the tensors of an answer: the values of a dict under their keys, anything else under the name "output". Raises NotTransferable
    for a value that is not a tensor, number, text, or list of these."""
    named = result if isinstance(result, dict) else {"output": result}
    return [{"name": str(name), **_tensor(value)} for name, value in named.items()]


def _value(name: str, datatype: Any, shape: Any, data: Any) -> Any:
    if not isinstance(shape, list) or len(shape) > _MAX_DIMENSIONS or not all(type(n) is int and n >= 0 for n in shape):
        raise NotTransferable(f"the shape of input {name!r} is no list of sizes")
    flat = _flat(data, 0)
    count = 1
    for n in shape:
        count *= n
    if len(flat) != count:
        raise NotTransferable(f"input {name!r} has {len(flat)} elements, and a shape of {count}")
    if datatype == "BYTES":
        if not all(isinstance(v, str) for v in flat):
            raise NotTransferable(f"input {name!r} has elements that are no text")
        return _nested(flat, shape)
    if datatype not in TYPES:
        raise NotTransferable(f"input {name!r} has a datatype that is not known: {str(datatype)[:64]!r}")
    if not all(isinstance(v, (bool, int, float)) for v in flat):
        raise NotTransferable(f"input {name!r} has elements that are no numbers")
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    try:
        if torch is not None:
            return torch.tensor(flat, dtype=getattr(torch, TYPES[datatype])).reshape(shape)
        if numpy is not None:
            return numpy.array(flat, dtype=TYPES[datatype]).reshape(shape)
    except (ValueError, TypeError, OverflowError, RuntimeError) as e:
        raise NotTransferable(f"input {name!r} is no {datatype}: {e}") from None
    return _nested(flat, shape)


def _flat(data: Any, depth: int) -> List[Any]:
    if not isinstance(data, list) or depth > _MAX_DIMENSIONS:
        raise NotTransferable("the data of an input is no list")
    if data and isinstance(data[0], list):
        return [v for part in data for v in _flat(part, depth + 1)]
    return data


def _nested(flat: List[Any], shape: Sequence[int]) -> Any:
    if not shape:
        return flat[0]
    for n in reversed(shape[1:]):
        flat = [flat[i : i + n] for i in range(0, len(flat), n)] if n else []
    return flat


def _tensor(value: Any) -> Dict[str, Any]:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor) or numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        name = str(value.dtype).rpartition(".")[2]
        if name == "bfloat16":
            value, name = value.float(), "float32"
        if name not in _NAMES:
            raise NotTransferable(f"the protocol has no type for {value.dtype}")
        return {"shape": list(value.shape), "datatype": _NAMES[name], "data": value.reshape(-1).tolist()}
    shape: List[int] = []
    level = value
    while isinstance(level, (list, tuple)):
        shape.append(len(level))
        level = level[0] if level else 0.0
    flat = _elements(value, shape)
    for kinds, datatype in (((bool,), "BOOL"), ((int,), "INT64"), ((int, float), "FP64"), ((str,), "BYTES")):
        if all(type(v) in kinds for v in flat):
            return {"shape": shape or [1], "datatype": datatype, "data": flat}
    raise NotTransferable("an output is no tensor, number, text, or list of one of these")


def _elements(value: Any, shape: Sequence[int]) -> List[Any]:
    if not shape:
        return [value]
    if not isinstance(value, (list, tuple)) or len(value) != shape[0]:
        raise NotTransferable("an output is a list of lists of different lengths")
    return [v for part in value for v in _elements(part, shape[1:])]
