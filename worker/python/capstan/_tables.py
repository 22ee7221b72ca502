"""Tables of arrays and rows, for NumPy, JAX and all else whose arrays are memory of the host."""

import gc
import operator
import threading
import weakref
from typing import Any, Callable, Iterator, Optional, Union

from capstan import _arrays, _job, _session, optimizers
from capstan._arrays import Memory
from capstan._client import Error, Task, Work
from capstan._future import Future, done
from capstan._own_pace import Run, Snapshot
from capstan._session import Session


class Table:
    """A tensor of fp32 that the job trains; capstan.table makes it.

    name, shape: as in the job.

    In a job with own_pace a pull sees what the servers have, with all earlier pushes of this
    process, and each push is an update of its own. Futures end in any order; their result raises
    Failed if the servers have not done it, and Ended if the job is over, where a push may have
    taken effect or not.
    """

    def __init__(self, job: "Job", name: str, shape: tuple[int, ...]) -> None:
        self.name, self.shape = name, shape
        self._job = job
        self._session = job._session
        self._pushed_in: Optional[Work] = None
        self._lent: list[weakref.ref[Any]] = []  # The memory that pulls without a copy gave.

    def pull(self, *, copy: bool = True) -> Future[Any]:
        """The table's values for the current batch: a numpy.ndarray of float32, [*shape].

        It may not be written. Without NumPy it is a memoryview.
        copy: False returns the memory into which the values came, which the next batch overwrites.
            Nothing may hold it any more when the batch is finished.

        Within the loop over capstan.batches the future is done at once. Raises Error outside of it,
        unless the job has own_pace: then the array is the caller's.
        """
        if self._session.own_pace:
            return self._job._run().pull(self.name, None)
        values = self._session.values(self.name)
        content = memoryview(values).cast("B").toreadonly()
        if copy:
            content = memoryview(bytes(content))
        else:
            self._lent.append(weakref.ref(values))
        return done(_arrays.as_array(content, "f", self._shape_of(len(values))))

    def push(self, gradient: Any) -> Future[None]:
        """Takes the gradient of the current batch's mean loss, once a batch.

        gradient: float32, [*shape]: a numpy.ndarray, a jax.Array, or anything else with the buffer
            protocol, or with __dlpack__ on the CPU. It is read before this returns. Nothing is
            copied in between, except a buffer that is not row by row without gaps, such as the
            transpose of a matrix.

        The future is done at once; the gradient leaves when the batch is finished. In a job with
        own_pace it leaves now, and must not be written before the future is done. Raises Error for
        another dtype or shape, a second push and outside of the loop over capstan.batches, and
        Diverged if a value is not finite.
        """
        if self._session.own_pace:
            return self._job._run().push(self.name, self._gradient(gradient, self.shape), None)
        work = self._session.current()
        if self._pushed_in is work:
            raise Error(f"iteration {work.iteration}: the gradient of {self.name!r} was pushed "
                        "already, expected one push a batch")
        memory = self._gradient(gradient, self._shape_of(len(self._session.values(self.name))))
        self._session.put(self.name, memory.address, memory.count)
        self._pushed_in = work
        return done(None)

    def _gradient(self, gradient: Any, shape: tuple[int, ...]) -> Memory:
        what = f"the gradient of {self.name!r}"
        memory = _arrays.memory_of(gradient, what)
        memory.expect(what, "float32", shape)
        return memory

    def _shape_of(self, _count: int) -> tuple[int, ...]:
        return self.shape

    def _expect_complete(self, work: Work) -> None:
        """Raises Error if the batch must not be finished yet."""
        if self._pushed_in is not work:
            raise Error(f"iteration {work.iteration}: no gradient of {self.name!r} was pushed, "
                        "expected one of each table (zeros, if the batch has none)")
        if any(lent() is not None for lent in self._lent):
            gc.collect()  # Some may be part of a cycle that nothing else holds.
        if any(lent() is not None for lent in self._lent):
            raise Error(f"iteration {work.iteration}: what {self.name!r}.pull(copy=False) returned "
                        "is held at the batch's end, expected nothing to hold it: del it, or "
                        "pull a copy")
        self._lent.clear()


