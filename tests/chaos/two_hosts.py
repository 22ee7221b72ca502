"""Two hosts that share no folder: jobs, checkpoints, restore and export by default settings.

One host has the scheduler and a server, the other one a server and all workers; each is a network
namespace, and the second one has a file system of its own where the first has the scheduler's
folder. The data of the jobs lie on both. In turn:

model        a job ends, and its model lies where its status says, on the scheduler's host
checkpoint   one that is saved while a job trains is whole
restore      a job that goes on from it ends with the bits of one that was not stopped
rows         likewise of a job with a sparse table, whose checkpoints rest on one another

Nothing of it may be left on the second host. Skipped, with the reason, where network namespaces or
mounts are not allowed.
"""

import argparse
import hashlib
import pathlib
import sys

import chaos
import clicks
import namespaces
import synthetic

# On a host of its own a daemon sees another file system in the place of the scheduler's folder.
HIDE = 'mount -t tmpfs tmpfs "$0" && exec "$@"'


class TwoHosts(namespaces.NamespaceCluster):
    """The first host has `NEAR`; each of the others is a host beside it."""

    NEAR = ("scheduler", "server-0")

    def place(self, name):
        where = super().place(name)
        if name in self.NEAR:
            return where
        hidden = self.folder / "scheduler"
        hide = ("sh", "-c", HIDE, str(hidden))
        return {**where, "prefix": (*where["prefix"], *hide)}

    def seen_by(self, name, path):
        """The file or folder that the host of daemon `name` has at `path`."""
        pid = self.daemons[name].process.pid
        return pathlib.Path(f"/proc/{pid}/root{path}")

    def left_behind(self):
        """Files that daemons have put into a folder of their own in the scheduler's place."""
        far = [name for name in self.daemons if name not in self.NEAR]
        seen = [self.seen_by(name, self.folder / "scheduler") for name in far]
        return [str(path) for folder in seen for path in folder.rglob("*")]


def expect(condition, what, live):
    if not condition:
        print(live.logs())
        sys.exit(f"WRONG: {what}")


def finish(live, job):
    """The digest of a job's model, as the scheduler's host has it."""
    status = live.wait(job, seconds=300)
    expect(status["state"] == "SUCCEEDED", f"{job}: {status}", live)
    for name in ("model.json", "metrics.jsonl", "job.json"):
        expect((live.output(job) / name).exists(), f"{live.output(job)} has no {name}", live)
    staged = list(live.output(job).glob(".export-*"))
    expect(not staged, f"{job} leaves {staged}", live)
    digest = hashlib.sha256()
    for file in sorted(live.output(job).glob("*.safetensors")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def save(live, job):
    """The folder of a checkpoint of a running job, which the scheduler's host finds whole."""
    folder = live.json("checkpoint", "save", job)["folder"]
    live.run("checkpoint", "verify", folder)
    return folder


def round_of(live, text, name):
    """A job as it is, and one that is stopped and goes on from a checkpoint: the same bits."""
    expected = finish(live, live.submit(text, f"{name}.textproto"))
    print(f"{name:6} model       {expected}", flush=True)
    job = live.submit(text, f"{name}-stopped.textproto")
    live.wait_iteration(job, 20)
    folder = save(live, job)
    live.wait_iteration(job, live.iteration(job) + 20)
    folder = save(live, job)
    print(f"{name:6} checkpoint  {folder} is whole", flush=True)
    live.run("job", "stop", job)
    restored = live.json("checkpoint", "restore", folder, "--no-wait")["jobId"]
    got = finish(live, restored)
    expect(got == expected, f"{restored} ends with {got}, expected {expected}", live)
    print(f"{name:6} restored    the same bits", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    refused = namespaces.enter()
    if refused:
        print(f"SKIPPED: {refused}")
        return
    with TwoHosts(servers=2, workers=2) as live:
        data = synthetic.data_block(live.folder, train=2000, test=500, side=8)
        # Replicas would hide that a server's part cannot be read.
        dense = synthetic.job(live.folder, name="dense", model=chaos.MODEL, data=data,
                              epochs=arguments.epochs)
        round_of(live, dense, "dense")
        sparse = clicks.job(name="rows", consistency="bsp {}", epochs=20)
        round_of(live, sparse, "rows")
        left = live.left_behind()
        expect(not left, f"these were left on the other host: {left}", live)


if __name__ == "__main__":
    main()
