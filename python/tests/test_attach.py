"""Stages that attach, as containers of a pod do: they share a folder with the head, and nothing else."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from typing import Any, Dict, List, Tuple

import gshare
from gshare import control as says

from . import functions

LONG = 60
STAGES = [["first"], ["second", "third"]]
NAMES = ["encoder", "decoder"]


class TestAttach(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.started: List["subprocess.Popen[str]"] = []
        self.addCleanup(self.end)

    def end(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    def stage(self, name: str, *options: str) -> "subprocess.Popen[str]":
        """Starts a stage as its container does, with a device of its own."""
        process = subprocess.Popen(
            [sys.executable, "-m", "gshare", "stage", name, "--attach", self.folder, *options],
            env=dict(os.environ, CUDA_VISIBLE_DEVICES="MIG-" + name), stderr=subprocess.PIPE, text=True,
        )
        self.started.append(process)
        return process

    def head(self, start_timeout: float = LONG) -> gshare.Runner:
        return gshare.run(functions.Chain, STAGES, NAMES, attach=self.folder, start_timeout=start_timeout)

    def test_same_results(self) -> None:
        stages = [self.stage(name) for name in NAMES]  # before there is a head
        with self.head() as runner:
            futures = [runner.submit(x, timeout=LONG) for x in range(100)]
            self.assertEqual([f.result(LONG) for f in futures], [x + 111 for x in range(100)])
            runner.evict()
            self.assertEqual(runner(1, timeout=LONG), 112)
        self.assertEqual([s.wait(LONG) for s in stages], [0, 0])

    def test_own_device(self) -> None:
        for name in NAMES:
            self.stage(name)
        with gshare.run(functions.Places, [["a"], ["b"]], NAMES, attach=self.folder, start_timeout=LONG) as runner:
            got = runner(0, timeout=LONG)
        self.assertEqual([got["seen"][0]["device"], got["device"]], ["MIG-encoder", "MIG-decoder"])

    def test_here(self) -> None:
        """A stage may run beside the head, in a process of its own with the device of this container."""
        self.stage("decoder")
        with gshare.run(functions.Places, [["a"], ["b"]], NAMES, attach=self.folder, here="encoder", start_timeout=LONG) as runner:
            got = runner(0, timeout=LONG)
            self.assertEqual([got["seen"][0]["pid"]], runner.pids)
        self.assertEqual([got["seen"][0]["device"], got["device"]], [os.environ.get("CUDA_VISIBLE_DEVICES"), "MIG-decoder"])

    def test_lost(self) -> None:
        """A stage that is killed is named, the other one ends, and both serve the next head once they were started again."""
        stages: Dict[str, Any] = {name: self.stage(name) for name in NAMES}
        with self.head() as runner:
            self.assertEqual(runner(1, timeout=LONG), 112)
            stages["decoder"].send_signal(signal.SIGKILL)
            with self.assertRaisesRegex(gshare.StageLost, "'second', 'third'.*has ended"):
                for x in range(1000):
                    runner(x, timeout=LONG)
        self.assertIn(stages["encoder"].wait(LONG), (0, says.PEER_GONE))
        for name in NAMES:
            self.stage(name)
        with self.head() as runner:
            self.assertEqual(runner(1, timeout=LONG), 112)

    def test_refused(self) -> None:
        """A stage that the head does not expect says so, and disturbs nobody."""
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            starting = pool.submit(self.head)
            other = self.stage("other")
            self.assertEqual(other.wait(LONG), 1)
            self.assertIn("no stage 'other' is expected, of ['encoder', 'decoder']", str(other.communicate()[1]))
            for name in NAMES:
                self.stage(name)
            with starting.result(LONG) as runner:
                self.assertEqual(runner(1, timeout=LONG), 112)

    def test_missing(self) -> None:
        """Without a stage the head gives up, and a stage that has attached ends, for its container to start it again."""
        with self.assertRaisesRegex(gshare.StageLost, "stage encoder did not attach"):
            self.head(start_timeout=0.1)
        stage = self.stage("encoder")
        with self.assertRaisesRegex(gshare.StageLost, "did not attach"):
            self.head(start_timeout=5)
        stage.send_signal(signal.SIGTERM)  # which it heeds where it waits for a head
        self.assertEqual(stage.wait(LONG), 0, str(stage.communicate()[1]))

    def test_replica(self) -> None:
        """In a pod that gshare-controller has cut, all containers have one command, and know their parts by variables."""
        layout = {"version": 1, "function": "words", "stages": [[{"nodes": ["split"], "slice": "server"}], [{"nodes": ["weigh", "choose"], "slice": "gshare-stage-1"}]]}
        for name, more in (("gshare-stage-1", {}), ("server", {"GSHARE_STAGES": json.dumps(layout)})):
            self.started.append(subprocess.Popen(
                [sys.executable, "-m", "gshare", "serve", "examples/words_stages.py:Words", "--host", "127.0.0.1", "--port", "0"],
                env={**os.environ, "GSHARE_ATTACH": self.folder, "GSHARE_STAGE": name, **more}, stdout=subprocess.PIPE, text=True,
            ))
        stage, server = self.started
        assert server.stdout is not None
        port = int(server.stdout.readline().split()[-1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)
        tensor = {"name": "text", "datatype": "BYTES", "shape": [], "data": ["a share of the share of a GPU"]}
        connection.request("POST", "/v2/models/words/infer", json.dumps({"inputs": [tensor]}))
        answer = json.loads(connection.getresponse().read())
        connection.close()
        self.assertEqual(answer["outputs"][0]["data"], ["share", "gpu", "a"])
        server.send_signal(signal.SIGTERM)
        self.assertEqual([server.wait(LONG), stage.wait(LONG)], [0, 0])

    def test_no_head(self) -> None:
        stage = self.stage("encoder", "--start-timeout", "0.1")
        self.assertEqual(stage.wait(LONG), 1)
        self.assertIn("no head at", str(stage.communicate()[1]))

    def test_arguments(self) -> None:
        cases: List[Tuple[Any, Any]] = [(None, None), (STAGES, None), (STAGES, ["same", "same"])]
        for stages, names in cases:
            with self.subTest(names), self.assertRaises(gshare.GraphError):
                gshare.run(functions.Chain, stages, names, attach=self.folder)
        with self.assertRaisesRegex(gshare.GraphError, "no stage 'other'"):
            gshare.run(functions.Chain, STAGES, NAMES, attach=self.folder, here="other")
