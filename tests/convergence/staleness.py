"""SSP's promise: no read is staler than the bound, shown with one worker slowed down.

Two workers train; one of them is stopped and continued all the time (SIGSTOP, SIGCONT), so that it
runs at a fraction of the other's speed. Prints the histogram of the staleness that pulls saw for
each bound, and fails if any is above the bound, or if a bound > 0 was never used up (then nothing
was tested).
"""

import argparse
import os
import signal
import sys
import threading

import cluster
import synthetic


class Slower:
    """Stops a process for 30 ms out of every 40 until it is told to end."""

    def __init__(self, pid):
        self.pid = pid
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        while not self.ended.is_set():
            try:
                os.kill(self.pid, signal.SIGSTOP)
                self.ended.wait(0.03)
                os.kill(self.pid, signal.SIGCONT)
            except ProcessLookupError:
                return
            self.ended.wait(0.01)

    def end(self):
        self.ended.set()
        self.thread.join()


def histogram(live, consistency, name):
    text = synthetic.job(
        live.folder, name=name, data=live.data, consistency=consistency, epochs=30
    )
    job = live.submit(text)
    slower = Slower(cluster.until("task 1 runs", lambda: live.task_pids(job).get(1)))
    try:
        status = live.wait(job)
    finally:
        slower.end()
    if status["state"] != "SUCCEEDED":
        sys.exit(f"{job}: {status}\n{live.logs()}")
    return [int(count) for count in status.get("stalenessCounts", [])]


def show(title, counts):
    total = max(1, sum(counts))
    print(f"{title}: {sum(counts)} pulls")
    for staleness, count in enumerate(counts):
        print(f"  staleness {staleness:2}  {count:6}  {'#' * round(50 * count / total)}")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bounds", type=int, nargs="+", default=[0, 1, 3])
    arguments = parser.parse_args()
    failures = 0
    with cluster.Cluster(servers=2, workers=2, lease="5s") as live:
        live.data = synthetic.data_block(live.folder, train=1000, test=100)
        for bound in arguments.bounds:
            counts = histogram(live, f"ssp {{ staleness_bound: {bound} }}", f"ssp{bound}")
            show(f"SSP({bound})", counts)
            if sum(counts[bound + 1:]):
                print(f"  above the bound {bound}")
                failures += 1
            if len(counts) <= bound:
                print(f"  the bound {bound} was never reached: the slow worker was not slow")
                failures += 1
        show("BSP (for comparison: every pull sees all updates)", histogram(live, "bsp {}", "bsp"))
        show("ASP (for comparison: nothing waits)", histogram(live, "asp {}", "asp"))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
