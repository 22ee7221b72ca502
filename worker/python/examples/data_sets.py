"""What the examples read: images of IDX files, and the tensors and rows of a job's model.

The standard library and PyTorch are enough. With more packages, `torchvision.datasets.MNIST` and
`safetensors.torch.load_file` do the same.
"""

import gzip
import json
import pathlib
import struct

import torch

_DTYPES = {"F32": torch.float32, "U64": torch.int64}  # U64: keys, whose bits are those of int64.


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


def tensors(path):
    """The tensors of a safetensors file by name: what load_state_dict takes."""
    data = bytearray(pathlib.Path(path).read_bytes())
    begin = 8 + struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(data, dtype=_DTYPES[spec["dtype"]],
                                   offset=begin + spec["data_offsets"][0],
                                   count=max(1, torch.Size(spec["shape"]).numel())
                                   ).view(spec["shape"])
            for name, spec in header.items()}


class Rows(torch.nn.Module):
    """The exported rows of a capstan.torch.EmbeddingBag, which it stands in for after training.

    path: rows-NAME.safetensors. A key without a row has zeros, as mode "sum" has for an empty bag.
    """

    def __init__(self, path):
        super().__init__()
        found = tensors(path)
        self.keys, order = torch.sort(found["keys"])
        self.rows = torch.cat([found["rows"][order], torch.zeros(1, found["rows"].shape[1])])

    def places(self, keys):
        """The places of keys in `rows`; the last one is that of all others."""
        at = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
        return torch.where(self.keys[at] == keys, at, len(self.keys))

    def forward(self, keys):
        """The sums of the bags, [bags, dim], of keys [bags, keys a bag]."""
        return self.rows[self.places(keys)].sum(1)
