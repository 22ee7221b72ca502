"""BSP with backups: an iteration does not wait for the slowest, and the job ends well trained."""

import os
import signal
import unittest

import cluster
import synthetic

ITERATIONS_WITHOUT = 200  # While one of three tasks stands still.
SAMPLES = 600_010  # 10,000 iterations of 3 slots of 20.


class BackupsTest(unittest.TestCase):
    def setUp(self):
        # Nobody is taken for dead while it stands still.
        self.cluster = cluster.Cluster(servers=2, workers=3, lease=f"{60 * cluster.SLOWDOWN}s")
        self.addCleanup(self.cluster.close)

    def held(self, job):
        """The job's tables as its servers hold them."""
        servers = self.cluster.json("table", "list", job).get("servers", [])
        return [table for server in servers for table in server.get("tables", [])]

    def version(self, job):
        return min(int(table.get("versionMin", 0)) for table in self.held(job))

    def test_training_goes_on_while_a_task_stands_still(self):
        job = self.cluster.submit(synthetic.job(
            self.cluster.folder, workers=3, consistency="bsp { backups: 1 }", epochs=1,
            training="slots: 3", data=synthetic.data_block(self.cluster.folder, train=SAMPLES)))
        self.cluster.wait_iteration(job, 20)
        stopped = self.cluster.task_pids(job)[2]
        os.kill(stopped, signal.SIGSTOP)
        begin = self.version(job)
        cluster.until("the others have gone on",
                      lambda: self.version(job) >= begin + ITERATIONS_WITHOUT,
                      poll_seconds=cluster.CLI_POLL_SECONDS)
        self.assertEqual(self.cluster.status(job)["state"], "RUNNING")
        # One slot of each iteration was late, or its task has passed it over.
        self.assertGreater(sum(int(table.get("pushesLate", 0)) for table in self.held(job)), 0)
        os.kill(stopped, signal.SIGCONT)
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        self.assertEqual(int(status.get("restarts", 0)), 0, status)
        self.assertGreater(status["results"][-1]["testAccuracy"], 0.95)
        self.assertEqual(int(status["iteration"]), SAMPLES // 60)  # Only whole ones.


if __name__ == "__main__":
    unittest.main()
