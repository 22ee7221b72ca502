"""Processes die in mid-job: the job goes on, or fails with a named reason."""

import hashlib
import os
import pathlib
import signal
import subprocess
import time
import unittest

import cluster
import synthetic

LONG = {"epochs": 40, "name": "long"}


class FaultsTest(unittest.TestCase):
    def setUp(self):
        self.cluster = cluster.Cluster(servers=2, workers=2)
        self.addCleanup(self.cluster.close)
        self.data = synthetic.data_block(self.cluster.folder)

    def submit(self, **arguments):
        text = synthetic.job(self.cluster.folder, data=self.data, **arguments)
        return self.cluster.submit(text)

    def start(self, iteration=100, **arguments):
        job = self.submit(**{**LONG, **arguments})
        self.cluster.wait_iteration(job, iteration)
        return job

    def test_a_killed_task_is_restarted_and_the_job_finishes(self):
        for mode in ("bsp {}", "ssp { staleness_bound: 1 }", "asp {}"):
            with self.subTest(mode=mode):
                job = self.start(consistency=mode)
                self.cluster.kill_task(job, 1)
                status = self.cluster.wait(job)
                self.assertEqual(status["state"], "SUCCEEDED", status)
                self.assertGreaterEqual(status.get("restarts", 0), 1, status)
                self.assertGreater(status["results"][-1]["testAccuracy"], 0.95)

    def test_a_killed_worker_daemon_takes_its_task_along_and_the_job_finishes(self):
        for mode in ("bsp {}", "asp {}"):
            with self.subTest(mode=mode):
                job = self.start(consistency=mode)
                pid = cluster.until("task 1 runs", lambda: self.cluster.task_pids(job).get(1))
                daemons = self.cluster.daemons.values()
                owner = next(d for d in daemons if pid in cluster.children(d.process.pid))
                owner.kill()
                cluster.until("the task has died with its daemon",
                              lambda: b"--task" not in cluster.command_line(pid))
                # Its share of the work comes back with the lease, so the job cannot have ended yet.
                self.assertEqual(self.cluster.status(job)["state"], "RUNNING")
                status = self.cluster.wait(job)
                self.assertEqual(status["state"], "SUCCEEDED", status)
                owner.start()
                self.cluster.wait_for_nodes(4)

    def test_a_task_that_crashes_too_often_fails_the_job(self):
        job = self.start(resources="max_restarts: 1", epochs=100000)
        for _ in range(2):
            before = cluster.until("task 0 runs", lambda: self.cluster.task_pids(job).get(0))
            os.kill(before, signal.SIGKILL)
            cluster.until("it is gone", lambda: self.cluster.task_pids(job).get(0) != before)
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "FAILED")
        self.assertEqual(status["failure"]["reason"], "TASK_CRASHED")
        self.assertIn("signal 9", status["failure"]["message"])

    def test_a_hung_task_is_replaced_and_the_job_goes_on(self):
        # Its share of the work goes to the other task at once: a short job would end before it is
        # replaced.
        job = self.start(epochs=100000)
        hung = cluster.until("task 0 runs", lambda: self.cluster.task_pids(job).get(0))
        os.kill(hung, signal.SIGSTOP)
        cluster.until("the hung task is gone", lambda: not os.path.exists(f"/proc/{hung}"))
        cluster.until("it is replaced", lambda: self.cluster.task_pids(job).get(0))
        status = self.cluster.status(job)
        self.assertGreaterEqual(status.get("restarts", 0), 1, status)
        self.cluster.wait_iteration(job, int(status["iteration"]) + 50)

    def test_a_lost_server_fails_the_job_and_is_named(self):
        job = self.start(epochs=100000)
        self.cluster.daemons["server-1"].kill()
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "FAILED")
        self.assertEqual(status["failure"]["reason"], "SERVER_LOST")
        self.assertIn("server-1", status["failure"]["message"])

    def test_a_gradient_that_is_not_finite_fails_the_job_with_layer_and_iteration(self):
        job = self.submit(model='zoo: "mlp"', optimizer="sgd {} learning_rate: 1e30")
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "FAILED")
        self.assertEqual(status["failure"]["reason"], "DIVERGED")
        self.assertIn("iteration", status["failure"]["message"])
        self.assertIn("fc", status["failure"]["message"])

    def restart_scheduler(self, away_seconds=0.0):
        """Kills the scheduler, and starts it on its data folder and port once tasks noticed."""
        scheduler = self.cluster.daemons["scheduler"]
        address = self.cluster.scheduler
        scheduler.kill()
        killed = time.monotonic()
        self.assertEqual(self.cluster.run("job", "list", check=False).returncode, 75)
        cluster.until("it was away for long enough",
                      lambda: time.monotonic() >= killed + away_seconds)
        scheduler.command = [
            f"--listen={address}" if argument.startswith("--listen") else argument
            for argument in scheduler.command
        ]
        scheduler.start()
        scheduler.address()

    def model_hash(self, status):
        model = pathlib.Path(status["outputDirectory"], "model.safetensors")
        return hashlib.sha256(model.read_bytes()).hexdigest()

    def test_a_job_survives_the_scheduler_with_the_same_bits(self):
        undisturbed = self.cluster.wait(self.submit(**LONG))
        job = self.start()
        tasks = self.cluster.task_pids(job)
        # Longer than the lease: the nodes and tasks that live get a new one.
        self.restart_scheduler(away_seconds=1.5 * cluster.LEASE_SECONDS)
        self.assertEqual(self.cluster.status(job)["state"], "RUNNING")
        self.assertEqual(self.cluster.task_pids(job), tasks)
        self.restart_scheduler()
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        self.assertEqual(status.get("restarts", 0), 0, self.cluster.logs())
        self.assertEqual(len(status["results"]), LONG["epochs"])
        self.assertEqual(self.model_hash(status), self.model_hash(undisturbed))
        # Names are not used again, and the cluster takes new jobs.
        later = self.submit()
        self.assertEqual(later.rpartition("-")[2], "3")
        self.assertEqual(self.cluster.wait(later)["state"], "SUCCEEDED")

    def test_a_task_that_dies_with_the_scheduler_is_replaced_by_the_next_one(self):
        for mode in ("ssp { staleness_bound: 1 }", "asp {}"):
            with self.subTest(mode=mode):
                job = self.start(consistency=mode)
                victim = cluster.until("task 0 runs", lambda: self.cluster.task_pids(job).get(0))
                self.cluster.daemons["scheduler"].signal(signal.SIGSTOP)
                os.kill(victim, signal.SIGKILL)
                self.restart_scheduler()
                status = self.cluster.wait(job)
                self.assertEqual(status["state"], "SUCCEEDED", status)
                self.assertGreaterEqual(status.get("restarts", 0), 1, status)

    def test_a_second_scheduler_on_the_same_data_is_refused(self):
        scheduler = self.cluster.daemons["scheduler"]
        command = [argument for argument in scheduler.command if "--port-file" not in argument]
        second = subprocess.run(
            command, capture_output=True, text=True, timeout=60 * cluster.SLOWDOWN
        )
        self.assertEqual(second.returncode, 1, second.stderr)
        self.assertIn("another process has it open", second.stderr + second.stdout)
        self.assertEqual(self.cluster.wait(self.submit())["state"], "SUCCEEDED")


if __name__ == "__main__":
    unittest.main()
