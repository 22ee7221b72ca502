"""Checkpoints of real jobs: saved while they train, restored elsewhere, gone back to."""

import hashlib
import pathlib
import unittest

import cluster
import synthetic

BSP = {"epochs": 30, "name": "long", "resources": "server_wait_seconds: 30"}
MODES = ("ssp { staleness_bound: 1 }", "asp {}")


class CheckpointsTest(unittest.TestCase):
    def setUp(self):
        self.cluster = cluster.Cluster(servers=3, workers=2)
        self.addCleanup(self.cluster.close)
        self.data = synthetic.data_block(self.cluster.folder)

    def submit(self, checkpoints="", **arguments):
        text = synthetic.job(self.cluster.folder, data=self.data, **{**BSP, **arguments})
        return self.cluster.submit(text + checkpoints)

    def start(self, iteration=200, **arguments):
        job = self.submit(**arguments)
        self.cluster.wait_iteration(job, iteration)
        return job

    def finish(self, job):
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        return status

    def model_hash(self, status):
        model = pathlib.Path(status["outputDirectory"], "model.safetensors")
        return hashlib.sha256(model.read_bytes()).hexdigest()

    def save(self, job):
        return self.cluster.json("checkpoint", "save", job)["folder"]

    def restore(self, folder, *arguments):
        return self.cluster.json("checkpoint", "restore", folder, "--no-wait", *arguments)["jobId"]

    def complete(self, folder):
        listed = self.cluster.json("checkpoint", "verify", folder)["checkpoints"]
        return [one for one in listed if one["state"] == "verified"]

    def test_a_job_restored_on_more_servers_ends_with_the_same_bits(self):
        undisturbed = self.finish(self.submit(servers=2))
        job = self.start(servers=2)
        folder = self.save(job)
        self.assertEqual(self.cluster.status(job)["state"], "RUNNING")
        self.cluster.run("job", "stop", job)
        again = self.finish(self.restore(folder, "--servers", "3"))
        self.assertEqual(self.model_hash(again), self.model_hash(undisturbed))
        self.assertEqual(len(again["results"]), BSP["epochs"])

    def test_ssp_and_asp_jobs_go_on_from_their_checkpoints(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                job = self.start(consistency=mode)
                folder = self.save(job)
                status = self.finish(job)
                again = self.finish(self.restore(folder, "--servers", "1"))
                for one in (status, again):
                    self.assertEqual(one["samplesDone"], one["samplesTotal"])
                    self.assertGreater(one["results"][-1]["testAccuracy"], 0.95)
                    self.assertEqual(len(one["results"]), BSP["epochs"])

    def test_a_job_whose_server_dies_goes_back_and_ends_with_the_same_bits(self):
        undisturbed = self.finish(self.submit())
        job = self.start(checkpoints="checkpoints { every_iterations: 60 }")
        folder = pathlib.Path(self.cluster.status(job)["outputDirectory"], "checkpoints")
        self.assertTrue(cluster.until("one is complete", lambda: self.complete(str(folder))))
        self.cluster.daemons["server-1"].kill()
        status = self.finish(job)
        self.assertEqual(self.model_hash(status), self.model_hash(undisturbed))
        self.assertLessEqual(len(self.complete(str(folder))), 2)

    def test_checkpoints_go_on_when_the_scheduler_is_killed(self):
        scheduler = self.cluster.daemons["scheduler"]
        address = self.cluster.scheduler
        undisturbed = self.finish(self.submit())
        job = self.start(checkpoints="checkpoints { every_iterations: 20 keep: 3 }")
        for _ in range(3):
            before = int(self.cluster.status(job)["iteration"])
            scheduler.kill()
            scheduler.command = [
                f"--listen={address}" if argument.startswith("--listen") else argument
                for argument in scheduler.command
            ]
            scheduler.start()
            scheduler.address()
            self.cluster.wait_iteration(job, before + 50)
        status = self.finish(job)
        self.assertEqual(self.model_hash(status), self.model_hash(undisturbed))
        folder = pathlib.Path(status["outputDirectory"], "checkpoints")
        self.assertTrue(self.complete(str(folder)))


if __name__ == "__main__":
    unittest.main()
