"""Makes batches of datasets: when they are asked for, or ahead of that in processes of their own.

A batch's random numbers are seeded from its place in the epoch, so that it is the same whichever
process makes it.
"""

import collections
import multiprocessing
import multiprocessing.connection
import multiprocessing.process
import os
import random
import signal
import sys
import traceback
from dataclasses import dataclass
from typing import Any, Callable, NoReturn, Optional, Sequence

from capstan._client import Error, Work

# The random numbers that a batch is made with are not those that it is computed with.
_MADE_EARLIER = 0x2545F4914F6CDD1D
_SEED_MASK = (1 << 63) - 1
_NUMPY_SEED_MASK = (1 << 32) - 1
_SECONDS_TO_END = 5.0  # A process may take so long to end; close() kills it then.
_FORGOTTEN_AFTER = 64  # Works whose batches were given out.
_SAMPLES_NAMED_MAX = 8  # In the message of an error.

# Whether a work is of the test data, its epoch and its seed.
_Key = tuple[bool, int, int]


def seed(number: int) -> None:
    """Seeds Python's random numbers, and those of NumPy and PyTorch if they were imported."""
    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number & _NUMPY_SEED_MASK)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(number & _SEED_MASK)


@dataclass(frozen=True)
class Source:
    """Samples by number, and what makes a batch of a list of them."""

    dataset: Any
    collate: Callable[[list[Any]], Any]

    def batch(self, samples: Sequence[int], work_seed: int) -> Any:
        """The batch of these samples.

        Raises Error, which names the sample that failed, or those of the batch if it failed as a
        whole.
        """
        seed(work_seed ^ _MADE_EARLIER)
        batch = at = _batch_in_words(samples)
        at_once = getattr(self.dataset, "__getitems__", None)  # As PyTorch's DataLoader has it.
        try:
            if at_once is not None:
                found = at_once(list(samples))
            else:
                found = []
                for sample in samples:
                    at = f"sample {sample}"
                    found.append(self.dataset[sample])
            at = batch
            return self.collate(found)
        except Exception as error:
            raise Error(f"{at}: {type(error).__name__}: {error}") from error


def _batch_in_words(samples: Sequence[int]) -> str:
    named = ", ".join(map(str, samples[:_SAMPLES_NAMED_MAX]))
    more = ", ..." if len(samples) > _SAMPLES_NAMED_MAX else ""
    return f"a batch of {len(samples)} samples ({named}{more})"


def _have_no_children() -> None:
    """Lets a forked process forget the children of its parent: multiprocessing ends all children
    that it knows when an interpreter exits."""
    getattr(multiprocessing.process, "_children", set()).clear()


class _RemoteTraceback(Exception):
    """Where an error arose in another process, as text."""


@dataclass(frozen=True)
class _Failure:
    message: str
    trace: str


def _answer(sources: Sequence[Source], test: bool, samples: Sequence[int], number: int) -> Any:
    try:
        return sources[test].batch(samples, number)
    except Error as error:
        return _Failure(str(error), traceback.format_exc())


def _serve(connection: Any, parents_ends: Sequence[Any], sources: Sequence[Source]) -> None:
    """A process's main function: makes one batch after the other, until its parent is gone."""
    for end in parents_ends:
        end.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends this process.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)  # The threads of OpenMP are not there after fork().
    try:
        while True:
            answer = _answer(sources, *connection.recv())
            try:
                connection.send(answer)
            except OSError:
                raise
            except Exception as error:  # pylint: disable=broad-except  # Pickling raises any type.
                connection.send(_Failure(f"a batch cannot be sent between processes: {error}",
                                         traceback.format_exc()))
    except (EOFError, OSError):
        os._exit(0)


@dataclass
class _Process:
    process: Any
    connection: Any
    making: Optional[_Key] = None  # None: nothing.


class Loader:
    """Makes the batches of works.

    train, test: the data; test may be None.
    workers: processes that make batches ahead; 0: this one makes them when they are asked for. They
        are forked here, so that the datasets need not be pickled: make it before a task starts.
    ahead: batches that each of them makes ahead, at most.
    """

    def __init__(self, train: Source, test: Optional[Source], workers: int, ahead: int) -> None:
        self._sources = [train] if test is None else [train, test]
        self._parent = os.getpid()
        self._ahead = workers * ahead
        self._made: dict[_Key, Any] = {}
        self._given: collections.deque[_Key] = collections.deque(maxlen=_FORGOTTEN_AFTER)
        self._processes: list[_Process] = []
        if workers > 0:
            os.register_at_fork(after_in_child=_have_no_children)
        context = multiprocessing.get_context("fork")
        for _ in range(workers):
            mine, its = context.Pipe()
            ends = [mine, *(process.connection for process in self._processes)]
            process = context.Process(target=_serve, args=(its, ends, self._sources), daemon=True)
            process.start()
            its.close()
            self._processes.append(_Process(process, mine))

    def load(self, work: Work, upcoming: Callable[[], list[Work]]) -> Any:
        """The batch of a work.

        upcoming: the works that probably come next; called only if their batches are made ahead.
        Raises Error if a sample or the batch cannot be made, with its number and what was raised.
        """
        if not self._processes:
            return self._sources[work.tests].batch(work.samples, work.seed)
        later = [each for each in upcoming() if _key(each) not in self._given]
        wanted = [work, *later[:self._ahead]]
        keys = {_key(each) for each in wanted}
        self._made = {key: batch for key, batch in self._made.items() if key in keys}
        self._receive(wait=False)
        self._hand_out(wanted)
        while _key(work) not in self._made:
            self._receive(wait=True)
            self._hand_out(wanted)
        batch = self._made.pop(_key(work))
        self._given.append(_key(work))
        if isinstance(batch, _Failure):
            raise Error(batch.message) from _RemoteTraceback(batch.trace)
        return batch

    def _hand_out(self, wanted: list[Work]) -> None:
        """Lets idle processes make batches that are wanted and not under way, in their order."""
        under_way = {process.making for process in self._processes}
        missing = [work for work in wanted
                   if _key(work) not in self._made and _key(work) not in under_way]
        idle = [process for process in self._processes if process.making is None]
        for process, work in zip(idle, missing):
            try:
                process.connection.send((work.tests, work.samples, work.seed))
            except ConnectionError:
                self._has_ended(process)
            process.making = _key(work)

    def _receive(self, wait: bool) -> None:
        """Takes the batches that were made. wait: if there is none, waits for one."""
        busy = {process.connection: process for process in self._processes
                if process.making is not None}
        for ready in multiprocessing.connection.wait(list(busy), None if wait else 0):
            process = busy[ready]
            try:
                batch = process.connection.recv()
            except (EOFError, ConnectionError):
                self._has_ended(process)
            assert process.making is not None
            self._made[process.making], process.making = batch, None

    def _has_ended(self, process: _Process) -> NoReturn:
        process.process.join(_SECONDS_TO_END)
        raise Error(f"process {process.process.pid}, which loads batches, has ended with "
                    f"{process.process.exitcode}: expected it to stay; a negative number is the "
                    "signal that killed it")

    def close(self) -> None:
        """Ends the processes; does nothing in a process that was forked from this one."""
        if os.getpid() != self._parent:
            return
        for process in self._processes:
            process.connection.close()
            process.process.terminate()
        for process in self._processes:
            process.process.join(_SECONDS_TO_END)
            if process.process.is_alive():
                process.process.kill()
                process.process.join()
        self._processes = []


def _key(work: Work) -> _Key:
    return work.tests, work.epoch, work.seed
