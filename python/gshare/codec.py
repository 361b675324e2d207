"""Encodes the values that stages pass to each other: None, bool, int, float, str, bytes, lists, tuples, dicts with str keys, PyTorch tensors
and NumPy arrays. The elements of tensors and arrays are copied once when written and once when read. Nothing is pickled, so that reading a
value never runs code of the process that wrote it.

An encoded value is the length of its JSON (4 bytes), the JSON, and the buffers to which the JSON refers, each at a multiple of 64 bytes.
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from typing import Any, List, Tuple, Union

from .errors import NotTransferable

_ALIGN = 64
_LENGTH = struct.Struct("<I")
_MAX_DEPTH = 32
_Buffer = Tuple[int, Any, Any]  # length in bytes; address, or None if the object is itself a buffer; the object that owns the memory


def encode_into(target: memoryview, value: Any) -> int:
    """Encodes a value into target and returns its length in bytes. Raises NotTransferable if its type is unknown or target is too small."""
    header, buffers = _header(value)
    end = _LENGTH.size + len(header)
    places = []
    for length, _, _ in buffers:
        begin = _aligned(end)
        places.append(begin)
        end = begin + length
    if end > len(target):
        raise NotTransferable(f"a value of {end} bytes is larger than a slot of {len(target)}: raise slot_bytes")
    _LENGTH.pack_into(target, 0, len(header))
    target[_LENGTH.size : _LENGTH.size + len(header)] = header
    for begin, (length, address, owner) in zip(places, buffers):
        if not length:
            continue
        if address is None:
            target[begin : begin + length] = owner
        else:
            ctypes.memmove(ctypes.addressof(ctypes.c_char.from_buffer(target, begin)), address, length)
    return end


def size(value: Any) -> int:
    """Returns how many bytes encode_into writes for a value."""
    header, buffers = _header(value)
    end = _LENGTH.size + len(header)
    for length, _, _ in buffers:
        end = _aligned(end) + length
    return end


def decode(source: memoryview) -> Any:
    """Decodes a copy of the value in source. Raises NotTransferable if source does not contain a valid value."""
    try:
        (length,) = _LENGTH.unpack_from(source, 0)
        if length > len(source) - _LENGTH.size:
            raise NotTransferable("the value is cut off")
        tree = json.loads(bytes(source[_LENGTH.size : _LENGTH.size + length]))
        return _Reader(source, _LENGTH.size + length).value(tree, 0)
    except (struct.error, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as e:
        raise NotTransferable(f"not a value between stages: {e}") from None


def describe(value: Any) -> str:
    """Returns the type of a value, with its shape or length if it has one: "torch.float32[1,3,224,224]", "list[3]", "dict"."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    if numpy is not None and isinstance(value, numpy.ndarray):
        return f"numpy.{value.dtype}[{','.join(map(str, value.shape))}]"
    if isinstance(value, (list, tuple, bytes, bytearray, str)):
        return f"{type(value).__name__}[{len(value)}]"
    return type(value).__name__


def _aligned(n: int) -> int:
    return (n + _ALIGN - 1) // _ALIGN * _ALIGN


def _header(value: Any) -> Tuple[bytes, List[_Buffer]]:
    buffers: List[_Buffer] = []
    try:
        return json.dumps(_flatten(value, buffers, 0), separators=(",", ":")).encode(), buffers
    except (ValueError, TypeError, RuntimeError, NotImplementedError, BufferError) as e:  # such as an int with 5000 digits, or a tensor without storage
        raise NotTransferable(f"a value cannot be passed between stages: {e}") from None


def _flatten(value: Any, buffers: List[_Buffer], depth: int) -> Any:
    """Returns a value in a form for JSON: anything but None, bool, int, float and str becomes a list that begins with its type."""
    if depth > _MAX_DEPTH:
        raise NotTransferable(f"a value has more than {_MAX_DEPTH} levels")
    if value is None or isinstance(value, (bool, int, float, str)) and type(value) in (bool, int, float, str):
        return value
    if isinstance(value, (list, tuple)):
        return ["list" if isinstance(value, list) else "tuple", *(_flatten(v, buffers, depth + 1) for v in value)]
    if isinstance(value, dict):
        if not all(isinstance(k, str) for k in value):
            raise NotTransferable("a dict has keys that are not str")
        return ["dict", {k: _flatten(v, buffers, depth + 1) for k, v in value.items()}]
    if isinstance(value, (bytes, bytearray, memoryview)):
        content = memoryview(value).cast("B") if not isinstance(value, bytes) else value
        buffers.append((len(content), None, content))
        return ["bytes", len(content)]
    return _flatten_array(value, buffers)


def _flatten_array(value: Any, buffers: List[_Buffer]) -> Any:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_quantized:
            raise NotTransferable("only dense tensors can be passed on, not quantized or sparse ones")
        tensor = value.detach().to("cpu").resolve_conj().resolve_neg().contiguous()
        length = tensor.numel() * tensor.element_size()
        buffers.append((length, tensor.data_ptr(), tensor))
        return ["torch", length, str(tensor.dtype)[len("torch.") :], list(tensor.shape)]
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        array = numpy.asarray(value, order="C")
        if array.dtype.hasobject or array.dtype.names:
            raise NotTransferable("only arrays of numbers can be passed on")
        buffers.append((array.nbytes, array.ctypes.data, array))
        return ["numpy", array.nbytes, array.dtype.str, list(array.shape)]
    raise NotTransferable(f"a {type(value).__name__} cannot be passed between stages")


class _Reader:
    """Reads the buffers in the order in which they were written."""

    def __init__(self, source: memoryview, end: int) -> None:
        self._source, self._end = source, end

    def value(self, tree: Any, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise NotTransferable(f"a value has more than {_MAX_DEPTH} levels")
        if not isinstance(tree, list):
            if isinstance(tree, dict):
                raise NotTransferable("a dict without its type")
            return tree
        kind = tree[0]
        if kind in ("list", "tuple"):
            items = [self.value(t, depth + 1) for t in tree[1:]]
            return items if kind == "list" else tuple(items)
        if kind == "dict":
            return {k: self.value(t, depth + 1) for k, t in tree[1].items()}
        if kind == "bytes":
            return bytes(self._buffer(tree[1]))
        return self._array(kind, *tree[1:])

    def _array(self, kind: str, length: int, dtype: str, shape: List[int]) -> Any:
        content = self._buffer(length)
        if kind == "torch":
            import torch

            element = getattr(torch, dtype)
            if not isinstance(element, torch.dtype):
                raise NotTransferable(f"no type {dtype}")
            return torch.frombuffer(content, dtype=element).reshape(shape) if length else torch.empty(shape, dtype=element)
        if kind == "numpy":
            import numpy

            return numpy.frombuffer(content, dtype=numpy.dtype(dtype)).reshape(shape)
        raise NotTransferable(f"no type {kind}")

    def _buffer(self, length: Union[int, Any]) -> bytearray:
        begin = _aligned(self._end)
        if type(length) is not int or length < 0 or length > len(self._source) - begin and length:
            raise NotTransferable("the value is cut off")
        self._end = begin + length
        return bytearray(self._source[begin : self._end])