class RowTable(Table):
    """Rows of fp32 by key, of a table without a size; capstan.rows makes it.

    It pulls and pushes the rows of the current batch: [distinct keys, dim]. shape: () for such
    tables. In a job with own_pace `pull_rows` and `push_rows` take the keys.
    """

    def __init__(self, job: "Job", name: str, dim: int,
                 keys: Optional[Callable[["Batch"], Any]]) -> None:
        super().__init__(job, name, ())
        self.dim = dim
        self._keys = keys

    @property
    def places(self) -> Any:
        """Where the rows of the current batch's keys are: int64, of the keys' shape.

        pull().result()[places] has a row for each key. Raises Error if there is no batch.
        """
        self._session.current()
        made = self._session.made
        assert made is not None
        content = memoryview(bytes(made.places[self.name]))
        return _arrays.as_array(content, "q", made.keys[self.name].shape)

    def _shape_of(self, count: int) -> tuple[int, ...]:
        return (count // self.dim, self.dim)

    def pull(self, *, copy: bool = True) -> Future[Any]:
        """The rows of the current batch, as Table.pull has a table's values."""
        self._expect_no_own_pace("pull_rows")
        return super().pull(copy=copy)

    def push(self, gradient: Any) -> Future[None]:
        """Takes the gradient of the rows of the current batch, as Table.push does."""
        self._expect_no_own_pace("push_rows")
        return super().push(gradient)

    def pull_rows(self, keys: Any) -> Future[Any]:
        """The rows of any keys, in a job with own_pace: float32, [*keys, dim].

        keys: int64, of any shape, repeated or not. A key without a row has initial values.
        """
        return self._job._run().pull(self.name, self._named(keys))

    def push_rows(self, keys: Any, gradient: Any) -> Future[None]:
        """Pushes the gradient of any keys' rows, in a job with own_pace: float32, [*keys, dim].

        The gradients of a key that occurs several times are added up. Raises as `push` does; both
        arrays are read before this returns.
        """
        named = self._named(keys)
        memory = self._gradient(gradient, (*named.shape, self.dim))
        return self._job._run().push(self.name, memory, named)

    def _expect_no_own_pace(self, instead: str) -> None:
        if self._session.own_pace:
            raise Error(f"{self.name!r} has rows, of which a job with own_pace names the keys: "
                        f"expected {instead}")

    def _named(self, keys: Any) -> Memory:
        what = f"the keys of {self.name!r}"
        memory = _arrays.memory_of(keys, what)
        memory.expect(what, "int64")
        return memory

    def _keys_of(self, batch: "Batch") -> Memory:
        if self._keys is None:
            raise Error(f"{self.name!r} was made without keys, expected capstan.rows(keys=...), "
                        "which names those of a batch")
        return self._named(self._keys(batch))


class Batch:
    """Samples for which a worker computes the gradient.

    epoch, iteration: from 0. slot: which of the iteration's batches it is under BSP, else -1.
    seed: for random numbers: the same for the same samples in the same epoch, on any worker, 0 to
        2^64 - 1.
    samples: their numbers, [n], int64; without NumPy a memoryview.
    """

    def __init__(self, job: "Job", work: Work) -> None:
        self.epoch, self.iteration, self.slot = work.epoch, work.iteration, work.slot
        self.seed = work.seed
        self._job, self._work = job, work

    @property
    def samples(self) -> Any:
        """The numbers of its samples."""
        return _arrays.int64s(self._work.samples)

    def finish(self, loss: float, *, correct: int = 0) -> None:
        """Sends the gradients that were pushed; the batch is over.

        loss: the mean over the samples, for the job's progress; anything that float() takes.
        correct: samples that were classified correctly; the job shows no accuracy if it is 0 for
        all samples.
        Raises Error if a table got no push, or the batch is not the current one; then the batch
        goes on. Raises Diverged if the loss is not finite; then the job fails.
        """
        self._job._finish(self._work, float(loss), int(correct))


class Job:
    """The job that this process trains; capstan.init makes it."""

    def __init__(self, sync: str, slots: Optional[int], seed: int, own_pace: bool) -> None:
        self._session = Session("capstan.init()", sync, slots, seed, own_pace)
        self._beginning = threading.Lock()
        self._tables: dict[str, Table] = {}
        self._initial: dict[str, bytes] = {}  # Kept by the run that declares the job.

    @property
    def rank(self) -> int:
        """The number of this worker, from 0. Raises Error before the first batch."""
        return self._task().rank

    @property
    def workers(self) -> int:
        """The number of workers. Raises Error before the first batch."""
        return self._task().workers

    @property
    def id(self) -> str:  # pylint: disable=invalid-name
        """The job's name in the cluster. Raises Error before the first batch."""
        return self._task().job

    def _run(self) -> Run:
        """The operations of a job with own_pace, which begins with the first one."""
        session = self._session
        if not session.own_pace:
            raise Error("keys of any choice, and snapshots, belong to capstan.init(own_pace=True)")
        with self._beginning:
            if session.run is None:
                self._expect_tables()
                session.declare_run(self._initial.__getitem__)
                session.begin_run()
        assert session.run is not None
        return session.run

    def _expect_tables(self) -> None:
        if not self._tables:
            raise Error("there is no capstan.table yet: make the tables before the batches")

    def _task(self) -> Task:
        if self._session.own_pace:
            self._run()
        if self._session.task is None:
            raise Error("the job is known from the first batch of capstan.batches on")
        return self._session.task

    def _add(self, table: Table) -> None:
        if self._session.task is not None:
            raise Error(f"{table.name!r} is made after the first batch, expected all tables before "
                        "the loop over capstan.batches")
        if table.name in self._tables:
            raise Error(f"there are two tables {table.name!r}, of the shapes "
                        f"{self._tables[table.name].shape} and {table.shape}: expected a name for "
                        "each")
        self._tables[table.name] = table

    def _add_dense(self, name: str, initial: Any, rule: _session.Rule) -> Table:
        what = f"the initial value of {name!r}"
        memory = _arrays.memory_of(initial, what)
        memory.expect(what, "float32")
        if memory.count == 0:
            raise Error(f"{what} has the shape {memory.shape}, expected at least one value")
        table = Table(self, name, memory.shape)
        self._add(table)
        if _job.folder_to_declare_in() is not None:
            self._initial[name] = _arrays.copy_of_floats(memory)
        self._session.groups.append(_session.Group(rule, {name: memory.shape}))
        return table

    def _add_rows(self, described: dict[str, Any], keys: Optional[Callable[[Batch], Any]],
                  rule: _session.Rule) -> RowTable:
        table = RowTable(self, described["name"], described["dim"], keys)
        self._add(table)
        self._session.rows[table.name] = _session.Rows(rule, described)
        return table

    def _batches(self, samples: int, batch_size: int, epochs: int) -> Iterator[Batch]:
        self._expect_tables()
        if self._session.own_pace:
            raise Error("a job with own_pace has no batches: expected capstan.init() without it")
        self._session.declare(_at_least_1("samples", samples),
                              _at_least_1("batch_size", batch_size), _at_least_1("epochs", epochs),
                              self._initial.__getitem__)

        def make(work: Work) -> tuple[None, dict[str, Memory]]:
            batch = Batch(self, work)
            return None, {name: table._keys_of(batch) for name, table in self._tables.items()
                          if isinstance(table, RowTable)}

        self._session.begin()
        while (work := self._session.next(make)) is not None:
            yield Batch(self, work)

    def _finish(self, work: Work, loss: float, correct: int) -> None:
        if self._session.current() is not work:
            raise Error(f"iteration {work.iteration}: the batch is not the current one, expected "
                        "the last one of the loop over capstan.batches")
        for table in self._tables.values():
            table._expect_complete(work)
        self._session.finish(loss, correct)


def _at_least_1(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise Error(f"{name} is {value!r}, expected a whole number of at least 1")
    return number


_made: Optional[Job] = None  # A process has one job.


def _current() -> Job:
    if _made is None:
        raise Error("there is no job yet: capstan.init() comes first")
    return _made


def init(*, sync: Optional[str] = None, slots: Optional[int] = None, seed: int = 1,
         own_pace: bool = False) -> Job:
    """Makes the job that this process trains, once.

    sync: "bsp", "ssp:N" (at most N iterations of staleness) or "asp". None: "bsp", or "asp" with
        own_pace, which needs it.
    slots: BSP, batches of an iteration; None: one for each worker. With a number the model has the
        same bits for any number of workers.
    seed: of the order of samples and of each batch's `seed`.
    own_pace: there are no batches. Each worker runs the script once, which pulls and pushes when it
        likes, from any thread, and ends when it is done; an exception makes the job fail, and so
        does sys.exit() with another status than 0. A script that is killed runs anew, and what it
        has pushed stays.

    Raises Error if there is a job or a capstan.torch.Optimizer, ValueError for another `sync`.
    """
    global _made
    sync = sync or ("asp" if own_pace else "bsp")
    if own_pace and (sync != "asp" or slots is not None):
        raise ValueError(f"sync is {sync!r} and slots {slots}, expected 'asp' and None with "
                         "own_pace")
    _made = Job(sync, slots, seed, own_pace)
    return _made


def snapshot(*, timeout: float = 60.0) -> Snapshot:
    """All tables of a job with own_pace at one moment, while it goes on.

    timeout: seconds, at most 60, to wait until the job stands still, which it does for some
        milliseconds. Raises Failed, which says why there is none, and Error without own_pace.
    """
    return _current()._run().snapshot(timeout)


def table(name: str, initial: Any, *, optimizer: Optional[_session.Rule] = None) -> Table:
    """Makes a tensor that the job trains, before the loop over `batches`.

    name: of 1 to 256 bytes, which no other table has; at a script's own pace of 1 to 64 letters,
        digits, '_', '.' and '-'.
    initial: its first values, float32, of any shape without a zero: see Table.push. The values of
        the run that declares the job are used; the runs on workers must have the same shape.
    optimizer: a rule of capstan.optimizers. Default: SGD(0.01).

    Raises Error for another dtype, a name that is there, without `init`, and after the first batch.
    """
    return _current()._add_dense(name, initial, optimizer or optimizers.SGD(0.01))


def rows(name: str, dim: int, *, keys: Optional[Callable[[Batch], Any]] = None,
         optimizer: Optional[_session.Rule] = None, initial_std: float = 0.01,
         admit_after: int = 0, evict_after_updates: int = 0,
         ttl: Optional[Union[str, float]] = None, rows_max: int = 0,
         memory_mib: int = 0, buckets: Optional[int] = None) -> RowTable:
    """Makes a table of rows by key, before the loop over `batches`.

    name: 1 to 64 letters, digits, '_', '.' and '-'. dim: floats a row.
    keys: the keys that a batch needs: int64, of any shape, repeated or not. It is called before the
        batch is computed, and often one or two batches earlier. A job with own_pace needs none.
    optimizer: a rule of capstan.optimizers. Default: SGD(0.01).
    initial_std: standard deviation of new rows.
    admit_after: a key gets a row at its n-th update; before that, its gradients are dropped. 0: at
        the first.
    evict_after_updates: a key loses its row after so many updates in a row that have not named it.
        0: never.
    ttl: a key loses its row when no update has named it for so long while the job trained, or soon
        after: "30d", a number and one of s, m, h, d, or seconds; at least 60 s. Results then depend
        on time. None: never.
    rows_max, memory_mib: bounds of the whole table: beyond rows_max the rows updated longest ago
        are dropped, beyond memory_mib rows lie on the servers' disks. 0: none.
    buckets: shards of the table. None: 64.

    Raises Error as `table` does, ValueError for another `ttl`.
    """
    return _current()._add_rows(
        _job.described_rows(name, dim, initial_std=initial_std, admit_after=admit_after,
                            evict_after_updates=evict_after_updates, ttl=ttl,
                            rows_max=rows_max, memory_mib=memory_mib, buckets=buckets),
        keys, optimizer or optimizers.SGD(0.01))


def batches(samples: int, batch_size: int, *, epochs: int = 1) -> Iterator[Batch]:
    """Yields the batches that this worker computes.

    samples: their number; each comes once an epoch, on one of the workers.
    batch_size: samples of a batch; the last one of an epoch may have fewer.
    epochs: passes over the samples.

    One thread loops, once a process, and uses the tables. Raises Error for numbers below 1, without
    a table, if the job has other tables than the script, and if a batch is asked for before the
    one before is finished.
    """
    yield from _current()._batches(samples, batch_size, epochs)
