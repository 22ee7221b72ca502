"""All processes die at once, again and again; `durability: LOG` loses nothing acknowledged.

A BSP job runs; at random points every daemon and task is killed with SIGKILL together, then all
daemons are started again on their folders. The job goes on, and its model has the sha256 of a run
without faults: an update that was acknowledged and lost would show in it.
"""

import argparse
import random
import signal
import sys

import chaos
import cluster
import synthetic


def cut(live):
    """Kills everything at one time, then starts everything again."""
    pids = [daemon.process.pid for daemon in live.daemons.values()]
    tasks = [child for name, daemon in live.daemons.items() if name.startswith("worker")
             for child in cluster.children(daemon.process.pid)]
    for pid in pids + tasks:
        chaos.signal_if_there(pid, signal.SIGKILL)
    for daemon in live.daemons.values():
        daemon.process.wait()
    for name in live.daemons:
        live.start(name)


def run(live, text, name, cuts=0, draw=None):
    job = live.submit(text, f"{name}.textproto")
    at = []
    for _ in range(cuts):
        live.wait_iteration(job, live.iteration(job) + draw.randrange(3, 25))
        before = live.iteration(job)
        cut(live)
        live.wait_for_nodes(len(live.daemons) - 1)
        at.append(before)
    status = live.wait(job, seconds=300)
    if status["state"] != "SUCCEEDED":
        sys.exit(f"{job}: {status}\n{live.logs()}")
    return job, at


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cuts", type=int, default=2, help="power cuts a round")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with chaos.ChaosCluster(servers=2, workers=2) as live:
        data = synthetic.data_block(live.folder, train=2000, test=500, side=8)
        text = chaos.job_text(
            live, data, epochs=arguments.epochs, resources="max_restarts: 1000",
            more="durability: LOG",
        )
        job, _ = run(live, text, "clean")
        expected = chaos.outcome(live, job, "bsp")
        print(f"without faults  {expected}", flush=True)
        wrong = 0
        for number in range(arguments.rounds):
            draw = random.Random(arguments.seed + number)
            job, at = run(live, text, f"cut-{number}", arguments.cuts, draw)
            bad = chaos.differences(live, job, "bsp", expected)
            wrong += bool(bad)
            verdict = f"WRONG: {'; '.join(bad)}" if bad else "same"
            print(f"round {number + 1:2}  {verdict}  power cut at iterations {at}", flush=True)
    print(f"{wrong} rounds went wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
