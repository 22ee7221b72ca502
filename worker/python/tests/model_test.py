"""capstan.load says what is wrong with a model's file that it cannot read."""

import json
import os
import pathlib
import struct
import unittest

import capstan


def file_of(header, content=b""):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content


class LoadTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(os.environ["TEST_TMPDIR"]) / self.id()
        self.folder.mkdir()

    def load(self, content):
        (self.folder / "model.safetensors").write_bytes(content)
        return capstan.load(self.folder)

    def test_a_whole_file_is_read(self):
        whole = file_of({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
                        struct.pack("<2f", 1.5, -2))
        self.assertEqual(list(self.load(whole)["w"]), [1.5, -2])

    def test_damaged_files_are_named(self):
        entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        for name, content in {
                "empty": b"",
                "its length cut": b"\x01\x02",
                "its header cut": file_of({"w": entry})[:20],
                "a header that is no object": file_of([1]),
                "another type": file_of({"w": {**entry, "dtype": "F16"}}, bytes(8)),
                "no shape": file_of({"w": {"dtype": "F32", "data_offsets": [0, 8]}}, bytes(8)),
                "no offsets": file_of({"w": {**entry, "data_offsets": None}}, bytes(8)),
                "its values cut": file_of({"w": entry}, bytes(4)),
        }.items():
            with self.subTest(name), self.assertRaisesRegex(capstan.Error, "model.safetensors"):
                self.load(content)


if __name__ == "__main__":
    unittest.main()
