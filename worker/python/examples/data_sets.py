"""Images of IDX files, by the standard library and PyTorch alone.

With one more package, `torchvision.datasets.MNIST` does the same.
"""

import idx
import torch


class Images(torch.utils.data.Dataset):
    """Images [1, 28, 28] from 0 to 1 with their labels, of Fashion-MNIST or MNIST.

    folder: has train-images-idx3-ubyte.gz and the like. part: "train" or "t10k". limit: images
    from the first on; None: all.
    """

    def __init__(self, folder, part, limit=None):
        self.images = _tensor(folder, idx.images_file(part))[:limit, None]
        self.labels = _tensor(folder, idx.labels_file(part))[:limit]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index] / 255, self.labels[index].long()


def _tensor(folder, name):
    values, shape = idx.read(folder, name)
    return torch.frombuffer(values, dtype=torch.uint8).view(shape)
