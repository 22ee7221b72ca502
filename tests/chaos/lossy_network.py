"""A network that loses packets: 30 of 100, between any two hosts, for a minute, while jobs train.

At random also a slow one: each host receives at most so many megabits a second. Daemons and tasks
are taken for dead meanwhile, several servers at a time, and come back with their logs; the jobs go
on and nothing is lost or counted twice.
BSP: the model has the sha256 of a run without faults. SSP and ASP: every acknowledged push is in
the model once. Skipped, with the reason, where network namespaces or packet filters are not
allowed.
"""

import argparse
import random
import sys
import time

import chaos
import namespaces
import synthetic

RATES = (None, "200mbit", "20mbit")
# Of a small model, so that training gets on at all: TCP sends a packet or two and waits.
MODEL = 'zoo: "softmax_regression"'


def run(live, text, name, arguments, rate=None, lossy=False):
    """One job, on a bad network if that is wanted. Returns (job, iterations trained meanwhile)."""
    job = live.submit(text, f"{name}.textproto")
    trained = 0
    if lossy:
        live.wait_iteration(job, 5)
        before = live.iteration(job)
        if rate:
            live.limit_bandwidth(rate)
        live.lose(arguments.percent)
        time.sleep(arguments.seconds)  # The fault itself: this is how long it lasts.
        live.lose(0)
        if rate:
            live.limit_bandwidth(None)
        trained = live.iteration(job) - before
    status = live.wait(job, seconds=300)
    if status["state"] != "SUCCEEDED":
        sys.exit(f"WRONG: {job}: {status}\n{live.logs()}")
    return job, trained


def rounds(live, data, mode, arguments):
    """The rounds that went wrong."""
    text = chaos.job_text(live, data, epochs=arguments.epochs, name=mode, model=MODEL,
                          consistency=chaos.MODES[mode], more="durability: LOG")
    job, _ = run(live, text, mode, arguments)
    expected = chaos.outcome(live, job, mode)
    print(f"{mode}  without faults  {expected}", flush=True)
    bad = 0
    for number in range(arguments.rounds):
        rate = random.Random(f"{arguments.seed} {mode} {number}").choice(RATES)
        job, trained = run(live, text, f"{mode}-{number}", arguments, rate, lossy=True)
        wrong = chaos.differences(live, job, mode, expected)
        bad += bool(wrong)
        verdict = f"WRONG: {'; '.join(wrong)}" if wrong else "good"
        print(f"{mode}  round {number + 1:2}  {verdict}  {arguments.percent} % lost for "
              f"{arguments.seconds} s at {rate or 'any rate'}: {trained} iterations meanwhile, "
              f"{chaos.outcome(live, job, mode)}", flush=True)
    return bad


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20, help="of each mode")
    parser.add_argument("--seconds", type=float, default=60, help="how long packets are lost")
    parser.add_argument("--percent", type=int, default=30, help="of the packets are lost")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modes", nargs="+", choices=sorted(chaos.MODES),
                        default=sorted(chaos.MODES))
    arguments = parser.parse_args()
    refused = namespaces.enter_filtered()
    if refused:
        print(f"SKIPPED: {refused}")
        return
    with namespaces.NamespaceCluster(servers=3, workers=2) as live:
        data = synthetic.data_block(live.folder, train=2000, test=500, side=8)
        wrong = sum(rounds(live, data, mode, arguments) for mode in arguments.modes)
    print(f"{wrong} rounds went wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
