#!/usr/bin/env python3
"""The programs of the GPU lane, in PyTorch. Each prints one line of JSON.

    workloads.py serve NAME SECONDS RATE    reports that it is ready, and after a line of input runs requests back to back, or RATE per second on average
    workloads.py count COUNT                runs COUNT requests of the convolution net under CUPTI, and ten times as many after a line of input
    workloads.py allocate                   allocates memory in pieces of 256 MiB until that fails, then waits for the end of its input
    workloads.py hold MIB                   holds memory and prints its process ID, and after each line of input whether the memory is unchanged

NAME is product, timer, convolution, transformer, recurrent, graphs or trainer. All weights are random: what they compute means nothing.
"""

import ctypes
import json
import os
import random
import sys
import time

import torch
from torch import nn


def product():
    """Consecutive matrix products with thousands of thread blocks each, which keep a large GPU busy: a load of known cost."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    into = torch.empty_like(a)

    def request():
        for _ in range(4):
            torch.mm(a, a, out=into)

    return request


TIMER = b""".version 6.0
.target sm_70
.address_size 64
.visible .entry timer()
{
	.reg .u64 %now, %end;
	.reg .pred %early;
	mov.u64 %end, %globaltimer;
	add.u64 %end, %end, 500000;
again:
	mov.u64 %now, %globaltimer;
	setp.lt.u64 %early, %now, %end;
	@%early bra again;
	ret;
}
"""


def timer():
    """Kernels with one block on each SM, which run for 0.5 ms by the GPU's timer. Their duration does not depend on the GPU's clock rate,
    which is higher while less of the GPU is busy."""
    torch.ones(1, device="cuda")  # creates the CUDA context
    cuda, module, kernel = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    if cuda.cuModuleLoadData(ctypes.byref(module), TIMER) or cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"timer"):
        sys.exit("workloads.py: the kernel cannot be loaded")
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def request():
        for _ in range(4):
            if cuda.cuLaunchKernel(kernel, sms, 1, 1, 1024, 1, 1, 0, stream, None, None):
                sys.exit("workloads.py: the kernel cannot be launched")

    return request


def block(before, after, stride):
    return nn.Sequential(
        nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True),
        nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True))


def convolution_net():
    """A convolutional network of about the size of ResNet-18."""
    widths = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
    net = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, 1), *[block(*w) for w in widths], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    return net.cuda().half().eval()


def convolution():
    """The convolutional network, with one image per request."""
    net = convolution_net()
    picture = torch.randn(1, 3, 224, 224, device="cuda", dtype=torch.float16)
    return lambda: net(picture)


def encoder():
    layer = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True)
    return nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)


def transformer():
    """An encoder of the size of BERT, with one text of 128 tokens per request."""
    net = encoder().cuda().half().eval()
    text = torch.randn(1, 128, 768, device="cuda", dtype=torch.float16)
    return lambda: net(text)


def recurrent():
    """A recurrent network, step by step: hundreds of small kernels, whose launches are the bottleneck, as with RNN-T."""
    cell = nn.LSTMCell(640, 640).cuda().half().eval()
    step = torch.randn(1, 640, device="cuda", dtype=torch.float16)

    def request():
        state = None
        for _ in range(64):
            state = cell(step, state)

    return request


def graphs():
    """The convolutional network, as one CUDA graph per request."""
    run = convolution()
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def trainer():
    """Training steps of the encoder, with eight texts each."""
    net = encoder().cuda()
    text = torch.randn(8, 128, 768, device="cuda")
    optimizer = torch.optim.AdamW(net.parameters())

    def step():
        with torch.enable_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
            net(text).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


WORKLOADS = {f.__name__: f for f in (product, timer, convolution, transformer, recurrent, graphs, trainer)}


def serve(name, seconds, rate):
    request, took = WORKLOADS[name](), []
    for _ in range(3):
        request()
    torch.cuda.synchronize()
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()
    arrivals = random.Random(1)
    start = due = time.monotonic()
    while time.monotonic() - start < seconds:
        if rate > 0:
            due += arrivals.expovariate(rate)
            time.sleep(max(0.0, due - time.monotonic()))
        since = due if rate > 0 else time.monotonic()
        request()
        torch.cuda.synchronize()
        took.append(time.monotonic() - since)
    lasted = time.monotonic() - start
    took.sort()
    return {"requests": len(took), "rate": len(took) / lasted, "p50_ms": 1e3 * took[len(took) // 2], "p95_ms": 1e3 * took[len(took) * 95 // 100],
            "p99_ms": 1e3 * took[len(took) * 99 // 100], "max_ms": 1e3 * took[-1]}


def count(requests):
    """Counts kernels and graphs with CUPTI, through PyTorch's profiler, from the first one on, so that the hook counts no others."""
    from torch.profiler import ProfilerActivity, profile

    request, counted = None, {}
    for n in (requests, 10 * requests):
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
            request = request or convolution()
            for _ in range(n):
                request()
            torch.cuda.synchronize()
        for e in seen.key_averages():
            if "Launch" in e.key and e.key.startswith("cu"):
                counted[e.key] = counted.get(e.key, 0) + e.count
        print(json.dumps({"launches": sum(counted.values()), "calls": counted}), flush=True)
        sys.stdin.readline()


def allocate():
    held, (free, total) = [], torch.cuda.mem_get_info()
    try:
        while True:
            held.append(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        print(json.dumps({"allocated_mib": 256 * len(held), "free_mib": free >> 20, "total_mib": total >> 20}), flush=True)
    sys.stdin.read()


def hold(mib):
    held = torch.arange(mib << 17, dtype=torch.int64, device="cuda")
    whole = held.sum().item()
    print(json.dumps({"pid": os.getpid()}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"unchanged": held.sum().item() == whole}), flush=True)


def main(mode, *arguments):
    with torch.no_grad():
        if mode == "serve":
            print(json.dumps(serve(arguments[0], float(arguments[1]), float(arguments[2]))), flush=True)
        elif mode == "allocate":
            allocate()
        else:
            {"count": count, "hold": hold}[mode](int(arguments[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
