#!/usr/bin/env python3
"""The GPU lane: what gshare does on a real GPU, with PyTorch under gshare-node --standalone and MPS.

    make test-gpu                                    builds, then runs this
    test/gpu/lane.py [--seconds S] [--only NAME,...] [--out FOLDER]
    test/gpu/lane.py --dry-run                       the same on the fake driver and the fake MPS; its figures mean nothing

It writes FOLDER/DEVICE-DATE.json and the same as a table. It needs a GPU with its driver, PyTorch and what make test-gpu builds, no
network and no Kubernetes, and changes no setting of the device. Without a GPU or PyTorch it says so in one line that begins with
SKIP, and ends with 0.
"""

import argparse
import json
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import experiments
import functions
import machine

ALL = (*experiments.ALL, *functions.ALL)

ROOT = pathlib.Path(__file__).resolve().parents[2]


def missing():
    """Returns what keeps the experiments from running here, or "" if nothing does."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    return "" if torch.cuda.is_available() else "PyTorch finds no GPU"


def said(*command):
    """Returns the first line of a command's output, or "" if the command fails."""
    try:
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return out.strip().split("\n")[0]


def setup(arguments):
    """Returns a description of what the figures were measured on."""
    about = {"date": time.strftime("%Y-%m-%d"), "machine": platform.machine(), "dry_run": arguments.dry_run, "seconds": arguments.seconds,
             "commit": said("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD") or "unknown", "device": "fake"}
    if not arguments.dry_run:
        import torch

        query = "--query-gpu=name,driver_version,compute_mode,mig.mode.current,clocks.max.sm"
        about |= {"device": torch.cuda.get_device_name(0), "pytorch": torch.__version__, "cuda": torch.version.cuda,
                  "nvidia_smi": said("nvidia-smi", query, "--format=csv,noheader")}
    return about


def flat(found, path=""):
    """Yields the figures of a result, each with its path."""
    if not isinstance(found, dict):
        yield path, found
        return
    for key, value in found.items():
        yield from flat(value, f"{path} {key}".strip())


def table(results):
    lines = ["| " + " | ".join(str(v) for v in results["setup"].values()) + " |", ""]
    for name, found in results["experiments"].items():
        lines += [f"## {name}", "", "| figure | value |", "|---|---|"]
        for path, value in flat(found):
            lines.append(f"| {path} | {value:.4g} |" if isinstance(value, float) else f"| {path} | {value} |")
        lines.append("")
    return "\n".join(lines)


def attempt(what, *arguments):
    """Returns the result of a call, or the reason if it failed, and whether it failed."""
    try:
        return what(*arguments), False
    except Exception as e:  # any exception: time on a GPU is scarce, and the results of the other experiments must not be lost
        traceback.print_exc()
        return {"failed": f"{type(e).__name__}: {e}"}, True


def run(arguments, chosen):
    """Runs the experiments one after another and returns their results and whether any failed. Results are never lost: they are written
    after each experiment, and if one fails, the reason takes the place of its result and the others are still run. The agent's log is
    kept beside the results."""
    results, failures = {"setup": setup(arguments), "took_s": {}, "experiments": {}}, 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gl") as folder:  # a short name, because the path of a socket in it is limited to 107 bytes
        m = machine.Machine(arguments, folder)
        try:
            started, failed = attempt(m.start)
            if failed:
                results["setup"]["start"], failures = started, 1
            else:
                results["setup"]["enforcement"], failures = attempt(status, m)
                m.end_programs()
                for experiment in chosen:
                    print(experiment.__name__, "...", file=sys.stderr, flush=True)
                    since = time.monotonic()
                    results["experiments"][experiment.__name__], failed = attempt(experiment, m, arguments.seconds)
                    results["took_s"][experiment.__name__] = time.monotonic() - since
                    failures += failed
                    m.end_programs()
                    if m.agent.poll() is not None:  # ended by a failed experiment
                        failures += attempt(m.start)[1]
                    write(arguments.out, results)
        finally:
            m.stop()
            shutil.copy(pathlib.Path(folder) / "agent.log", arguments.out)
    write(arguments.out, results)
    return results, failures > 0


def write(folder, results):
    device = re.sub(r"\W+", "-", results["setup"]["device"]).strip("-")
    name = folder / f"{device}-{results['setup']['date']}"
    name.with_suffix(".json").write_text(json.dumps(results, indent=2) + "\n")
    name.with_suffix(".md").write_text(table(results))


def status(m):
    """Returns what the agent reports about a share on this machine."""
    program = m.shared(m.command("count", "convolution", 1), 50, 50)
    program.line()
    found = m.status()["runs"][0]["enforcement"]
    program.process.stdin.close()
    program.process.wait()
    return found


def main():
    names = [e.__name__ for e in ALL]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "bin", help="folder with gshare, gshare-node and, for --dry-run, gshare-model")
    parser.add_argument("--hook", type=pathlib.Path, default=ROOT / "bin" / "hook" / "libgshare.so", help="the hook")
    parser.add_argument("--fake", type=pathlib.Path, default=ROOT / "bin" / "fake", help="folder of the fake driver, for --dry-run")
    parser.add_argument("--fake-mps", type=pathlib.Path, help="control program of the fake MPS (default: that of the fake driver; r615 has MPS v3)")
    parser.add_argument("--seconds", type=float, default=10, help="length of each run (default 10)")
    parser.add_argument("--only", default=",".join(names), help="experiments, by name (default: all)")
    parser.add_argument("--pods", type=lambda text: [int(n) for n in text.split(",")], default=list(range(1, 10)), help="numbers of pods for packing (default 1 to 9)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "test" / "gpu" / "results", help="folder for the results")
    parser.add_argument("--dry-run", action="store_true", help="on the fake driver, to try this program")
    arguments = parser.parse_args()
    unknown = set(arguments.only.split(",")) - set(names)
    if unknown:
        parser.error(f"--only: {', '.join(sorted(unknown))}: there are {', '.join(names)}")
    why = "" if arguments.dry_run else missing()
    if why:
        print("SKIP test/gpu:", why)
        return 0
    chosen = {e.__name__: e for e in ALL}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no program and no daemon stays on the GPU
    results, failed = run(arguments, [chosen[name] for name in arguments.only.split(",")])
    print(table(results))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
