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

To accumulate gradients, ask for batches that are n times as large and call backward() for each of n
parts of a batch, each loss divided by n, before its one step().

After the job `load` puts its model into a network, to evaluate it.

`torch.autocast` works as in PyTorch's documentation. With a GradScaler a batch whose step it leaves
out comes again, with the scale that it has lowered.

The servers hold fp32. Parameters of float16 and bfloat16 are rounded from that for each batch;
other types are refused. GPUs are not supported yet.
"""

from typing import Any, Callable, Iterable, Iterator, Optional, Sequence, Union

import torch

from capstan import _loading, _rules
from capstan._arrays import Memory
from capstan._client import Error, Work
from capstan._embedding import EmbeddingBag
from capstan._network import Network, load
from capstan._overlap import Overlap
from capstan._session import Rule, Session
from capstan._skipped import SkippedSteps

__all__ = ["EmbeddingBag", "Error", "Optimizer", "batches", "current", "deterministic", "load"]

Evaluate = Callable[[Any], Any]
Make = Callable[[Work], tuple[Any, dict[str, Memory]]]
Rules = Union[torch.optim.Optimizer, Rule, Sequence[tuple[Iterable[torch.nn.Parameter], Rule]],
              None]

_made: Optional["Optimizer"] = None  # A process has one optimizer.


def _with_rules(optimizer: Rules, model: torch.nn.Module, scheduled: bool
                ) -> tuple[Optional[torch.optim.Optimizer], list[Rule]]:
    """Returns an optimizer with the trained parameters in groups, and the rule of each group."""
    if optimizer is None:
        return None, []
    if isinstance(optimizer, torch.optim.Optimizer):
        return optimizer, _rules.server_optimizers(optimizer, scheduled)
    if isinstance(optimizer, dict):
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not trained:
            raise Error("the model has no parameter that requires a gradient, expected None for "
                        "the optimizer")
        optimizer = [(trained, optimizer)]
    if not optimizer or not all(isinstance(pair, tuple) and len(pair) == 2 and
                                isinstance(pair[1], dict) for pair in optimizer):
        raise Error(f"the optimizer is {optimizer!r:.80}, expected one of torch.optim, a rule of "
                    "capstan.optimizers, or pairs of parameters and their rule")
    groups = [{"params": list(parameters), "lr": rule["learning_rate"]}
              for parameters, rule in optimizer]
    # It is never stepped, but loops and GradScaler look at its groups.
    return torch.optim.SGD(groups, lr=groups[0]["lr"]), [rule for _, rule in optimizer]


class Optimizer:
    """Sends the gradients of a model to the servers, which update by the wrapped optimizer's rule.

    optimizer: one of torch.optim's SGD, Adam, AdamW, Adagrad, RMSprop and Adadelta. It is never
        stepped. Or a rule of capstan.optimizers, such as Plugin("signum", 1e-3), for all parameters
        that require gradients; or pairs of parameters and their rule. None: the model has
        EmbeddingBags alone.
    model: has the optimizer's parameters, and the tables of its EmbeddingBags.
    sync: "bsp", "ssp:N" (at most N iterations of staleness) or "asp".
    slots: BSP, batches of an iteration; None: one for each worker.
    seed: of the order of samples and of the random numbers of each batch.
    schedule: one of torch.optim.lr_scheduler's that needs no losses, over `optimizer`. The servers
        follow it from the first update on; stepping it in the loop changes nothing.
    schedule_every: "update": PyTorch would step it after each update; "epoch": after each epoch.
    overlap: gradients leave for the servers while backward() computes others. Then backward() must
        be called once a batch, and nothing may change gradients afterwards: no clipping. The result
        is the same.

    Raises Error for an optimizer, a setting or a schedule that the servers do not have, for a model
    that lacks the optimizer's parameters or has others without one, for parameters of other types
    than float32, float16 and bfloat16, and for a second Optimizer in a process; ValueError for a
    `sync` or `schedule_every` that is none of those.
    """

    def __init__(self, optimizer: Rules, model: torch.nn.Module, *, sync: str = "bsp",
                 slots: Optional[int] = None, seed: int = 1, schedule: Any = None,
                 schedule_every: str = "update", overlap: bool = False) -> None:
        global _made
        if schedule_every not in ("update", "epoch"):
            raise ValueError(f"schedule_every is {schedule_every!r}, expected 'update' or 'epoch'")
        if schedule is not None and not isinstance(optimizer, torch.optim.Optimizer):
            raise Error(f"the optimizer is {'None' if optimizer is None else 'a rule'}, expected "
                        "one of torch.optim for the schedule; rules have their own: "
                        "SGD(0.1) | Cosine(1000)")
        grouped, rules = _with_rules(optimizer, model, schedule is not None)
        self._network = network = Network(model, grouped)
        self._session = session = Session("capstan.torch.Optimizer", sync, slots, seed)
        network.add_to(session, rules)
        if schedule is not None:
            session.schedules = lambda updates, epochs: _rules.server_schedules(
                grouped, schedule, updates * epochs, updates if schedule_every == "epoch" else 1)
        self._optimizer = grouped
        self._skipped = SkippedSteps(self._parameters)
        self._overlaps = overlap
        self._overlap: Optional[Overlap] = None  # In the loop.
        self._rates = None if schedule is not None else self._current_rates()
        _made = self

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of the wrapped optimizer, and one for each EmbeddingBag.

        The latter have the rows of the current batch as their "params", so that a GradScaler finds
        all gradients.
        """
        groups: list[dict[str, Any]] = (
            [] if self._optimizer is None else self._optimizer.param_groups)
        return [*groups, *self._network.row_groups()]

    def _parameters(self) -> Iterator[torch.Tensor]:
        for group in self.param_groups:
            yield from group["params"]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of the parameters, and of the current batch's rows."""
        self._skipped.before_clearing()
        for group in self._network.row_groups():
            for rows in group["params"]:
                rows.grad = None
        if self._optimizer is not None:
            self._optimizer.zero_grad(set_to_none)

    def step(self, loss: Union[torch.Tensor, float, None] = None, *, correct: int = 0) -> None:
        """Sends the gradients of the current batch, which `backward` of its mean loss has left.

        loss: that mean, for the job's progress, [] or [1]. correct: samples that were classified
        correctly; the job shows no accuracy if it is 0 for all samples. Raises Error if there is no
        batch, a gradient is sparse or the learning rate was changed, and Diverged if the loss or a
        gradient is not finite.
        """
        session = self._session
        session.current()
        if callable(loss):
            raise Error("step() is given a function, expected the loss of the batch: the servers "
                        "have no rule that evaluates it again")
        mean = 0.0 if loss is None else float(loss.detach() if hasattr(loss, "detach") else loss)
        if self._rates is not None and self._rates != self._current_rates():
            raise Error(f"the learning rates are {self._current_rates()} now and were "
                        f"{self._rates}: the servers have them; give the scheduler to "
                        "capstan.torch.Optimizer (schedule=)")
        self._network.put(session, set() if self._overlap is None else self._overlap.end())
        self._skipped.stepped()
        session.finish(mean, int(correct))

    def _batches(self, loader: _loading.Loader, evaluate: Optional[Evaluate]) -> Iterator[Any]:
        """The loop on a worker."""
        session, network = self._session, self._network

        def load(work: Work) -> Any:
            assert session.task is not None
            return loader.load(work, session.task.upcoming)

        def make(work: Work) -> tuple[Any, dict[str, Memory]]:
            batch = load(work)
            return batch, network.keys_of(batch)

        def prepared(work: Work) -> Any:
            """The batch of a work, with its parameters in the network."""
            batch = load(work) if session.made is None else session.made.content
            _loading.seed(work.seed)
            network.take(session)
            return batch

        def evaluated(work: Work) -> tuple[float, int]:
            assert evaluate is not None
            return network.evaluate(evaluate, prepared(work))

        session.begin()
        if self._overlaps:
            self._overlap = network.overlap(session)
        while (work := self._next(make, None if evaluate is None else evaluated)) is not None:
            batch = prepared(work)
            if self._overlap is not None:
                self._overlap.begin()
            yield batch

    def _next(self, make: Make, evaluate: Optional[Callable[[Work], tuple[float, int]]]
              ) -> Optional[Work]:
        """The next batch; the same again if its step was skipped."""
        if self._session.work is not None and self._skipped.comes_again():
            return self._session.work
        return self._session.next(make, evaluate)

    def _current_rates(self) -> list[float]:
        return [group["lr"] for group in self.param_groups]


