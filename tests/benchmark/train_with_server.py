"""The cost of the parameter server: the same trainer with and without it.

LeNet (28x28 images, batch 64, momentum SGD) on one compute thread. Without: train_steps, gradient
and update in one process. With: a BSP job on a cluster of real daemons on loopback, 1 worker and 1
server, from the first pull to the last acknowledged push of an epoch. The two take turns; medians
over the rounds are compared. Processor time is that of all processes; with the cluster it includes
the start of the task and reading the data.

Exit codes: 0 the goal is met, 1 it is not.
"""

import argparse
import statistics
import sys

import cluster
import lenet_job
from lenet_job import BATCH, STEPS
from train_cpu import CASES, Ours


def without_server(trainer):
    """Samples/s, and processor time of a sample in µs."""
    wall, processor, _ = trainer.run(STEPS)
    return STEPS * BATCH / wall, processor / (STEPS * BATCH) * 1e6


def with_server(live, data):
    """The same."""
    before = live.processor_seconds()
    rate = lenet_job.rate(live, data)
    return rate, (live.processor_seconds() - before) / (STEPS * BATCH) * 1e6


def print_row(name, runs):
    rates, work = zip(*runs)
    print(f"{name:<32}{statistics.median(rates):>10.0f}{min(rates):>10.0f}{max(rates):>10.0f}"
          f"{statistics.median(work):>18.0f}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--train-steps", default="tests/benchmark/train_steps", help="the trainer alone")
    add("--rounds", type=int, default=7, help="rounds each, at least 5 (default 7)")
    add("--goal", type=float, default=0.95, help="ratio to reach (default 0.95)")
    arguments = parser.parse_args()
    if arguments.rounds < 5:
        parser.error(f"--rounds is {arguments.rounds}, expected at least 5")
    trainer = Ours(arguments.train_steps, CASES["lenet"])
    trainer.run(10)
    with_runs, without_runs = [], []
    with cluster.Cluster(servers=1, workers=1) as live:
        data = lenet_job.data(live.folder, STEPS)
        lenet_job.rate(live, data)
        for _ in range(arguments.rounds):
            without_runs.append(without_server(trainer))
            with_runs.append(with_server(live, data))
    trainer.close()
    print(f"LeNet, batch {BATCH}, one compute thread, medians of {arguments.rounds} rounds in turn")
    print(f"{'samples/s':<32}{'median':>10}{'min':>10}{'max':>10}{'processor, µs':>18}")
    print_row("without parameter server", without_runs)
    print_row("BSP, 1 worker and 1 server", with_runs)
    ratio = (statistics.median(rate for rate, _ in with_runs)
             / statistics.median(rate for rate, _ in without_runs))
    met = ratio >= arguments.goal
    print(f"ratio {ratio:.2f}, goal {arguments.goal}: {'met' if met else 'NOT MET'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
