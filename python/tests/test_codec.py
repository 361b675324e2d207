"""Values between stages."""

from __future__ import annotations

import math
import random
import unittest
from typing import Any, List

import gshare
from gshare import codec


def passed(value: Any) -> Any:
    memory = memoryview(bytearray(1 << 16))
    length = codec.encode_into(memory, value)
    assert length == codec.size(value)
    return codec.decode(memory[:length])


class TestCodec(unittest.TestCase):
    def test_values(self) -> None:
        values: List[Any] = [
            None, True, -(1 << 70), 0.1, math.inf, "ä\0", b"", b"\0" * 100, [], (), {}, [1, (2, [3.5, None])], {"a": b"1", "b": [b"22", b"333"]},
            ["list", "dict", ["torch"]], {"dict": ["bytes", 3]},
        ]
        for value in values:
            with self.subTest(value=value):
                self.assertEqual(passed(value), value)
                self.assertIs(type(passed(value)), type(value))
        self.assertTrue(math.isnan(passed(math.nan)))
        self.assertEqual(passed(bytearray(b"abc")), b"abc")

    def test_refused(self) -> None:
        deep: Any = []
        for _ in range(50):
            deep = [deep]
        for value in [object(), {1: 2}, {1, 2}, 1j, 10**5000, deep, bytes(1 << 16)]:
            with self.subTest(type(value)), self.assertRaises(gshare.NotTransferable):
                passed(value)

    def test_any_bytes(self) -> None:
        """Whatever the bytes are, they are a value or refused."""
        good = memoryview(bytearray(4096))
        length = codec.encode_into(good, {"a": [1, b"xyz", ("b", b"1" * 70)], "t": 2.5})
        chance = random.Random(1)
        refused = 0
        for _ in range(3000):
            bad = bytearray(good[:length])
            for _ in range(chance.randint(1, 4)):
                bad[chance.randrange(len(bad))] = chance.randrange(256)
            try:
                codec.decode(memoryview(bad[: chance.randint(0, length)]))
            except gshare.NotTransferable:
                refused += 1
        self.assertGreater(refused, 100)

    def test_numpy(self) -> None:
        try:
            import numpy
        except ImportError:
            self.skipTest("needs NumPy")
        arrays: List[Any] = [numpy.arange(6, dtype="<i2").reshape(2, 3).T, numpy.zeros((0, 4)), numpy.float32(1.5)]
        for array in arrays:
            numpy.testing.assert_array_equal(passed({"a": array})["a"], array)
        with self.assertRaises(gshare.NotTransferable):
            passed(numpy.array([object()]))

    def test_torch(self) -> None:
        try:
            import torch
        except ImportError:
            self.skipTest("needs PyTorch")
        for tensor in [torch.arange(6).reshape(2, 3).t(), torch.zeros(0, 4), torch.tensor(True), torch.randn(5).to(torch.bfloat16)]:
            got = passed([tensor])[0]
            self.assertTrue(torch.equal(got, tensor) and got.dtype == tensor.dtype)
        with self.assertRaises(gshare.NotTransferable):
            passed(torch.eye(3).to_sparse())
