"""Helpers of tests of jobs with programs: a cluster that runs them, kills, and models."""

import fcntl
import json
import os
import pathlib
import signal
import struct
import subprocess
import tempfile
import unittest

import cluster

ENVIRONMENT = {
    "PYTHONPATH": str(cluster.runfile("worker/python/capstan/__init__.py").parents[1]),
    "CAPSTAN_CLIENT_LIBRARY": str(cluster.runfile("worker/program/libcapstan_client.so")),
}


GATE_AT = 5  # An iteration.

_LETTERS = {"F32": "f", "U64": "Q"}  # The struct module's letters.


def tensors(path):
    """The tensors of a safetensors file by name: flat tuples of numbers."""
    data = path.read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    found = {}
    for name, tensor in json.loads(data[8:end]).items():
        if name != "__metadata__":
            first, last = tensor["data_offsets"]
            letter = _LETTERS[tensor["dtype"]]
            count = (last - first) // struct.calcsize(f"<{letter}")
            found[name] = struct.unpack(f"<{count}{letter}", data[end + first:end + last])
    return found


def rows(path):
    """The rows of a model's file by their keys, as signed numbers."""
    found = tensors(path)
    dim = len(found["rows"]) // max(len(found["keys"]), 1)
    return {key - (1 << 64 if key >> 63 else 0): found["rows"][i * dim:(i + 1) * dim]
            for i, key in enumerate(found["keys"])}


def environment():
    """The environment of a script that uses the package."""
    return {**os.environ, **ENVIRONMENT}


def run(command):
    """Runs a script by itself; returns its standard output."""
    return subprocess.run(command, check=True, env=environment(), text=True, capture_output=True,
                          timeout=cluster.DEADLINE_SECONDS).stdout


def declared(keep, command, workers=1):
    """The job that a script describes for so many workers, with how it is started; its weights are
    kept in a folder."""
    with tempfile.TemporaryDirectory(dir=keep) as folder:
        declare = {"CAPSTAN_DECLARE": folder, "CAPSTAN_WORKERS": str(workers)}
        subprocess.run(command, env={**environment(), **declare}, check=True,
                       timeout=cluster.DEADLINE_SECONDS)
        job = json.loads(pathlib.Path(folder, "job.json").read_text())
        if "initial_weights" in job["training"]:  # All but rows alone.
            weights = keep / f"{pathlib.Path(folder).name}.safetensors"
            pathlib.Path(job["training"]["initial_weights"]).rename(weights)
            job["training"]["initial_weights"] = str(weights)
    job["program"] |= {"command": command,
                       "environment": job["program"]["environment"] | ENVIRONMENT}
    return job


def losses(lines):
    return [json.loads(line)["loss"] for line in lines.splitlines()]


class ProgramCase(unittest.TestCase):
    """All tests of a class have one cluster."""

    workers = 2

    @classmethod
    def setUpClass(cls):
        cls.cluster = cluster.Cluster(servers=2, workers=cls.workers,
                                      worker_flags=("--run-programs",
                                                    "--program-uids=off"))
        cls.addClassCleanup(cls.cluster.close)

    def finish(self, text, kill_at=None, file="job.textproto"):
        """The model's file of a job, one of whose programs is killed after iteration `kill_at`."""
        name = self.cluster.submit(text, file)
        if kill_at is not None:
            self.cluster.wait_iteration(name, kill_at)
            self.kill_program(name)
        return self.model_of(name)

    def model_of(self, name):
        """The model's file of a job, once it has succeeded."""
        status = self.cluster.wait(name)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        return self.cluster.output(name) / "model.safetensors"

    @property
    def gate(self):
        """A file whose lock scripts take before iteration GATE_AT: `--gate=FILE`."""
        path = self.cluster.folder / "gate"
        path.touch()
        return path

    def declared(self, command, workers=1):
        return declared(self.cluster.folder, command, workers)

    def train(self, job, workers, kill=False):
        """The model's file of a declared job. With `kill` a server and one of its programs die
        while the script waits at the gate."""
        job["resources"] = {"workers": workers, "replicas": 1}
        with open(self.gate, encoding="utf-8") as gate:
            if kill:
                fcntl.flock(gate, fcntl.LOCK_EX)
            name = self.cluster.submit(json.dumps(job), "job.json")
            if kill:
                self.cluster.wait_iteration(name, GATE_AT)
                self.cluster.daemons["server-0"].kill()
                self.kill_program(name)
                self.cluster.daemons["server-0"].start()
        return self.model_of(name)

    def kill_program(self, name):
        def program():
            for worker, daemon in self.cluster.daemons.items():
                for pid in cluster.children(daemon.process.pid) if "worker" in worker else []:
                    variables = pathlib.Path("/proc", str(pid), "environ").read_bytes()
                    if f"/{name}/".encode() in variables:
                        return pid
            return None

        os.kill(cluster.until("a program runs", program), signal.SIGKILL)
