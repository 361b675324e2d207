"""Says how bright the front of a row of numbers is, and on which devices that was found. The weights lie in the memory of a GPU, by CUDA's driver alone: it
needs no PyTorch. What it computes is so little that the host does it, with weights that it reads back."""

import ctypes
import os

import gshare

SPARE = int(os.environ.get("ROWS_MIB", "1")) << 20  # bytes that the weights of a component take beside those that are used


class Weights:
    def __init__(self, *values):
        self.host = (ctypes.c_float * len(values))(*values)
        self.nbytes = ctypes.sizeof(self.host) + SPARE
        self.driver, self.context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        self.device = ctypes.c_uint64()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.call("cuCtxSetCurrent", self.context)
        self.call("cuMemAlloc_v2", ctypes.byref(self.device), ctypes.c_size_t(self.nbytes))
        self.call("cuMemcpyHtoD_v2", self.device, self.host, ctypes.c_size_t(ctypes.sizeof(self.host)))
        ctypes.memset(self.host, 0, ctypes.sizeof(self.host))  # they are on the device now

    def read(self):
        copy = type(self.host)()
        self.call("cuCtxSetCurrent", self.context)  # requests come in any thread
        self.call("cuMemcpyDtoH_v2", copy, self.device, ctypes.c_size_t(ctypes.sizeof(copy)))
        return list(copy)

    def call(self, name, *arguments):
        code = getattr(self.driver, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} returned {code}")


def ran(*before):
    return sum((b["ran"] for b in before), []) + [os.environ.get("CUDA_VISIBLE_DEVICES", "")]


class Denoise(Weights):
    def __init__(self):
        super().__init__(0.25, 0.5, 0.25)

    def __call__(self, row):
        around = [row[0], *row, row[-1]]
        return {"row": [sum(w * v for w, v in zip(self.read(), around[i:])) for i in range(len(row))], "ran": ran()}


class Segment(Weights):
    def __init__(self):
        super().__init__(0.5)

    def __call__(self, clean):
        return {"front": [v > self.read()[0] for v in clean["row"]], "ran": ran(clean)}


class Classify(Weights):
    def __init__(self):
        super().__init__(100.0)

    def __call__(self, clean, segmented):
        front = [v for v, is_front in zip(clean["row"], segmented["front"]) if is_front]
        return {"brightness": round(self.read()[0] * sum(front) / max(len(front), 1), 2), "ran": ran(segmented)}


class Rows(gshare.Pipeline):
    def __init__(self):
        super().__init__()
        self.denoise = self.reg(Denoise)
        self.segment = self.reg(Segment)
        self.classify = self.reg(Classify)

    def define(self, row):
        clean = self.denoise(row)
        return self.classify(clean, self.segment(clean))


def example(batch):
    return [0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0] * batch


def main():
    with gshare.run(Rows, [["denoise"], ["segment", "classify"]]) as rows:
        print(rows(example(1)))


if __name__ == "__main__":
    main()
