"""The examples say the same as their plain versions, from which at most ten lines differ."""

from __future__ import annotations

import ctypes
import difflib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples")
MOST_LINES = 10


def changed_lines(before: str, after: str) -> int:
    """Returns how many lines one has to add, remove or change. Empty lines do not count."""
    old, new = ([line for line in text.splitlines() if line.strip()] for text in (before, after))
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in blocks if tag != "equal")


def _read(name: str) -> str:
    with open(os.path.join(FOLDER, name), encoding="utf-8") as f:
        return f.read()


def _output(*arguments: str) -> str:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([os.path.dirname(FOLDER), *sys.path]))
    return subprocess.run([sys.executable, *arguments], env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout


def _has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


class TestExamples(unittest.TestCase):
    def test_changed_lines(self) -> None:
        for name in ("words", "images", "rows"):
            with self.subTest(name):
                changed = changed_lines(_read(f"{name}_plain.py"), _read(f"{name}_stages.py"))
                self.assertLessEqual(changed, MOST_LINES)
                self.assertGreater(changed, 4)  # else it is not the pipeline that is compared
        self.assertEqual(changed_lines("a\nb\nc", "a\n\nx\ny\nc\nd"), 3)

    def test_words(self) -> None:
        self._same("words", "['share', 'gpu', 'slice']\n")

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs PyTorch")
    def test_images(self) -> None:
        self._same("images", None)

    @unittest.skipUnless(_has_driver(), "needs CUDA's driver")
    def test_rows(self) -> None:
        self._same("rows", "{'brightness': 83.33, 'ran': ['', '', '']}\n" if "CUDA_VISIBLE_DEVICES" not in os.environ else None)

        program = (
            "import concurrent.futures, sys, gshare\n"
            "with gshare.run(sys.argv[1]) as rows, concurrent.futures.ThreadPoolExecutor(1) as other:\n"
            "    print(other.submit(rows, [0.0, 1.0, 1.0]).result()['brightness'])"
        )
        self.assertEqual(_output("-c", program, os.path.join(FOLDER, "rows_stages.py:Rows")), "87.5\n")  # a context is that of a thread

    def _same(self, name: str, want: "str | None") -> None:
        plain = _output(os.path.join(FOLDER, f"{name}_plain.py"))
        self.assertEqual(_output(os.path.join(FOLDER, f"{name}_stages.py")), plain)
        self.assertGreater(len(plain), 10)
        if want is not None:
            self.assertEqual(plain, want)
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "build.json")
            _output("-m", "gshare", "build", os.path.join(FOLDER, f"{name}_stages.py:{name.capitalize()}"), "-o", file, "--batch", "1,4")
            with open(file, encoding="utf-8") as f:
                built = json.load(f)
        self.assertEqual(len(built["nodes"]), 3)
        self.assertEqual([t["batch"] for t in built["nodes"][2]["times"]["cpu"]], [1, 4])
