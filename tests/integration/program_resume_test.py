"""Jobs of PyTorch scripts that stop and go on, or lose all daemons: the bits of an unbroken run.

The network has batch norm, dropout, AdamW and a schedule: the state of all of it is the job's.
"""

import contextlib
import fcntl
import json
import subprocess
import sys
import unittest

import cluster
import programs

try:
    import torch
except ImportError:
    torch = None

FLAGS = ("--run-programs", "--program-uids=off")


@unittest.skipIf(torch is None, "PyTorch is missing: deploy/install --tests")
class ProgramResumeTest(programs.ProgramCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        script = str(cluster.runfile("tests/integration/torch_program.py"))
        gate = cls.cluster.folder / "gate"
        cls.job = programs.declared(cls.cluster.folder, [sys.executable, script, f"--gate={gate}"])
        gate.touch()
        cls.unbroken = cls.unbroken_bits()

    @classmethod
    def unbroken_bits(cls):
        cls.job["resources"] = {"workers": 1, "max_restarts": 10}
        job = cls.cluster.submit(json.dumps(cls.job), "job.json")
        status = cls.cluster.wait(job)
        if status["state"] != "SUCCEEDED":
            raise RuntimeError(status)
        return programs.tensors(cls.cluster.output(job) / "model.safetensors")

    @contextlib.contextmanager
    def waiting_job(self, live, checkpoints=True):
        """A job of two workers, which wait in iteration 5, with a checkpoint of an earlier one if
        it takes any. They go on after the block."""
        with open(self.gate, encoding="utf-8") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            spec = self.job | {"resources": {"workers": 2, "max_restarts": 10}}
            if checkpoints:
                spec["checkpoints"] = {"every_iterations": 2}
            job = live.submit(json.dumps(spec), "job.json")
            live.wait_iteration(job, programs.GATE_AT)
            folder = live.output(job) / "checkpoints"
            cluster.until("there is a checkpoint", lambda: not checkpoints or
                          list(folder.glob("checkpoint-*/manifest.pb")))
            yield job

    def expect_unbroken(self, live, job):
        status = live.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        found = programs.tensors(live.output(job) / "model.safetensors")
        self.assertEqual(found, self.unbroken)

    def resume(self, job, *arguments):
        resumed = self.cluster.json("job", "resume", job, "--no-wait", *arguments)
        return resumed["jobId"], int(resumed["restored"]["iteration"])

    def test_a_job_that_was_stopped_goes_on_from_its_checkpoint(self):
        with self.waiting_job(self.cluster) as job:
            self.cluster.run("job", "stop", job)
        resumed, iteration = self.resume(job, "--workers=1")
        self.assertIn(iteration, range(2, programs.GATE_AT + 1))
        self.expect_unbroken(self.cluster, resumed)

    def test_a_job_that_was_saved_goes_on_from_where_it_stopped(self):
        with self.waiting_job(self.cluster, checkpoints=False) as job:
            stopping = subprocess.Popen(
                [str(cluster.runfile("scheduler/cli/capstan")), "job", "stop", "--save", job,
                 f"--scheduler={self.cluster.scheduler}"], stdout=subprocess.DEVNULL)
            self.addCleanup(stopping.kill)
            self.cluster.until_status(job, "it is to be saved",
                                      lambda status: "for a checkpoint" in status["detail"])
        self.assertEqual(stopping.wait(timeout=60 * cluster.SLOWDOWN), 0)
        resumed, iteration = self.resume(job)
        self.assertGreaterEqual(iteration, programs.GATE_AT)
        self.expect_unbroken(self.cluster, resumed)

    def test_a_job_whose_daemons_were_all_killed_goes_on(self):
        with cluster.Cluster(servers=2, workers=2, worker_flags=FLAGS) as live:
            with self.waiting_job(live) as job:
                for daemon in live.daemons.values():
                    daemon.kill()
            live.start_again()
            self.expect_unbroken(live, job)


if __name__ == "__main__":
    unittest.main()
