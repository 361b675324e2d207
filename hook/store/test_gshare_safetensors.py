"""Tests of gshare_safetensors without a device: python3 -m unittest test_gshare_safetensors."""

import hashlib
import json
import os
import random
import struct
import tempfile
import unittest

import gshare_safetensors
from gshare_safetensors import FormatError, Tensor, parse_header


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


GOOD = {
    "__metadata__": {"format": "pt"}, "b": tensor("F16", [2, 3], 4, 16), "a": tensor("F32", [], 0, 4), "empty": tensor("I64", [0, 7], 4, 4),
    "c": tensor("BOOL", [1], 16, 17),
}


class TestHeader(unittest.TestCase):
    def test_good(self):
        want = {"b": Tensor("F16", (2, 3), 4, 16), "a": Tensor("F32", (), 0, 4), "empty": Tensor("I64", (0, 7), 4, 4), "c": Tensor("BOOL", (1,), 16, 17)}
        self.assertEqual(parse_header(json.dumps(GOOD).encode() + b"   ", 17), want)
        self.assertEqual(parse_header(b"{}", 0), {})

    def test_hostile(self):
        one = '"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}'
        for name, text in {
            "nothing": "", "spaces first": ' {%s}' % one, "a list": "[]", "not closed": '{%s' % one, "twice": "{%s,%s}" % (one, one),
            "twice within": '{"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}}',
            "deep": '{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "long number": '{"a":{"dtype":"U8","shape":[%s],"data_offsets":[0,4]}}' % ("9" * 10_000),
            "no number": '{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,4]}}', "fraction": '{"a":{"dtype":"U8","shape":[4.0],"data_offsets":[0,4]}}',
            "truth": '{"a":{"dtype":"U8","shape":[4,true],"data_offsets":[0,4]}}', "negative": '{"a":{"dtype":"U8","shape":[-4],"data_offsets":[4,0]}}',
            "negative twice": '{"a":{"dtype":"U8","shape":[-2,-2],"data_offsets":[0,4]}}',
            "before the data": '{"a":{"dtype":"U8","shape":[4],"data_offsets":[-4,0]}}', "beyond the data": '{"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]}}',
            "too small": '{"a":{"dtype":"F64","shape":[4],"data_offsets":[0,4]}}', "overflow": '{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}',
            "gap": '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}',
            "overlap": '{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}',
            "not aligned": '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F16","shape":[1],"data_offsets":[1,3]},'
                           '"c":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}}',
            "rest": '{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}', "type": '{"a":{"dtype":"U9","shape":[4],"data_offsets":[0,4]}}',
            "type of a type": '{"a":{"dtype":["U8"],"shape":[4],"data_offsets":[0,4]}}', "more": '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":1}}',
            "offsets": '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4,8]}}', "metadata": '{"__metadata__":{"a":1},%s}' % one,
            "metadata are a list": '{"__metadata__":[],%s}' % one, "dimensions": '{"a":{"dtype":"U8","shape":[4%s],"data_offsets":[0,4]}}' % (",1" * 64),
        }.items():
            with self.subTest(name), self.assertRaises(FormatError):
                parse_header(text.encode(), 4)
        self.assertEqual(len(parse_header(("{%s}" % one).encode(), 4)), 1)  # the control
        with self.assertRaises(FormatError):
            parse_header(b'{"\xff":{}}', 4)

    def test_changed(self):
        """Whatever bytes are changed, a header is refused or its tensors fill the data."""
        chance, text, accepted = random.Random(1), json.dumps(GOOD).encode(), 0
        for _ in range(5000):
            changed = bytearray(text)
            for _ in range(chance.randint(1, 4)):
                at = chance.randrange(len(changed))
                kind = chance.randrange(3)
                if kind == 0:
                    changed[at] = chance.randrange(256)
                elif kind == 1:
                    del changed[at]
                else:
                    changed[at:at] = chance.choice([b"0", b"9", b"-", b"[", b"}", b'"', b"e9", b"\x00"])
            try:
                tensors = parse_header(bytes(changed), 17)
            except FormatError:
                continue
            accepted += 1
            at = 0
            for t in sorted(tensors.values(), key=lambda t: (t.begin, t.end)):
                self.assertEqual(t.begin, at)
                at = t.end
            self.assertEqual(at, 17)
        self.assertGreater(accepted, 0)


class TestFile(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "x.safetensors")

    def write(self, content):
        with open(self.path, "wb") as file:
            file.write(content)

    def test_declaration(self):
        header, data = json.dumps(GOOD).encode(), bytes(range(17))
        self.write(struct.pack("<Q", len(header)) + header + data)
        self.assertEqual(gshare_safetensors.declaration(self.path), "sha256:" + hashlib.sha256(data).hexdigest() + "=2Mi")
        large = 3 << 20
        header = json.dumps({"a": tensor("U8", [large], 0, large)}).encode()
        self.write(struct.pack("<Q", len(header)) + header + bytes(large))
        self.assertTrue(gshare_safetensors.declaration(self.path).endswith("=4Mi"))

    def test_lengths(self):
        for name, content in {
            "empty": b"", "short": b"1234567", "no header": struct.pack("<Q", 2), "half": struct.pack("<Q", 3) + b"{}",
            "long": struct.pack("<Q", 1 << 63) + b"{}", "too long": struct.pack("<Q", gshare_safetensors.MAX_HEADER + 1) + b"{}",
        }.items():
            self.write(content)
            with self.subTest(name), self.assertRaises(FormatError):
                gshare_safetensors.declaration(self.path)


if __name__ == "__main__":
    unittest.main()
