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

What is not there yet: GPUs, parameter groups, rates that the script changes, accumulation over
several batches, evaluation on the servers' parameters.
"""

import atexit
import ctypes
import sys
from typing import Any, Callable, Iterator, Optional

import torch

from capstan import _job
from capstan._client import Error, Task, Work

_PARAMETERS, _AVERAGES = 0, 1
_SEED_MASK = (1 << 63) - 1


def _fixed(kind: str, group: dict[str, Any], expected: dict[str, Any]) -> None:
    """Refuses settings of an optimizer that the servers' rule does not have."""
    for name, value in expected.items():
        if group.get(name, value) != value:
            raise Error(f"torch.optim.{kind}: {name} is {group[name]}, expected {value}: the "
                        "servers have no such rule")


def _sgd(group: dict[str, Any]) -> dict[str, Any]:
    _fixed("SGD", group, {"dampening": 0, "maximize": False})
    if group["momentum"] == 0:
        return {"sgd": {}}
    return {"nesterov" if group["nesterov"] else "momentum": {"momentum": group["momentum"]}}


def _adam(kind: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def rule(group: dict[str, Any]) -> dict[str, Any]:
        # The default of the second is True in AdamW of newer PyTorch, which is Adam with it.
        _fixed("Adam", group, {"maximize": False} if kind == "adamw" else
               {"maximize": False, "decoupled_weight_decay": False})
        if group["amsgrad"] and kind == "adamw":
            _fixed("AdamW", group, {"amsgrad": False})
        beta1, beta2 = group["betas"]
        return {"amsgrad" if group["amsgrad"] else kind:
                {"beta1": beta1, "beta2": beta2, "epsilon": group["eps"]}}
    return rule


def _adagrad(group: dict[str, Any]) -> dict[str, Any]:
    _fixed("Adagrad", group, {"lr_decay": 0, "maximize": False})
    return {"adagrad": {"epsilon": group["eps"],
                        "initial_accumulator": group["initial_accumulator_value"]}}


def _rmsprop(group: dict[str, Any]) -> dict[str, Any]:
    _fixed("RMSprop", group, {"centered": False, "maximize": False})
    return {"rmsprop": {"alpha": group["alpha"], "epsilon": group["eps"],
                        "momentum": group["momentum"]}}


def _adadelta(group: dict[str, Any]) -> dict[str, Any]:
    _fixed("Adadelta", group, {"maximize": False})
    return {"adadelta": {"rho": group["rho"], "epsilon": group["eps"]}}


_RULES = {"SGD": _sgd, "Adam": _adam("adam"), "AdamW": _adam("adamw"), "Adagrad": _adagrad,
          "RMSprop": _rmsprop, "Adadelta": _adadelta}


def server_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The `optimizer` of a job file that does what a torch optimizer does.

    Raises Error for optimizers and settings that the servers do not have.
    """
    kind = type(optimizer).__name__
    if kind not in _RULES or not type(optimizer).__module__.startswith("torch.optim"):
        raise Error(f"the optimizer is {kind}, expected one of torch.optim's {', '.join(_RULES)}")
    if len(optimizer.param_groups) != 1:
        raise Error(f"the optimizer has {len(optimizer.param_groups)} parameter groups, expected "
                    "1: the servers have one rule a job")
    group = optimizer.param_groups[0]
    return {**_RULES[kind](group), "learning_rate": group["lr"],
            "weight_decay": group["weight_decay"]}


class _Session:
    """What one script trains: its tensors, and the task once it has begun."""

    def __init__(self, parameters: dict[str, torch.Tensor], averages: dict[str, torch.Tensor],
                 job: dict[str, Any]) -> None:
        self.parameters, self.averages, self.job = parameters, averages, job
        self.task: Optional[Task] = None
        self.work: Optional[Work] = None

    # ---- the first run

    def declare(self, samples: int, batch_size: int, epochs: int) -> None:
        """Writes the job and leaves the script."""
        folder = _job.folder_to_declare_in()
        assert folder is not None
        tensors = {**self.parameters, **self.averages}
        _job.write_safetensors(folder / _job.WEIGHTS_FILE, (
            (name, tensor.shape, _bytes_of(tensor)) for name, tensor in tensors.items()))
        self.job["program"] = {
            "samples": samples,
            "parameters": [_described(item) for item in self.parameters.items()],
            "averages": [_described(item) for item in self.averages.items()],
        }
        self.job["training"] |= {"epochs": epochs, "batch_size": batch_size}
        _job.write_job(folder, self.job)
        raise SystemExit(0)

    # ---- the runs on workers

    def begin(self) -> None:
        self.task = Task()
        atexit.register(self._leave)
        found = [[(tensor.name, tensor.shape) for tensor in table] for table in self.task.tables]
        mine = [[(name, tuple(tensor.shape)) for name, tensor in table.items()]
                for table in (self.parameters, self.averages) if table]
        for theirs, ours in zip(found, mine):
            for theirs_one, ours_one in zip(theirs, ours):
                if theirs_one != ours_one:
                    raise Error(f"the script has the tensor {ours_one}, and the job "
                                f"{theirs_one}: it must build the same network each time")
        if [len(table) for table in found] != [len(table) for table in mine]:
            raise Error(f"the script has {[len(table) for table in mine]} tensors, and the job "
                        f"{[len(table) for table in found]}")

    def _leave(self) -> None:
        """At the interpreter's exit: says why the task is not done."""
        assert self.task is not None
        error = getattr(sys, "last_value", None)
        if error is not None and self.work is not None:
            self.task.fail(f"{type(error).__name__}: {error}")
        self.task.close()

    def next(self) -> Optional[Work]:
        """The next batch, with its parameters in the network; None: the job is done."""
        assert self.task is not None
        if self.work is not None:
            raise Error(f"iteration {self.work.iteration}: the next batch is asked for before "
                        "optimizer.step(); sum over a larger batch in place of accumulating")
        self.work = self.task.next()
        if self.work is None:
            self.task.close()
            return None
        with torch.no_grad():
            self._load(_PARAMETERS, self.parameters)
            if self.averages:
                self._load(_AVERAGES, self.averages)
        torch.manual_seed(self.work.seed & _SEED_MASK)
        return self.work

    def _load(self, table: int, tensors: dict[str, torch.Tensor]) -> None:
        assert self.task is not None
        count = self.task.elements(table)
        floats = (ctypes.c_float * count).from_address(self.task.parameters(table))
        flat = torch.frombuffer(floats, dtype=torch.float32)
        for spec, tensor in zip(self.task.tables[table], tensors.values()):
            tensor.copy_(flat[spec.first:spec.first + spec.count].view(tensor.shape))

    def push(self, loss_sum: float, correct: int) -> None:
        assert self.task is not None
        for spec, tensor in zip(self.task.tables[_PARAMETERS], self.parameters.values()):
            if tensor.grad is not None:
                self._put(_PARAMETERS, spec.first, spec.name, tensor.grad)
        for spec, tensor in zip(self.task.tables[_AVERAGES] if self.averages else [],
                                self.averages.values()):
            self._put(_AVERAGES, spec.first, spec.name, tensor)
        self.task.finish(loss_sum, correct)
        self.work = None

    def _put(self, table: int, first: int, name: str, tensor: torch.Tensor) -> None:
        assert self.task is not None
        if tensor.layout != torch.strided:
            raise Error(f"the gradient of {name!r} is {tensor.layout}, expected a dense one")
        values = tensor.detach().to("cpu", torch.float32).contiguous()
        self.task.put_gradient(table, first, values.data_ptr(), values.numel())


def _described(item: tuple[str, torch.Tensor]) -> dict[str, Any]:
    return {"name": item[0], "shape": list(item[1].shape)}


def _bytes_of(tensor: torch.Tensor) -> bytes:
    """A tensor's values as fp32, row by row. (Not by numpy(): PyTorch may be there without it.)"""
    values = tensor.detach().to("cpu", torch.float32).contiguous()
    return ctypes.string_at(values.data_ptr(), values.numel() * values.element_size())


def _tensors_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer
                ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The trained parameters of a model by name, and all else in its state."""
    trained = {id(parameter) for parameter in optimizer.param_groups[0]["params"]}
    parameters: dict[str, torch.Tensor] = {
        name: parameter for name, parameter in model.named_parameters()
        if id(parameter) in trained}
    if len(parameters) != len(trained):
        raise Error(f"the optimizer has {len(trained)} parameters, and {len(parameters)} of them "
                    "are the model's: expected the model whose parameters it has")
    averages = {}
    seen = {parameter.data_ptr() for parameter in parameters.values()}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if not isinstance(tensor, torch.Tensor) or tensor.numel() == 0:
            continue
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            averages[name] = tensor
    return parameters, averages


_session: Optional[_Session] = None


class Optimizer:
    """Sends the gradients of a model to the servers, which update by the wrapped optimizer's rule.

    optimizer: one of torch.optim's SGD, Adam, AdamW, Adagrad, RMSprop and Adadelta, with one
        parameter group. It is never stepped.
    model: has the optimizer's parameters.
    sync: "bsp", "ssp:N" (at most N iterations of staleness) or "asp".
    slots: BSP, batches of an iteration; None: one for each worker.
    seed: of the order of samples and of the random numbers of each batch.

    Raises Error for an optimizer or a setting that the servers do not have, for a model that lacks
    the optimizer's parameters, and for a second Optimizer in a process; ValueError for a `sync`
    that is none of those.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, model: torch.nn.Module, *,
                 sync: str = "bsp", slots: Optional[int] = None, seed: int = 1) -> None:
        global _session
        if _session is not None:
            raise Error("the script has a second capstan.torch.Optimizer, expected one")
        rule = server_optimizer(optimizer)
        training: dict[str, Any] = {"seed": seed}
        if slots is not None:
            training["slots"] = slots
        job = {"optimizer": rule, "consistency": _job.consistency(sync), "training": training}
        self._session = _session = _Session(*_tensors_of(model, optimizer), job)
        self._optimizer = optimizer
        self._rate = optimizer.param_groups[0]["lr"]

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
        rate = self._optimizer.param_groups[0]["lr"]
        if rate != self._rate:
            raise Error(f"the learning rate is {rate} now and was {self._rate}: the servers have "
                        "the rate; ask the job for a schedule (optimizer.schedule)")
        mean = 0.0 if loss is None else float(loss.detach())
        session.push(mean * len(session.work.samples), int(correct))


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
    _session.begin()
    while (work := _session.next()) is not None:
        yield collate([dataset[sample] for sample in work.samples])


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
