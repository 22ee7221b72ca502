"""Kills primary, replica, worker and scheduler in turn, at random points of a job, and compares.

BSP: the exported model has the sha256 of a run without faults, every time. SSP: the accuracy is
within half a point, and every batch is in the model, on all shards alike: those of a killed worker
that it had pushed since its last report are computed again, by whoever gets them, and no others.
Both: the histories of all tasks, killed ones included, show no broken promise (history.py).
"""

import argparse
import random
import sys
import time

import chaos
import cluster
import synthetic

VICTIMS = ("primary", "replica", "worker", "scheduler")
PUSHES_IN_FLIGHT = 2  # Per task.
REPORT_SECONDS = 0.4  # A task reports what it has done every 0.2 s; the machine may be busy.


def strike(live, job, victim, draw):
    """Kills one daemon of the kind and starts it again; returns its name."""
    if victim == "scheduler":
        name = "scheduler"
    elif victim == "worker":
        name = draw.choice(sorted(n for n in live.daemons if n.startswith("worker")))
    else:
        live.wait_replicated(job)
        name = live.primary(job) if victim == "primary" else live.replica(job)
    live.restart(name)
    return name


def run(live, text, name, draw=None):
    """One job; with `draw`, each kind of victim is struck once. Returns (status, the victims)."""
    job = live.submit(text, f"{name}.textproto")
    struck = []
    if draw is not None:
        live.wait_iteration(job, 5)
        for victim in draw.sample(VICTIMS, len(VICTIMS)):
            live.wait_iteration(job, live.iteration(job) + draw.randrange(1, 20))
            struck.append(f"{victim}@{live.iteration(job)}")
            strike(live, job, victim, draw)
    status = live.wait(job, seconds=300)
    if status["state"] != "SUCCEEDED":
        sys.exit(f"{job}: {status}\n{live.logs()}")
    return job, status, struck


def bsp(live, data, arguments):
    text = chaos.job_text(live, data, epochs=arguments.epochs, name="bsp")
    job, _, _ = run(live, text, "bsp")
    expected = chaos.outcome(live, job, "bsp")
    print(f"bsp  without faults     {expected}", flush=True)
    wrong = 0
    for number in range(arguments.rounds):
        draw = random.Random(arguments.seed + number)
        job, _, struck = run(live, text, f"bsp-{number}", draw)
        bad = chaos.differences(live, job, "bsp", expected)
        wrong += bool(bad)
        verdict = f"WRONG: {'; '.join(bad)}" if bad else "same"
        print(f"bsp  round {number + 1:2}  {verdict}  {' '.join(struck)}", flush=True)
    return wrong


def ssp(live, data, arguments):
    text = chaos.job_text(
        live, data, epochs=arguments.epochs, name="ssp", consistency="ssp { staleness_bound: 2 }"
    )
    began = time.monotonic()
    job, clean, _ = run(live, text, "ssp")
    seconds = time.monotonic() - began
    accuracy = clean["results"][-1]["testAccuracy"]
    batches = chaos.versions(live, job)["parameters"]
    unreported = PUSHES_IN_FLIGHT + int(batches / seconds * REPORT_SECONDS)
    print(f"ssp  without faults     accuracy {accuracy:.4f}, {batches} updates; at most "
          f"{unreported} unreported ones of a killed worker", flush=True)
    wrong = 0
    for number in range(arguments.rounds):
        draw = random.Random(arguments.seed + 1000 + number)
        job, status, struck = run(live, text, f"ssp-{number}", draw)
        got = status["results"][-1]["testAccuracy"]
        updates = chaos.versions(live, job)["parameters"]
        twice = updates - batches
        bad = chaos.problems(live, job, "ssp")
        if abs(got - accuracy) > 0.005 or not 0 <= twice <= unreported:
            bad.append("another accuracy, or other batches")
        wrong += bool(bad)
        verdict = f"WRONG: {'; '.join(bad)}" if bad else "good"
        print(f"ssp  round {number + 1:2}  {verdict}  accuracy {got:.4f}, {updates} updates, "
              f"{twice} of a killed worker's batches twice  {' '.join(struck)}", flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modes", nargs="+", choices=("bsp", "ssp"), default=("bsp", "ssp"))
    arguments = parser.parse_args()
    with chaos.ChaosCluster(servers=3, workers=3) as live:
        data = synthetic.data_block(live.folder, train=2000, test=500, side=8)
        wrong = sum({"bsp": bsp, "ssp": ssp}[mode](live, data, arguments)
                    for mode in arguments.modes)
    print(f"{wrong} rounds went wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
