"""Pushes and pulls at a script's own pace, outside of any batch."""

import concurrent.futures
import math
import threading
import time
from typing import Any, Callable, Optional

from capstan import _arrays, _client
from capstan._client import Error, Task
from capstan._future import Future, Result

_SLICE_SECONDS = 0.05  # How long one operation is waited for before the others are looked at.
_PENDING_MAX = 512  # Operations that nobody has waited for; the library keeps 1024.
_FAILED_MAX = 16  # Failed operations that are kept until the script has asked for their error.


class Operation(Future[Result]):
    """A push or a pull that is under way: it cannot be cancelled.

    The thread that asks for its result waits for it; otherwise `Run`'s thread does.
    """

    def __init__(self, run: "Run", number: int, value: Result, keeps: Any) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()
        self.number, self.value = number, value
        self.keeps = keeps  # The memory that the library reads or writes meanwhile.
        self.is_awaited = False  # Guarded by the run's lock.
        self.is_told = False  # Whether the script knows how it has ended.
        self._run = run

    def result(self, timeout: Optional[float] = None) -> Result:
        """The pulled values, or None of a push, once the servers have answered.

        timeout: seconds. Raises concurrent.futures.TimeoutError, which says for whom it waits: the
        operation goes on. Raises Failed or Ended as `capstan.Table.push` says.
        """
        self._run.wait_for(self, timeout)
        self.is_told = True
        return super().result(0)

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        """Returns the error that `result` would raise, or None."""
        self._run.wait_for(self, timeout)
        self.is_told = True
        return super().exception(0)


class Run:
    """The operations of a script that pushes and pulls at its own pace. Any thread uses it.

    shapes: by the table's name: a dense table's shape, or (dim,) for a table of rows.
    """

    def __init__(self, task: Task, shapes: dict[str, tuple[int, ...]]) -> None:
        self._task, self._shapes = task, shapes
        self._tables = {table.name: number for number, table in enumerate(task.tables)}
        self._changed = threading.Condition()
        self._pending: dict[int, Operation[Any]] = {}  # In starting order; guarded, as below.
        self._failed: list[Operation[Any]] = []  # In the order in which they failed.
        self._idle = self._stopping = False
        self._thread = threading.Thread(target=self._complete_all, name="capstan-operations",
                                        daemon=True)
        self._thread.start()

    # ---- for the script's threads

    def push(self, name: str, gradient: _arrays.Memory,
             keys: Optional[_arrays.Memory]) -> Operation[None]:
        """Starts a push of a table's gradient; for a table of rows, of the rows of `keys`."""
        return self._start(self._task.push, name, gradient.address, gradient.count, keys, None,
                           gradient)

    def pull(self, name: str, keys: Optional[_arrays.Memory]) -> Operation[Any]:
        """Starts a pull of a table, or of the rows of `keys`, into an array for the caller."""
        values = _arrays.new_floats((*(keys.shape if keys else ()), *self._shapes[name]))
        return self._start(self._task.pull, name, values.address, values.count, keys, values.owner,
                           values)

    def snapshot(self, seconds: float) -> "Snapshot":
        """All tables at one moment."""
        return Snapshot(self._task.snapshot(seconds), self._tables, self._shapes)

    def _start(self, start: Callable[..., int], name: str, address: int, count: int,
               keys: Optional[_arrays.Memory], value: Any, keeps: Any) -> Operation[Any]:
        while len(self._pending) >= _PENDING_MAX:
            with self._changed:
                oldest = next(iter(self._pending.values()), None)
            if oldest is not None:
                oldest.exception()
        named = (keys.address, keys.count) if keys is not None else (0, 0)
        number = start(self._tables[name], address, count, *named)
        operation: Operation[Any] = Operation(self, number, value, keeps)
        with self._changed:
            self._pending[number] = operation
            if self._idle:
                self._changed.notify()
        return operation

    def wait_for(self, operation: Operation[Any], timeout: Optional[float]) -> None:
        """Waits until the operation has ended, at most so many seconds."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        late: Optional[str] = "another thread waits for it"
        while not operation.done():
            self._task.expect_own_process()
            seconds = min(max(deadline - time.monotonic(), 0.0), _client.POLL_SECONDS)
            if self._claim(operation):
                late = self._complete(operation, seconds)
            else:
                concurrent.futures.wait([operation], min(seconds, _SLICE_SECONDS))
            if time.monotonic() >= deadline and not operation.done():
                raise concurrent.futures.TimeoutError(late)

    # ---- the end of operations

    def _claim(self, operation: Operation[Any]) -> bool:
        """Whether the caller alone waits for it now, until `_complete` has returned."""
        with self._changed:
            claimed = not operation.is_awaited and operation.number in self._pending
            operation.is_awaited = operation.is_awaited or claimed
        return claimed

    def _complete(self, operation: Operation[Any], seconds: float) -> Optional[str]:
        """Waits for a claimed operation. Returns for whom it waits, or None: it has ended."""
        error: Optional[Error] = None
        try:
            self._task.wait(operation.number, seconds)
        except TimeoutError as late:
            self._release(operation)
            return str(late)
        except Error as failed:
            error = failed
        except BaseException:  # Ctrl-C.
            self._release(operation)
            raise
        with self._changed:
            del self._pending[operation.number]
            if error is not None:
                untold = [each for each in self._failed if not each.is_told]
                self._failed = [*untold[:_FAILED_MAX - 1], operation]
        operation.keeps = None
        if error is None:
            operation.set_result(operation.value)
        else:
            operation.set_exception(error)
        return None

    def _release(self, operation: Operation[Any]) -> None:
        with self._changed:
            operation.is_awaited = False
            self._changed.notify()

    def _complete_all(self) -> None:
        """The thread's loop: completes operations that nobody waits for, to run their callbacks and
        free their memory."""
        while True:
            with self._changed:
                self._idle = True
                self._changed.wait_for(lambda: self._stopping or self._unclaimed())
                self._idle = False
                if self._stopping:
                    return
                unclaimed = self._unclaimed()
            for operation in unclaimed[1:]:
                if self._claim(operation):
                    self._complete(operation, 0.0)
            if self._claim(unclaimed[0]):
                self._complete(unclaimed[0], _SLICE_SECONDS)

    def _unclaimed(self) -> list[Operation[Any]]:
        return [each for each in self._pending.values() if not each.is_awaited]

    def finish(self) -> Optional[Error]:
        """Waits for all operations, and ends the thread.

        Returns the first error that no call of `result` or `exception` has reported.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()
        with self._changed:
            left = [*(each for each in self._failed if not each.is_told), *self._pending.values()]
        errors = [each.exception() for each in left]
        return next((error for error in errors if isinstance(error, Error)), None)


