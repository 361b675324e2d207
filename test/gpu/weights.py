"""A program that takes weights from a model store, for the experiment `store`: weights.py MODE [SOCKET LIBRARY]. It prints lines of JSON.

    free     the free memory of the device, in bytes, as a new program sees it
    load     loads the weights, says how long that took and whether it has stored them, and for each line of its input whether they are unchanged
    copy     loads them, fills them by the driver, and says with which code that ends
    kernel   the same by a kernel that writes to them
"""

import ctypes
import hashlib
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "hook" / "store"))
import gshare_store  # noqa: E402

SIZE = 256 << 20
WEIGHTS = bytes(range(256)) * (SIZE // 256)
cuda = ctypes.CDLL("libcuda.so.1")


def check(code, what):
    if code:
        sys.exit(f"weights.py: {what}: {code}")


def start():
    context = ctypes.c_void_p()
    check(cuda.cuInit(0), "cuInit")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")


def free():
    left, total = ctypes.c_size_t(), ctypes.c_size_t()
    check(cuda.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total)), "cuMemGetInfo")
    return left.value


def load(socket, library):
    """Loads the weights. Returns the connection to the store, the weights, and what to print about it."""
    digest, filled = hashlib.sha256(WEIGHTS).digest(), []

    def fill(address):
        filled.append(address)
        check(cuda.cuMemcpyHtoD_v2(ctypes.c_ulonglong(address), WEIGHTS, ctypes.c_size_t(SIZE)), "cuMemcpyHtoD")

    store = gshare_store.Store(socket, library)
    since = time.monotonic()
    weights = store.load(digest, SIZE, fill)
    return store, weights, {"ms": 1000 * (time.monotonic() - since), "stored": bool(filled), "digest": digest.hex()}


def unchanged(weights):
    found = ctypes.create_string_buffer(SIZE)
    code = cuda.cuMemcpyDtoH_v2(found, ctypes.c_ulonglong(weights.address), ctypes.c_size_t(SIZE))
    return {"unchanged": not code and found.raw == WEIGHTS, "code": code}


def fill(address):
    return cuda.cuMemsetD8_v2(ctypes.c_ulonglong(address), ctypes.c_ubyte(1), ctypes.c_size_t(SIZE))


KERNEL = b"spin_ns1000_sm1_blocks1"  # the name tells the fake driver how long the kernel takes; on the fake driver it does nothing else
PTX = b""".version 6.0
.target sm_70
.address_size 64
.visible .entry %s(.param .u64 to)
{
	.reg .u64 %%to;
	.reg .u32 %%one;
	ld.param.u64 %%to, [to];
	mov.u32 %%one, 1;
	st.global.u8 [%%to], %%one;
	ret;
}
""" % KERNEL


def store_byte(address):
    module, kernel, to = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_ulonglong(address)
    check(cuda.cuModuleLoadData(ctypes.byref(module), PTX), "cuModuleLoadData")
    check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, KERNEL), "cuModuleGetFunction")
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(to))
    return cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters, None)


def main(mode, *where):
    start()
    if mode == "free":
        print(json.dumps({"free": free()}), flush=True)
        return
    store, weights, said = load(*where)
    if mode in ("copy", "kernel"):
        print(json.dumps({"code": (fill if mode == "copy" else store_byte)(weights.address) or cuda.cuCtxSynchronize()}), flush=True)
        return
    print(json.dumps(said), flush=True)
    for _ in sys.stdin:
        print(json.dumps(unchanged(weights)), flush=True)
    weights.unmap()
    store.close()


main(*sys.argv[1:])
