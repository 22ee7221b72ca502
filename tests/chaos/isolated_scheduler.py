"""The scheduler lives and nobody reaches it: for a while, all of its links are cut.

Training goes on meanwhile as without a scheduler, and afterwards nothing has happened: every daemon
has the life that it had, no task was started again, and no server has lost a shard. BSP: the model
has the sha256 of a run without faults. SSP and ASP: every batch is in the model, on all shards
alike, and none twice. Skipped, with the reason, where network namespaces are not allowed.
"""

import argparse
import random
import sys
import time

import chaos
import namespaces
import synthetic


def isolate(live, job, seconds, draw):
    """Cuts the scheduler off. Returns the iteration of the cut."""
    live.wait_iteration(job, draw.randrange(3, 40))
    at = live.iteration(job)
    live.isolate("scheduler", True)
    time.sleep(seconds)  # The fault itself: this is how long it lasts.
    live.isolate("scheduler", False)
    return at


def run(live, text, name, seconds=0.0, draw=None):
    """One job, isolated if there is a draw. Returns (job, what went wrong, where it was cut)."""
    lives = live.lives()
    job = live.submit(text, f"{name}.textproto")
    at = isolate(live, job, seconds, draw) if draw else None
    status = live.wait(job, seconds=300)
    if status["state"] != "SUCCEEDED":
        sys.exit(f"WRONG: {job}: {status}\n{live.logs()}")
    wrong = []
    if status.get("restarts", 0):
        wrong.append(f"{status['restarts']} tasks were started again")
    changed = sorted(node for node, life in live.lives().items() if lives.get(node) != life)
    if changed:
        wrong.append(f"new lives of {', '.join(changed)}")
    return job, wrong, at


def rounds(live, data, mode, arguments):
    """The rounds that went wrong."""
    text = chaos.job_text(live, data, epochs=arguments.epochs, name=mode,
                          consistency=chaos.MODES[mode],
                          resources="replicas: 1 max_restarts: 1000")
    job, _, _ = run(live, text, mode)
    expected = chaos.outcome(live, job, mode)
    print(f"{mode}  without faults  {expected}", flush=True)
    bad = 0
    for number in range(arguments.rounds):
        draw = random.Random(f"{arguments.seed} {mode} {number}")
        replicas = draw.randrange(2)
        drawn = text.replace("replicas: 1", f"replicas: {replicas}")
        job, wrong, at = run(live, drawn, f"{mode}-{number}", arguments.seconds, draw)
        wrong += chaos.problems(live, job, mode)
        got = chaos.outcome(live, job, mode)
        if got != expected:
            wrong.append(f"comes to {got}")
        bad += bool(wrong)
        verdict = f"WRONG: {'; '.join(wrong)}" if wrong else "same"
        print(f"{mode}  round {number + 1:2}  {verdict}  cut off at iteration {at} for "
              f"{arguments.seconds} s, {replicas} replicas", flush=True)
    return bad


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20, help="of each mode")
    parser.add_argument("--seconds", type=float, default=30, help="how long it is cut off")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modes", nargs="+", choices=sorted(chaos.MODES),
                        default=sorted(chaos.MODES))
    arguments = parser.parse_args()
    refused = namespaces.enter()
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
