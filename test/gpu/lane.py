#!/usr/bin/env python3
"""The experiments of test/enforce on a real GPU, with PyTorch under gshare-node --standalone.

    make test-gpu                       builds, then runs this
    test/gpu/lane.py [--seconds S] [--out FILE]
    test/gpu/lane.py --rehearse         the same on a simulated device; programs compute on the CPU and figures mean nothing

Without a GPU or PyTorch it says so in one line that begins with SKIP, and ends with 0. It changes no setting of the device.
"""

import argparse
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRODUCT = 2048  # a product of two such matrices takes a fraction of a millisecond on a large GPU


def missing():
    """Says what keeps the experiments from running here, or nothing."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    return "" if torch.cuda.is_available() else "PyTorch finds no GPU"


def matrix(on):
    import torch

    return torch.ones(PRODUCT, PRODUCT, device=on, dtype=torch.float16 if on == "cuda" else torch.float32)


def work_on_gpu(seconds):
    """Multiplies for so long and counts what the device finished."""
    import torch

    a, done, start = matrix("cuda"), 0, time.monotonic()
    while time.monotonic() - start < seconds:
        for _ in range(16):
            torch.mm(a, a)
        torch.cuda.synchronize()
        done += 16
    return {"rate": done / (time.monotonic() - start)}


def allocate_on_gpu(_):
    """Takes memory in pieces of 256 MiB until it is refused."""
    import torch

    held, free = [], torch.cuda.mem_get_info()
    try:
        while True:
            held.append(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        return {"allocated_mib": 256 * len(held), "free_mib": free[0] >> 20, "total_mib": free[1] >> 20}


def work_on_cpu(seconds):
    done, start = 0, time.monotonic()
    while time.monotonic() - start < seconds:
        sum(range(1000))
        done += 1
    return {"rate": done / seconds}


WORKERS = {
    "work": work_on_gpu,
    "allocate": allocate_on_gpu,
    "work-rehearsed": work_on_cpu,
    "allocate-rehearsed": lambda _: {"allocated_mib": 0, "free_mib": 0, "total_mib": 0},
}


class Agent:
    """gshare-node --standalone in a folder of its own."""

    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, pathlib.Path(folder)
        self.socket = self.folder / "run" / "control.sock"
        config = f"apiVersion: gshare.dev/v1alpha1\nkind: NodeConfiguration\ndirectory: {self.folder / 'run'}\n"
        if arguments.rehearse:
            devices = self.folder / "devices.yaml"
            devices.write_text("devices:\n- {uuid: GPU-0, model: A100, sms: 108, memoryMiB: 40960}\n")
            config += f"simulatedDevices: {devices}\n"
        (self.folder / "node.yaml").write_text(config)
        self.log = open(self.folder / "agent.log", "w", encoding="utf-8")
        self.process = subprocess.Popen(
            [arguments.bin / "gshare-node", "--standalone", "--config", self.folder / "node.yaml"],
            stdout=self.log, stderr=subprocess.STDOUT)
        while not self.socket.exists():
            if self.process.poll() is not None:
                sys.exit("gshare-node ended:\n" + (self.folder / "agent.log").read_text())
            time.sleep(0.05)

    def start(self, worker, seconds, sm, quota, mem="4Gi"):
        """Starts a worker with a share; result() waits for what it says."""
        name = worker + ("-rehearsed" if self.arguments.rehearse else "")
        return subprocess.Popen(
            [self.arguments.bin / "gshare", "run", "--socket", self.socket, "--hook", self.arguments.bin / "hook" / "libgshare.so",
             "--sm", str(sm), "--quota", str(quota), "--mem", mem, "--",
             sys.executable, __file__, "--worker", name, "--seconds", str(seconds)],
            stdout=subprocess.PIPE, text=True)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def result(run):
    out, _ = run.communicate()
    if run.returncode != 0:
        sys.exit(f"a worker ended with {run.returncode}")
    return json.loads(out.splitlines()[-1])


def experiments(agent, seconds):
    """All of them, with the rate of the whole device as the measure."""
    whole = result(agent.start("work", seconds, 100, 100))["rate"]
    found = {"whole_device_rate": whole, "quota": {}, "sm": {}}
    for quota in (25, 50, 75):
        found["quota"][quota] = result(agent.start("work", seconds, 100, quota))["rate"] / whole
    for sm in (25, 50, 75):
        found["sm"][sm] = result(agent.start("work", seconds, sm, 100))["rate"] / whole
    alone = result(agent.start("work", seconds, 24, 40))["rate"]
    crowd = [agent.start("work", 2 * seconds, 12, 40) for _ in range(6)]
    time.sleep(seconds / 4)  # the neighbours are to be at work
    beside = result(agent.start("work", seconds, 24, 40))["rate"]
    for run in crowd:
        result(run)
    found["isolation_lost_percent"] = 100 * (1 - beside / alone)
    found["memory_of_2048_mib"] = result(agent.start("allocate", seconds, 10, 100, "2Gi"))
    return found


def setup(arguments):
    """What the figures were measured on."""
    about = {"date": time.strftime("%Y-%m-%d"), "machine": platform.machine(), "rehearsed": arguments.rehearse}
    about["commit"] = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    if not arguments.rehearse:
        import torch

        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        about |= {"pytorch": torch.__version__, "device": subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()}
    return about


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "bin", help="folder with gshare, gshare-node and hook/libgshare.so")
    parser.add_argument("--seconds", type=float, default=10, help="length of each run (default 10)")
    parser.add_argument("--out", type=pathlib.Path, help="file for the results (default: standard output)")
    parser.add_argument("--rehearse", action="store_true", help="on a simulated device, to try this program")
    parser.add_argument("--worker", choices=sorted(WORKERS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(WORKERS[arguments.worker](arguments.seconds)))
        return
    why = "" if arguments.rehearse else missing()
    if why:
        print("SKIP test/gpu:", why)
        return
    with tempfile.TemporaryDirectory() as folder:
        agent = Agent(arguments, folder)
        try:
            found = {"setup": setup(arguments), **experiments(agent, arguments.seconds)}
        finally:
            agent.stop()
    text = json.dumps(found, indent=2) + "\n"
    if arguments.out:
        arguments.out.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
