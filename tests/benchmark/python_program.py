"""A PyTorch script that python_client times: as a program of a job, alone, or with DDP.

With --turns=ADDRESS it is a program, which stands still while the script by itself has its turn,
and sends what it has reached to that address. Without, it is the script by itself: a number of
batches from its input is one turn of it; it answers with its samples a second.
"""

import argparse
import multiprocessing.connection
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

    collate = staticmethod(torch.utils.data.default_collate)

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
    """Keys below KEYS, few of them common. A batch is made at once."""

    collate = staticmethod(lambda batch: batch)

    def __init__(self, count):
        made = torch.Generator().manual_seed(1)
        share = torch.rand(count, KEYS_A_SAMPLE, generator=made)
        self.keys, self.labels = (share.pow(4) * KEYS).long(), share[:, 0].round()

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, index):
        return self.keys[index], self.labels[index]

    def __getitems__(self, indices):
        return self[torch.tensor(indices)]


class Head(torch.nn.Module):
    """An embedding and a linear layer on it."""

    def __init__(self, bag):
        super().__init__()
        self.bag, self.linear = bag, torch.nn.Linear(DIM, 1)

    def forward(self, keys):
        return self.linear(self.bag(keys)).flatten()


class Factors(torch.nn.Module):
    """A factorization machine (Rendle, ICDM 2010): rows of a weight and of DIM factors.

    Sums are made of whole rows: the backward pass of rows[..., 1:] would make zeros of all of them.
    """

    def __init__(self, bag):
        super().__init__()
        self.bag, self.bias = bag, torch.nn.Parameter(torch.zeros(1))

    def forward(self, keys):
        rows = self.bag(keys.view(-1, 1)).view(*keys.shape, 1 + DIM)
        sums = rows.sum(1)
        pairs = sums.square() - rows.square().sum(1)
        return self.bias + sums[:, 0] + pairs[:, 1:].sum(1) / 2


IMAGES = {"lenet": (28, 28, 1), "resnet18": (32, 32, 3)}
ROWS = {"clicks": (Head, DIM), "factors": (Factors, 1 + DIM)}


class Turns:
    """The turns of a job, which the rank 0 keeps; `batches` iterations each.

    A turn is timed from its second iteration on: before the first, the workers have waited.
    """

    def __init__(self, address, batches):
        self._connection = multiprocessing.connection.Client(address)
        self._batches = batches
        self._begin = 0  # The turn's first iteration.
        self._timed_from = None  # The turn's second iteration, and when it began.

    def at(self, iteration):
        """An iteration begins; before it, others may have a turn."""
        now = time.monotonic()
        if self._timed_from is None and iteration > self._begin:
            self._timed_from = (iteration, now)
        if iteration >= self._begin + self._batches:
            first, began = self._timed_from
            self._connection.send((iteration - first) / (now - began))
            self._connection.recv()
            self._begin, self._timed_from = iteration, None


def parsed():
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--model", choices=[*IMAGES, *ROWS], required=True)
    add("--batch", type=int, required=True)
    add("--batches", type=int, required=True, help="of an epoch")
    add("--epochs", type=int, required=True)
    add("--turn", type=int, required=True, help="batches of a turn of the job")
    add("--turns", help="the address that the job's rates are sent to")
    add("--rank", type=int, default=0)
    add("--workers", type=int, default=1)
    add("--rendezvous", help="a file: use DistributedDataParallel")
    return parser.parse_args()


def data_and_loss(options):
    if options.model in ROWS:
        return (Clicks(options.batch * options.batches),
                torch.nn.functional.binary_cross_entropy_with_logits)
    return (Images(options.batch * options.batches, *IMAGES[options.model]),
            torch.nn.functional.cross_entropy)


def network(options, bag_of):
    if options.model in IMAGES:
        return pytorch_models.model(torch.nn, options.model, IMAGES[options.model], 10)
    kind, dim = ROWS[options.model]
    return kind(bag_of(dim))


def dense_parameters(net):
    return [parameter for name, parameter in net.named_parameters() if not name.startswith("bag.")]


def run_in_job(options):
    import capstan.torch  # pylint: disable=import-outside-toplevel
    data, loss_of = data_and_loss(options)
    net = network(options, lambda dim: capstan.torch.EmbeddingBag(
        "clicks", dim, keys=lambda batch: batch[0], optimizer=capstan.optimizers.Adagrad(0.05)))
    optimizer = capstan.torch.Optimizer(
        torch.optim.SGD(dense_parameters(net), lr=0.01, momentum=0.9), net, slots=options.workers,
        overlap=True)
    turns = None
    for inputs, labels in capstan.torch.batches(data, options.batch, epochs=options.epochs,
                                                collate=data.collate):
        if turns is None and os.environ["RANK"] == "0":
            turns = Turns(options.turns, options.turn)
        if turns is not None:
            turns.at(capstan.torch.current().iteration)
        optimizer.zero_grad()
        loss = loss_of(net(inputs), labels)
        loss.backward()
        optimizer.step(loss)


def own_batches(data, options):
    """Each rank's batches, of samples in random order, without an end."""
    at_once = getattr(data, "__getitems__", lambda samples: [data[sample] for sample in samples])
    while True:
        order = torch.randperm(len(data)).tolist()
        step = options.workers * options.batch
        for first in range(options.rank * options.batch, len(order) - step + 1, step):
            yield data.collate(at_once(order[first:first + options.batch]))


def run_by_itself(options):
    data, loss_of = data_and_loss(options)
    net = network(options, lambda dim: torch.nn.EmbeddingBag(KEYS, dim, mode="sum", sparse=True))
    optimizers = [torch.optim.SGD(dense_parameters(net), lr=0.01, momentum=0.9)]
    if options.model in ROWS:
        optimizers.append(torch.optim.Adagrad(net.bag.parameters(), 0.05))
    if options.rendezvous:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{options.rendezvous}", rank=options.rank,
            world_size=options.workers)
        net = torch.nn.parallel.DistributedDataParallel(net)
    batches = own_batches(data, options)
    for line in sys.stdin:
        count = int(line)
        for number in range(count):
            if number == 1:
                began = time.monotonic()
            inputs, labels = next(batches)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss_of(net(inputs), labels).backward()
            for optimizer in optimizers:
                optimizer.step()
        print((count - 1) * options.batch / (time.monotonic() - began), flush=True)


def main():
    options = parsed()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if options.turns is None:
        run_by_itself(options)
    else:
        run_in_job(options)


if __name__ == "__main__":
    main()
