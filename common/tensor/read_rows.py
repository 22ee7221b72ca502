"""Reads the rows of a sparse table with nothing but the standard library.

    python3 read_rows.py model/rows-features.safetensors
    python3 read_rows.py --table features model delta-1 delta-2    # an export, then its deltas

prints one line of JSON a row: [key, [value, ...]]. As a module: `for key, row in read_rows(path)`,
`apply_exports(table, folders)`.
"""

import json
import pathlib
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


def apply_exports(table, folders):
    """The rows by key after an export and the deltas that follow it, in their order."""
    by_key = {}
    for folder in map(pathlib.Path, folders):
        tables = json.loads((folder / "model.json").read_text())["tables"]
        (files,) = [each["rows"] for each in tables if each["name"] == table]
        if "removed_file" in files:
            for key, _ in read_rows(folder / files["removed_file"]):
                by_key.pop(key, None)
        by_key.update(read_rows(folder / files["file"]))
    return by_key


if __name__ == "__main__":
    applied = len(sys.argv) > 3 and sys.argv[1] == "--table"
    rows = apply_exports(sys.argv[2], sys.argv[3:]).items() if applied else read_rows(sys.argv[1])
    for each in rows:
        print(json.dumps(each))
