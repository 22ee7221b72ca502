"""The session of a script: it declares a job, or trains it in a task. All frameworks use it."""

import atexit
import collections
import ctypes
import os
import sys
import threading
from dataclasses import dataclass
from typing import Any, Callable, NoReturn, Optional

from capstan import _client, _job, _run
from capstan._arrays import Memory
from capstan._client import Diverged, Ended, Error, Task, Work
from capstan._own_pace import Run

_BATCHES_KEPT = 8  # Batches with named keys: a few are trained soon, others by other workers.

Rule = dict[str, Any]  # The `optimizer` of a job file.
Shape = tuple[int, ...]
# From updates an epoch and epochs to each group's schedule.
Schedules = Callable[[int, int], list[dict[str, Any]]]
# From a work of the test data to its mean loss, and how many samples were classified correctly.
Evaluate = Callable[[Work], tuple[float, int]]

_maker: Optional[str] = None  # The `maker` of the process's session.


@dataclass
class Group:
    """Trained tensors that share a rule: their shapes by name."""

    rule: Rule
    tensors: dict[str, Shape]


@dataclass
class Rows:
    """A table of rows by key. described: its entry in a job file (_job.described_rows)."""

    rule: Rule
    described: dict[str, Any]


@dataclass
class MadeBatch:
    """A batch that was made to name its keys."""

    content: Any
    keys: dict[str, Memory]  # By table of rows: int64.
    places: dict[str, Any]  # ctypes array of int64: the row of each key in the batch's values.


@dataclass(frozen=True)
class _Place:
    """The place of a tensor in the task's tables; for a table of rows, the whole table."""

    table: int
    first: int
    count: Optional[int]  # None: rows, whose number changes.


