"""The C interface of libcapstan_client.so (worker/program/capstan_client.h) as Python objects.

ctypes releases the interpreter's lock during each call.
"""

import ctypes
import os
import pathlib
import sys
import threading
import time
from dataclasses import dataclass
from typing import Optional

_ERROR_BYTES = 1024
_OK, _TIMEOUT, _ENDED, _WRONG, _DIVERGED, _FAILED = range(6)
_COMPUTE, _NAME_KEYS, _EVALUATE, _NAME_TEST_KEYS, _RUN = range(5)  # A work's kind.
POLL_SECONDS = 0.2  # Between two checks for Ctrl-C.


class Error(RuntimeError):
    """A call that Capstan refuses; the message says what was expected."""


class Diverged(Error):
    """A loss or a gradient is not finite."""


class Failed(Error):
    """The servers have not done an operation; the message says why."""


class Ended(Error):
    """The run is over: the task was told to stop."""


@dataclass(frozen=True)
class Work:
    """A batch to compute the gradient of, to evaluate, or to name the keys of; or a run."""

    names_keys: bool  # The keys of its rows are asked for; it is to be computed later.
    epoch: int
    iteration: int
    slot: int  # Which of the iteration's batches it is under BSP, else -1.
    seed: int  # The same for the same samples in the same epoch, on any worker.
    samples: tuple[int, ...]  # Numbers of the samples in the data, in order.
    tests: bool = False  # The samples are of the test data, and are to be evaluated.
    runs: bool = False  # The job has own_pace: push, pull and wait, then finish.


@dataclass(frozen=True)
class Tensor:
    """A tensor in a table of the job."""

    name: str
    shape: tuple[int, ...]
    first: int  # Its first element in the table.
    count: int


PARAMETERS, AVERAGES, ROWS = range(3)


@dataclass(frozen=True)
class Table:
    """A table of the job: tensors, or rows by key."""

    name: str
    kind: int  # PARAMETERS, AVERAGES or ROWS.
    dim: int  # ROWS: floats a row.
    tensors: tuple[Tensor, ...]  # The tensors in it; none for ROWS.


class _Work(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint64), ("epoch", ctypes.c_int64),
                ("iteration", ctypes.c_int64), ("slot", ctypes.c_int64), ("seed", ctypes.c_uint64),
                ("samples", ctypes.POINTER(ctypes.c_int64)), ("sample_count", ctypes.c_int64),
                ("kind", ctypes.c_int64)]


def _described(work: _Work) -> Work:
    return Work(work.kind in (_NAME_KEYS, _NAME_TEST_KEYS), work.epoch, work.iteration, work.slot,
                work.seed, tuple(work.samples[:work.sample_count]),
                work.kind in (_EVALUATE, _NAME_TEST_KEYS), work.kind == _RUN)


class _Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("dimensions", ctypes.c_int64), ("first", ctypes.c_int64),
                ("count", ctypes.c_int64)]


class _Table(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("kind", ctypes.c_int64), ("dim", ctypes.c_int64)]


