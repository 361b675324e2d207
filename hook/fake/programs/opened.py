"""A Python program that calls the driver with ctypes."""

import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")
context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
memory = ctypes.c_ulonglong()
left, total = ctypes.c_size_t(), ctypes.c_size_t()


def must(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code != 0:
        print("failed", name, code)
        sys.exit(1)


must("cuInit", 0)
must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
must("cuCtxSetCurrent", context)
must("cuModuleLoadData", ctypes.byref(module), b"")
must("cuModuleGetFunction", ctypes.byref(kernel), module, b"spin_ns1000_sm100_blocks1")
for _ in range(100):
    must("cuLaunchKernel", kernel, 2, 1, 1, 32, 1, 1, 0, None, None, None)
must("cuCtxSynchronize")
must("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(64 << 20))
must("cuMemGetInfo_v2", ctypes.byref(left), ctypes.byref(total))
must("cuMemFree_v2", memory)
print("ok", left.value, total.value)
