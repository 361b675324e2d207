"""tensors.py SOCKET FILE: loads a safetensors file by gshare_safetensors.py, and prints the bytes that each tensor has on the device."""

import ctypes
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "store"))
sys.dont_write_bytecode = True
import gshare_safetensors  # noqa: E402
import gshare_store  # noqa: E402

cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
if cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or cuda.cuCtxSetCurrent(context):
    sys.exit(2)

with gshare_store.Store(sys.argv[1]) as store:
    tensors = gshare_safetensors.load(store, sys.argv[2])
    for name, array in sorted(tensors.items()):
        interface = array.__cuda_array_interface__
        length = int(interface["typestr"][2:])
        for n in interface["shape"]:
            length *= n
        found = ctypes.create_string_buffer(length)
        if cuda.cuMemcpyDtoH_v2(found, ctypes.c_ulonglong(interface["data"][0]), ctypes.c_size_t(length)):
            sys.exit(3)
        print(name, tensors.dtypes[name], interface["typestr"], interface["shape"], found.raw.decode())
    tensors.unmap()
