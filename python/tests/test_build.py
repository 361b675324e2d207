"""What build measures and writes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
import time
import unittest
import unittest.mock
from typing import Any, List, Tuple

import gshare
from gshare.__main__ import main

from . import functions


class Heavy:
    """Has a million bytes, and takes 2 ms an item."""

    def __init__(self) -> None:
        self.weights = bytearray(1_000_000)

    def __call__(self, items: List[int]) -> List[int]:
        time.sleep(0.002 * len(items))
        return items


class Light:
    def __call__(self, items: List[int]) -> bytes:
        return bytes(600_000)


class Measured(gshare.Pipeline):
    def define(self, items: gshare.Symbol) -> gshare.Symbol:
        return self.reg(Light)(self.reg(Heavy, chance=0.25)(items))


def example(batch: int) -> List[int]:
    return [0] * batch


class TestSpec(unittest.TestCase):
    def spec(self, content: Any, *options: str) -> Tuple[int, str, str]:
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "build.json")
            with open(file, "w", encoding="utf-8") as f:
                json.dump(content, f)
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
                status = main(["spec", file, *options])
        return status, out.getvalue(), err.getvalue()

    def test_a_file_of_weights_is_not_printed(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "model.safetensors")
            with open(file, "wb") as f:
                f.write(b"\xff" * 100_000)
            with contextlib.redirect_stderr(io.StringIO()) as err:
                status = main(["spec", file])
        self.assertEqual(status, 1)
        self.assertIn("is not a build file", err.getvalue())
        self.assertLess(len(err.getvalue()), 500)

    def built(self) -> Any:
        at = [{"batch": 1, "nanoseconds": 1_000_001}, {"batch": 4, "nanoseconds": 3_000_000}]
        nodes = [
            {"name": "first", "memoryBytes": (1 << 20) + 1, "times": {"cpu": at, "1g.10gb": at, "3g.40gb": at[:1]}},
            {"name": "no", "after": ["first"], "memoryBytes": 1, "times": {"1g.10gb": at}},
        ]
        return {"version": 1, "function": "f", "inputs": ["x"], "transferNanoseconds": 0, "nodes": nodes}

    def test_writes(self) -> None:
        want = """  pipeline:
    transfer: 1us
    stages:
    - name: "first"
      memory: 302Mi
      times: [{profile: 1g.10gb, time: 1001us}, {profile: 3g.40gb, time: 1001us}]
    - name: "no"
      dependsOn: ["first"]
      memory: 301Mi
      times: [{profile: 1g.10gb, time: 1001us}]
