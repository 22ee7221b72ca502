"""A cluster whose daemons die and come back, and which server holds which shard of a job.

The chaos programs share this module. Kills are SIGKILL: the process gets no last word. A daemon
comes back under its own name and, the scheduler, on its own port with its own data folder.
"""

import calendar
import hashlib
import json
import os
import re
import signal
import time

import cluster
import history
import synthetic

MODES = {"bsp": "bsp {}", "ssp": "ssp { staleness_bound: 2 }", "asp": "asp {}"}
STALENESS_BOUND = 2
SLOTS = 4
# Small enough that a round takes seconds, with several shards a server and a state per element.
MODEL = """
  layers { name: "fc1" fully_connected { units: 600 } }
  layers { name: "relu1" relu {} }
  layers { name: "fc2" fully_connected { units: 200 } }
  layers { name: "relu2" relu {} }
  layers { name: "out" fully_connected { units: 10 } }
"""


class ChaosCluster(cluster.Cluster):
    """Its tasks keep histories of their calls, which `problems` looks through."""

    def __init__(self, servers, workers, **settings):
        super().__init__(servers=servers, workers=workers, **settings)
        scheduler = self.daemons["scheduler"]
        scheduler.command = [
            f"--listen={self.scheduler}" if argument.startswith("--listen") else argument
            for argument in scheduler.command
        ]

    def _start(self, *arguments):
        self.histories = self.folder / "histories"
        self.histories.mkdir()
        os.environ["CAPSTAN_CALL_HISTORY"] = str(self.histories)  # For the daemons, and theirs.
        super()._start(*arguments)

    def kill(self, name):
        """Kills a daemon; returns the wall-clock time of the kill, in seconds."""
        before = time.time()
        self.daemons[name].kill()
        return before

    def start(self, name):
        self.daemons[name].start()
        self.daemons[name].address()

    def restart(self, name):
        """Kills a daemon and starts it again; returns once its new incarnation is known."""
        daemon = self.daemons[name]
        earlier = daemon.registrations()
        killed = self.kill(name)
        self.start(name)
        if name != "scheduler":
            daemon.wait_for_registration(earlier)
        return killed

    def incarnations(self):
        """The incarnation of every daemon that is alive, by name."""
        nodes = self.json("node", "list").get("nodes", [])
        return {node["nodeId"]: node["incarnation"] for node in nodes if node.get("alive")}

    def pause(self, name, seconds):
        """SIGSTOP for a while: the process is there and does nothing."""
        self.daemons[name].signal(signal.SIGSTOP)
        time.sleep(seconds)  # The fault itself: this is how long it lasts.
        self.daemons[name].signal(signal.SIGCONT)

    def routing(self, job):
        return self.json("table", "placement", job)["routing"]

    def placement(self, job):
        return shards_of(self.routing(job))

    def primary(self, job):
        return self.placement(job)[0][0]

    def replica(self, job):
        return self.placement(job)[0][1][0]

    def wait_replicated(self, job, copies=1):
        """Waits until every shard has its primary and `copies` replicas in sync, none of them a
        process that is gone (or until the job has ended)."""

        def replicated():
            if self.status(job)["state"] in cluster.ENDED:
                return True
            routing = self.routing(job)
            if any(len(in_sync) < copies for _, in_sync, _ in shards_of(routing)):
                return False
            incarnations = self.incarnations()
            return all(incarnations.get(one["nodeId"]) == one["incarnation"]
                       for one in routing["servers"])

        cluster.until(f"{job} is replicated", replicated, poll_seconds=cluster.CLI_POLL_SECONDS)

    def iteration(self, job):
        return int(self.status(job).get("iteration", 0))

    def log_times(self, name, pattern, since=0.0):
        """Wall-clock seconds of the lines in a daemon's log that match, not older than `since`."""
        times = []
        for line in self.daemons[name].log.read_text(errors="replace").splitlines():
            if not re.search(pattern, line):
                continue
            at = line_time(line)
            if at is not None and at >= since:
                times.append(at)
        return times


def shards_of(routing):
    """Per shard: (primary, [replicas in sync], [replicas being filled])."""
    names = [server["nodeId"] for server in routing["servers"]]
    shards = []
    for shard in routing["shards"]:
        replicas = shard.get("replicas", [])
        shards.append((
            names[shard.get("server", 0)],
            [names[r.get("server", 0)] for r in replicas if r.get("inSync")],
            [names[r.get("server", 0)] for r in replicas if not r.get("inSync")],
        ))
    return shards


def signal_if_there(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def line_time(line):
    """The time that a log line begins with, as seconds since 1970; None if it has none."""
    match = re.match(r"(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}:\d{2})\.(\d{3})", line)
    if not match:
        return None
    day, clock, milliseconds = match.groups()
    seconds = calendar.timegm(time.strptime(f"{day} {clock}", "%Y-%m-%d %H:%M:%S"))
    return seconds + int(milliseconds) / 1000


def digest(folder):
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def job_text(live, data, **arguments):
    bsp = "bsp" in arguments.get("consistency", "bsp {}")
    settings = {
        "model": MODEL,
        "workers": 2,
        "batch_size": 20,
        "optimizer": "adam {} learning_rate: 0.001",
        "training": f"slots: {SLOTS} seed: 5" if bsp else "seed: 5",
        "resources": "replicas: 1 max_restarts: 1000",
        "data": data,
        **arguments,
    }
    return synthetic.job(live.folder, **settings)


def percentile(values, share):
    """The smallest value that at least `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, int(len(ordered) * share + 0.999999) - 1))]


def versions(live, job):
    """Updates of each table, as exported; of its shards, the lowest."""
    manifest = json.loads((live.output(job) / "model.json").read_text())
    return {table["name"]: int(table.get("version", 0)) for table in manifest["tables"]}


def outcome(live, job, mode):
    """The result of a run: in BSP the hash of the model, else how many pushes the model counts."""
    if mode == "bsp":
        return f"sha256 {digest(live.output(job))}"
    return f"{versions(live, job)['parameters']} updates"


def problems(live, job, mode):
    """The promises that were broken, as the job's clients saw it; empty if all were kept."""
    found, counts = history.check(live.histories, job, mode, STALENESS_BOUND, SLOTS)
    exported = versions(live, job)["parameters"]
    if exported != counts["final"]:
        found.append(f"the model is of version {exported}, and was read as {counts['final']}")
    return found


def differences(live, job, mode, expected):
    """The problems of a job, and whether BSP came to other bits than expected."""
    found = problems(live, job, mode)
    got = outcome(live, job, mode)
    if mode == "bsp" and got != expected:
        found.append(f"comes to {got}")
    return found