def _find_library() -> str:
    """The path in CAPSTAN_CLIENT_LIBRARY, else that of the file beside this one."""
    named = os.environ.get("CAPSTAN_CLIENT_LIBRARY")
    path = pathlib.Path(named) if named else pathlib.Path(__file__).with_name(
        "libcapstan_client.so")
    if not path.exists():
        raise Error(f"{path} is not there: install the package capstan, or set "
                    "CAPSTAN_CLIENT_LIBRARY to its library")
    return str(path)


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(_find_library())
    task, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64
    for name, result, arguments in (
        ("start", task, [text]),
        ("job", text, [task]),
        ("rank", number, [task]),
        ("workers", number, [task]),
        ("table_count", number, [task]),
        ("table", ctypes.c_int, [task, number, ctypes.POINTER(_Table), text]),
        ("elements", number, [task, number]),
        ("tensor_count", number, [task, number]),
        ("tensor", ctypes.c_int, [task, number, number, ctypes.POINTER(_Tensor), text]),
        ("next", ctypes.c_int, [task, ctypes.c_double, ctypes.POINTER(_Work), text]),
        ("upcoming_count", number, [task]),
        ("upcoming", ctypes.c_int, [task, number, ctypes.POINTER(_Work), text]),
        ("name_keys", ctypes.c_int,
         [task, number, ctypes.c_void_p, number, ctypes.c_void_p, text]),
        ("parameters", ctypes.c_void_p, [task, number]),
        ("put_gradient", ctypes.c_int, [task, number, number, ctypes.c_void_p, number, text]),
        ("release", ctypes.c_int, [task, number, text]),
        ("finish", ctypes.c_int, [task, ctypes.c_double, number, text]),
        ("push", ctypes.c_int, [task, number, ctypes.c_void_p, number, ctypes.c_void_p, number,
                                ctypes.POINTER(number), text]),
        ("pull", ctypes.c_int, [task, number, ctypes.c_void_p, number, ctypes.c_void_p, number,
                                ctypes.POINTER(number), text]),
        ("wait", ctypes.c_int, [task, number, ctypes.c_double, text]),
        ("snapshot", ctypes.c_void_p, [task, ctypes.c_double, text]),
        ("fail", None, [task, text]),
        ("close", ctypes.c_int, [task]),
    ):
        function = getattr(library, f"capstan_task_{name}")
        function.restype, function.argtypes = result, arguments
    library.capstan_snapshot_read.restype = ctypes.c_int
    library.capstan_snapshot_read.argtypes = [
        ctypes.c_void_p, number, ctypes.c_void_p, number, ctypes.c_void_p, number, ctypes.c_void_p,
        text]
    library.capstan_snapshot_close.restype = None
    library.capstan_snapshot_close.argtypes = [ctypes.c_void_p]
    return library


class Snapshot:
    """All tables at one moment, until it is closed. One thread at a time uses it."""

    def __init__(self, library: ctypes.CDLL, snapshot: int) -> None:
        self._library, self._snapshot = library, snapshot
        self._error = ctypes.create_string_buffer(_ERROR_BYTES)

    def __enter__(self) -> "Snapshot":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, table: int, address: int, count: int, keys: int = 0, key_count: int = 0,
             found: int = 0) -> None:
        """Reads `count` fp32 values into the memory from `address` on.

        For a dense table these are all of its values; for a table of rows, the rows of the
        `key_count` int64 keys from `keys` on. `found` is 0, or the address of a byte for each key:
        it becomes 1 if the key had a row; else the byte and the row's values become 0. Raises
        Failed if the servers do not keep the moment any more, and Error if the numbers do not fit
        or the snapshot is closed.
        """
        if not self._snapshot:
            raise Error("the snapshot is closed")
        code = self._library.capstan_snapshot_read(self._snapshot, table, keys or None, key_count,
                                                   address, count, found or None, self._error)
        if code != _OK:
            raise (Failed if code == _FAILED else Error)(
                self._error.value.decode(errors="replace"))

    def close(self) -> None:
        """Lets the servers forget it."""
        if self._snapshot:
            self._library.capstan_snapshot_close(self._snapshot)
        self._snapshot = 0


class _Answers(threading.local):
    """The buffers that the library fills for one thread."""

    def __init__(self) -> None:
        self.error = ctypes.create_string_buffer(_ERROR_BYTES)
        self.operation = ctypes.c_int64()


