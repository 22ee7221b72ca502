"""A PyTorch script that python_client times: as a program of a job, alone, or with DDP.

Writes a line "SECONDS SAMPLES" to --times for each batch that has ended, by the monotonic clock.
"""

import argparse
import os
import pathlib
import sys
import time

import torch

sys.path.append(str(pathlib.Path(__file__).parents[1] / "gpu"))
import pytorch_models  # pylint: disable=wrong-import-position

KEYS, KEYS_A_SAMPLE, DIM = 10_000_000, 26, 16


class Images(torch.utils.data.Dataset):
    """Random images of ten classes; samples share some of them, to save memory."""

    def __init__(self, count, height, width, channels):
        made = torch.Generator().manual_seed(1)
        self.count = count
        self.images = torch.rand(512, channels, height, width, generator=made)
        self.labels = torch.randint(0, 10, (512,), generator=made)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.images[index % 512], self.labels[index % 512]


class Clicks(torch.utils.data.Dataset):
    """Keys below KEYS, few of them common."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        made = torch.Generator().manual_seed(index)
        share = torch.rand(KEYS_A_SAMPLE, generator=made)
        return (share.pow(4) * KEYS).long(), share[0].round()


class Head(torch.nn.Module):
    """An embedding and a linear layer on it."""

    def __init__(self, bag):
        super().__init__()
        self.bag, self.linear = bag, torch.nn.Linear(DIM, 1)

    def forward(self, keys):
        return self.linear(self.bag(keys)).flatten()


IMAGES = {"lenet": (28, 28, 1), "resnet18": (32, 32, 3)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=[*IMAGES, "clicks"], required=True)
    parser.add_argument("--by", choices=["capstan", "torch", "ddp"], required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--batches", type=int, required=True)
    parser.add_argument("--times", required=True)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rendezvous")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    count = options.batch * options.batches
    clicks = options.model == "clicks"
    if clicks:
        data, loss_of = Clicks(count), torch.nn.functional.binary_cross_entropy_with_logits
        net = Head(bag_of(options.by))
    else:
        data, loss_of = Images(count, *IMAGES[options.model]), torch.nn.functional.cross_entropy
        net = pytorch_models.model(torch.nn, options.model, IMAGES[options.model], 10)
    dense = net.linear if clicks else net
    optimizer = torch.optim.SGD(dense.parameters(), lr=0.01, momentum=0.9)
    if options.by == "capstan":
        import capstan.torch  # pylint: disable=import-outside-toplevel
        optimizer = capstan.torch.Optimizer(optimizer, net, slots=options.workers)
        batches = capstan.torch.batches(data, options.batch)
        others = ()
    else:
        if options.by == "ddp":
            torch.distributed.init_process_group(
                "gloo", init_method=f"file://{options.rendezvous}", rank=options.rank,
                world_size=options.workers)
            net = torch.nn.parallel.DistributedDataParallel(net)
        batches = own_batches(data, options)
        others = [torch.optim.Adagrad(net.bag.parameters(), 0.05)] if clicks else []
    with open(options.times, "a", encoding="utf-8") as times:
        for inputs, labels in batches:
            optimizer.zero_grad()
            loss = loss_of(net(inputs), labels)
            for other in others:
                other.zero_grad()
            loss.backward()
            optimizer.step(loss) if options.by == "capstan" else optimizer.step()
            for other in others:
                other.step()
            os.write(times.fileno(), f"{time.monotonic()} {len(labels)}\n".encode())


def bag_of(by):
    if by == "capstan":
        import capstan.torch  # pylint: disable=import-outside-toplevel
        return capstan.torch.EmbeddingBag(
            "clicks", DIM, keys=lambda batch: batch[0],
            optimizer=capstan.optimizers.Adagrad(0.05))
    return torch.nn.EmbeddingBag(KEYS, DIM, mode="sum", sparse=True)


def own_batches(data, options):
    """Each rank's batches, of samples in random order."""
    order = torch.randperm(len(data)).tolist()
    for first in range(options.rank * options.batch, len(order), options.workers * options.batch):
        yield torch.utils.data.default_collate(
            [data[sample] for sample in order[first:first + options.batch]])


if __name__ == "__main__":
    main()
