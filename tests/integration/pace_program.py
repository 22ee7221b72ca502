"""A script that pushes and pulls tables of capstan at its own pace, and checks what it sees.

Each worker adds 1 ROUNDS times to all of `total` and to its own row and the row SHARED of `ads`
(SGD at rate 1 subtracts what is pushed). It uses a future in each of the ways that there are.
"""

import asyncio
import concurrent.futures
import sys
import threading

import numpy
import capstan

ROUNDS, SIZE, DIM, SHARED = 12, 1000, 3, -7
MORE_THAN_KEPT = 1500  # Pushes whose futures nobody looks at.


def expect(function, error, text):
    try:
        function()
    except error as found:
        assert text in str(found), found
    else:
        raise AssertionError(f"nothing was raised, expected {text!r}")


def refused(total, ads):
    expect(lambda: total.push(numpy.zeros(SIZE)), capstan.Error, "float64 of shape (1000,)")
    expect(lambda: total.push(numpy.zeros(3, "f4")), capstan.Error, "expected float32 of shape")
    expect(lambda: total.push(numpy.full(SIZE, numpy.nan, "f4")), capstan.Diverged, "nan")
    expect(lambda: ads.pull_rows([1]), capstan.Error, "expected an array")
    expect(lambda: ads.push_rows(numpy.array([1]), numpy.zeros((1, 2), "f4")), capstan.Error,
           "expected float32 of shape (1, 3)")
    expect(ads.pull, capstan.Error, "expected pull_rows")
    expect(lambda: capstan.table("late", numpy.zeros(1, "f4")), capstan.Error, "made after")
    expect(lambda: next(capstan.batches(10, 2)), capstan.Error, "has no batches")


async def awaited(table):
    return await table.pull()


def results(pushes):
    """Waits for them by callbacks, by as_completed, and by a second thread."""
    called = threading.Event()
    pushes[0].add_done_callback(lambda _: called.set())
    for future in concurrent.futures.as_completed(pushes[1:3], timeout=60):
        assert future.result() is None
    thread = threading.Thread(target=pushes[3].result)
    thread.start()
    assert pushes[3].exception(timeout=60) is None
    thread.join()
    assert called.wait(timeout=60)


def main():
    job = capstan.init(own_pace=True)
    total = capstan.table("total", numpy.zeros(SIZE, "f4"), optimizer=capstan.optimizers.SGD(1.0))
    ads = capstan.rows("ads", DIM, optimizer=capstan.optimizers.SGD(1.0), initial_std=0.0)
    quiet = capstan.table("quiet", numpy.zeros(1, "f4"), optimizer=capstan.optimizers.SGD(1.0))
    keys = numpy.array([[job.rank, SHARED]])
    one, rows = numpy.full(SIZE, -1, "f4"), numpy.full((1, 2, DIM), -1, "f4")
    if "--raise" in sys.argv:
        raise RuntimeError("asked for")
    if "--exit" in sys.argv:
        sys.exit("asked for")
    refused(total, ads)
    for done in range(1, ROUNDS + 1, 2):
        results([total.push(one), ads.push_rows(keys, rows), total.push(one),
                 ads.push_rows(keys, rows)])
        seen = total.pull().result(timeout=60)
        assert seen.shape == (SIZE,) and done + 1 <= seen[0] <= ROUNDS * job.workers, seen[0]
        assert ads.pull_rows(keys).result()[0, 0, 0] == done + 1
        assert asyncio.run(awaited(total))[0] >= seen[0]
    with capstan.snapshot() as snapshot:
        moment = snapshot["total"]
        assert (moment == moment[0]).all() and moment[0] >= ROUNDS
        values, found = snapshot.rows("ads", numpy.array([SHARED, 10**12]))
        assert values[0, 0] >= ROUNDS and found.tolist() == [1, 0], (values, found)
        expect(lambda: snapshot["lost"], capstan.Error, "there is no table 'lost'")
    for _ in range(MORE_THAN_KEPT):
        quiet.push(numpy.full(1, -1, "f4"))


if __name__ == "__main__":
    main()
