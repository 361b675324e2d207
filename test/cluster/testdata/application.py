"""An application whose components allocate GPU memory through CUDA's driver and take time, but compute nothing."""

import ctypes
import json
import os
import time

import gshare

COMPONENTS = json.loads(os.environ["COMPONENTS"])  # in order: name, bytes, and seconds per request by prefix of the instance's UUID
TRANSFER = float(os.environ["TRANSFER"])  # seconds to transfer a value between instances
DEVICE = os.environ.get("CUDA_VISIBLE_DEVICES", "")


class Component:
    def __init__(self, of):
        driver, context, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
        for name, *arguments in (
            ("cuInit", 0), ("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0), ("cuCtxSetCurrent", context),
            ("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(of["bytes"])),
        ):
            code = getattr(driver, name)(*arguments)
            if code != 0:
                raise RuntimeError(f"{name} returned {code}")
        self.seconds = next(seconds for begin, seconds in of["seconds"].items() if DEVICE.startswith(begin))

    def __call__(self, value):
        starts = time.monotonic()
        if isinstance(value, dict) and value["ran"][-1] != DEVICE:
            starts = max(starts, value["at"] + TRANSFER)  # other values are processed while this one is transferred
        time.sleep(max(0.0, starts + self.seconds - time.monotonic()))
        return {"ran": (value["ran"] if isinstance(value, dict) else []) + [DEVICE], "at": time.monotonic()}


class Application(gshare.Pipeline):
    def __init__(self):
        super().__init__()
        self.components = [self.reg(Component, of, name=of["name"]) for of in COMPONENTS]

    def define(self, row):
        value = row
        for component in self.components:
            value = component(value)
        return value
