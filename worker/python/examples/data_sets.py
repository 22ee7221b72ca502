"""Images of IDX files, by the standard library and PyTorch alone.

With one more package, `torchvision.datasets.MNIST` does the same.
"""

import gzip
import pathlib
import struct

import torch


class Images(torch.utils.data.Dataset):
    """Images [1, 28, 28] from 0 to 1 with their labels, of Fashion-MNIST or MNIST.

    folder: has train-images-idx3-ubyte.gz and the like. part: "train" or "t10k". limit: images
    from the first on; None: all.
    """

    def __init__(self, folder, part, limit=None):
        self.images = _idx(folder, f"{part}-images-idx3-ubyte.gz")[:limit, None]
        self.labels = _idx(folder, f"{part}-labels-idx1-ubyte.gz")[:limit]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index] / 255, self.labels[index].long()


def _idx(folder, name):
    """The bytes of an IDX file: two zeros, a type, the number of dimensions, these, the values."""
    data = bytearray(gzip.decompress(pathlib.Path(folder, name).read_bytes()))
    shape = struct.unpack_from(f">{data[3]}I", data, 4)
    return torch.frombuffer(data, dtype=torch.uint8, offset=4 + 4 * len(shape)).view(shape)
