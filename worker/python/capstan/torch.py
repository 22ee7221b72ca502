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

from capstan import _job, _rules
from capstan._client import Error, Work
from capstan._embedding import EmbeddingBag
from capstan._model import load
from capstan._session import Session

__all__ = ["EmbeddingBag", "Error", "Optimizer", "batches", "current", "deterministic", "load"]

_session: Optional[Session] = None


def _groups_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer
               ) -> list[dict[str, torch.Tensor]]:
    """The trained parameters of a model by name, for each of the optimizer's groups."""
    groups = []
    for group in optimizer.param_groups:
        trained = {id(parameter) for parameter in group["params"]}
        found = {name: parameter for name, parameter in model.named_parameters()
                 if id(parameter) in trained}
        if len(found) != len(trained):
            raise Error(f"the optimizer has {len(trained)} parameters, and {len(found)} of them "
                        "are the model's: expected the model whose parameters it has")
        groups.append(found)
    return groups


def _averages_of(model: torch.nn.Module, groups: list[dict[str, torch.Tensor]]
                 ) -> dict[str, torch.Tensor]:
    """All else in a model's state, by name."""
    averages = {}
    seen = {parameter.data_ptr() for group in groups for parameter in group.values()}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if not isinstance(tensor, torch.Tensor) or tensor.numel() == 0:
            continue
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            averages[name] = tensor
    return averages


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
        global _session
        if _session is not None:
            raise Error("the script has a second capstan.torch.Optimizer, expected one")
        if schedule_every not in ("update", "epoch"):
            raise ValueError(f"schedule_every is {schedule_every!r}, expected 'update' or 'epoch'")
        training: dict[str, Any] = {"seed": seed}
        if slots is not None:
            training["slots"] = slots
        groups = _groups_of(model, optimizer)
        self._session = _session = Session(
            groups, _averages_of(model, groups),
            [module for module in model.modules() if isinstance(module, EmbeddingBag)],
            _rules.server_optimizers(optimizer),
            {"consistency": _job.consistency(sync), "training": training},
            None if schedule is None else lambda updates, epochs: _rules.server_schedules(
                optimizer, schedule, updates * epochs,
                updates if schedule_every == "epoch" else 1))
        self._optimizer = optimizer
        self._rates = None if schedule is not None else self._current_rates()

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
        if session.work is None:
            raise Error("there is no batch: optimizer.step() belongs into the loop over "
                        "capstan.torch.batches")
        if self._rates is not None and self._rates != self._current_rates():
            raise Error(f"the learning rates are {self._current_rates()} now and were "
                        f"{self._rates}: the servers have them; give the scheduler to "
                        "capstan.torch.Optimizer (schedule=)")
        mean = 0.0 if loss is None else float(loss.detach())
        session.push(mean * len(session.work.samples), int(correct))

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
    if _session is None:
        raise Error("there is no capstan.torch.Optimizer yet: make it before the batches")
    if _job.folder_to_declare_in() is not None:
        _session.declare(len(dataset), batch_size, epochs)
    collate = collate or torch.utils.data.default_collate

    def load(work: Work) -> Any:
        assert collate is not None
        return collate([dataset[sample] for sample in work.samples])

    _session.begin()
    while (batch := _session.next(load)) is not None:
        yield batch


def current() -> Work:
    """The batch that the loop over `batches` is at: its epoch, iteration, samples and seed.

    Raises Error outside of that loop.
    """
    if _session is None or _session.work is None:
        raise Error("there is no batch: it is known in the loop over capstan.torch.batches")
    return _session.work


def deterministic() -> None:
    """Makes PyTorch compute the same bits each time, as far as it can."""
    torch.use_deterministic_algorithms(True)
