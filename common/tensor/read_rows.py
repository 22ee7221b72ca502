"""Reads the rows of a sparse table with nothing but the standard library.

    python3 read_rows.py model/rows-features.safetensors

prints one line of JSON a row: [key, [value, ...]]. As a module: `for key, row in read_rows(path)`.
"""

import json
import struct
import sys


def read_rows(path):
    """Yields (key, tuple of values) in the file's order, holding one row at a time."""
    with open(path, "rb") as keys, open(path, "rb") as rows:
        (header_bytes,) = struct.unpack("<Q", keys.read(8))
        header = json.loads(keys.read(header_bytes))
        data = 8 + header_bytes
        assert header["keys"]["dtype"] == "U64" and header["rows"]["dtype"] == "F32"
        count, dim = header["rows"]["shape"]
        keys.seek(data + header["keys"]["data_offsets"][0])
        rows.seek(data + header["rows"]["data_offsets"][0])
        for _ in range(count):
            (key,) = struct.unpack("<Q", keys.read(8))
            yield key, struct.unpack(f"<{dim}f", rows.read(4 * dim))


if __name__ == "__main__":
    for each in read_rows(sys.argv[1]):
        print(json.dumps(each))
