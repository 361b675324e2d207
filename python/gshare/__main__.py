"""python -m gshare build measures a function and writes its build file, python -m gshare spec converts a build file to spec.pipeline of a
GPUFunction, python -m gshare serve serves a function, and python -m gshare stage runs one of its stages in a container of its own."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import Any, Callable, List, Optional

from . import Error, GraphError
from .call import load_class
from .measure import build
from .serve import Server
from .spec import CONTEXT_MIB, spec
from .stage import attached
from .start import parse_stages, run

GRACE = 25  # seconds after SIGTERM for requests in progress


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs the command line and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m gshare", description="Functions as pipelines over slices of GPUs.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("build", help="measure a function's nodes and write its build file")
    command.add_argument("function", help="file.py:Class or module:Class, beside a function example(batch) that returns inputs")
    command.add_argument("-o", "--output", required=True, help="the build file; what it has of other kinds of slices stays")
    command.add_argument("--kind", default="cpu", help="of the slice on which this runs, such as 1g.10gb (default %(default)s)")
    command.add_argument("--batch", type=_batches, default=[1], metavar="N,N", help="numbers of items, such as 1,2,4 (default 1)")
    command.add_argument("--repeats", type=int, default=5, help="of each measurement, of which the median counts (default %(default)s)")
    command.set_defaults(run=_build)
    command = commands.add_parser("spec", help="print spec.pipeline of a GPUFunction from a build file")
    command.add_argument("file", help="that build has written, on MIG instances, with their profiles as --kind")
    command.add_argument("--batch", type=int, default=1, help="items of a request (default %(default)s)")
    command.add_argument("--context", type=int, default=CONTEXT_MIB, help="MiB of each stage beside what was measured (default %(default)s)")
    command.set_defaults(run=_spec)
    command = commands.add_parser("serve", help="serve a function by the Open Inference Protocol, until SIGTERM")
    command.add_argument("function", help="file.py:Class or module:Class")
    command.add_argument("--stages", help="a file of stages that gshare-lab cut has written (default: whole, in this process)")
    command.add_argument("--attach", metavar="FOLDER", help="the stages are containers of their own, which attach in this folder that all mount")
    command.add_argument("--here", metavar="NAME", help="the stage that runs in this container, beside the head (default: none does)")
    command.add_argument("--start-timeout", type=float, default=120, help="seconds until all stages are ready (default %(default)s)")
    command.add_argument("--name", help="of the model (default: that of the class in lower case)")
    command.add_argument("--host", default="", help="address to listen at (default: all)")
    command.add_argument("--port", type=int, default=os.environ.get("PORT", "8080"), help="(default: PORT of the environment, or 8080)")
    command.add_argument("--timeout", type=float, help="of a request in seconds (default: none, or that of the client)")
    command.set_defaults(run=_serve)
    command = commands.add_parser("stage", help="run one stage of a function that serve --attach serves in another container")
    command.add_argument("name", help="of the stage: its slice in the file of stages")
    command.add_argument("--attach", metavar="FOLDER", required=True, help="the folder of serve --attach")
    command.add_argument("--start-timeout", type=float, default=120, help="seconds until there is a head (default %(default)s)")
    command.set_defaults(run=_stage)
    parsed = parser.parse_args(arguments)
    try:
        return int(parsed.run(parsed))
    except (Error, ImportError, ValueError, OSError) as e:
        print(f"gshare: {e}", file=sys.stderr)
        return 1


def _batches(text: str) -> List[int]:
    if not all(b.isdecimal() for b in text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} are not whole numbers such as 1,2,4")
    return [int(b) for b in text.split(",")]


def _build(parsed: argparse.Namespace) -> int:
    kind = load_class(parsed.function)
    example: Optional[Callable[[int], object]] = getattr(sys.modules[kind.__module__], "example", None)
    if example is None:
        raise GraphError(f"{parsed.function.rpartition(':')[0]} has no function example(batch)")
    built = build(kind, example, parsed.output, parsed.kind, parsed.batch, parsed.repeats)
    for node in built["nodes"]:
        times = ", ".join(f"{t['nanoseconds'] / 1e6:.3f} ms at {t['batch']}" for t in node["times"][parsed.kind])
        print(f"{node['name']}: {node['memoryBytes']} bytes, {times}, gives {node['gives']}")
    return 0


def _spec(parsed: argparse.Namespace) -> int:
    print(spec(parsed.file, parsed.batch, parsed.context), end="")
    return 0


def _serve(parsed: argparse.Namespace) -> int:
    folder, name, text = (os.environ.get(v) for v in ("GSHARE_ATTACH", "GSHARE_STAGE", "GSHARE_STAGES"))
    if folder and name and not text:  # one stage of a replica that gshare-controller has cut into stages
        return _run_stage(folder, name, parsed.start_timeout)
    kind = load_class(parsed.function)
    stages, devices = parse_stages(text, "GSHARE_STAGES") if text else (parsed.stages, None)
    runner = run(
        kind, stages, devices, start_timeout=parsed.start_timeout, attach=parsed.attach or folder or None, here=parsed.here or name or None,
    )
    try:
        server = Server((parsed.host, parsed.port), runner, parsed.name or kind.__name__.lower(), kind().graph().inputs, parsed.timeout)

        def end(*_: Any) -> None:
            server.drain()

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        print(f"serving {server.name} at port {server.server_address[1]}", flush=True)
        server.serve_forever(poll_interval=0.1)
        server.finish(GRACE)
    finally:
        runner.close()
    if server.lost is not None:
        raise server.lost
    return 0


def _stage(parsed: argparse.Namespace) -> int:
    return _run_stage(parsed.attach, parsed.name, parsed.start_timeout)


def _run_stage(folder: str, name: str, start_timeout: float) -> int:
    status = attached(folder, name, start_timeout)
    sys.stdout.flush()
    os._exit(status)  # does not wait for threads of the components


if __name__ == "__main__":
    sys.exit(main())
