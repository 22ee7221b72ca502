"""Clicks on ads in PyTorch: rows by key, parameter groups and a schedule, as a program or alone.

    embedding_program.py --log=FILE                 a line of JSON for each batch
    embedding_program.py --replay=FILE --save=FILE  the same batches with PyTorch alone; saves the
                                                    rows by key and the dense state
"""

import argparse
import fcntl
import json

import torch
from torch import nn

import capstan.torch
from capstan import optimizers
from torch_program import wait_at

SAMPLES, DIM, EPOCHS, BATCH = 240, 4, 4, 16
RATE, EPSILON = 0.1, 1e-10


class Clicks(torch.utils.data.Dataset):
    """Three keys of 64 bits a sample, some of them common; a click if their signs say so."""

    def __init__(self):
        made = torch.Generator().manual_seed(7)
        self.known = torch.randint(-(1 << 62), 1 << 62, (40,), generator=made)
        which = (torch.rand(SAMPLES, 3, generator=made).square() * len(self.known)).long()
        self.keys = self.known[which]
        self.labels = (self.keys.sign().sum(1) > 0).float()

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return self.keys[index], self.labels[index]


def head():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(DIM, 6), nn.Tanh(), nn.Linear(6, 1))


def dense_optimizer(net):
    return torch.optim.AdamW([{"params": net[0].parameters(), "weight_decay": 0.1},
                              {"params": net[2].parameters(), "lr": 0.02}], 0.01)


def schedule(optimizer):
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)


def loss_of(net, bags, labels):
    return nn.functional.binary_cross_entropy_with_logits(net(bags).flatten(), labels)


def replay(options):
    """The logged batches with PyTorch's own embedding."""
    data, net = Clicks(), head()
    embedding = nn.EmbeddingBag(len(data.known), DIM, mode="sum")
    nn.init.zeros_(embedding.weight)
    numbers = {int(key): number for number, key in enumerate(data.known)}
    dense = dense_optimizer(net)
    scheduler = schedule(dense)
    rows = torch.optim.Adagrad(embedding.parameters(), RATE, eps=EPSILON)
    with open(options.replay, encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            keys, labels = torch.utils.data.default_collate(
                [data[sample] for sample in line["samples"]])
            places = torch.tensor([[numbers[int(key)] for key in bag] for bag in keys])
            loss = loss_of(net, embedding(places), labels)
            dense.zero_grad()
            rows.zero_grad()
            loss.backward()
            dense.step()
            rows.step()
            scheduler.step()
            print(json.dumps({"loss": float(loss)}))
    torch.save({"state": net.state_dict(), "rows": dict(zip(data.known.tolist(),
                                                            embedding.weight.tolist()))},
               options.save)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--log")
    parser.add_argument("--gate", help="wait for its lock before iteration 5")
    parser.add_argument("--replay")
    parser.add_argument("--save")
    parser.add_argument("--sync", default="bsp")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.replay:
        replay(options)
        return
    data = Clicks()
    net = nn.ModuleDict({"head": head(), "ads": capstan.torch.EmbeddingBag(
        "ads", DIM, keys=lambda batch: batch[0], optimizer=optimizers.Adagrad(RATE, eps=EPSILON),
        initial_std=0)})
    dense = dense_optimizer(net["head"])
    slots = {"slots": 1 if options.log else 2} if options.sync == "bsp" else {}
    optimizer = capstan.torch.Optimizer(dense, net, schedule=schedule(dense), sync=options.sync,
                                        **slots)
    for keys, labels in capstan.torch.batches(data, BATCH, epochs=EPOCHS):
        wait_at(options.gate)
        optimizer.zero_grad()
        loss = loss_of(net["head"], net["ads"](keys), labels)
        loss.backward()
        if options.log:
            with open(options.log, "a", encoding="utf-8") as log:
                log.write(json.dumps({"loss": float(loss),
                                      "samples": capstan.torch.current().samples}) + "\n")
        optimizer.step(loss)


if __name__ == "__main__":
    main()
