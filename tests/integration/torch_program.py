"""A PyTorch script: batch norm, dropout, clipping, AdamW and a schedule, as a program or alone.

    torch_program.py --log=FILE                 a line of JSON for each batch
    torch_program.py --replay=FILE --save=FILE  the same batches with PyTorch alone; saves the state
"""

import argparse
import fcntl
import json
import pathlib
import random

import torch
from torch import nn

import capstan.torch

SAMPLES, CLASSES = 256, 4


class Blobs(torch.utils.data.Dataset):
    """Small images, with noise around one image for each class."""

    def __init__(self):
        made = torch.Generator().manual_seed(7)
        centers = torch.randn(CLASSES, 1, 8, 8, generator=made)
        self.labels = torch.randint(0, CLASSES, (SAMPLES,), generator=made)
        self.images = centers[self.labels] + torch.randn(SAMPLES, 1, 8, 8, generator=made)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


def network():
    torch.manual_seed(3)
    # A bias before batch norm has no gradient but rounding errors, of which AdamW makes steps.
    return nn.Sequential(nn.Conv2d(1, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
                         nn.Dropout(0.2), nn.Flatten(), nn.Linear(6 * 36, CLASSES))


def schedule(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, 8, gamma=0.8)


def step(net, optimizer, images, labels):
    """The usual lines of a PyTorch loop; returns loss and hits."""
    optimizer.zero_grad()
    logits = net(images)
    loss = nn.functional.cross_entropy(logits, labels)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    return loss, int((logits.argmax(1) == labels).sum())


def wait_at(gate):
    """Waits for the lock of a file, before iteration 5."""
    if gate and capstan.torch.current().iteration == 5:
        with open(gate, encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH)


def noisy(images, at):
    """The images; in slot 1 of the iteration that the file `at` has, with noise of no seed."""
    work = capstan.torch.current()
    wanted = pathlib.Path(at).read_text(encoding="utf-8") if at else ""
    if (f"{work.iteration}", work.slot) != (wanted, 1):
        return images
    return images + random.SystemRandom().uniform(0.5, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--log")
    parser.add_argument("--gate", help="wait for its lock before iteration 5")
    parser.add_argument("--noise", help="a file that has an iteration, or nothing")
    parser.add_argument("--replay")
    parser.add_argument("--save")
    options = parser.parse_args()
    capstan.torch.deterministic()
    torch.set_num_threads(1)
    data, net = Blobs(), network()
    optimizer = torch.optim.AdamW(net.parameters(), 5e-3)
    scheduler = schedule(optimizer)
    if options.replay:
        with open(options.replay, encoding="utf-8") as lines:
            for line in map(json.loads, lines):
                images, labels = torch.utils.data.default_collate(
                    [data[sample] for sample in line["samples"]])
                torch.manual_seed(line["seed"])
                loss, _ = step(net, optimizer, images, labels)
                optimizer.step()
                scheduler.step()
                print(json.dumps({"loss": float(loss)}))
        torch.save(net.state_dict(), options.save)
        return
    optimizer = capstan.torch.Optimizer(optimizer, net, slots=4 if not options.log else 1,
                                        schedule=scheduler)
    for images, labels in capstan.torch.batches(data, 16, epochs=4):
        wait_at(options.gate)
        loss, correct = step(net, optimizer, noisy(images, options.noise), labels)
        if options.log:
            work = capstan.torch.current()
            with open(options.log, "a", encoding="utf-8") as log:
                log.write(json.dumps({"loss": float(loss), "samples": work.samples,
                                      "seed": work.seed & ((1 << 63) - 1)}) + "\n")
        optimizer.step(loss, correct=correct)


if __name__ == "__main__":
    main()
