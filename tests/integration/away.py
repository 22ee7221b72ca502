"""Training goes on while there is no scheduler, measured by what the servers have applied.

A job trains one long epoch. The scheduler is killed; its tasks and servers go on; it is started
again. The updates that the servers applied meanwhile are counted with the tasks stopped before the
kill and before the return, so that none from before or after is among them. In the end the job has
the model of a run whose scheduler was never away (BSP), and all batches in it.
"""

import argparse
import hashlib
import os
import pathlib
import signal
import sys
import time

import cluster
import synthetic

# Enough work an iteration that the files of a long absence stay small.
MODEL = """
  layers { name: "fc1" fully_connected { units: 600 } }
  layers { name: "relu1" relu {} }
  layers { name: "fc2" fully_connected { units: 200 } }
  layers { name: "relu2" relu {} }
  layers { name: "out" fully_connected { units: 10 } }
"""
PROBE_SAMPLES = 20000
# The share of the rate with a scheduler. The machine is not equally busy in both runs; a stall
# would give 0.05.
RATE_MIN = 0.4


class Away:
    def __init__(self, live, seconds, mode):
        self.live = live
        self.seconds = seconds
        self.mode = mode

    def bsp(self):
        return self.mode.startswith("bsp")

    def submit(self, samples, name):
        data = synthetic.train_only_block(self.live.folder, samples, side=8)
        text = synthetic.job(self.live.folder, name=name, data=data, model=MODEL, epochs=1,
                             consistency=self.mode,
                             training="slots: 2 seed: 3" if self.bsp() else "seed: 3")
        return self.live.submit(text, f"{name}.textproto")

    def train(self, samples, name):
        """A run without faults: its status, and the samples a second."""
        job = self.submit(samples, name)
        self.live.wait_iteration(job, 1)
        begin = time.monotonic()
        status = self.finish(job)
        return status, samples / (time.monotonic() - begin)

    def finish(self, job):
        status = self.live.wait(job, seconds=self.seconds * 6 + 120)
        if status["state"] != "SUCCEEDED":
            sys.exit(f"{job}: {status}")
        return status

    def signal_tasks(self, pids, number):
        for pid in pids:
            os.kill(pid, number)

    def applied(self, job):
        """Updates that every server has applied; exact, as the tasks are stopped."""
        servers = self.live.json("table", "list", job)["servers"]
        return min(int(table["versionMin"]) for one in servers for table in one["tables"])

    def scheduler_away(self, job):
        """The updates that were applied without a scheduler."""
        pids = list(self.live.task_pids(job).values())
        scheduler = self.live.daemons["scheduler"]
        scheduler.command = [
            f"--listen={self.live.scheduler}" if argument.startswith("--listen") else argument
            for argument in scheduler.command
        ]
        self.signal_tasks(pids, signal.SIGSTOP)
        before = self.applied(job)
        scheduler.kill()
        self.signal_tasks(pids, signal.SIGCONT)
        killed = time.monotonic()
        cluster.until("the scheduler was away for long enough",
                      lambda: time.monotonic() >= killed + self.seconds, self.seconds + 10)
        self.signal_tasks(pids, signal.SIGSTOP)
        scheduler.start()
        scheduler.address()
        after = self.applied(job)
        self.signal_tasks(pids, signal.SIGCONT)
        if sorted(self.live.task_pids(job).values()) != sorted(pids):
            sys.exit("not the same tasks are there that were there before")
        return after - before


def digest(status):
    model = pathlib.Path(status["outputDirectory"], "model.safetensors")
    return hashlib.sha256(model.read_bytes()).hexdigest()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60, help="how long it is away")
    parser.add_argument("--mode", default="bsp {}")
    arguments = parser.parse_args()
    with cluster.Cluster(servers=2, workers=2) as live:
        away = Away(live, arguments.seconds, arguments.mode)
        _, rate = away.train(PROBE_SAMPLES, "probe")
        samples = int(rate * (1.5 * arguments.seconds + 6))
        undisturbed, rate = away.train(samples, "undisturbed")
        per_update = samples / int(undisturbed["iteration"])
        job = away.submit(samples, "away")
        live.wait_iteration(job, 50)
        updates = away.scheduler_away(job)
        share = updates * per_update / arguments.seconds / rate
        print(f"without a scheduler for {arguments.seconds:.0f} s: {updates} updates, "
              f"{share:.2f} of the rate with one", flush=True)
        status = away.finish(job)
        restarts = status.get("restarts", 0)
        right = status["samplesDone"] == status["samplesTotal"] and not restarts
        print(f"{status['samplesDone']} of {status['samplesTotal']} samples, {restarts} restarts")
        if away.bsp():
            same = digest(status) == digest(undisturbed)
            right = right and same
            print(f"sha256 {digest(status)}: {'the same as' if same else 'NOT THAT of'} the run "
                  "whose scheduler was there")
    sys.exit(0 if right and share >= RATE_MIN else 1)


if __name__ == "__main__":
    main()
