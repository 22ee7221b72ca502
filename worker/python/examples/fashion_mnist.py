"""A small CNN with batch norm on Fashion-MNIST, by AdamW with a cosine schedule.

It is tested after each epoch (`capstan job describe`), and once more with the exported model.

    capstan run --workers=2 --output=model fashion_mnist.py --data=FOLDER
    python3 fashion_mnist.py --data=FOLDER --evaluate=model
"""

import argparse

import data_sets
import torch
from torch import nn

import capstan.torch


def block(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
                         nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))


def network():
    return nn.Sequential(block(1, 16), block(16, 32), nn.Flatten(), nn.Dropout(0.2),
                         nn.Linear(32 * 7 * 7, 10))


def loss_and_hits(net, batch):
    """A batch's mean loss, and how many of its images are classified correctly."""
    images, labels = batch
    logits = net(images)
    return nn.functional.cross_entropy(logits, labels), int((logits.argmax(1) == labels).sum())


def evaluate(net, data):
    net.eval()
    with torch.no_grad():
        hits = sum(loss_and_hits(net, batch)[1]
                   for batch in torch.utils.data.DataLoader(data, 1000))
    print(f"test accuracy {hits / len(data):.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--samples", type=int, default=20000)
    parser.add_argument("--evaluate", metavar="FOLDER", help="test its model instead of training")
    options = parser.parse_args()
    torch.manual_seed(1)
    net = network()
    test = data_sets.Images(options.data, "t10k", options.samples)
    if options.evaluate:
        capstan.torch.load(net, options.evaluate)
        evaluate(net, test)
        return
    data = data_sets.Images(options.data, "train", options.samples)
    adamw = torch.optim.AdamW(net.parameters(), 3e-3)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(adamw, options.epochs)
    optimizer = capstan.torch.Optimizer(adamw, net, schedule=cosine, schedule_every="epoch")
    for batch in capstan.torch.batches(data, 64, epochs=options.epochs, test=test,
                                       evaluate=lambda batch: loss_and_hits(net, batch)):
        optimizer.zero_grad()
        loss, hits = loss_and_hits(net, batch)
        loss.backward()
        optimizer.step(loss, correct=hits)


if __name__ == "__main__":
    main()
