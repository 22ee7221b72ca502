"""More PyTorch scripts, with other steps in and around their loops: right ones and wrong ones.

    torch_cases.py CASE [FILE]

A case may write a word into FILE at its end. One that checks something itself fails its job by an
AssertionError.
"""

import concurrent.futures
import os
import pathlib
import shutil
import sys

import torch
from torch import nn

import capstan.torch
from capstan import _client, optimizers

SAMPLES, BATCH = 64, 16


class Line(torch.utils.data.Dataset):
    """Points beside a line, with noise that is drawn anew each time."""

    def __init__(self, samples=SAMPLES, noise=0.0, wrong=None):
        self.x = torch.randn(samples, 5, generator=torch.Generator().manual_seed(samples))
        self.y = self.x.sum(1, keepdim=True) + 0.5
        self.noise, self.wrong = noise, wrong

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        if index == self.wrong:
            raise ValueError("no such picture")
        return self.x[index], self.y[index] + self.noise * torch.randn(1)


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Dropout(0.1), nn.Linear(4, 1))


def make(net=None, **settings):
    net = net or network()
    return net, capstan.torch.Optimizer(torch.optim.SGD(net.parameters(), 0.05), net, slots=2,
                                        **settings)


def train(net, optimizer, data=None, change=lambda: None, epochs=3, **settings):
    """The usual loop; `change` runs between backward() and step()."""
    for x, y in capstan.torch.batches(data or Line(), BATCH, epochs=epochs, **settings):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        change()
        optimizer.step(loss)


def refused(words, call, kind=capstan.Error):
    try:
        call()
    except kind as error:
        assert words in str(error), f"found {error}, expected {words}"
        return
    raise AssertionError(f"nothing was raised, expected {words}")


# ---------------------------------------------------------------- the same in other ways

def plain():
    train(*make())


def overlap():
    train(*make(overlap=True))


def noise():
    train(*make(), data=Line(noise=0.3))


def noise_loaded_ahead():
    train(*make(), data=Line(noise=0.3), workers=2)


def without_dropout():
    net = network()
    net[2].p = 0.0
    return make(net)


def whole():
    train(*without_dropout())


def accumulated():
    """Two parts of each batch, one after the other."""
    net, optimizer = without_dropout()
    for x, y in capstan.torch.batches(Line(), BATCH, epochs=3):
        optimizer.zero_grad()
        for x_part, y_part in zip(x.chunk(2), y.chunk(2)):
            loss = nn.functional.mse_loss(net(x_part), y_part) / 2
            loss.backward()
        optimizer.step(2 * loss)


FIRST_SCALE = 2.0 ** 127


class Scaler:
    """torch.amp.GradScaler("cpu"), which PyTorch has from 2.3 on, in a few lines."""

    def __init__(self):
        self.factor, self.infinite = FIRST_SCALE, False

    def get_scale(self):
        return self.factor

    def scale(self, loss):
        return loss * self.factor

    def step(self, optimizer, *arguments):
        gradients = [parameter.grad for group in optimizer.param_groups
                     for parameter in group["params"] if parameter.grad is not None]
        for gradient in gradients:
            gradient.div_(self.factor)
        self.infinite = not all(bool(gradient.isfinite().all()) for gradient in gradients)
        if not self.infinite:
            optimizer.step(*arguments)

    def update(self):
        if self.infinite:
            self.factor /= 16


def new_scaler():
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cpu", init_scale=FIRST_SCALE, backoff_factor=1 / 16)
    return Scaler()


def step_scaled(scaler, optimizer, loss):
    """A step that is left out until the scale has been lowered: above 2^121 the product's gradient
    is infinite."""
    scaler.scale(loss / 64 * 64).backward()
    scaler.step(optimizer, loss)
    scaler.update()


def scaled():
    net, optimizer = without_dropout()
    scaler = new_scaler()
    for x, y in capstan.torch.batches(Line(), BATCH, epochs=3):
        optimizer.zero_grad()
        step_scaled(scaler, optimizer, nn.functional.mse_loss(net(x), y))
    assert scaler.get_scale() < FIRST_SCALE


def autocast():
    net, optimizer = make()
    losses = []
    for x, y in capstan.torch.batches(Line(), BATCH, epochs=20):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = net(x)
            assert out.dtype == torch.bfloat16
            loss = nn.functional.mse_loss(out.float(), y)
        loss.backward()
        optimizer.step(loss)
        losses.append(float(loss))
    assert sum(losses[-4:]) < 0.3 * sum(losses[:4]), losses


def bfloat16():
    """Parameters in bfloat16; the servers have them in fp32."""
    net, optimizer = make(network().bfloat16())
    losses = []
    for x, y in capstan.torch.batches(Line(), BATCH, epochs=20):
        optimizer.zero_grad()
        loss = (net(x.bfloat16()) - y.bfloat16()).square().mean()
        loss.backward()
        optimizer.step(loss)
        losses.append(float(loss))
    assert sum(losses[-4:]) < 0.3 * sum(losses[:4]), losses