class Snapshot:
    """All tables at one moment. Servers keep it while it is read, and for some seconds after.

        with capstan.snapshot() as snapshot:
            evaluate(snapshot["w"])

    One thread at a time uses it. Reads raise Failed if a server has died since, or if the last
    read was too long ago.
    """

    def __init__(self, snapshot: _client.Snapshot, tables: dict[str, int],
                 shapes: dict[str, tuple[int, ...]]) -> None:
        self._snapshot, self._tables, self._shapes = snapshot, tables, shapes

    def __enter__(self) -> "Snapshot":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, name: str) -> Any:
        """The values of a dense table, float32, as `Table.pull` has them."""
        values = _arrays.new_floats(self._shape_of(name))
        self._snapshot.read(self._tables[name], values.address, values.count)
        return values.owner

    def rows(self, name: str, keys: Any) -> tuple[Any, Any]:
        """The rows of these keys, [*keys, dim], and whether each key has one, [*keys], uint8.

        keys: int64. A key without a row has zeros.
        """
        named = _arrays.memory_of(keys, f"the keys of {name!r}")
        named.expect(f"the keys of {name!r}", "int64")
        values = _arrays.new_floats((*named.shape, *self._shape_of(name)))
        found = bytearray(named.count)
        self._snapshot.read(self._tables[name], values.address, values.count, named.address,
                            named.count, _arrays.memory_of(found, "found").address)
        return values.owner, _arrays.as_array(memoryview(found), "B", named.shape)

    def _shape_of(self, name: str) -> tuple[int, ...]:
        if name not in self._shapes:
            raise Error(f"there is no table {name!r}, expected one of {sorted(self._shapes)}")
        return self._shapes[name]

    def close(self) -> None:
        """Lets the servers forget the snapshot."""
        self._snapshot.close()