class Session:
    """One script's job. The thread that loops over its batches uses it.

    maker: what makes it, as users know it: a process has one session. sync, slots, seed, own_pace:
    as capstan.init says.
    groups, averages, rows: what the script trains, added before the first batch. Averages are
    tensors that become the mean of what the workers have. schedules: of the groups.
    """

    def __init__(self, maker: str, sync: str, slots: Optional[int], seed: int,
                 own_pace: bool = False) -> None:
        global _maker
        training: dict[str, Any] = {"seed": seed} | ({} if slots is None else {"slots": slots})
        self._job: dict[str, Any] = {"consistency": _job.consistency(sync), "training": training}
        if _maker is not None:
            raise Error(f"the script has a second {maker}, expected one" if _maker == maker else
                        f"the script has {_maker} and {maker}, expected one of the two")
        _maker = maker
        self.groups: list[Group] = []
        self.averages: dict[str, Shape] = {}
        self.rows: dict[str, Rows] = {}
        self.schedules: Optional[Schedules] = None
        self.own_pace = own_pace
        self.run: Optional[Run] = None  # Once a script at its own pace has begun.
        self.task: Optional[Task] = None
        self.work: Optional[Work] = None  # The batch that is computed.
        self.made: Optional[MadeBatch] = None  # The same, if it was made earlier.
        self._made: collections.OrderedDict[tuple[int, int], MadeBatch] = collections.OrderedDict()
        self._places: dict[str, _Place] = {}
        self._exited: Optional[SystemExit] = None  # The exception that ends the script.
        self._thread = 0
        self._process = os.getpid()

    def shapes(self) -> dict[str, Shape]:
        """The shapes of all tensors, by name: first the trained ones, then the averages."""
        return {name: shape for group in self.groups for name, shape in group.tensors.items()
                } | self.averages

    # ---- the first run

    def declare(self, samples: int, batch_size: int, epochs: int,
                initial: Callable[[str], bytes], test_samples: int = 0) -> None:
        """If this is the first run, writes the job and leaves the script.

        initial: a tensor's values as fp32, row by row.
        """
        if self.schedules is not None and _job.rules_matter():
            slots = _job.batches_an_update(self._job)
            if "bsp" in self._job["consistency"]:  # No job file may have another number then.
                self._job["training"]["slots"] = slots
            updates = -(-samples // (batch_size * slots))
            for group, schedule in zip(self.groups, self.schedules(updates, epochs)):
                group.rule = group.rule | {"schedule": schedule}
        self._declare({"epochs": epochs, "batch_size": batch_size},
                      {"samples": samples, "test_samples": test_samples}, initial)

    def declare_run(self, initial: Callable[[str], bytes]) -> None:
        """Same as `declare`, for a script at its own pace."""
        self._declare({}, {"own_pace": True}, initial)

    def _rules(self) -> dict[str, Rule]:
        """Each group's rule by the name of its first tensor, and those of tables of rows."""
        return {name: group.rule for group in self.groups for name in list(group.tensors)[:1]
                } | {name: rows.rule for name, rows in self.rows.items()}

    def _declare(self, training: dict[str, int], counts: dict[str, Any],
                 initial: Callable[[str], bytes]) -> None:
        folder = _job.folder_to_declare_in()
        if folder is None:
            _run.unless_in_a_job()
            return
        if self.shapes():  # Rows have no initial values.
            _job.write_safetensors(folder / _job.WEIGHTS_FILE, (
                (name, shape, initial(name)) for name, shape in self.shapes().items()))
        # The job's rule, then the program's.
        used = [next(iter(self._rules().values()))]

        def number(rule: Rule) -> dict[str, int]:
            if rule not in used:
                used.append(rule)
            return {"optimizer": used.index(rule)} if used.index(rule) else {}

        program = {
            **counts,
            "parameters": [{**_described(item), **number(group.rule)}
                           for group in self.groups for item in group.tensors.items()],
            "averages": [_described(item) for item in self.averages.items()],
            "rows": [{**rows.described, **number(rows.rule)} for rows in self.rows.values()],
            "environment": _job.variables(self._rules()),
        }
        _job.write_job(folder, self._job | {
            "training": self._job["training"] | training, "optimizer": used[0],
            "program": program | {"optimizers": used[1:]}})
        if threading.current_thread() is threading.main_thread():
            raise SystemExit(0)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # SystemExit would end this thread alone.

    # ---- the runs on workers

    def begin(self) -> None:
        """Starts the task.

        Raises Error if the job has other tensors, the script has declared other rules, or the
        task has begun.
        """
        if self.task is not None:
            raise Error("the script loops over its batches a second time, expected one loop "
                        "(epochs=N passes over the samples N times)")
        self.task = Task()
        self._thread, self._process = threading.get_ident(), os.getpid()
        atexit.register(self._leave)
        mine: dict[str, Any] = {**self.shapes(), **{
            name: rows.described["dim"] for name, rows in self.rows.items()}}
        theirs: dict[str, Any] = {}
        for number, table in enumerate(self.task.tables):
            for tensor in table.tensors:
                theirs[tensor.name] = tensor.shape
                self._places[tensor.name] = _Place(number, tensor.first, tensor.count)
            if table.kind == _client.ROWS:
                theirs[table.name] = table.dim
                self._places[table.name] = _Place(number, 0, None)
        for name in {**mine, **theirs}:
            if mine.get(name) != theirs.get(name):
                raise Error(f"{name!r} has the shape {mine.get(name)} in the script, and "
                            f"{theirs.get(name)} in the job: the script must make the same "
                            "tensors each time")
        _job.expect_declared(self._rules())

    def begin_run(self) -> Run:
        """Starts the task of a script at its own pace, and waits until its run may begin.

        Raises Error as `begin` does, and Ended if the job is over.
        """
        self.begin()
        assert self.task is not None
        work = self.task.next()
        if work is None:
            raise Ended("the job is over")
        sys.exit = self._exit
        self.run = Run(self.task, self.shapes() | {
            name: (rows.described["dim"],) for name, rows in self.rows.items()})
        return self.run

    def _exit(self, status: Any = None) -> NoReturn:
        """Replaces sys.exit at a script's own pace: nothing else gives `_leave` the status."""
        if threading.current_thread() is threading.main_thread():
            self._exited = SystemExit(status) if status not in (None, 0) else None
        raise SystemExit(status)

    def _leave(self) -> None:
        """At the interpreter's exit: says why the task is not done."""
        if self.task is None or self.task.closed or os.getpid() != self._process:
            return
        error = getattr(sys, "last_value", None) or self._exited
        if self.run is not None:
            failed = self.run.finish()
            error = error or failed
        if error is not None:
            self.task.fail(f"{type(error).__name__}: {error}")
        elif self.run is not None:
            self.task.finish(0.0, 0)
        self.task.close()

    def next(self, make: Callable[[Work], tuple[Any, dict[str, Memory]]],
             evaluate: Optional[Evaluate] = None) -> Optional[Work]:
        """The next batch to train, which is then the current one; None: the job is done.

        make: makes a batch before its turn, and says which keys of each table of rows it needs.
        evaluate: is called for each batch of the test data that comes before.
        """
        assert self.task is not None
        self._expect_thread()
        if self.work is not None:
            raise Error(f"iteration {self.work.iteration}: the next batch is asked for before the "
                        "gradient of this one was sent (optimizer.step() or batch.finish()): to "
                        "accumulate over n batches use n times the batch size, and compute n parts "
                        "of each batch before its end")
        while (work := self.task.next()) is not None:
            if work.names_keys:
                self._name_keys(work, *make(work))
                continue
            self.work, self.made = work, self._made.get((work.epoch, work.seed))
            if not work.tests:
                return work
            if evaluate is None:
                raise Error("the job has test samples, and the script none: it must declare the "
                            "same each time")
            self.finish(*evaluate(work))
        self.task.close()
        return None

    def _name_keys(self, work: Work, content: Any, keys: dict[str, Memory]) -> None:
        assert self.task is not None
        made = MadeBatch(content, keys, {})
        for name, named in keys.items():
            places = made.places[name] = (ctypes.c_int64 * named.count)()
            self.task.name_keys(self._places[name].table, named.address, named.count,
                                ctypes.addressof(places))
        self.task.finish(0, 0)
        self._made[(work.epoch, work.seed)] = made
        self._made.move_to_end((work.epoch, work.seed))  # It may have been named before.
        while len(self._made) > _BATCHES_KEPT:
            self._made.popitem(last=False)

    def _expect_thread(self) -> None:
        if threading.get_ident() != self._thread:
            raise Error(f"thread {threading.current_thread().name!r} uses the job of another "
                        "thread, expected the one that loops over the batches")

    def current(self) -> Work:
        """The current batch. Raises Error if there is none, or for another thread's."""
        if self.work is None:
            raise Error("there is no batch: pulls, pushes and steps belong into the loop over the "
                        "batches, before the batch's end")
        self._expect_thread()
        return self.work

    def values(self, name: str) -> Any:
        """The current batch's values of a tensor, [count], or of a table of rows, [rows * dim].

        Returns a ctypes array of fp32, valid until the batch is finished.
        """
        self.current()
        assert self.task is not None
        place = self._places[name]
        count = self.task.elements(place.table) if place.count is None else place.count
        if count == 0:
            return (ctypes.c_float * 0)()
        address = self.task.parameters(place.table) + place.first * ctypes.sizeof(ctypes.c_float)
        return (ctypes.c_float * count).from_address(address)

    def put(self, name: str, address: int, count: int) -> None:
        """Takes fp32 values from `address` on as a tensor's gradient, or as a part of its average.

        Raises Diverged if one is not finite.
        """
        self.current()
        assert self.task is not None
        place = self._places[name]
        self.task.put_gradient(place.table, place.first, address, count)

    def finish(self, loss: float, correct: int) -> None:
        """Ends the current batch. loss: its mean. correct: samples that were classified correctly.

        Raises Diverged if the loss, or a gradient that was put, is not finite.
        """
        work = self.current()
        assert self.task is not None
        try:
            self.task.finish(loss * len(work.samples), correct)
        except Diverged as error:  # The batch has ended all the same.
            self.work = self.made = None
            raise Diverged(f"iteration {work.iteration}: {error}") from None
        self.work = self.made = None


def _described(item: tuple[str, Shape]) -> dict[str, Any]:
    return {"name": item[0], "shape": list(item[1])}
