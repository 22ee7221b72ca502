"""IDX files, in which (Fashion-)MNIST comes, by the standard library alone."""

import gzip
import pathlib
import struct


def read(folder, name):
    """The bytes of a file's values, which may be written, and its shape.

    In the file: two zeros, a type (unsigned bytes here), the number of dimensions, these, values.
    """
    data = gzip.decompress(pathlib.Path(folder, name).read_bytes())
    shape = struct.unpack_from(f">{data[3]}I", data, 4)
    return bytearray(data[4 + 4 * len(shape):]), shape


def images_file(part):
    """part: "train" or "t10k", the test images."""
    return f"{part}-images-idx3-ubyte.gz"


def labels_file(part):
    return f"{part}-labels-idx1-ubyte.gz"
