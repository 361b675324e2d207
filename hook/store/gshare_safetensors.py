"""Safetensors files in a model store: their tensors, without a copy of a process's own. It needs Python 3.8, libcuda and libgshare_store.so.

    python3 gshare_safetensors.py model.safetensors         # prints what to declare: sha256:...=100Mi (annotation gshare.dev/weights)

    with gshare_store.Store() as store:
        tensors = gshare_safetensors.load(store, "model.safetensors")
        weight = torch.as_tensor(tensors["wte.weight"], device="cuda")  # no copy; never write it

The data of a file lies in device memory as it does in the file. A context must be current in the thread, see gshare_store.
"""

import collections
import ctypes
import hashlib
import json
import os
import struct
import sys

import gshare_store

MAX_HEADER = 100_000_000  # bytes, as in the reference implementation
MAX_DIMENSIONS = 64
MAX_BYTES = 1 << 63  # of a tensor
_PIECE = 16 << 20  # bytes that are read at once
_GRANULARITY = 2 << 20  # of memory in the store

# Bytes of an element, and its type for the CUDA array interface. That has no name for some types: their bits are passed on as integers of the same size,
# which torch.Tensor.view turns into the type without a copy.
_TYPES = {
    "F64": (8, "<f8"), "F32": (4, "<f4"), "F16": (2, "<f2"), "BF16": (2, "<i2"), "F8_E4M3": (1, "|u1"), "F8_E5M2": (1, "|u1"),
    "I64": (8, "<i8"), "I32": (4, "<i4"), "I16": (2, "<i2"), "I8": (1, "|i1"),
    "U64": (8, "<u8"), "U32": (4, "<u4"), "U16": (2, "<u2"), "U8": (1, "|u1"), "BOOL": (1, "|b1"),
}

Tensor = collections.namedtuple("Tensor", "dtype shape begin end")  # begin and end: bytes from the beginning of the data


class FormatError(ValueError):
    """A file that is no safetensors file, or not a whole one."""


def _is_size(value):
    return type(value) is int and 0 <= value < MAX_BYTES


def _unique(pairs):
    found = dict(pairs)
    if len(found) != len(pairs):
        raise FormatError("a name is there twice")
    return found


def _refuse(constant):
    raise FormatError("%s is no number" % constant)


def _tensor(name, entry):
    """Returns the tensor of an entry of the header, if it is one by itself."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise FormatError("%.100r is no tensor" % name)
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _TYPES:
        raise FormatError("%.100r has the type %.100r" % (name, dtype))
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not all(map(_is_size, shape)):
        raise FormatError("%.100r has no shape" % name)
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise FormatError("%.100r has no offsets" % name)
    element = length = _TYPES[dtype][0]
    for n in shape:
        length *= n
    if offsets[1] - offsets[0] != length:
        raise FormatError("%.100r has %d bytes and needs %d" % (name, offsets[1] - offsets[0], length))
    if length and offsets[0] % element:  # a kernel that reads such an element would fail, and with it the process's context
        raise FormatError("%.100r begins at %d, which is no multiple of %d bytes" % (name, offsets[0], element))
    return Tensor(dtype, tuple(shape), *offsets)


def parse_header(text, size):
    """Returns the tensors of a header by their names, for so many bytes of data. They fill the data without a gap."""
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse)
    except FormatError:
        raise
    except (ValueError, RecursionError) as e:
        raise FormatError("the header is no JSON: %.100s" % e) from None
    if not text.startswith(b"{") or not isinstance(header, dict):
        raise FormatError("the header is no object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise FormatError("the metadata are no texts")
    tensors = {name: _tensor(name, entry) for name, entry in header.items()}
    at = 0
    for name, t in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if t.begin != at:
            raise FormatError("%.100r begins at %d, where the data before it end at %d" % (name, t.begin, at))
        at = t.end
    if at != size:
        raise FormatError("the tensors have %d bytes, the file has %d of data" % (at, size))
    return tensors


def read_header(file):
    """Returns the tensors of an open file by their names, and where its data begin."""
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    first = file.read(8)
    if len(first) != 8:
        raise FormatError("a file of %d bytes" % size)
    (length,) = struct.unpack("<Q", first)
    if length > MAX_HEADER or length > size - 8:
        raise FormatError("a header of %d bytes" % length)
    text = file.read(length)
    if len(text) != length:
        raise FormatError("the file is being changed")
    return parse_header(text, size - 8 - length), 8 + length


def digest_of(file, begin):
    """Returns the SHA-256 of the data of an open file, which begin at an offset."""
    file.seek(begin)
    found = hashlib.sha256()
    for piece in iter(lambda: file.read(_PIECE), b""):
        found.update(piece)
    return found.digest()


def declaration(path):
    """Returns what pods declare that load a file: the value of the annotation gshare.dev/weights."""
    with open(path, "rb") as file:
        _, begin = read_header(file)
        size = os.fstat(file.fileno()).st_size - begin
        units = max(1, -(-size // _GRANULARITY))
        return "sha256:%s=%dMi" % (digest_of(file, begin).hex(), units * _GRANULARITY >> 20)


class Tensors(dict):
    """Arrays by the names of their tensors. They live until unmap is called."""

    def __init__(self, weights, tensors):
        super().__init__((name, weights.array(t.shape, _TYPES[t.dtype][1], t.begin)) for name, t in tensors.items())
        self.weights, self.dtypes = weights, {name: t.dtype for name, t in tensors.items()}

    def unmap(self):
        self.weights.unmap()


def load(store, path, digest=None):
    """Maps the tensors of a file, after it has stored them if the store does not have them. digest is the SHA-256 of its data (32 bytes), as declared;
    without it, all of the file is read to compute it. The store refuses data with another digest."""
    with open(path, "rb") as file:
        tensors, begin = read_header(file)
        size = os.fstat(file.fileno()).st_size - begin
        if not size:
            raise FormatError("the file has no data")
        weights = store.load(digest or digest_of(file, begin), size, lambda address: _copy(file, begin, size, address))
    if weights.bytes != size:
        weights.unmap()
        raise FormatError("the store has %d bytes, the file %d: it has another digest" % (weights.bytes, size))
    return Tensors(weights, tensors)


def _copy(file, begin, size, address):
    """Copies the data of a file to device memory."""
    cuda = ctypes.CDLL("libcuda.so.1")
    buffer = (ctypes.c_char * min(_PIECE, size))()
    file.seek(begin)
    for at in range(0, size, _PIECE):
        length = min(_PIECE, size - at)
        if file.readinto(memoryview(buffer)[:length]) != length:
            raise FormatError("the file is being changed")
        code = cuda.cuMemcpyHtoD_v2(ctypes.c_ulonglong(address + at), buffer, ctypes.c_size_t(length))
        if code:
            raise RuntimeError("cuMemcpyHtoD: error %d" % code)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: gshare_safetensors.py FILE")
    try:
        print(declaration(sys.argv[1]))
    except (OSError, FormatError) as e:
        sys.exit("%s: %s" % (sys.argv[1], e))
