"""Processes die in mid-job: the job goes on, or fails with a named reason."""

import os
import signal
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

    def test_a_hung_task_is_replaced(self):
        job = self.start(epochs=60)
        hung = cluster.until("task 0 runs", lambda: self.cluster.task_pids(job).get(0))
        os.kill(hung, signal.SIGSTOP)
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        self.assertGreaterEqual(status.get("restarts", 0), 1, status)
        cluster.until("the hung task is gone", lambda: not os.path.exists(f"/proc/{hung}"))

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

    def test_a_restarted_scheduler_is_rejoined_and_takes_new_jobs(self):
        scheduler = self.cluster.daemons["scheduler"]
        address = self.cluster.scheduler
        scheduler.kill()
        self.assertEqual(self.cluster.run("job", "list", check=False).returncode, 75)
        scheduler.command = [
            f"--listen={address}" if argument.startswith("--listen") else argument
            for argument in scheduler.command
        ]
        scheduler.start()
        scheduler.address()
        self.cluster.wait_for_nodes(4)
        job = self.submit()
        self.assertEqual(self.cluster.wait(job)["state"], "SUCCEEDED")


if __name__ == "__main__":
    unittest.main()
