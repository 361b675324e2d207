"""The Open Inference Protocol before a function."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from typing import Any, Dict, List, Optional, Tuple

import gshare
from gshare import inference
from gshare.serve import Server

from . import functions

LONG = 60


def tensor(name: str, datatype: str, shape: List[int], data: Any) -> Dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


class TestInference(unittest.TestCase):
    def test_inputs(self) -> None:
        request = {"inputs": [tensor("b", "BYTES", [2], ["x", "y"]), tensor("a", "BYTES", [2, 1], [["p"], ["q"]])]}
        self.assertEqual(inference.inputs(request, ["a", "b"]), [[["p"], ["q"]], ["x", "y"]])
        self.assertEqual(inference.inputs({"inputs": [tensor("a", "BYTES", [], ["x"])]}, ["a"]), ["x"])

    def test_inputs_refused(self) -> None:
        requests: List[Any] = [
            None, {}, {"inputs": [1]}, {"inputs": []}, {"inputs": [tensor("b", "FP32", [1], [1])]}, {"inputs": [tensor("a", "FP32", [1], [1])] * 2},
            {"inputs": [tensor("a", "FP32", [2], [1])]}, {"inputs": [tensor("a", "FP32", [-1], [1])]}, {"inputs": [tensor("a", "FP32", [1], ["x"])]},
            {"inputs": [tensor("a", "BYTES", [1], [1])]}, {"inputs": [tensor("a", "X", [1], [1])]}, {"inputs": [tensor("a", "FP32", [1], 1)]},
            {"inputs": [tensor("a", "FP32", [2], [[1], 2])]},
        ]
        for request in requests:
            with self.subTest(request), self.assertRaises(gshare.NotTransferable):
                inference.inputs(request, ["a"])

    def test_outputs(self) -> None:
        self.assertEqual(inference.outputs({"a": [[1, 2], [3, 4]], "b": "x", "c": [0.5, 1], "d": True, "e": []}), [
            tensor("a", "INT64", [2, 2], [1, 2, 3, 4]), tensor("b", "BYTES", [1], ["x"]), tensor("c", "FP64", [2], [0.5, 1]), tensor("d", "BOOL", [1], [True]),
            tensor("e", "BOOL", [0], []),
        ])
        self.assertEqual(inference.outputs(3), [tensor("output", "INT64", [1], [3])])
        for bad in (None, object(), [[1], [2, 3]], [[1], 2], [1, "x"], b"x"):
            with self.subTest(bad), self.assertRaises(gshare.NotTransferable):
                inference.outputs(bad)

    def test_torch(self) -> None:
        try:
            import torch
        except ImportError:
            self.skipTest("needs PyTorch")
        (got,) = inference.inputs({"inputs": [tensor("a", "FP32", [1, 2], [1, 2.5])]}, ["a"])
        self.assertTrue(torch.equal(got, torch.tensor([[1, 2.5]])))
        self.assertEqual(inference.outputs(got), [tensor("output", "FP32", [1, 2], [1, 2.5])])


class TestServer(unittest.TestCase):
    def setUp(self) -> None:
        self.runner: gshare.Runner = gshare.run(functions.Served)
        self.server = Server(("127.0.0.1", 0), self.runner, "served", ["text", "count"], LONG)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def tearDown(self) -> None:
        self.server.drain()
        self.thread.join()
        self.server.finish(LONG)
        self.runner.close()

    def ask(self, method: str, path: str, body: Any = None, headers: Optional[Dict[str, str]] = None) -> Tuple[int, Any]:
        return ask(self.server.server_address[1], method, path, body, headers)

    def infer(self, text: str, headers: Optional[Dict[str, str]] = None) -> Tuple[int, Any]:
        body = {"id": "7", "inputs": [tensor("count", "INT64", [1], [2]), tensor("text", "BYTES", [1], [text])]}
        return self.ask("POST", "/v2/models/served/infer", body, headers)

    def test_infer(self) -> None:
        want = {"id": "7", "model_name": "served", "outputs": [tensor("output", "BYTES", [2], ["ab", "ab"])]}
        self.assertEqual(self.infer("ab"), (200, want))

    def test_errors(self) -> None:
        self.assertEqual(self.infer("raise"), (500, {"error": "node repeat: ValueError: no such text"}))
        self.assertEqual(self.infer("sleep", {"X-Envoy-Expected-Rq-Timeout-Ms": "50"})[0], 504)
        self.assertEqual(self.infer("none")[0], 500)
        self.assertEqual(self.ask("POST", "/v2/models/served/infer", {"inputs": []})[0], 400)
        self.assertEqual(self.ask("POST", "/v2/models/other/infer", {"inputs": []})[0], 404)
        self.assertEqual(self.ask("POST", "/v2/models/served/infer", None, {"Content-Length": "x"})[0], 411)
        self.assertEqual(self.ask("POST", "/v2/models/served/infer", None, {"Content-Length": str(1 << 40)})[0], 413)

    def test_get(self) -> None:
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/served/ready", "/v2"):
            self.assertEqual(self.ask("GET", path)[0], 200, path)
        self.assertEqual([t["name"] for t in self.ask("GET", "/v2/models/served")[1]["inputs"]], ["text", "count"])
        self.assertEqual(self.ask("GET", "/v2/models/other")[0], 404)


class TestCommand(unittest.TestCase):
    """The command with stages, as a container runs it."""

    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        stages = os.path.join(self.folder.name, "stages.json")
        with open(stages, "w", encoding="utf-8") as f:
            laid = [[{"nodes": ["repeat"], "slice": "MIG-a"}], [{"nodes": ["same"], "slice": "MIG-b"}]]
            json.dump({"version": 1, "function": "served", "stages": laid}, f)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gshare", "serve", "tests.functions:Served", "--stages", stages, "--port", "0", "--host", "127.0.0.1"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().rpartition(" ")[2])

    def tearDown(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.folder.cleanup()

    def infer(self, text: str) -> Tuple[int, Any]:
        body = {"inputs": [tensor("count", "INT64", [1], [1]), tensor("text", "BYTES", [1], [text])]}
        return ask(self.port, "POST", "/v2/models/served/infer", body)

    def test_terminated(self) -> None:
        """What was begun when SIGTERM comes is answered."""
        answers: List[Tuple[int, Any]] = []
        asking = threading.Thread(target=lambda: answers.append(self.infer("sleep")))
        self.assertEqual(self.infer("x")[0], 200)
        asking.start()
        assert self.process.stdout is not None
        self.assertEqual(self.process.stdout.readline(), "begun\n")
        self.process.send_signal(signal.SIGTERM)
        asking.join()
        self.assertEqual([status for status, _ in answers], [200])
        self.assertEqual(self.process.wait(LONG), 0)

    def test_lost(self) -> None:
        """A server whose stage was killed ends, so that its container starts again."""
        self.assertEqual(self.infer("kill")[0], 503)
        self.assertEqual(self.process.wait(LONG), 1)


def ask(port: int, method: str, path: str, body: Any = None, headers: Optional[Dict[str, str]] = None) -> Tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers or {})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()
