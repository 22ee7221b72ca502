"""The cost of TLS for jobs: the same jobs in plain text and encrypted, in turn.

Scheduler, server and worker are hosts of their own (network namespaces joined by a bridge), so that
no memory is shared. LeNet (28x28 images, batch 64, momentum SGD, BSP, one compute thread):

training    samples/s of an epoch of 400 batches, from its first pull to its last acknowledged
            push
one step    seconds from the submission of a job of one batch to its end

Exit codes: 0 the goal is met, 1 it is not, 2 network namespaces are not allowed.
"""

import argparse
import multiprocessing
import statistics
import sys
import time

import cluster
import lenet_job
import namespaces
import tls_cluster

class PlainHosts(namespaces.Hosts, cluster.Cluster):
    """Plain text."""


class TlsHosts(namespaces.Hosts, tls_cluster.TlsCluster):
    """Encrypted."""


def train(live):
    """Samples per second."""
    return lenet_job.rate(live, live.data[lenet_job.STEPS])


def one_step(live):
    """Seconds."""
    path = live.write_job(lenet_job.text(live, live.data[1]))
    begin = time.monotonic()
    live.run("job", "submit", str(path))
    return time.monotonic() - begin


MEASURES = {"training": train, "one step": one_step}


def serve(kind, pipe):
    """Answers each name of a measure with its number, until None comes; first, why it cannot."""
    refused = namespaces.enter()
    pipe.send(refused)
    if refused:
        return
    with kind(servers=1, workers=1) as live:
        live.data = {}
        for steps in (lenet_job.STEPS, 1):
            folder = live.folder / f"data-{steps}"
            folder.mkdir()
            live.data[steps] = lenet_job.data(folder, steps)
        for measure in iter(pipe.recv, None):
            pipe.send(MEASURES[measure](live))


class Contestant:
    """A cluster in a process, and so in namespaces, of its own."""

    def __init__(self, kind):
        self.name = kind.__doc__.rstrip(".")
        self.pipe, other = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=serve, args=(kind, other))
        self.process.start()
        other.close()
        self.refused = self.pipe.recv()

    def run(self, measure):
        self.pipe.send(measure)
        try:
            return self.pipe.recv()
        except EOFError:
            sys.exit(f"{self.name}: its cluster has ended, see above")

    def close(self):
        if not self.refused:
            self.pipe.send(None)
        self.process.join()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="rounds each, at least 5 (default 7)")
    parser.add_argument("--goal", type=float, default=0.95,
                        help="training: ratio to plain text to reach (default 0.95)")
    arguments = parser.parse_args()
    if arguments.rounds < 5:
        parser.error(f"--rounds is {arguments.rounds}, expected at least 5")
    contestants = [Contestant(PlainHosts), Contestant(TlsHosts)]
    refused = contestants[0].refused
    if refused:
        print(f"cannot be measured: {refused}")
        return 2
    medians = {}
    print(f"{'':<28}{'median':>10}{'min':>10}{'max':>10}")
    for measure in MEASURES:
        rates = {each.name: [] for each in contestants}
        for round_number in range(arguments.rounds + 1):
            for each in contestants:
                rate = each.run(measure)
                if round_number > 0:  # The first one warms up.
                    rates[each.name].append(rate)
        for name, values in rates.items():
            medians[measure, name] = statistics.median(values)
            numbers = (medians[measure, name], min(values), max(values))
            print(f"{measure + ', ' + name:<28}" + "".join(f"{n:>10.2f}" for n in numbers))
    for each in contestants:
        each.close()
    plain, encrypted = (each.name for each in contestants)
    ratio = medians["training", encrypted] / medians["training", plain]
    met = ratio >= arguments.goal
    print(f"training: ratio {ratio:.3f}, goal {arguments.goal}: {'met' if met else 'NOT MET'}")
    longer = medians["one step", encrypted] - medians["one step", plain]
    print(f"one step: {longer * 1000:+.0f} ms")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
