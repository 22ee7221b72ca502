"""PyTorch modules trained by a Capstan job.

    import capstan.torch
    optimizer = capstan.torch.Optimizer(torch.optim.AdamW(net.parameters(), 1e-3), net)
    for images, labels in capstan.torch.batches(dataset, 64, epochs=3):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step(loss)

Each worker runs the script. `batches` gives it batches that no other worker gets, each with the
newest parameters in `net`; `step` sends the gradient to the servers, which update by the rule of
the wrapped optimizer. Under BSP the result has the same bits for any number of workers if `slots`,
the batches of an iteration, are given.

Buffers (running statistics of batch norm) and parameters that are not trained are part of the
job: after each iteration they are the mean of what its batches left, weighted by their samples, so
that all workers have the same. DistributedDataParallel takes those of rank 0.

After the job `load` puts its model into a network, to evaluate it.

What is not there yet: GPUs, accumulation over several batches, evaluation while the job trains.
"""

from typing import Any, Callable, Iterator, Optional

import torch

from capstan import _rules
from capstan._arrays import Memory
from capstan._client import Error, Work
from capstan._embedding import EmbeddingBag
from capstan._network import Network, load
from capstan._session import Session

__all__ = ["EmbeddingBag", "Error", "Optimizer", "batches", "current", "deterministic", "load"]

_SEED_MASK = (1 << 63) - 1
# With rows a batch is made before it is computed: its random numbers are not those of dropout.
_MADE_EARLIER = 0x2545F4914F6CDD1D

_made: Optional["Optimizer"] = None  # A process has one.


class Optimizer:
    """Sends the gradients of a model to the servers, which update by the wrapped optimizer's rule.

    optimizer: one of torch.optim's SGD, Adam, AdamW, Adagrad, RMSprop and Adadelta. It is never
        stepped.
    model: has the optimizer's parameters, and the tables of its EmbeddingBags.
    sync: "bsp", "ssp:N" (at most N iterations of staleness) or "asp".
    slots: BSP, batches of an iteration; None: one for each worker.
    seed: of the order of samples and of the random numbers of each batch.
    schedule: one of torch.optim.lr_scheduler's that needs no losses, over `optimizer`. The servers
        follow it from the first update on; stepping it in the loop changes nothing.
    schedule_every: "update": PyTorch would step it after each update; "epoch": after each epoch.

    Raises Error for an optimizer, a setting or a schedule that the servers do not have, for a model
    that lacks the optimizer's parameters, and for a second Optimizer in a process; ValueError for a
    `sync` or `schedule_every` that is none of those.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, model: torch.nn.Module, *,
                 sync: str = "bsp", slots: Optional[int] = None, seed: int = 1,
                 schedule: Any = None, schedule_every: str = "update") -> None:
        global _made
        if schedule_every not in ("update", "epoch"):
            raise ValueError(f"schedule_every is {schedule_every!r}, expected 'update' or 'epoch'")
        self._network = network = Network(model, optimizer)
        rules = _rules.server_optimizers(optimizer)
        self._session = session = Session("capstan.torch.Optimizer", sync, slots, seed)
        network.add_to(session, rules)
        if schedule is not None:
            session.schedules = lambda updates, epochs: _rules.server_schedules(
                optimizer, schedule, updates * epochs, updates if schedule_every == "epoch" else 1)
        self._optimizer = optimizer
        self._rates = None if schedule is not None else self._current_rates()
        _made = self

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Those of the wrapped optimizer."""
        groups: list[dict[str, Any]] = self._optimizer.param_groups
        return groups

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of the parameters."""
        self._optimizer.zero_grad(set_to_none)

    def step(self, loss: Optional[torch.Tensor] = None, *, correct: int = 0) -> None:
        """Sends the gradients of the current batch, which `backward` of its mean loss has left.

        loss: that mean, for the job's progress, [] or [1]. correct: samples that were classified
        correctly. Raises Error if there is no batch, a gradient is sparse or the learning rate was
        changed, and Diverged if the loss or a gradient is not finite.
        """
        session = self._session
        session.current()
        if self._rates is not None and self._rates != self._current_rates():
            raise Error(f"the learning rates are {self._current_rates()} now and were "
                        f"{self._rates}: the servers have them; give the scheduler to "
                        "capstan.torch.Optimizer (schedule=)")
        self._network.put(session)
        session.finish(0.0 if loss is None else float(loss.detach()), int(correct))

    def _batches(self, dataset: Any, batch_size: int, epochs: int,
                 collate: Callable[[list[Any]], Any]) -> Iterator[Any]:
        session, network = self._session, self._network

        def load_batch(work: Work) -> Any:
            return collate([dataset[sample] for sample in work.samples])

        def make(work: Work) -> tuple[Any, dict[str, Memory]]:
            torch.manual_seed((work.seed ^ _MADE_EARLIER) & _SEED_MASK)
            batch = load_batch(work)
            return batch, network.keys_of(batch)

        session.declare(len(dataset), batch_size, epochs, network.initial)
        session.begin()
        while (work := session.next(make)) is not None:
            torch.manual_seed(work.seed & _SEED_MASK)
            batch = load_batch(work) if session.made is None else session.made.content
            network.take(session)
            yield batch

    def _current_rates(self) -> list[float]:
        return [group["lr"] for group in self._optimizer.param_groups]


def batches(dataset: Any, batch_size: int, *, epochs: int = 1,
            collate: Optional[Callable[[list[Any]], Any]] = None) -> Iterator[Any]:
    """Yields the batches that this worker computes, with the newest parameters in the model.

    dataset: has __len__ and __getitem__, the same on each worker. Every sample comes once an
        epoch, on one of the workers.
    batch_size: samples of a batch; the last one of an epoch may have fewer.
    epochs: passes over the dataset.
    collate: makes a batch of a list of samples; default: PyTorch's default_collate.

    Raises Error if there is no Optimizer yet, if the job has other tensors than the model, or if a
    batch is asked for before the step of the one before.
    """
    if _made is None:
        raise Error("there is no capstan.torch.Optimizer yet: make it before the batches")
    yield from _made._batches(dataset, batch_size, epochs,
                              collate or torch.utils.data.default_collate)


def current() -> Work:
    """The batch that the loop over `batches` is at: its epoch, iteration, samples and seed.

    Raises Error outside of that loop.
    """
    if _made is None or _made._session.work is None:
        raise Error("there is no batch: it is known in the loop over capstan.torch.batches")
    return _made._session.work


def deterministic() -> None:
    """Makes PyTorch compute the same bits each time, as far as it can."""
    torch.use_deterministic_algorithms(True)
