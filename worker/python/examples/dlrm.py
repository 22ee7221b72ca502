"""A small DLRM on Criteo's display-ad clicks: one table for the categories of all fields.

    capstan run --workers=2 --output=model dlrm.py --data=train.tsv
    python3 dlrm.py --data=test.tsv --evaluate=model

After Naumov et al. 2019: the counts go through a network of their own, their vector and those of
the categories are multiplied in pairs, and a second network makes a probability of it.
"""

import argparse
import math
import pathlib
import zlib

import torch
from torch import nn

import capstan.torch

COUNTS, CATEGORIES, DIM = 13, 26, 8


class Clicks(torch.utils.data.Dataset):
    """Lines of Criteo's files: a label, counts and categories, separated by tabs; any may lack."""

    def __init__(self, path, limit=None):
        self.lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()[:limit]

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        label, *fields = self.lines[index].split("\t")
        counts = [math.log1p(max(0, int(count or 0))) for count in fields[:COUNTS]]
        keys = [key_of(field, category) for field, category in enumerate(fields[COUNTS:])]
        return torch.tensor(counts), torch.tensor(keys), torch.tensor(float(label))


def key_of(field, category):
    """The field's number in the high bits, so that equal categories of two fields differ."""
    return field << 32 | zlib.crc32(category.encode())


def layers(*sizes):
    return nn.Sequential(*(layer for ends in zip(sizes, sizes[1:])
                           for layer in (nn.Linear(*ends), nn.ReLU())))


class Dlrm(nn.Module):
    """From counts [n, 13] and keys [n, 26] to the logarithms of the odds of clicks, [n]."""

    def __init__(self):
        super().__init__()
        self.categories = capstan.torch.EmbeddingBag(
            "categories", DIM, keys=lambda batch: batch[1],
            optimizer=capstan.optimizers.Adagrad(0.05))
        self.counts = layers(COUNTS, 32, DIM)
        pairs = (CATEGORIES + 1) * CATEGORIES // 2
        self.top = nn.Sequential(layers(DIM + pairs, 64), nn.Linear(64, 1))
        self.first, self.second = torch.triu_indices(CATEGORIES + 1, CATEGORIES + 1, 1)

    def forward(self, counts, keys):
        dense = self.counts(counts)
        rows = self.categories(keys.view(-1, 1)).view(-1, CATEGORIES, DIM)  # Bags of one key.
        vectors = torch.cat([dense[:, None], rows], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.first, self.second]
        return self.top(torch.cat([dense, products], 1)).flatten()


def auc(scores, labels):
    """The chance that a click has a higher score than a line without one."""
    clicks, others = scores[labels == 1], scores[labels == 0]
    higher = (clicks[:, None] > others).sum() + 0.5 * (clicks[:, None] == others).sum()
    return float(higher) / (len(clicks) * len(others))


def evaluate(net, data):
    net.eval()
    with torch.no_grad():
        counts, keys, labels = torch.utils.data.default_collate(list(data))
        print(f"AUC {auc(net(counts, keys), labels):.4f} on {len(data)} lines")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--samples", type=int)
    parser.add_argument("--evaluate", metavar="FOLDER", help="test its model instead of training")
    options = parser.parse_args()
    torch.manual_seed(1)
    data = Clicks(options.data, options.samples)
    net = Dlrm()
    if options.evaluate:
        capstan.torch.load(net, options.evaluate)
        evaluate(net, data)
        return
    optimizer = capstan.torch.Optimizer(torch.optim.Adam(net.parameters(), 1e-3), net)
    for counts, keys, labels in capstan.torch.batches(data, 64, epochs=options.epochs):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(net(counts, keys), labels)
        loss.backward()
        optimizer.step(loss)


if __name__ == "__main__":
    main()
