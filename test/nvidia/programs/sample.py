"""A PyCUDA program that does and prints what sample.cu does."""

import time

import numpy
import pycuda.driver as cuda

KERNEL = "spin_ns1000000_sm1000_blocks64"  # tells the fake driver how long it runs


def use_all(kernel):
    """Uses the features that programs use most."""
    host = numpy.zeros(50000, numpy.float32)
    device = cuda.to_device(host)
    cuda.memcpy_htod(device, host)
    cuda.memset_d8(int(device), 0, host.nbytes)
    pitched, _ = cuda.mem_alloc_pitch(100, 100, 4)
    locked = cuda.pagelocked_empty(1000, numpy.float32)
    first, second = cuda.Stream(), cuda.Stream(1)
    start, end = cuda.Event(), cuda.Event()
    start.record(first)
    kernel(device, grid=(64, 1), block=(128, 1, 1), stream=first)
    end.record(first)
    second.wait_for_event(end)
    cuda.memcpy_dtoh_async(locked, device, second)
    second.synchronize()
    end.synchronize()
    start.time_till(end)
    kernel.prepare("P")
    kernel.prepared_call((64, 1), (128, 1, 1), device)
    cuda.Context.synchronize()
    device.free()
    pitched.free()


def allocate(mib):
    """Allocates device memory, and frees it."""
    error = 0
    try:
        cuda.mem_alloc(mib << 20).free()
    except cuda.MemoryError:
        error = 2
    print(f"{mib} MiB: error {error}")


def main():
    cuda.init()
    context = cuda.Device(0).make_context()
    try:
        kernel = cuda.module_from_buffer(b"image").get_function(KERNEL)
        use_all(kernel)
        left, total = cuda.mem_get_info()
        print(f"{left >> 20} of {total >> 20} MiB free")
        allocate(512)
        allocate(3072)
        begin = time.monotonic()
        for _ in range(200):
            kernel(grid=(64, 1), block=(128, 1, 1))
        cuda.Context.synchronize()
        print(round((time.monotonic() - begin) * 1000), "ms")
    finally:
        context.pop()


main()
