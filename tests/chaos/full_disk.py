"""Disks that fill up: nothing is lost, the error names the folder, and no daemon dies.

The checkpoint folder, an output folder, and the folder of one server's logs, each lie on a small
tmpfs of their own, which a file then fills to the last byte, and leaves again. In turn:

checkpoints  A checkpoint that does not fit is given up and named; the job trains on; the next one
             after the disk has space again is whole.
output       A job whose model has no room in its output folder is refused. Where the disk fills up
             while it trains, the servers keep the model, and `job export` gets it.
logs         A server of a job with `durability: LOG` and `replicas: 1` cannot write its log any
             more: the scheduler names the file, and the replicas take over.
logs_alone   Likewise without replicas: the job waits, and goes on once there is space. Nobody
             starts the server again.

Each of them is an event of its job, with the node and the disk, in `job describe` and `-o json`.

Skipped, with the reason, where file systems may not be mounted.
"""

import argparse
import os
import re
import subprocess
import sys

import chaos
import cluster
import namespaces
import synthetic

FULL = "No space left on device"


class FullDisks(chaos.ChaosCluster):
    """A cluster whose folders of logs and of checkpoints are file systems of their own."""

    disk_bytes = 256 << 20  # Enough for a job's log (two segments and more), or its checkpoints.

    def mounted(self, name):
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        if not os.path.ismount(folder):
            size = f"size={self.disk_bytes}"
            subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], check=True)
        return folder

    def place(self, name):
        if name.startswith("server"):
            self.mounted(name)  # It is the --data-dir, too.
        return {}

    def fill(self, name):
        """Writes until nothing more fits."""
        with open(self.folder / name / "filler", "wb", buffering=0) as filler:
            for size in (1 << 20, 4096, 1):
                try:
                    while filler.write(bytes(size)):
                        pass
                except OSError:
                    pass

    def free(self, name):
        (self.folder / name / "filler").unlink()

    def dead(self):
        return [name for name, one in self.daemons.items() if one.process.poll() is not None]

    def close(self):
        super().close()
        for mount in [*self.folder.glob("*"), *self.folder.glob("*/*")]:
            if os.path.ismount(mount):
                subprocess.run(["umount", str(mount)], check=True)


def expect(condition, what, live):
    if not condition:
        print(live.logs())
        sys.exit(f"WRONG: {what}")


def event(live, job, kind, *words):
    """The first event of that kind whose text has all the words, once it is there."""
    def found(status):
        for one in status.get("events", []):
            if one["kind"] == kind and all(word in one["text"] for word in words):
                return one
        return None

    one = live.until_status(job, f"an event {kind} of {job} with {words}", found)
    name = kind.lower().replace("_", " ")
    described = live.run("job", "describe", job).stdout
    expect(one["text"] in described and name in described, f"not described: {described}", live)
    expect(int(one["unixMs"]) > 0, f"without a time: {one}", live)
    return one


def finish(live, job):
    status = live.wait(job, seconds=300)
    expect(status["state"] == "SUCCEEDED", f"{job}: {status}", live)
    problems = chaos.problems(live, job, "bsp")
    expect(not problems, f"{job}: {problems}", live)
    return chaos.digest(live.output(job))


def checkpoints(live, text, expected):
    folder = live.mounted("checkpoints")
    job = live.submit(text + f'checkpoints {{ directory: "{folder}" }}', "checkpoints.textproto")
    live.wait_iteration(job, 20)
    live.json("checkpoint", "save", job)
    live.fill("checkpoints")
    refused = live.run("checkpoint", "save", job, check=False)
    expect(refused.returncode == 1, f"a checkpoint on a full disk: {refused.stdout}", live)
    expect(FULL in refused.stderr and str(folder) in refused.stderr,
           f"does not name the disk: {refused.stderr}", live)
    print(f"checkpoints  full:  {refused.stderr.strip()}", flush=True)
    full = event(live, job, "DISK_FULL", FULL, str(folder))
    expect(full["nodeId"].startswith("server"), f"names no server: {full}", live)
    whole = [str(path.parent) for path in folder.glob("*/checkpoint-*/manifest.pb")]
    cluster.until("nothing is left of checkpoints that were given up",
                  lambda: sorted(map(str, folder.glob("*/checkpoint-*"))) == sorted(whole))
    print(f"checkpoints  event: {full['nodeId']}: {full['text']}; {len(whole)} whole are left, "
          "nothing of the other", flush=True)
    before = live.iteration(job)
    live.wait_iteration(job, before + 20)
    live.free("checkpoints")
    saved = live.json("checkpoint", "save", job)["folder"]
    live.run("checkpoint", "verify", saved)
    got = finish(live, job)
    expect(got == expected, f"the model differs: {got}", live)
    print(f"checkpoints  freed: {saved} is whole; the model's bits are the same", flush=True)


