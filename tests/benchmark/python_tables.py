"""The program of table_rounds.cc in Python: rounds of pushes to and pulls from all tables of a job.

    python_tables.py ROUNDS FILE      seconds of each round, one a line
"""

import array
import pathlib
import sys
import time

from capstan import _client

PATIENCE = 60.0  # Seconds.


def main():
    rounds, file = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    task = _client.Task()
    assert task.next().runs
    tables = []
    for table in range(len(task.tables)):
        count = task.elements(table)
        gradient, values = array.array("f", [1.0]) * count, array.array("f", [0.0]) * count
        tables.append((table, count, gradient, values))
    took = []
    for _ in range(rounds):
        begin = time.perf_counter()
        operations = []
        for table, count, gradient, values in tables:
            operations.append(task.push(table, gradient.buffer_info()[0], count))
            operations.append(task.pull(table, values.buffer_info()[0], count))
        for operation in operations:
            task.wait(operation, PATIENCE)
        took.append(time.perf_counter() - begin)
    file.write_text("".join(f"{seconds:.9f}\n" for seconds in took), encoding="utf-8")
    task.finish(0.0, 0)
    return task.close()


if __name__ == "__main__":
    sys.exit(main())
