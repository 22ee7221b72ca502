"""What tests of jobs with programs share: a cluster that runs them, kills, and models."""

import json
import os
import pathlib
import signal
import struct
import unittest

import cluster

ENVIRONMENT = {
    "PYTHONPATH": str(cluster.runfile("worker/python/capstan/__init__.py").parents[1]),
    "CAPSTAN_CLIENT_LIBRARY": str(cluster.runfile("worker/program/libcapstan_client.so")),
}


def tensors(path):
    """The fp32 tensors of a safetensors file by name."""
    data = path.read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    found = {}
    for name, tensor in json.loads(data[8:end]).items():
        if name != "__metadata__":
            first, last = tensor["data_offsets"]
            found[name] = struct.unpack(f"<{(last - first) // 4}f", data[end + first:end + last])
    return found


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
        status = self.cluster.wait(name)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        return self.cluster.output(name) / "model.safetensors"

    def kill_program(self, name):
        def program():
            for worker, daemon in self.cluster.daemons.items():
                for pid in cluster.children(daemon.process.pid) if "worker" in worker else []:
                    variables = pathlib.Path("/proc", str(pid), "environ").read_bytes()
                    if f"/{name}/".encode() in variables:
                        return pid
            return None

        os.kill(cluster.until("a program runs", program), signal.SIGKILL)