def _length_of(dataset: Any, what: str) -> int:
    """The number of a dataset's samples. Raises Error if it has none, or no numbers for them."""
    kind = type(dataset).__name__
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise Error(f"{what} is a {kind}, expected one with __len__ and __getitem__: samples are "
                    "given to workers by their numbers")
    if len(dataset) == 0:
        raise Error(f"{what} is an empty {kind}, expected at least one sample")
    return len(dataset)


def batches(dataset: Any, batch_size: int, *, epochs: int = 1,
            collate: Optional[Callable[[list[Any]], Any]] = None, workers: int = 0,
            prefetch: int = 2, test: Any = None, evaluate: Optional[Callable[[Any], Any]] = None
            ) -> Iterator[Any]:
    """Yields the batches that this worker computes, with the newest parameters in the model.

    dataset: has __len__ and __getitem__, the same on each worker. Every sample comes once an
        epoch, on one of the workers. If it has __getitems__, that is asked for a batch's samples.
    batch_size: samples of a batch; the last one of an epoch may have fewer.
    epochs: passes over the dataset.
    collate: makes a batch of a list of samples; default: PyTorch's default_collate.
    workers: processes that load batches ahead, as a DataLoader's num_workers. 0: this
        process loads them. They are forked before the first batch. Batches are the same for any
        number: the random numbers of Python, NumPy and PyTorch are seeded for each.
    prefetch: batches that each of them loads ahead, at most; 16 in all.
    test: data as `dataset`. It is evaluated after each epoch, by all workers, with the model that
        the epoch has left; the job has its mean loss and accuracy.
    evaluate: from a batch of `test` to its mean loss, or that and the number of samples that were
        classified correctly. It is called between two batches of the loop, with the model in
        evaluation mode and without gradients.

    Raises Error if there is no Optimizer yet, if the job has other tensors than the model, if a
    batch is asked for before the step of the one before, and if a sample cannot be loaded; it then
    names the sample, or those of the batch where __getitems__ has failed.
    """
    if _made is None:
        raise Error("there is no capstan.torch.Optimizer yet: make it before the batches")
    if workers < 0 or prefetch < 1:
        raise ValueError(f"workers is {workers} and prefetch is {prefetch}, expected at least 0 "
                         "and 1")
    if (test is None) != (evaluate is None):
        raise ValueError("test and evaluate belong together, expected both or none")
    samples = _length_of(dataset, "the dataset")
    test_samples = 0 if test is None else _length_of(test, "the test data")
    _made._network.look_again()
    _made._session.declare(samples, batch_size, epochs, _made._network.initial, test_samples)
    collate = collate or torch.utils.data.default_collate
    loader = _loading.Loader(
        _loading.Source(dataset, collate),
        None if test is None else _loading.Source(test, collate), workers, prefetch)
    try:
        yield from _made._batches(loader, evaluate)
    finally:
        loader.close()


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