"""
        self.assertEqual(self.spec(self.built()), (0, want, ""))
        four = self.spec(self.built(), "--batch", "4", "--context", "0")[1]
        self.assertIn("memory: 2Mi\n      times: [{profile: 1g.10gb, time: 3000us}]\n", four)

    def test_refuses(self) -> None:
        cpu = self.built()
        cpu["nodes"][1]["times"] = {"cpu": [{"batch": 1, "nanoseconds": 1}]}
        later = dict(self.built(), version=2)
        for content, options, why in (
            (cpu, (), "no time of no at a batch of 1 on a MIG instance, only on cpu"), (self.built(), ("--batch", "2"), "no time of first at a batch of 2"),
            (later, (), "has version 2"), ([], (), "is not a build file"), ({"version": 1}, (), "is not a build file"),
        ):
            with self.subTest(why):
                status, out, err = self.spec(content, *options)
                self.assertEqual((status, out), (1, ""))
                self.assertIn(why, err)


class TestBuild(unittest.TestCase):
    def test_measures(self) -> None:
        built = gshare.build(Measured, example, batches=(4, 1), repeats=3, kind="1g.10gb")
        heavy, light = built["nodes"]
        self.assertEqual([n["name"] for n in (heavy, light)], ["heavy", "light"])
        self.assertEqual([t["batch"] for t in heavy["times"]["1g.10gb"]], [1, 4])
        one, four = (t["nanoseconds"] for t in heavy["times"]["1g.10gb"])
        self.assertGreaterEqual(one, 2_000_000)
        self.assertGreaterEqual(four, 8_000_000)
        self.assertGreater(heavy["memoryBytes"], 1_000_000)
        self.assertGreater(light["memoryBytes"], 600_000)
        self.assertLess(light["memoryBytes"], 1_000_000)
        self.assertEqual((heavy["takes"], heavy["gives"], light["gives"]), (["list[1]"], "list[1]", "bytes[600000]"))
        self.assertEqual((heavy["chancePerMille"], light["after"], light.get("chancePerMille")), (250, ["heavy"], None))
        self.assertGreater(light["outputBytes"], 600_000)
        self.assertGreater(built["transferNanoseconds"], 0)

    def test_file(self) -> None:
        """Kinds of slices gather in one file, unless the graph changes."""
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "f.json")
            gshare.build(Measured, example, file, kind="1g.10gb", repeats=1)
            with contextlib.redirect_stdout(io.StringIO()) as out:
                status = main(["build", "tests.test_build:Measured", "-o", file, "--kind", "2g.20gb", "--repeats", "1", "--batch", "1,2"])
            self.assertEqual(status, 0)
            self.assertIn("light: ", out.getvalue())
            self.assertEqual({k: len(t) for k, t in _read(file)["nodes"][1]["times"].items()}, {"1g.10gb": 1, "2g.20gb": 2})
            self.assertEqual(_read(file)["version"], 1)
            gshare.build(functions.Diamond, lambda batch: 1, file, kind="3g.40gb", repeats=1)
            self.assertEqual([list(n["times"]) for n in _read(file)["nodes"]], [["3g.40gb"]] * 4)
            self.assertEqual(os.listdir(folder), ["f.json"])
            with open(file, "w", encoding="utf-8") as f:
                f.write("[]")
            with self.assertRaisesRegex(gshare.GraphError, "is not a build file"):
                gshare.build(functions.Diamond, lambda batch: 1, file, repeats=1)

    def test_refused(self) -> None:
        cases: List[Tuple[Any, Any]] = [((1, 2), {}), (1, {"batches": ()}), (1, {"batches": (0,)}), (1, {"repeats": 0}), (1, {"kind": ""}), (1, {"batches": (1, 1)})]
        for inputs, options in cases:
            with self.subTest(options), self.assertRaises((gshare.GraphError, ValueError)):
                gshare.build(functions.Chain, lambda batch: inputs, **options)
        for arguments in (["tests.functions:Add"], ["tests.functions:Chain"], ["tests.functions"], ["missing.py:X"], ["missing:X"]):
            with contextlib.redirect_stderr(io.StringIO()) as err:
                self.assertEqual(main(["build", *arguments, "-o", "/dev/null"]), 1, arguments)
            self.assertTrue(err.getvalue().startswith("gshare: "), err.getvalue())

    def test_batches_that_are_no_numbers(self) -> None:
        for text in ("x", "1,", "1;2", "-1", "1.5", ""):
            with self.subTest(text), contextlib.redirect_stderr(io.StringIO()) as err, self.assertRaises(SystemExit) as end:
                main(["build", "tests.functions:Chain", "-o", "/dev/null", "--batch", text])
            self.assertEqual(end.exception.code, 2)
            self.assertIn("argument --batch", err.getvalue())
            self.assertIn("are not whole numbers such as 1,2,4", err.getvalue())

    def test_port_of_the_environment(self) -> None:
        with unittest.mock.patch.dict("os.environ", PORT="http"), contextlib.redirect_stderr(io.StringIO()) as err, self.assertRaises(SystemExit):
            main(["serve", "tests.functions:Chain"])
        self.assertIn("--port", err.getvalue())


def _read(file: str) -> Any:
    with open(file, encoding="utf-8") as f:
        return json.load(f)
