"""What one script trains: its tensors and rows, declared as a job or trained in a task."""

import atexit
import collections
import ctypes
import sys
from typing import Any, Callable, Optional

import torch

from capstan import _client, _job
from capstan._client import Error, Task, Work
from capstan._embedding import EmbeddingBag

_SEED_MASK = (1 << 63) - 1
# With rows a batch is made before it is computed: its random numbers are not those of dropout.
_MADE_EARLIER = 0x2545F4914F6CDD1D
_BATCHES_KEPT = 8  # Whose keys were named; a few are trained soon, others by other workers.

# From updates an epoch and epochs to each group's schedule.
Schedules = Callable[[int, int], list[dict[str, Any]]]


class Session:
    """One script's job.

    groups: the trained parameters by name, for each of the optimizer's groups.
    averages: what becomes the mean of what the workers have, by name.
    bags: tables of rows.
    rules, schedules: of each group. job: the other fields of the job.
    """

    def __init__(self, groups: list[dict[str, torch.Tensor]], averages: dict[str, torch.Tensor],
                 bags: list[EmbeddingBag], rules: list[dict[str, Any]],
                 job: dict[str, Any], schedules: Optional[Schedules]) -> None:
        self.parameters = {name: tensor for group in groups for name, tensor in group.items()}
        self.averages, self.bags = averages, {bag.name: bag for bag in bags}
        self._groups, self._rules, self._job = groups, rules, job
        self._schedules = schedules
        self.task: Optional[Task] = None
        self.work: Optional[Work] = None
        # Batches whose keys were named, and for each table of rows the keys and their rows.
        self._named: collections.OrderedDict[tuple[int, int], tuple[Any, dict[str, Any]]] = (
            collections.OrderedDict())

    # ---- the first run

    def declare(self, samples: int, batch_size: int, epochs: int) -> None:
        """Writes the job and leaves the script."""
        folder = _job.folder_to_declare_in()
        assert folder is not None
        tensors = {**self.parameters, **self.averages}
        _job.write_safetensors(folder / _job.WEIGHTS_FILE, (
            (name, tensor.shape, _bytes_of(tensor)) for name, tensor in tensors.items()))
        training = self._job["training"] | {"epochs": epochs, "batch_size": batch_size}
        rules = self._rules
        if self._schedules is not None:
            updates = _job.updates_an_epoch(samples, batch_size, self._job)
            rules = [rule | {"schedule": schedule}
                     for rule, schedule in zip(rules, self._schedules(updates, epochs))]
        used = [rules[0]]  # The job's, then the program's.

        def number(rule: dict[str, Any]) -> dict[str, int]:
            if rule not in used:
                used.append(rule)
            return {"optimizer": used.index(rule)} if used.index(rule) else {}

        program = {
            "samples": samples,
            "parameters": [{**_described(item), **number(rule)}
                           for group, rule in zip(self._groups, rules) for item in group.items()],
            "averages": [_described(item) for item in self.averages.items()],
            "rows": [{**bag.described, **number(bag.optimizer)} for bag in self.bags.values()],
        }
        _job.write_job(folder, self._job | {
            "training": training, "optimizer": used[0],
            "program": program | {"optimizers": used[1:]}})
        raise SystemExit(0)

    # ---- the runs on workers

    def begin(self) -> None:
        """Starts the task; raises Error if the job is about another network."""
        self.task = Task()
        atexit.register(self._leave)
        mine: dict[str, Any] = {name: tuple(tensor.shape) for name, tensor in
                                {**self.parameters, **self.averages}.items()}
        mine |= {name: bag.dim for name, bag in self.bags.items()}
        theirs: dict[str, Any] = {}
        for table in self.task.tables:
            theirs |= {tensor.name: tensor.shape for tensor in table.tensors}
            if table.kind == _client.ROWS:
                theirs[table.name] = table.dim
        for name in {**mine, **theirs}:
            if mine.get(name) != theirs.get(name):
                raise Error(f"{name!r} has the shape {mine.get(name)} in the script, and "
                            f"{theirs.get(name)} in the job: the script must build the same "
                            "network each time")

    def _leave(self) -> None:
        """At the interpreter's exit: says why the task is not done."""
        assert self.task is not None
        error = getattr(sys, "last_value", None)
        if error is not None and self.work is not None:
            self.task.fail(f"{type(error).__name__}: {error}")
        self.task.close()

    def next(self, load: Callable[[Work], Any]) -> Optional[Any]:
        """The next batch, with its parameters in the network; None: the job is done.

        load: makes the batch of a work.
        """
        assert self.task is not None
        if self.work is not None:
            raise Error(f"iteration {self.work.iteration}: the next batch is asked for before "
                        "optimizer.step(); sum over a larger batch in place of accumulating")
        while (work := self.task.next()) is not None and work.names_keys:
            self._name_keys(work, load)
        self.work = work
        if work is None:
            self.task.close()
            return None
        batch, rows = self._named.get((work.epoch, work.seed), (None, {}))
        torch.manual_seed(work.seed & _SEED_MASK)
        if batch is None:
            batch = load(work)
        with torch.no_grad():
            self._load(rows)
        return batch

    def _name_keys(self, work: Work, load: Callable[[Work], Any]) -> None:
        assert self.task is not None
        torch.manual_seed((work.seed ^ _MADE_EARLIER) & _SEED_MASK)
        batch = load(work)
        rows = {}
        for number, table in enumerate(self.task.tables):
            if table.kind != _client.ROWS:
                continue
            keys = self.bags[table.name].keys_of(batch)
            places = torch.empty_like(keys)
            self.task.name_keys(number, keys.data_ptr(), keys.numel(), places.data_ptr())
            rows[table.name] = (keys, places)
        self.task.finish(0, 0)
        self._named[(work.epoch, work.seed)] = (batch, rows)
        while len(self._named) > _BATCHES_KEPT:
            self._named.popitem(last=False)

    def _load(self, rows: dict[str, Any]) -> None:
        """Copies what was pulled into the network."""
        assert self.task is not None
        for number, table in enumerate(self.task.tables):
            count = self.task.elements(number)
            floats = (ctypes.c_float * count).from_address(self.task.parameters(number))
            flat = torch.frombuffer(floats, dtype=torch.float32) if count else torch.empty(0)
            if table.kind == _client.ROWS:
                self.bags[table.name].take(flat.clone().view(-1, table.dim), *rows[table.name])
            of_kind = self.averages if table.kind == _client.AVERAGES else self.parameters
            for spec in table.tensors:
                tensor = of_kind[spec.name]
                tensor.copy_(flat[spec.first:spec.first + spec.count].view(tensor.shape))

    def push(self, loss_sum: float, correct: int) -> None:
        """Sends the gradients, and ends the batch."""
        assert self.task is not None
        for number, table in enumerate(self.task.tables):
            if table.kind == _client.ROWS:
                self._put(number, 0, table.name, self.bags[table.name].gradient())
            for spec in table.tensors:
                if table.kind == _client.AVERAGES:
                    self._put(number, spec.first, spec.name, self.averages[spec.name])
                else:
                    self._put(number, spec.first, spec.name, self.parameters[spec.name].grad)
        self.task.finish(loss_sum, correct)
        self.work = None

    def _put(self, table: int, first: int, name: str, tensor: Optional[torch.Tensor]) -> None:
        assert self.task is not None
        if tensor is None:
            return
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
