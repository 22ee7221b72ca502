"""Scratch disks of servers that fill up, or forget: a lost copy, like a lost server.

A job's rows have no room in memory and lie on small file systems, one for each server. In turn one
of them is filled to the last byte, or what lies on it is overwritten, while the job trains with
`replicas: 1`. The scheduler names the disk, replicas take over, and no daemon dies. Then the server
is started anew with an empty disk.

BSP       the model has the sha256 of a run without faults;
SSP, ASP  every batch is in the model exactly once.

Skipped, with the reason, where file systems may not be mounted.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import re
import sys

import chaos
import clicks
import cluster
import full_disk
import namespaces

DAMAGE = b"damage! " * 512
MODES = {"bsp": "bsp {}", "ssp": "ssp { staleness_bound: 2 }", "asp": "asp {}"}
# Names some 200,000 keys, of which a mebibyte has room for a part. New ones come all through the
# first epoch, some 100 iterations: a disk that has all rows already may be full unnoticed.
MODEL = "factorization_machine { rank: 16 } rows { memory_mib: 1 }"
DATA = """format: CLICK_LOG click_log { fields: 6 keys_per_field: 50000 zipf_exponent: 0 }
          train { examples: 80000 }"""


class ScratchDisks(full_disk.FullDisks):
    disk_bytes = 64 << 20

    def place(self, name):
        if name.startswith("server"):
            self.mounted(f"{name}/rows")
        return {}

    def rows_on_disk(self, job, name):
        status = self.status(job)
        full_disk.expect(status["state"] not in cluster.ENDED, f"{job} has ended: {status}", self)
        servers = self.json("table", "list", job)["servers"]
        return sum(int(table.get("rowsOnDisk", 0)) for server in servers
                   if server["server"] == name for table in server["tables"])

    def damage(self, name):
        """Overwrites what a server has in its scratch files, which have no names."""
        fds = pathlib.Path("/proc", str(self.daemons[name].process.pid), "fd")
        damaged = 0
        for fd in fds.iterdir():
            target = os.readlink(fd)
            if not target.startswith(f"{self.folder / name}/rows/"):
                continue
            with open(fd, "r+b") as file:
                size = file.seek(0, os.SEEK_END)
                for begin in range(0, size, len(DAMAGE)):
                    file.seek(begin)
                    file.write(DAMAGE[:size - begin])
                damaged += size
        return damaged


def job_text(mode, epochs):
    return clicks.job(
        name=mode, consistency=MODES[mode], model=MODEL, data=DATA, epochs=epochs, servers=3,
        training="slots: 4" if mode == "bsp" else "",
        resources="replicas: 1 max_restarts: 1000 server_wait_seconds: 60",
    )


def digest(folder):
    """The hash of the exported model: of its dense tensors and its rows."""
    found = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        found.update(file.read_bytes())
    return found.hexdigest()


def outcome(live, job, mode):
    """The result that all runs must share: the hash of the model, or how often it was updated."""
    if mode == "bsp":
        return digest(live.output(job))
    manifest = json.loads((live.output(job) / "model.json").read_text())
    return {t["name"]: t.get("version", 0) for t in manifest["tables"] if "rows" not in t}


def strike(live, job, fault, draw):
    """Fills or damages the disk of a primary; returns its name and what the scheduler says."""
    live.wait_replicated(job)
    victim = live.primary(job)
    cluster.until(f"{victim} has rows on disk", lambda: live.rows_on_disk(job, victim) > 500,
                  poll_seconds=cluster.CLI_POLL_SECONDS)
    live.wait_iteration(job, live.iteration(job) + draw.randrange(1, 20))
    if fault == "full":
        live.fill(f"{victim}/rows")
        says = full_disk.FULL
    else:
        full_disk.expect(live.damage(victim) > 0, f"{victim} has no scratch file", live)
        says = "is not what was written"
    folder = re.escape(str(live.folder / victim / "rows"))
    pattern = f"{job}.* {victim} holds nothing of it any more: "
    cluster.until(f"the scheduler names the disk of {victim}",
                  lambda: live.log_times("scheduler", pattern))
    line = next(line for line in live.daemons["scheduler"].log.read_text().splitlines()
                if re.search(pattern, line))
    full_disk.expect(says in line and re.search(folder, line),
                     f"does not say \"{says}\" of {folder}: {line}", live)
    full_disk.expect(not live.dead(), f"these died: {live.dead()}", live)
    if fault == "full":
        live.free(f"{victim}/rows")
    live.restart(victim)  # A disk that has lost rows is replaced.
    return victim


def run(live, mode, name, arguments, fault=None, draw=None):
    job = live.submit(job_text(mode, arguments.epochs), f"{name}.textproto")
    victim = strike(live, job, fault, draw) if fault else None
    status = live.wait(job, seconds=300)
    full_disk.expect(status["state"] == "SUCCEEDED", f"{job}: {status}", live)
    return outcome(live, job, mode), victim


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20, help="of each mode")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modes", nargs="+", choices=sorted(MODES), default=sorted(MODES))
    arguments = parser.parse_args()
    refused = namespaces.enter_mounts()
    if refused:
        print(f"SKIPPED: {refused}")
        return
    wrong = 0
    with ScratchDisks(servers=3, workers=2) as live:
        for mode in arguments.modes:
            expected, _ = run(live, mode, mode, arguments)
            print(f"{mode}  without faults  {expected}", flush=True)
            for number in range(arguments.rounds):
                draw = random.Random(arguments.seed + number)
                fault = ("full", "damaged")[number % 2]
                got, victim = run(live, mode, f"{mode}-{number}", arguments, fault, draw)
                wrong += got != expected
                verdict = "same" if got == expected else f"DIFFERS: {got}"
                print(f"{mode}  round {number + 1:2}  {verdict}  {victim} {fault}", flush=True)
    print(f"{wrong} rounds went wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
