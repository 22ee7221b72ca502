"""Small image data with a known structure, written as IDX files: real files for fast tests."""

import gzip
import random
import struct

DISTINCT = 2000
DISTINCT_PIXELS = 2_400_000  # They are drawn one by one: some seconds.


def write_idx(folder, name, count, side=8, classes=10, seed=1, noise=40):
    """Writes <name>-images.gz and <name>-labels; returns their paths.

    Each class is a fixed random pattern of side x side bytes; a sample is its pattern plus noise.
    Beyond DISTINCT samples, of large images fewer, they repeat.
    """
    distinct = max(1, min(DISTINCT, DISTINCT_PIXELS // (side * side)))
    patterns = random.Random(7)
    centres = [[patterns.randrange(40, 216) for _ in range(side * side)] for _ in range(classes)]
    draw = random.Random(seed)
    labels = bytes(draw.randrange(classes) for _ in range(min(count, distinct)))
    pixels = bytearray()
    for label in labels:
        values = (centre + draw.randrange(-noise, noise + 1) for centre in centres[label])
        pixels += bytes(min(255, max(0, value)) for value in values)
    labels = (labels * (count // distinct + 1))[:count]
    pixels = (bytes(pixels) * (count // distinct + 1))[: count * side * side]
    images_path = folder / f"{name}-images.gz"
    labels_path = folder / f"{name}-labels"
    with gzip.open(images_path, "wb", compresslevel=1) as out:
        out.write(struct.pack(">IIII", 0x803, count, side, side) + pixels)
    labels_path.write_bytes(struct.pack(">II", 0x801, count) + labels)
    return images_path, labels_path


def data_block(folder, train=2000, test=500, side=8, augmentation=""):
    """The `data` part of a job file over freshly written files."""
    train_images, train_labels = write_idx(folder, "train", train, side, seed=1)
    test_images, test_labels = write_idx(folder, "test", test, side, seed=2)
    return f"""
data {{
  format: IDX
  train {{ images: "{train_images}" labels: "{train_labels}" }}
  test {{ images: "{test_images}" labels: "{test_labels}" }}
  augmentation {{ {augmentation} }}
}}
"""


def train_only_block(folder, count, side):
    """The `data` part of a job file without a test set."""
    images, labels = write_idx(folder, "train-only", count, side)
    return f'data {{ format: IDX train {{ images: "{images}" labels: "{labels}" }} }}'


def colour_block(folder, count, side):
    """As train_only_block, of images of three channels and 256 classes, as NumPy's files. At most
    64 of the images differ; labels are random."""
    images, labels = folder / "colours.npy", folder / "classes.npy"
    draw = random.Random(3)
    with open(images, "wb") as out:
        out.write(_npy_head("|u1", (count, side, side, 3)))
        drawn = [draw.randbytes(side * side * 3) for _ in range(min(count, 64))]
        for i in range(count):
            out.write(drawn[i % len(drawn)])
    labels.write_bytes(_npy_head("|u1", (count,)) + draw.randbytes(count))
    return f'data {{ format: NUMPY train {{ images: "{images}" labels: "{labels}" }} }}'


def _npy_head(dtype, shape):
    """Version 1.0: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html"""
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode()


def job(
    folder,
    name="job",
    model='zoo: "softmax_regression"',
    consistency="bsp {}",
    workers=2,
    servers=0,
    epochs=2,
    batch_size=20,
    training="",
    optimizer="momentum {} learning_rate: 0.05",
    resources="",
    data=None,
    more="",
):
    """A whole job file."""
    return f"""
name: "{name}"
model {{ {model} }}
{data or data_block(folder)}
training {{ epochs: {epochs} batch_size: {batch_size} {training} }}
optimizer {{ {optimizer} }}
consistency {{ {consistency} }}
resources {{ workers: {workers} servers: {servers} {resources} }}
{more}
"""
