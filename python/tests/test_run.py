"""Functions whole and as stages: order, back-pressure, deadlines, errors, and processes that are killed."""

from __future__ import annotations

import concurrent.futures
import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any, List, Optional

import gshare
from gshare.staged import Staged

from . import functions

LONG = 60  # seconds that nothing here takes


def staged(function: Any, *stages: List[str], devices: Optional[List[str]] = None, **options: Any) -> Staged:
    runner = gshare.run(function, stages, devices, **options)
    assert isinstance(runner, Staged)
    return runner


class TestRun(unittest.TestCase):
    def test_same_results(self) -> None:
        with gshare.run(functions.Diamond) as whole:
            want = [whole(x) for x in range(3)]
        self.assertEqual(want[2], {"join": [13, 23, 2], "left": 13, "input": 2})
        for stages in ([["first", "left", "right", "join"]], [["first"], ["left"], ["right"], ["join"]], [["join"], ["right", "first"], ["left"]]):
            with self.subTest(stages), staged(functions.Diamond, *stages) as runner:
                self.assertEqual([runner(x, timeout=LONG) for x in range(3)], want)
                self.assertEqual(len(set(runner.pids)), len(stages))

    def test_order_and_overlap(self) -> None:
        """Stages work at the same time, and results come in the order of the requests."""
        with staged(functions.Chain, ["first"], ["second"], ["third"]) as runner:
            futures = [runner.submit(x, timeout=LONG) for x in range(200)]
            done: List[int] = []
            for x, future in enumerate(futures):
                future.add_done_callback(lambda f: done.append(f.result()))
            self.assertEqual([f.result(LONG) for f in futures], [x + 111 for x in range(200)])
            runner.close()
            self.assertEqual(done, sorted(done))

    def test_threads(self) -> None:
        with staged(functions.Chain, ["first"], ["second", "third"]) as runner:
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                self.assertEqual(list(pool.map(functools.partial(runner, timeout=LONG), range(100))), [x + 111 for x in range(100)])

    def test_back_pressure(self) -> None:
        """A pipeline whose stages are busy takes no more requests than it has slots."""
        with staged(functions.Slow, ["first"], ["second"], slots=1) as runner:
            futures = [runner.submit({"sleep": 0.5}, timeout=LONG)]
            with self.assertRaisesRegex(gshare.DeadlineExceeded, "was full"):
                for _ in range(10):
                    futures.append(runner.submit({}, timeout=0.05))
            self.assertLessEqual(len(futures), 3)
            for future in futures[:1]:
                future.result(LONG)
            self.assertEqual(runner({"again": 1}, timeout=LONG), {"again": 1})

    def test_deadline(self) -> None:
        with staged(functions.Slow, ["first"], ["second"]) as runner:
            with self.assertRaises(gshare.DeadlineExceeded):
                runner({"sleep": 0.3}, timeout=0.05)
            late = runner.submit({"sleep": 0.2}, timeout=0.1)
            with self.assertRaisesRegex(gshare.DeadlineExceeded, "before node (first|second)"):
                late.result(LONG)
            self.assertEqual(runner({}, timeout=LONG), {})
        with gshare.run(functions.Slow) as whole, self.assertRaisesRegex(gshare.DeadlineExceeded, "before node second"):
            whole({"sleep": 2}, timeout=1)

    def test_errors(self) -> None:
        """An error is that of its request alone."""
        for runner in (gshare.run(functions.Faulty), staged(functions.Faulty, ["first"], ["fault"], ["last"])):
            with runner:
                with self.assertRaises(gshare.NodeError) as raised:
                    runner({"fault": "raise"}, timeout=LONG)
                self.assertEqual((raised.exception.node, raised.exception.kind, raised.exception.text), ("fault", "ValueError", "no such request"))
                self.assertEqual(runner({"x": 1}, timeout=LONG), {"x": 1})

    def test_missing_items(self) -> None:
        """An item that is not there is the request's error, not the stage's."""
        for runner in (gshare.run(functions.Item), staged(functions.Item, ["first"], ["second"])):
            with runner:
                for request, node in (({}, "second"), ({"a": {}}, "output")):
                    with self.subTest(request), self.assertRaises(gshare.NodeError) as raised:
                        runner(request, timeout=LONG)
                    self.assertEqual((raised.exception.node, raised.exception.kind), (node, "KeyError"))
                self.assertEqual(runner({"a": {"b": 1}}, timeout=LONG), 1)

    def test_cancel(self) -> None:
        """A request that is in the pipeline cannot be cancelled."""
        with staged(functions.Slow, ["first", "second"]) as runner:
            future = runner.submit({"sleep": 0.1}, timeout=LONG)
            self.assertFalse(future.cancel())
            self.assertEqual(future.result(LONG), {"sleep": 0.1})

    def test_not_transferable(self) -> None:
        with staged(functions.Faulty, ["first"], ["fault"], ["last"], slot_bytes=65536) as runner:
            for request in ({"fault": "large", "bytes": 65536}, {"fault": "unknown"}):
                with self.subTest(request), self.assertRaisesRegex(gshare.NodeError, "node fault: NotTransferable"):
                    runner(request, timeout=LONG)
            with self.assertRaises(gshare.NotTransferable):
                runner({"input": bytes(65536)}, timeout=LONG)
            with self.assertRaisesRegex(TypeError, "takes request"):
                runner(1, 2)
            self.assertEqual(runner({"fault": "large", "bytes": 60000}, timeout=LONG), {"large": bytes(60000)})

    def test_killed(self) -> None:
        """A stage that ends fails all requests at once and those to come, and is named."""
        for fault, text in (("kill", r"stage \['fault'\] was killed by signal 9"), ("exit", r"stage \['fault'\] ended with status 7")):
            with self.subTest(fault), staged(functions.Faulty, ["first"], ["fault"], ["last"]) as runner:
                pids = runner.pids
                self.assertEqual(runner({}, timeout=LONG), {})
                for future in [runner.submit(r, timeout=LONG) for r in ({"sleep": 0.1, "fault": fault}, {})]:
                    with self.assertRaisesRegex(gshare.StageLost, text):
                        future.result(LONG)
                with self.assertRaisesRegex(gshare.StageLost, text):
                    runner({}, timeout=LONG)
                runner.close()
                for pid in pids:
                    self.assertFalse(os.path.exists(f"/proc/{pid}"))

    def test_killed_idle(self) -> None:
        with staged(functions.Chain, ["first"], ["second"], ["third"]) as runner:
            os.kill(runner.pids[1], signal.SIGKILL)
            with self.assertRaisesRegex(gshare.StageLost, "signal 9"):
                while True:
                    runner(1, timeout=LONG)

    def test_caller_killed(self) -> None:
        """Stages end with whoever started them."""
        program = (
            "import sys, time, gshare\nfrom tests import functions\n"
            "runner = gshare.run(functions.Chain, [['first'], ['second', 'third']])\nprint(*runner.pids, flush=True)\ntime.sleep(60)\n"
        )
        caller = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
        assert caller.stdout is not None
        pids = [int(p) for p in caller.stdout.readline().split()]
        self.assertEqual(len(pids), 2)
        caller.kill()
        caller.wait()
        caller.stdout.close()
        until = time.monotonic() + LONG
        while any(_runs(pid) for pid in pids):
            self.assertLess(time.monotonic(), until, f"{pids} still run")
            time.sleep(0.01)

    def test_devices(self) -> None:
        """Each stage is a process that sees its own device, from its start on."""
        with staged(functions.Places, ["a"], ["b"], devices=["MIG-a", "MIG-b"]) as runner:
            last = runner(5, timeout=LONG)
            first = last["seen"][0]
            self.assertEqual([first["device"], last["device"], first["seen"]], ["MIG-a", "MIG-b", (5,)])
            self.assertEqual([first["pid"], last["pid"]], runner.pids)

    def test_file_of_stages(self) -> None:
        """As the planner writes it: stages of one or more segments, each a process on a slice of its own."""
        good = (
            '{"version": 1, "function": "diamond", "stages": [[{"nodes": ["first"], "slice": "MIG-a"}],'
            ' [{"nodes": ["left"], "slice": "MIG-b"}, {"nodes": ["right"], "slice": "MIG-c"}], [{"nodes": ["join"], "slice": "MIG-d"}]]}'
        )
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "stages.json")
            for content, text in (
                (good.replace("1,", "2,", 1), "has version 2"), ("[]", "is not a file"), ("{", "is not a file"), (good.replace('"MIG-a"', "1"), "have names"),
                (good.replace('"left"', '"lift"'), "unknown"),
            ):
                with open(file, "w", encoding="utf-8") as f:
                    f.write(content)
                with self.subTest(text), self.assertRaisesRegex(gshare.GraphError, text):
                    gshare.run(functions.Diamond, file)
            with open(file, "w", encoding="utf-8") as f:
                f.write(good)
            with gshare.run(functions.Diamond, file) as runner:
                self.assertEqual(runner(2, timeout=LONG)["join"], [13, 23, 2])
            with self.assertRaisesRegex(gshare.GraphError, "pass no others"):
                gshare.run(functions.Diamond, file, ["MIG-a"])

    def test_start_fails(self) -> None:
        with self.assertRaisesRegex(gshare.StageLost, r"stage \['unloadable'\] did not start: RuntimeError: no weights"):
            staged(functions.Broken, ["add"], ["unloadable"])
        with self.assertRaisesRegex(gshare.GraphError, "local to a function"):

            class Local(functions.Chain):
                pass

            staged(Local, ["first", "second", "third"])
        with self.assertRaisesRegex(gshare.GraphError, "1 devices for 2 stages"):
            staged(functions.Places, ["a"], ["b"], devices=["MIG-a"])

    def test_evict(self) -> None:
        for runner in (gshare.run(functions.Evicted), staged(functions.Evicted, ["count"])):
            with runner:
                self.assertEqual(runner(1, timeout=LONG), [1, ["load"]])
                runner.evict()
                self.assertEqual(runner(2, timeout=LONG), [2, ["load", "evict", "load"]])

    def test_close(self) -> None:
        """close completes what is in the pipeline, ends the processes, and leaves no descriptors behind."""
        with staged(functions.Chain, ["first"], ["second"], ["third"]):
            pass  # what Python itself opens once
        before = len(os.listdir("/proc/self/fd"))
        runner = staged(functions.Slow, ["first"], ["second"])
        future = runner.submit({"sleep": 0.1}, timeout=LONG)
        pids = runner.pids
        runner.close()
        self.assertEqual(future.result(0), {"sleep": 0.1})
        self.assertFalse([p for p in pids if os.path.exists(f"/proc/{p}")])
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)
        for closed in (runner, gshare.run(functions.Chain)):
            closed.close()
            with self.assertRaises(gshare.Closed):
                closed(1, timeout=LONG)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