def evaluated():
    net, optimizer = make()
    tests = Line(40)

    def evaluate(batch):
        x, y = batch
        out = net(x)
        return nn.functional.mse_loss(out, y), ((out > 0) == (y > 0)).sum()

    train(net, optimizer, test=tests, evaluate=evaluate, workers=1)
    assert net.training


class Keys(torch.utils.data.Dataset):
    """A bag of two keys, and a number that the first one makes. `last` is a key of its own."""

    def __init__(self, samples, last):
        self.samples, self.last = samples, last

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        second = self.last if index == self.samples - 1 else 7 + index % 5
        return torch.tensor([index % 7, second]), float(index % 7)


def make_embeddings(rule=optimizers.SGD(0.1)):
    """An optimizer of rows alone, and the loss of a batch."""
    bag = capstan.torch.EmbeddingBag("ads", 1, keys=lambda batch: batch[0], initial_std=0,
                                     optimizer=rule)
    net = nn.ModuleDict({"ads": bag})

    def loss_of(batch):
        return nn.functional.mse_loss(bag(batch[0]).flatten(), batch[1].float())

    return capstan.torch.Optimizer(None, net, slots=2), loss_of


def embeddings_scaled():
    """As `embeddings_alone`, without test data."""
    optimizer, loss_of = make_embeddings()
    scaler = new_scaler()
    for batch in capstan.torch.batches(Keys(SAMPLES, 12), BATCH, epochs=10):
        optimizer.zero_grad()
        step_scaled(scaler, optimizer, loss_of(batch))
    assert scaler.get_scale() < FIRST_SCALE


def embeddings_by_ftrl():
    embeddings_alone(optimizers.Ftrl(0.5, l2=0.1))


def embeddings_alone(rule=optimizers.SGD(0.1)):
    """Trains rows, and evaluates them; a key of the test data has no row."""
    optimizer, loss_of = make_embeddings(rule)
    for batch in capstan.torch.batches(Keys(SAMPLES, 12), BATCH, epochs=10, test=Keys(24, 99),
                                       evaluate=loss_of):
        optimizer.zero_grad()
        loss = loss_of(batch)
        loss.backward()
        optimizer.step(loss)


# ---------------------------------------------------------------- what is wrong

def once(call):
    """A function that calls `call` at its first call."""
    left = [call]
    return lambda: left and left.pop()()


def in_a_thread(call):
    """Runs `call` in another thread; raises what it raises."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(call).result()


def in_a_fork(call):
    """Runs `call` in a forked process, which then ends as interpreters do."""
    pid = os.fork()
    if pid == 0:
        call()
        sys.exit(0)
    _, status = os.waitpid(pid, 0)
    assert status == 0, status


def wrong_calls():
    """Calls that are refused and change nothing: the loop goes on."""
    net, optimizer = make()
    refused("there is no batch", optimizer.step)

    def change():
        in_a_thread(lambda: refused("uses the job of another thread", optimizer.step))
        in_a_fork(lambda: refused("was forked from", optimizer.step))

    train(net, optimizer, change=once(change), workers=1)
    refused("there is no batch", optimizer.step)
    refused("there is no batch", capstan.torch.current)
    refused("loops over its batches a second time", lambda: train(net, optimizer))
    pathlib.Path(sys.argv[2]).write_text("refused", encoding="utf-8")


def asks_too_early():
    make()
    for _ in capstan.torch.batches(Line(), BATCH):
        pass


def wrong_sample():
    train(*make(), data=Line(wrong=17), workers=1)


def wrong_keys():
    bag = capstan.torch.EmbeddingBag("ads", 1, keys=lambda batch: batch[0].float(),
                                     optimizer=optimizers.SGD(0.1))
    capstan.torch.Optimizer(None, nn.ModuleDict({"ads": bag}))
    next(capstan.torch.batches(Keys(SAMPLES, 12), BATCH))


def nan_gradient():
    net, optimizer = make()
    train(net, optimizer, change=lambda: net[3].bias.grad.fill_(float("nan")))


def nan_loss():
    _, optimizer = make()
    for _ in capstan.torch.batches(Line(), BATCH):
        optimizer.step(torch.tensor(float("nan")))


def raises():
    def change():
        raise ValueError("told to fail")

    train(*make(), change=change)


def exits():
    train(*make(), change=lambda: sys.exit(5), workers=1)


def leaves():
    train(*make(), change=lambda: os._exit(0), workers=1)


def breaks():
    _, optimizer = make()
    for _ in capstan.torch.batches(Line(), BATCH):
        optimizer.step()
        break


def copies_its_task():
    """Copies the specification that a worker has given this process to FILE."""
    shutil.copy(os.environ["CAPSTAN_TASK_SPEC"], sys.argv[2])
    plain()


def waits():
    """Says so when it waits for work."""
    next_work = _client.Task.next

    def told(task):
        print("waits", flush=True)
        return next_work(task)

    _client.Task.next = told
    plain()


if __name__ == "__main__":
    torch.set_num_threads(1)
    capstan.torch.deterministic()
    globals()[sys.argv[1]]()
