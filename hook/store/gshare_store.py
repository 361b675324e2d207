"""Weights that the programs of a namespace have once on a GPU, by libgshare_store.so. It needs Python 3.8 and no packages.

    with gshare_store.Store() as store:
        weights = store.load(digest, size, fill)            # fill(address) is called if the store does not have them
        tensor = torch.as_tensor(weights.array((1024, 1024), "<f2", offset=0), device="cuda")

A context must be current in the thread, as after torch.cuda.init() and a first tensor. The tensor has no copy of its own, and must not be
written: the memory is mapped read-only, and others read it.
"""

import ctypes
import os
import time

ABSENT, BUSY, PRESENT, CUDA = 5, 6, 7, 1000
_PAUSE = 0.01  # seconds between two questions while another program stores the weights


class Error(Exception):
    """What has gone wrong: a status of the store, a negated number of errno, or CUDA and a CUresult."""

    def __init__(self, library, code):
        super().__init__(library.gshare_store_error(code).decode())
        self.code = code


class _Weights(ctypes.Structure):
    _fields_ = [("file", ctypes.c_int), ("bytes", ctypes.c_uint64), ("size", ctypes.c_uint64)]


class Array:
    """A part of the weights for libraries that know the CUDA array interface, such as PyTorch, CuPy and Numba.

    It does not say that it is read-only, since PyTorch refuses arrays that do.
    """

    def __init__(self, weights, address, shape, typestr):
        self.weights = weights  # which must live as long as the array
        self.__cuda_array_interface__ = {"shape": tuple(shape), "typestr": typestr, "data": (address, False), "version": 3, "strides": None}


class Weights:
    """Weights at an address, until unmap is called."""

    def __init__(self, library, address, length, size):
        self._library, self.address, self.bytes, self._size = library, address, length, size

    def array(self, shape, typestr, offset=0):
        """Returns a part as an array: its shape, its type as NumPy writes it, such as "<f4", and where it begins in bytes."""
        length = int(typestr[2:])
        for n in shape:
            length *= n
        if offset < 0 or length < 0 or offset + length > self.bytes:
            raise ValueError("%d bytes from %d on are not in weights of %d" % (length, offset, self.bytes))
        return Array(self, self.address + offset, shape, typestr)

    def unmap(self):
        """Removes the mapping. No array of it may be used any more."""
        address, self.address = self.address, 0
        if address:
            _check(self._library, self._library.gshare_store_unmap(address, self._size))


def _check(library, code):
    if code:
        raise Error(library, code)


def _load_library(name):
    library = ctypes.CDLL(name)
    library.gshare_store_error.restype = ctypes.c_char_p
    library.gshare_store_put.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.POINTER(_Weights)]
    library.gshare_store_get.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(_Weights)]
    library.gshare_store_commit.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p]
    library.gshare_store_map.argtypes = [ctypes.POINTER(_Weights), ctypes.c_int, ctypes.POINTER(ctypes.c_ulonglong)]
    library.gshare_store_unmap.argtypes = [ctypes.c_ulonglong, ctypes.c_uint64]
    return library


class Store:
    """A connection to a store, which is the lease of what it loads. It is for one thread at a time."""

    def __init__(self, socket=None, library=None):
        """Connects to a socket, in a container by default to that of its first slice, by a library, by default the one that the agent has mounted."""
        socket = socket or os.environ.get("GSHARE_STORE")
        if not socket:
            raise ValueError("no store: the pod declares no weights (annotation gshare.dev/weights), as GSHARE_STORE is not set")
        self._library = _load_library(library or os.environ.get("GSHARE_STORE_LIBRARY", "libgshare_store.so"))
        self._store = self._library.gshare_store_open(socket.encode())
        if self._store < 0:
            raise Error(self._library, self._store)

    def close(self):
        """Ends the lease. Unmap the weights before."""
        self._library.gshare_store_close(self._store)
        self._store = -1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def load(self, digest, size, fill, layout=""):
        """Maps the weights with a SHA-256 (32 bytes), of so many bytes. If the store does not have them, fill(address) is called first: it copies them
        to the device, to be complete when it returns. Waits while another program stores them. After an error, close the store."""
        if len(digest) != 32:
            raise ValueError("a digest has 32 bytes, not %d" % len(digest))
        name = layout.encode()
        while True:
            weights = _Weights()
            code = self._library.gshare_store_get(self._store, digest, name, ctypes.byref(weights))
            if code == ABSENT:
                code = self._put(digest, name, size, fill)
                if not code:
                    continue
            if code in (BUSY, PRESENT):
                time.sleep(_PAUSE)
                continue
            _check(self._library, code)
            return Weights(self._library, self._map(weights, False), weights.bytes, weights.size)

    def _put(self, digest, name, size, fill):
        weights = _Weights()
        code = self._library.gshare_store_put(self._store, digest, name, size, ctypes.byref(weights))
        if code:
            return code
        address = self._map(weights, True)
        try:
            fill(address)
        finally:
            _check(self._library, self._library.gshare_store_unmap(address, weights.size))
        return self._library.gshare_store_commit(self._store, digest, name)

    def _map(self, weights, writable):
        address = ctypes.c_ulonglong()
        code = self._library.gshare_store_map(ctypes.byref(weights), writable, ctypes.byref(address))
        os.close(weights.file)
        _check(self._library, code)
        return address.value