def output(live, text, expected):
    folder = live.mounted("output")
    job_file = live.write_job(f'{text} output {{ directory: "{folder}/model" }}')
    live.fill("output")
    refused = live.run("job", "submit", str(job_file), "--no-wait", check=False)
    expect(refused.returncode != 0 and str(folder) in refused.stderr,
           f"a job without room for its model: {refused.stdout}{refused.stderr}", live)
    print(f"output       full:  {refused.stderr.strip()}", flush=True)
    live.free("output")
    job = live.json("job", "submit", str(job_file), "--no-wait")["jobId"]
    live.wait_iteration(job, 20)
    live.fill("output")

    def kept(status):
        expect(status["state"] == "RUNNING", f"{job} has lost its model: {status}", live)
        return int(status.get("modelKeptUntilUnixMs", 0))

    live.until_status(job, f"{job} keeps its model", kept, seconds=300)
    described = live.run("job", "describe", job).stdout
    expect(FULL in described and "job export" in described, f"does not say so: {described}", live)
    again = live.run("job", "export", job, check=False)
    expect(again.returncode != 0 and str(folder) in again.stderr,
           f"an export to a full disk: {again.stdout}{again.stderr}", live)
    elsewhere = live.folder / "elsewhere"
    done = live.run("job", "export", job, f"--to={elsewhere}")
    expect(f"{elsewhere}/model.safetensors on " in done.stdout,
           f"does not say where the model is: {done.stdout}", live)
    got = chaos.digest(elsewhere)
    expect(got == expected, f"the model differs: {got}", live)
    live.free("output")
    print("output       full:  the servers kept the model; exported elsewhere, its bits are the "
          "same", flush=True)


def fill_log(live, job):
    """Fills the disk of the primary's logs; its name, once the scheduler has said why it is out."""
    live.wait_iteration(job, 20)
    victim = live.primary(job)
    file = re.escape(str(live.folder / victim))
    live.fill(victim)
    pattern = f"{job}.* {victim} holds nothing of it any more: .*{file}.*{FULL}"
    cluster.until(f"the scheduler names the full disk of {victim}",
                  lambda: live.log_times("scheduler", pattern))
    return victim


def logs(live, text, expected):
    job = live.submit(f"{text}durability: LOG", "replicated.textproto")
    live.wait_replicated(job)
    victim = fill_log(live, job)
    full = event(live, job, "DISK_FULL", FULL, str(live.folder / victim))
    expect(full["nodeId"] == victim, f"not of {victim}: {full}", live)
    moved = event(live, job, "FAILOVER", f"of {victim} now")
    event(live, job, "DEGRADED", "without a replica")
    print(f"logs         event: {victim}: disk full; {moved['nodeId']}: {moved['text']}",
          flush=True)
    got = finish(live, job)
    expect(got == expected, f"the model differs: {got}", live)
    print(f"logs         full:  {victim}'s replicas took over; the model's bits are the same",
          flush=True)
    live.free(victim)


def logs_alone(live, text, expected):
    job = live.submit(text.replace("replicas: 1", "replicas: 0") + "durability: LOG",
                      "alone.textproto")
    victim = fill_log(live, job)
    detail = live.status(job)["detail"]
    expect(victim in detail and "log" in detail, f"does not say what it waits for: {detail}", live)
    print(f"logs, alone  full:  {detail}", flush=True)
    process = live.daemons[victim].process.pid
    live.free(victim)
    back = event(live, job, "SERVER_JOINED", "it is back")
    expect(back["nodeId"] == victim, f"not of {victim}: {back}", live)
    event(live, job, "FAILOVER", "held again")
    got = finish(live, job)
    expect(live.daemons[victim].process.pid == process, f"{victim} was started again", live)
    expect(got == expected, f"the model differs: {got}", live)
    print(f"logs, alone  freed: {victim}, the same process, came back with its log; the "
          "model's bits are the same",
          flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    refused = namespaces.enter_mounts()
    if refused:
        print(f"SKIPPED: {refused}")
        return
    with FullDisks(servers=3, workers=2) as live:
        data = synthetic.data_block(live.folder, train=2000, test=500, side=8)
        text = chaos.job_text(live, data, epochs=arguments.epochs)
        expected = finish(live, live.submit(text, "clean.textproto"))
        print(f"without faults  {expected}", flush=True)
        for fault in (checkpoints, output, logs, logs_alone):
            fault(live, text, expected)
            dead = live.dead()
            expect(not dead, f"these died: {dead}", live)


if __name__ == "__main__":
    main()