class Task:
    """The task that this process was started for.

    One thread at a time uses it; any thread may call push, pull, wait, snapshot and fail. Raises
    Error if no job has started this process.
    """

    def __init__(self) -> None:
        self._library = _load()
        self._error = ctypes.create_string_buffer(_ERROR_BYTES)
        self._answers = _Answers()
        self._pid = os.getpid()
        self._task: Optional[int] = self._library.capstan_task_start(self._error)
        if not self._task:
            raise Error(self._message())
        self.job: str = self._library.capstan_task_job(self._task).decode()
        self.rank: int = self._library.capstan_task_rank(self._task)
        self.workers: int = self._library.capstan_task_workers(self._task)
        self.tables: list[Table] = [
            self._table(table)
            for table in range(self._library.capstan_task_table_count(self._task))
        ]

    def _message(self) -> str:
        return self._error.value.decode(errors="replace")

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._task is None

    def expect_own_process(self) -> None:
        """Raises Error in a process that was forked from the one that has the task."""
        if os.getpid() != self._pid:
            raise Error(f"process {os.getpid()} was forked from {self._pid}, which has the task: "
                        "start processes with the method 'spawn'")

    def _handle(self) -> int:
        if self._task is None:
            raise Error("the task is closed")
        self.expect_own_process()
        return self._task

    def _check(self, code: int) -> None:
        if code == _OK:
            return
        raise {_DIVERGED: Diverged, _ENDED: Ended}.get(code, Error)(self._message())

    def _operation(self, code: int) -> int:
        answers = self._answers
        if code == _OK:
            return answers.operation.value
        message = answers.error.value.decode(errors="replace")
        raise {_DIVERGED: Diverged, _ENDED: Ended}.get(code, Error)(message)

    def _table(self, index: int) -> Table:
        table = _Table()
        self._check(self._library.capstan_task_table(self._task, index, ctypes.byref(table),
                                                     self._error))
        return Table(table.name.decode(), table.kind, table.dim, tuple(self._tensors(index)))

    def _tensors(self, table: int) -> list[Tensor]:
        found = []
        for index in range(self._library.capstan_task_tensor_count(self._task, table)):
            tensor = _Tensor()
            self._check(self._library.capstan_task_tensor(
                self._task, table, index, ctypes.byref(tensor), self._error))
            found.append(Tensor(tensor.name.decode(), tuple(tensor.shape[:tensor.dimensions]),
                                tensor.first, tensor.count))
        return found

    def elements(self, table: int) -> int:
        """The number of a table's floats; for a table of rows, of the current batch's rows."""
        return int(self._library.capstan_task_elements(self._handle(), table))

    def next(self) -> Optional[Work]:
        """Waits for the next work; None: the task has ended. Ctrl-C works."""
        work = _Work(size=ctypes.sizeof(_Work))
        while True:
            code = self._library.capstan_task_next(self._handle(), POLL_SECONDS,
                                                   ctypes.byref(work), self._error)
            if code == _TIMEOUT:
                continue
            if code == _ENDED:
                return None
            self._check(code)
            return _described(work)

    def upcoming(self) -> list[Work]:
        """The batches planned after the current work, in order. Some may go to other workers."""
        works = []
        for index in range(self._library.capstan_task_upcoming_count(self._handle())):
            work = _Work(size=ctypes.sizeof(_Work))
            self._check(self._library.capstan_task_upcoming(self._handle(), index,
                                                            ctypes.byref(work), self._error))
            works.append(_described(work))
        return works

    def name_keys(self, table: int, keys: int, count: int, places: int) -> None:
        """Names `count` keys whose rows the current work needs: int64 from the address `keys` on.

        places: address of as many int64; each becomes the row of its key in the table's floats.
        """
        self._check(self._library.capstan_task_name_keys(self._handle(), table, keys, count,
                                                         places, self._error))

    def parameters(self, table: int) -> int:
        """The address of a table's fp32 values, [elements], valid until the batch is finished.

        Raises Error if there is no such table, or no batch.
        """
        address = self._library.capstan_task_parameters(self._handle(), table)
        if not address:
            raise Error(f"there is no table {table}, or no batch is under way")
        return int(address)

    def put_gradient(self, table: int, first: int, address: int, count: int) -> None:
        """Takes `count` fp32 values from `address` on as the elements from `first` on.

        They are the gradient of the batch's mean loss; for AVERAGES, the new values. Raises
        Diverged if one is not finite, and Error if they are not within the table.
        """
        self._check(self._library.capstan_task_put_gradient(self._handle(), table, first, address,
                                                            count, self._error))

    def release(self, first: int) -> None:
        """The gradient of table 0 is complete from element `first` on: it may leave.

        Raises Error if there is no such element, or no batch.
        """
        self._check(self._library.capstan_task_release(self._handle(), first, self._error))

    def finish(self, loss_sum: float, correct: int) -> None:
        """Ends the work; both numbers are sums over its samples. A run ignores them.

        Operations of a run that were not waited for are awaited; if one fails, so does the task.
        """
        self._check(self._library.capstan_task_finish(self._handle(), loss_sum, correct,
                                                      self._error))

    def push(self, table: int, address: int, count: int, keys: int = 0,
             key_count: int = 0) -> int:
        """Starts a push of `count` fp32 values from `address` on; returns the operation.

        For a dense table they are all of its values, and must stay as they are until the operation
        was waited for. For a table of rows `keys` is the address of `key_count` int64, which may
        repeat: their gradients are added up, and the memory may be changed at once. Raises Diverged
        if a value is not finite, Ended if the run is over, Error if the numbers do not fit or 1024
        operations are not waited for.
        """
        answers = self._answers
        return self._operation(self._library.capstan_task_push(
            self._handle(), table, keys or None, key_count, address, count,
            ctypes.byref(answers.operation), answers.error))

    def pull(self, table: int, address: int, count: int, keys: int = 0,
             key_count: int = 0) -> int:
        """Starts a pull into `count` fp32 values from `address` on; returns the operation.

        The memory is the library's until the operation was waited for. The pull sees this task's
        earlier pushes. For other arguments and errors see `push`.
        """
        answers = self._answers
        return self._operation(self._library.capstan_task_pull(
            self._handle(), table, keys or None, key_count, address, count,
            ctypes.byref(answers.operation), answers.error))

    def wait(self, operation: int, seconds: float) -> None:
        """Waits for an operation, at most so many seconds. Ctrl-C works.

        Raises TimeoutError, which says for whom it waits: the operation goes on, and can be waited
        for again; once its end is known, it cannot. Raises Failed or Ended if it has ended so, and
        Error if there is no such operation.
        """
        answers = self._answers
        deadline = time.monotonic() + seconds
        code, left = _TIMEOUT, seconds
        while code == _TIMEOUT and left >= 0:
            code = self._library.capstan_task_wait(self._handle(), operation,
                                                   min(left, POLL_SECONDS), answers.error)
            left = deadline - time.monotonic()
        if code == _OK:
            return
        message = answers.error.value.decode(errors="replace")
        raise {_TIMEOUT: TimeoutError, _FAILED: Failed, _ENDED: Ended}.get(code, Error)(message)

    def snapshot(self, seconds: float) -> Snapshot:
        """All tables as they are at one moment, while the run goes on; any thread may call it.

        Waits at most so many seconds, and at most 60, until the job stands still; it does so for
        some milliseconds. Raises Failed, which says why there is none.
        """
        answers = self._answers
        snapshot = self._library.capstan_task_snapshot(self._handle(), seconds, answers.error)
        if not snapshot:
            raise Failed(answers.error.value.decode(errors="replace"))
        return Snapshot(self._library, snapshot)

    def fail(self, message: str) -> None:
        """Ends the task with this sentence, which the job shows.

        The worker may end this process from now on: write the last lines of its log before this.
        """
        self._library.capstan_task_fail(self._handle(), message.encode(errors="replace"))

    def close(self) -> int:
        """Ends the task, once; returns its exit code."""
        if self._task is None or os.getpid() != self._pid:
            return 0
        task, self._task = self._task, None
        return int(self._library.capstan_task_close(task))
