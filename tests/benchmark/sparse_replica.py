"""The cost of `replicas: 1` for a job on a sparse table: the same job with and without it.

DeepFM on a click log that is made as it is read, ASP, on one cluster of real daemons. The two jobs
take turns. Prints samples a second (median over the epochs after the first), processor time a
sample of workers and of servers, and the median of the rounds' ratios.

Exit codes: 0 the goal is met, 1 it is not.
"""

import argparse
import statistics
import sys

import clicks
import cluster


def job_text(flags, replicas):
    hidden = " ".join(f"hidden: {width}" for width in flags.hidden)
    log = f"""
      format: CLICK_LOG
      click_log {{ seed: 7 fields: {flags.fields} keys_per_field: {-(-flags.keys // flags.fields)}
                   zipf_exponent: {flags.zipf} rank: 2 bias: -0.5 linear_stddev: 1
                   interaction_stddev: 0.2 }}
      train {{ examples: {flags.examples} }}"""
    return clicks.job(
        name=f"replicas-{replicas}",
        model=f"deep_fm {{ rank: {flags.rank} {hidden} factor_std: 0.05 }}",
        data=log,
        epochs=flags.epochs,
        batch_size=flags.batch,
        optimizer="adagrad {} learning_rate: 0.05",
        consistency=flags.consistency,
        resources=f"replicas: {replicas}",
        rest=f"wire {{ shared_memory: {flags.wire} }}",
    )


class Run:
    """A job that has ended."""

    def __init__(self, live, flags, replicas):
        roles = ("worker", "server")
        before = {role: live.processor_seconds(role) for role in roles}
        status = live.wait(live.submit(job_text(flags, replicas)), seconds=3600)
        if status["state"] != "SUCCEEDED":
            raise SystemExit(f"{status}\n{live.logs()}")
        seconds = [result["seconds"] for result in status["results"][1:]]
        self.speed = flags.examples / statistics.median(seconds)
        samples = flags.examples * flags.epochs
        self.work = {role: (live.processor_seconds(role) - before[role]) / samples * 1e6
                     for role in roles}

    def total(self):
        return sum(self.work.values())


def say(name, runs):
    speeds = [run.speed for run in runs]
    work = [f"{statistics.median(run.work[role] for run in runs):.2f} in {role}s"
            for role in ("worker", "server")]
    print(f"{name}: {statistics.median(speeds):,.0f} samples/s ({min(speeds):,.0f} to "
          f"{max(speeds):,.0f}); processor time a sample, µs: {', '.join(work)}, "
          f"{statistics.median(run.total() for run in runs):.2f} in all", flush=True)


def parse_flags():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--fields", type=int, default=6, help="of a sample, each one key")
    add("--keys", type=int, default=60_000, help="of all fields")
    add("--zipf", type=float, default=1.05)
    add("--examples", type=int, default=200_000)
    add("--epochs", type=int, default=3)
    add("--batch", type=int, default=200)
    add("--rank", type=int, default=4, help="of the factors")
    add("--hidden", type=int, nargs="+", default=[32, 16], help="widths of the layers")
    add("--consistency", default="asp {}")
    add("--wire", choices=("AUTO", "OFF"), default="AUTO", help="shared memory")
    add("--rounds", type=int, default=5, help="rounds, at least 5 (default 5)")
    add("--goal", type=float, default=0.6, help="ratio to reach (default 0.6)")
    flags = parser.parse_args()
    if flags.rounds < 5:
        parser.error(f"--rounds is {flags.rounds}, expected at least 5")
    return flags


def main():
    flags = parse_flags()
    plain, safe = [], []
    with cluster.Cluster(servers=2, workers=2) as live:
        Run(live, flags, replicas=0)  # Files, caches and memory that all later runs find.
        for _ in range(flags.rounds):
            plain.append(Run(live, flags, replicas=0))
            safe.append(Run(live, flags, replicas=1))
    say("replicas: 0", plain)
    say("replicas: 1", safe)
    ratios = [s.speed / p.speed for s, p in zip(safe, plain)]
    work = [p.total() / s.total() for s, p in zip(safe, plain)]
    ratio = statistics.median(ratios)
    met = ratio >= flags.goal
    print(f"speed: {ratio:.2f} of without ({min(ratios):.2f} to {max(ratios):.2f}), by processor "
          f"time {statistics.median(work):.2f} ({min(work):.2f} to {max(work):.2f}); goal "
          f"{flags.goal}: {'met' if met else 'NOT MET'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
