"""The figures of a job's epochs, and its logs, can be read, also when its workers are gone."""

import unittest

import cluster
import synthetic


class LogsTest(unittest.TestCase):
    def setUp(self):
        self.cluster = cluster.Cluster(servers=1, workers=2)
        self.addCleanup(self.cluster.close)
        data = synthetic.data_block(self.cluster.folder)
        self.text = synthetic.job(self.cluster.folder, data=data, epochs=2)

    def worker_lines(self, job):
        """The lines of the tasks, and the words of the command on standard error."""
        done = self.cluster.run("job", "logs", job)
        lines = done.stdout.splitlines()
        return [line for line in lines if not line.startswith("[job] ")], done.stderr

    def kill_workers(self):
        for name, daemon in self.cluster.daemons.items():
            if name.startswith("worker"):
                daemon.kill()

    def restart_scheduler(self):
        scheduler = self.cluster.daemons["scheduler"]
        scheduler.kill()
        scheduler.command = [
            f"--listen={self.cluster.scheduler}" if argument.startswith("--listen") else argument
            for argument in scheduler.command
        ]
        scheduler.start()
        scheduler.address()

    def test_logs_have_the_figures_of_each_epoch(self):
        job = self.cluster.submit(self.text)
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        logs = self.cluster.run("job", "logs", job).stdout
        for result in status["results"]:
            line = f"[job] epoch {result['epoch']}/2  train loss {result['trainLoss']:.4f}  "
            self.assertIn(line, logs)
            self.assertIn(f"test accuracy {100 * result['testAccuracy']:.2f} %", logs)
        followed = self.cluster.run("job", "logs", job, "--follow").stdout
        self.assertEqual(followed.count("[job] epoch "), 2, followed)
        one = self.cluster.run("job", "logs", job, "--rank", "0").stdout
        self.assertNotIn("[job]", one)

    def test_logs_stay_readable_when_their_workers_are_gone(self):
        job = self.cluster.submit(self.text)
        self.assertEqual(self.cluster.wait(job)["state"], "SUCCEEDED")
        before, said = self.worker_lines(job)
        self.assertTrue(any("training samples" in line for line in before), before)
        self.assertEqual(said, "")

        def kept():
            files = self.cluster.folder.glob(f"**/task-logs/{job}/*")
            return sum(file.stat().st_size for file in files)

        size = sum(len(line) + 1 - len("[rank 0] ") for line in before)
        cluster.until("the scheduler has all of the logs", lambda: kept() == size)
        self.kill_workers()
        after, said = self.worker_lines(job)
        self.assertEqual(after, before)
        self.assertIn("here is what the scheduler keeps", said)
        self.restart_scheduler()
        self.cluster.wait_for_nodes(1)
        after, _ = self.worker_lines(job)
        self.assertEqual(after, before)

        self.cluster.run("job", "delete", job)
        gone = self.cluster.run("job", "logs", job, check=False)
        self.assertEqual(gone.returncode, 2, gone)
        cluster.until("what was kept is gone", lambda: kept() == 0)

    def test_jobs_are_labelled_listed_and_deleted(self):
        job = self.cluster.submit(self.text)
        self.assertEqual(self.cluster.wait(job)["state"], "SUCCEEDED")
        self.cluster.run("job", "label", job, "team=ads", "--note", "for the paper")
        wide = self.cluster.run("job", "list", "--label", "team=ads", "-o", "wide").stdout
        self.assertIn("team=ads", wide)
        self.assertIn("for the paper", wide)
        self.assertNotIn(job, self.cluster.run("job", "list", "--label", "team=x").stdout)
        wrong = self.cluster.run("job", "label", job, "no blank=x", check=False)
        self.assertEqual(wrong.returncode, 2, wrong)
        self.assertIn("expected 1 to 63 letters", wrong.stderr)
        output = self.cluster.output(job)
        deleted = self.cluster.run("job", "delete", job).stdout
        self.assertIn(f"{job} is deleted; what it has written stays in ", deleted)
        self.assertTrue((output / "model.safetensors").exists())
        again = self.cluster.run("job", "delete", job, check=False)
        self.assertEqual(again.returncode, 2, again)


if __name__ == "__main__":
    unittest.main()
