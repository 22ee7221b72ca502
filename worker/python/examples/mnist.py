"""PyTorch's well-known MNIST example with Capstan; mnist_plain.py has it with PyTorch alone.

    capstan run --workers=2 --output=model mnist.py --data=FOLDER
    python3 mnist.py --data=FOLDER --evaluate=model
"""

import argparse

import data_sets
import torch
from torch import nn
from torch.nn import functional

import capstan.torch


class Net(nn.Module):
    """Two convolutions, dropout, two linear layers with dropout between them."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, images):
        maps = functional.relu(self.conv2(functional.relu(self.conv1(images))))
        maps = self.dropout1(functional.max_pool2d(maps, 2))
        hidden = self.dropout2(functional.relu(self.fc1(maps.flatten(1))))
        return functional.log_softmax(self.fc2(hidden), dim=1)


def train(net, batches, optimizer):
    net.train()
    for number, (images, labels) in enumerate(batches):
        optimizer.zero_grad()
        loss = functional.nll_loss(net(images), labels)
        loss.backward()
        optimizer.step(loss)
        if number % 10 == 0:
            print(f"batch {number}: loss {loss.item():.6f}", flush=True)


def test(net, data):
    net.eval()
    with torch.no_grad():
        hits = sum(int((net(images).argmax(1) == labels).sum())
                   for images, labels in torch.utils.data.DataLoader(data, 1000))
    print(f"test accuracy {hits / len(data):.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--samples", type=int, default=10000)
    parser.add_argument("--evaluate")
    options = parser.parse_args()
    torch.manual_seed(1)
    data = data_sets.Images(options.data, "train", options.samples)
    net = Net()
    optimizer = torch.optim.Adadelta(net.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    if options.evaluate:
        capstan.torch.load(net, options.evaluate)
        test(net, data_sets.Images(options.data, "t10k"))
        return
    optimizer = capstan.torch.Optimizer(optimizer, net, schedule=schedule, schedule_every="epoch")
    train(net, capstan.torch.batches(data, 64, epochs=options.epochs), optimizer)


if __name__ == "__main__":
    main()
