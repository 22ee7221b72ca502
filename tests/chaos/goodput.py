"""The cost of faults: samples/s with a random daemon killed every few seconds, against none killed.

Both runs train the same number of epochs on the same cluster; the killed daemon is started again at
once, as a supervisor would.
"""

import argparse
import random
import sys
import time

import chaos
import cluster
import synthetic

GOAL = 0.85


def measure(live, text, name, interval=None, seed=1):
    """Seconds of training, and the daemons killed."""
    job = live.submit(text, f"{name}.textproto")
    live.wait_iteration(job, 1)
    begin = time.monotonic()
    draw = random.Random(seed)
    killed = []
    next_kill = begin + interval if interval else None

    def ended():
        return live.status(job)["state"] in cluster.ENDED

    while not ended():
        if next_kill is not None and time.monotonic() >= next_kill:
            victim = draw.choice(sorted(live.daemons))
            live.restart(victim)
            killed.append(victim)
            next_kill = time.monotonic() + interval
        time.sleep(cluster.CLI_POLL_SECONDS)
    seconds = time.monotonic() - begin
    status = live.status(job)
    if status["state"] != "SUCCEEDED":
        sys.exit(f"{job}: {status}\n{live.logs()}")
    return seconds, killed


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--interval", type=float, default=15, help="seconds between two kills")
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--mode", default="ssp { staleness_bound: 2 }")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--no-goals", action="store_true", help="only that each kill is survived")
    arguments = parser.parse_args()
    ratios = []
    with chaos.ChaosCluster(servers=3, workers=3) as live:
        data = synthetic.train_only_block(live.folder, count=20000, side=8)
        text = chaos.job_text(
            live, data, epochs=arguments.epochs, consistency=arguments.mode, batch_size=50
        )
        samples = 20000 * arguments.epochs
        for number in range(arguments.rounds):
            clean, _ = measure(live, text, f"clean-{number}")
            hurt, killed = measure(live, text, f"hurt-{number}", arguments.interval, number)
            ratios.append(clean / hurt)
            print(f"without faults {samples / clean:8.0f} samples/s in {clean:.0f} s", flush=True)
            print(f"with faults    {samples / hurt:8.0f} samples/s in {hurt:.0f} s, killed: "
                  f"{' '.join(killed)}", flush=True)
    ratio = sorted(ratios)[len(ratios) // 2]
    print(f"goodput {ratio:.2f}, goal {GOAL}: {'met' if ratio >= GOAL else 'missed'}")
    sys.exit(0 if ratio >= GOAL or arguments.no_goals else 1)


if __name__ == "__main__":
    main()
