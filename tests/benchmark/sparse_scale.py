"""A table of very many rows on one server: trained, checkpointed, lost, restored, exported.

Keys of the examples are drawn alike over --keys of them, so that nearly every one is a row that no
cache holds. Half-way through the job's examples a checkpoint is saved, and a little later one of
what changed since; then the server is killed and started again: the job goes back to that and ends.
Prints what each step took.
"""

import argparse
import json
import pathlib
import time

import clicks
import cluster

FIELDS = 26
BATCH = 4096
ENOUGH = 3600  # Seconds for any one step.


def memory(pid):
    """Resident memory of a process now and at most, GiB."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return [int(fields[name].split()[0]) / 2**20 for name in ("VmRSS", "VmHWM")]


class Scale:
    def __init__(self, live, keys, examples, rank, buckets):
        self.live = live
        self.server = live.daemons["server-0"]
        per_field = -(-keys // FIELDS)
        data = f"""
          format: CLICK_LOG
          click_log {{ fields: {FIELDS} keys_per_field: {per_field} zipf_exponent: 0 rank: 0 }}
          train {{ examples: {examples} }}"""
        model = f"factorization_machine {{ rank: {rank} }}" if rank else "logistic_regression {}"
        text = clicks.job(
            name="scale",
            model=model,
            data=data,
            epochs=1,
            batch_size=BATCH,
            optimizer="adagrad { row_wise: true } learning_rate: 0.05",
            servers=1,
            resources="server_wait_seconds: 600",
        ).replace("buckets: 16", f"buckets: {buckets}")
        self.examples = examples
        self.job = live.submit(text)

    def rows(self):
        (server,) = self.live.json("table", "list", self.job)["servers"]
        return sum(int(table.get("rows", {}).get("held", 0)) for table in server["tables"])

    def say(self, what, **figures):
        values = ", ".join(f"{name} {value}" for name, value in figures.items())
        print(f"{what}: {values}", flush=True)

    def train(self, iterations):
        self.train_until(int(self.live.status(self.job).get("iteration", 0)) + iterations)

    def train_until(self, iteration):
        began, seen = time.monotonic(), int(self.live.status(self.job).get("samplesDone", 0))
        cluster.until(
            f"iteration {iteration}",
            lambda: int(self.live.status(self.job).get("iteration", 0)) >= iteration,
            seconds=ENOUGH,
            poll_seconds=0.5,
        )
        seconds = time.monotonic() - began
        done = int(self.live.status(self.job)["samplesDone"]) - seen
        now, most = memory(self.server.process.pid)
        self.say(
            "trained",
            rows=f"{self.rows():,}",
            keys_a_second=f"{done * FIELDS / seconds:,.0f}",
            memory_gib=f"{now:.2f}",
            at_most=f"{most:.2f}",
        )

    def checkpoint(self, what):
        began = time.monotonic()
        saved = self.live.run("checkpoint", "save", self.job, "-o", "json", timeout=ENOUGH)
        folder = pathlib.Path(json.loads(saved.stdout)["folder"])
        seconds = time.monotonic() - began
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        _, most = memory(self.server.process.pid)
        self.say(what, seconds=f"{seconds:.1f}", gib=f"{size / 2**30:.2f}",
                 memory_at_most=f"{most:.2f}")

    def lose_and_restore(self):
        before = self.rows()
        began = time.monotonic()
        self.server.kill()
        self.server.start()
        held = cluster.until("rows are restored", lambda: self.restored_rows(), seconds=ENOUGH)
        self.say("restored", seconds=f"{time.monotonic() - began:.1f}", rows=f"{held:,}",
                 before=f"{before:,}")

    def restored_rows(self):
        done = self.live.run("table", "list", self.job, "-o", "json", check=False)
        return self.rows() if done.returncode == 0 else 0

    def finish(self):
        began = time.monotonic()
        status = self.live.wait(self.job, seconds=ENOUGH)
        if status["state"] != "SUCCEEDED":
            raise SystemExit(f"{status}\n{self.live.logs()}")
        size = sum(f.stat().st_size for f in self.live.output(self.job).glob("*.safetensors"))
        self.say("ended", seconds=f"{time.monotonic() - began:.1f}", gib=f"{size / 2**30:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000_000)
    parser.add_argument("--examples", type=int, default=8_000_000)
    parser.add_argument("--rank", type=int, default=7, help="of the factors; 0: weights alone")
    parser.add_argument("--buckets", type=int, default=512)
    flags = parser.parse_args()
    with cluster.Cluster(servers=1, workers=2) as live:
        scale = Scale(live, flags.keys, flags.examples, flags.rank, flags.buckets)
        batches = flags.examples // BATCH
        scale.train_until(batches // 2)
        scale.checkpoint("checkpoint")
        scale.train(batches // 32)
        scale.checkpoint("incremental checkpoint")
        scale.lose_and_restore()
        scale.train_until(batches - 1)
        scale.finish()


if __name__ == "__main__":
    main()
