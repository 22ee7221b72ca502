"""Training with rows on disk, against the same with all rows in memory.

Two jobs on one cluster, one after the other: the same model on the same click log, whose keys
follow a Zipf law. The second one may keep a share of the memory that the first one took for its
table. Prints samples a second (median of the epochs after the first) and the ratio. Exit 1: below
the goal.
"""

import argparse
import statistics

import clicks
import cluster

FIELDS = 26
GOAL = 0.5


class Job:
    """A job that has ended: what its epochs took, and its table when it had all its rows."""

    def __init__(self, live, flags, memory_mib):
        data = f"""
          format: CLICK_LOG
          click_log {{ fields: {FIELDS} keys_per_field: {-(-flags.keys // FIELDS)}
                       zipf_exponent: {flags.zipf} rank: 0 }}
          train {{ examples: {flags.examples} }}"""
        text = clicks.job(
            name="memory" if memory_mib == 0 else "disk",
            model=f"factorization_machine {{ rank: {flags.rank} }} "
                  f"rows {{ memory_mib: {memory_mib} }}",
            data=data,
            epochs=flags.epochs,
            batch_size=4096,
            optimizer="adagrad {} learning_rate: 0.05",
            servers=1,
            workers=1,
        ).replace("buckets: 16", f"buckets: {flags.buckets}")
        job = live.submit(text)
        cluster.until("the last epoch", lambda: self.trained(live, job) >= flags.epochs - 1,
                      seconds=3600, poll_seconds=0.5)
        (server,) = live.json("table", "list", job)["servers"]
        self.table = next(table for table in server["tables"] if "rows" in table)
        status = live.wait(job, seconds=3600)
        if status["state"] != "SUCCEEDED":
            raise SystemExit(f"{status}\n{live.logs()}")
        seconds = [result["seconds"] for result in status["results"][1:]]
        self.speed = flags.examples / statistics.median(seconds)
        self.spread = [flags.examples / take(seconds) for take in (max, min)]

    @staticmethod
    def trained(live, job):
        status = live.status(job)
        if status["state"] == "FAILED":
            raise SystemExit(f"{status}\n{live.logs()}")
        return len(status.get("results", []))

    def say(self, name):
        table = self.table
        print(f"{name}: {self.speed:,.0f} samples/s ({self.spread[0]:,.0f} to "
              f"{self.spread[1]:,.0f}), table {int(table['bytes']) / 2**20:,.0f} MiB in memory, "
              f"{int(table['rows']['held']):,} rows, of which "
              f"{int(table.get('rowsOnDisk', 0)):,} on disk", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=20_000_000)
    parser.add_argument("--examples", type=int, default=600_000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rank", type=int, default=31, help="of the factors")
    parser.add_argument("--buckets", type=int, default=64)
    parser.add_argument("--zipf", type=float, default=1.05)
    parser.add_argument("--share", type=float, default=0.25, help="of the memory")
    flags = parser.parse_args()
    with cluster.Cluster(servers=1, workers=1) as live:
        memory = Job(live, flags, memory_mib=0)
        memory.say("memory")
        allowed = int(memory.table["bytes"]) * flags.share / 2**20
        disk = Job(live, flags, memory_mib=max(1, round(allowed)))
        disk.say("disk")
    ratio = disk.speed / memory.speed
    print(f"ratio {ratio:.2f}, goal {GOAL}: {'reached' if ratio >= GOAL else 'missed'}")
    raise SystemExit(0 if ratio >= GOAL else 1)


if __name__ == "__main__":
    main()
