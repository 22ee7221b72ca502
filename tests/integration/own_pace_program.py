"""A program of a job that pushes and pulls at its own pace, and counts its pushes in the tables.

    own_pace_program.py --log=FOLDER --stop=FILE [--fail]

Each rank r adds 1 to element r of `counts`, to all of `total` and to the rows of key r and of key
SHARED, again and again, until the file is there. It writes to FOLDER/r what it has found in
`counts` when it began, and each number that it has reached with an acknowledged push; rank 0 also
the snapshots that it has read. --fail pushes something that is not finite.
"""

import argparse
import array
import collections
import pathlib
import sys

from capstan import _client

SHARED = -5
DIM = 2
WINDOW = 3  # Rounds that are not waited for.
BETWEEN_SNAPSHOTS = 10  # Rounds.
PATIENCE = 120.0  # Seconds.


class Tables:
    """The job's tables by name, as arrays."""

    def __init__(self, task):
        self._task = task
        self._index = {table.name: i for i, table in enumerate(task.tables)}

    def push(self, name, values, keys=None):
        """The operation; what it reads is kept until wait_for."""
        values = array.array("f", values)
        named = array.array("q", keys or [])
        operation = self._task.push(self._index[name], values.buffer_info()[0], len(values),
                                    named.buffer_info()[0] if keys else 0, len(named))
        return operation, values

    def wait_for(self, pushed):
        operation, _ = pushed
        self._task.wait(operation, PATIENCE)

    def pull(self, name, count, keys=None):
        values = array.array("f", bytes(4 * count))
        named = array.array("q", keys or [])
        operation = self._task.pull(self._index[name], values.buffer_info()[0], count,
                                    named.buffer_info()[0] if keys else 0, len(named))
        self._task.wait(operation, PATIENCE)
        return list(values)


    def snapshot(self, **counts):
        """The values of some tables at one moment, by name."""
        with self._task.snapshot(PATIENCE) as snapshot:
            found = {}
            for name, count in counts.items():
                values = array.array("f", bytes(4 * count))
                snapshot.read(self._index[name], values.buffer_info()[0], count)
                found[name] = list(values)
            return found


def check_snapshot(tables, workers):
    """Each rank is at most one round further with `counts` than with `total`, which it pushes after
    it; but what was on its way when a program was killed may be in one of them alone.

    Returns whether there was a snapshot: there is none while a server dies.
    """
    try:
        found = tables.snapshot(counts=workers, total=4)
    except _client.Failed:
        return False
    for total in found["total"]:
        assert abs(sum(found["counts"]) - total) <= workers + WINDOW + 1, found
    return True


def run(task, folder, stop):
    tables = Tables(task)
    rank, workers = task.rank, task.workers
    mine = [-1.0 if r == rank else 0.0 for r in range(workers)]  # SGD at rate 1 subtracts it.
    log = open(folder / str(rank), "a", encoding="utf-8", buffering=1)
    count = int(tables.pull("counts", workers)[rank])
    print("found", count, file=log)
    rounds = collections.deque()

    def acknowledge():
        for pushed in rounds.popleft():
            tables.wait_for(pushed)
        nonlocal count
        count += 1
        print("reached", count, file=log)

    while not stop.exists():
        rounds.append([tables.push("counts", mine), tables.push("total", [-1.0] * 4),
                       tables.push("ads", [-1.0] * DIM * 3, [rank, SHARED, rank])])
        if len(rounds) > WINDOW:
            acknowledge()
            # It reads what it has pushed; three more rounds may be there, too.
            seen = tables.pull("counts", workers)[rank]
            assert count <= seen <= count + WINDOW, (count, seen)
            rows = tables.pull("ads", 2 * DIM, [SHARED, rank])
            # The run before may have ended between its pushes to the tables.
            assert rows[DIM] >= 2 * (count - WINDOW - 1), (rows, count)
            if rank == 0 and count % BETWEEN_SNAPSHOTS == 0 and check_snapshot(tables, workers):
                print("snapshot", count, file=log)
    while rounds:
        acknowledge()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=pathlib.Path, required=True)
    parser.add_argument("--stop", type=pathlib.Path, required=True)
    parser.add_argument("--fail", action="store_true")
    arguments = parser.parse_args()
    task = _client.Task()
    while (work := task.next()) is not None:
        assert work.runs
        try:
            if arguments.fail:
                Tables(task).push("total", [0.0, float("nan"), 0.0, 0.0])
            run(task, arguments.log, arguments.stop)
        except _client.Ended:
            continue  # The job ends: next says when.
        except _client.Error as error:
            task.fail(f"{type(error).__name__}: {error}")
            return 1
        task.finish(0.0, 0)
    return task.close()


if __name__ == "__main__":
    sys.exit(main())
