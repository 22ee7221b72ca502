"""Checkpoints of real jobs: saved while they train, restored elsewhere, gone back to."""

import hashlib
import json
import pathlib
import subprocess
import unittest

import cluster
import synthetic

BSP = {"epochs": 30, "name": "long", "resources": "server_wait_seconds: 30"}
# A model of several shards, so that each of three servers gets some.
WIDE = {
    "epochs": 4,
    "model": """layers { name: "fc1" fully_connected { units: 2000 } }
                layers { name: "fc2" fully_connected { units: 200 } }
                layers { name: "out" fully_connected { units: 10 } }""",
}
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

    def versions(self, status):
        model = json.loads(pathlib.Path(status["outputDirectory"], "model.json").read_text())
        return {int(table["version"]) for table in model["tables"]}

    def batches(self, status):
        return int(status["samplesTotal"]) // 20

    def save(self, job):
        return self.cluster.json("checkpoint", "save", job)["folder"]

    def restore(self, folder, *arguments):
        return self.cluster.json("checkpoint", "restore", folder, "--no-wait", *arguments)["jobId"]

    def complete(self, folder):
        listed = self.cluster.json("checkpoint", "verify", folder)["checkpoints"]
        return [one for one in listed if one["state"] == "verified"]

    def servers_of(self, job):
        routing = self.cluster.json("table", "placement", job)["routing"]
        return {shard.get("server", 0) for shard in routing["shards"]}

    def first_trained(self, status):
        """The lowest iteration that a job has written down."""
        metrics = pathlib.Path(status["outputDirectory"], "metrics.jsonl").read_text().splitlines()
        return min(int(json.loads(line)["iteration"]) for line in metrics if "iteration" in line)

    def test_a_job_restored_on_more_servers_ends_with_the_same_bits(self):
        undisturbed = self.finish(self.submit(servers=2, **WIDE))
        job = self.start(iteration=50, servers=2, **WIDE)
        self.assertEqual(len(self.servers_of(job)), 2)
        folder = self.save(job)
        self.assertEqual(self.cluster.status(job)["state"], "RUNNING")
        self.cluster.run("job", "stop", job)
        [saved] = self.complete(folder)
        restored = self.restore(folder, "--servers", "3")
        self.cluster.wait_iteration(restored, int(saved["iteration"]))
        self.assertEqual(len(self.servers_of(restored)), 3)
        again = self.finish(restored)
        self.assertEqual(self.model_hash(again), self.model_hash(undisturbed))
        self.assertEqual(len(again["results"]), WIDE["epochs"])
        # It has not begun at the first sample again.
        self.assertGreaterEqual(self.first_trained(again), int(saved["iteration"]))

    def test_tables_of_two_servers_are_the_same_on_three(self):
        # The checkpoint is of the end: what is restored is written as it is.
        job = self.submit(servers=2, checkpoints="checkpoints { every_iterations: 100 }", **WIDE)
        status = self.finish(job)
        folder = pathlib.Path(status["outputDirectory"], "checkpoints")
        newest = self.complete(str(folder))[0]
        self.assertEqual(int(newest["iteration"]), int(status["iteration"]))
        restored = self.finish(self.restore(newest["path"], "--servers", "3"))
        self.assertEqual(self.model_hash(restored), self.model_hash(status))

    def damage(self, checkpoint, how):
        """Spoils the first part of a checkpoint; returns the part's name."""
        part = sorted(pathlib.Path(checkpoint).glob("*.part"))[0]
        whole = part.read_bytes()
        if how == "torn":
            part.write_bytes(whole[: len(whole) // 2])
        else:
            middle = len(whole) // 2
            part.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1:])
        return part.name

    def two_checkpoints(self, job):
        """Folders of a job's two newest checkpoints, the older one first."""
        older = self.save(job)
        self.cluster.wait_iteration(job, int(self.cluster.status(job)["iteration"]) + 20)
        return older, self.save(job)

    def test_a_damaged_checkpoint_is_named_and_refused_and_the_one_before_restored(self):
        undisturbed = self.finish(self.submit())
        job = self.start()
        older, newer = self.two_checkpoints(job)
        self.cluster.run("job", "stop", job)
        both = str(pathlib.Path(newer).parent)
        for how in ("torn", "flipped"):  # Torn first: a flip in what is left is damage, too.
            with self.subTest(how=how):
                part = self.damage(newer, how)
                verified = self.cluster.run("checkpoint", "verify", both, check=False)
                self.assertEqual(verified.returncode, 1)
                self.assertIn(part, verified.stdout + verified.stderr)
                refused = self.cluster.run("checkpoint", "restore", newer, "--no-wait", check=False)
                self.assertEqual(refused.returncode, 1, refused.stdout)
                self.assertIn(part, refused.stderr)
                self.assertIn(older, refused.stderr)
                taken = self.cluster.run("checkpoint", "restore", both, "--no-wait", "-o", "json")
                self.assertIn("passed over", taken.stderr)
                self.assertIn(part, taken.stderr)
                again = self.finish(json.loads(taken.stdout)["jobId"])
                self.assertEqual(self.model_hash(again), self.model_hash(undisturbed))

    def test_a_job_whose_server_dies_passes_over_a_damaged_checkpoint(self):
        undisturbed = self.finish(self.submit())
        job = self.start()
        older, newer = self.two_checkpoints(job)
        part = self.damage(newer, "flipped")
        self.cluster.daemons["server-1"].kill()
        again = self.finish(job)
        self.assertEqual(self.model_hash(again), self.model_hash(undisturbed))
        log = self.cluster.daemons["scheduler"].log.read_text()
        self.assertRegex(log, f"no checkpoint {newer}: .*{part}")
        self.assertNotIn(f"no checkpoint {older}:", log)

    def test_ssp_and_asp_jobs_go_on_from_their_checkpoints(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                job = self.start(consistency=mode)
                folder = self.save(job)
                status = self.finish(job)
                again = self.finish(self.restore(folder, "--servers", "1"))
                for one in (status, again):
                    self.assertEqual(one["samplesDone"], one["samplesTotal"])
                    # Each batch is in the model once, on whichever side of the checkpoint.
                    self.assertEqual(self.versions(one), {self.batches(one)})
                    self.assertGreater(one["results"][-1]["testAccuracy"], 0.95)
                    self.assertEqual(len(one["results"]), BSP["epochs"])

    def test_a_job_in_the_folder_of_one_before_writes_over_nothing(self):
        output = pathlib.Path(self.cluster.folder, "shared")
        job = self.start(more=f'output {{ directory: "{output}" }}')
        begun_with = self.save(job)
        refused = self.cluster.run("checkpoint", "restore", begun_with, "--no-wait", check=False)
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertIn(f"{output} is the output folder of {job}, which is RUNNING", refused.stderr)
        # A branch of the running job may write into a folder of its own.
        branch = self.restore(begun_with, "-O", str(output / "branch"))
        self.cluster.run("job", "stop", branch)
        self.cluster.run("job", "stop", job)
        restored = self.restore(begun_with)
        self.cluster.wait_iteration(restored, 1)
        own = self.save(restored)
        whole = [one["path"] for one in self.complete(str(output / "checkpoints"))]
        self.assertEqual(whole, [own, begun_with])

    def test_a_job_whose_server_dies_goes_back_and_ends_with_the_same_bits(self):
        undisturbed = self.finish(self.submit())
        job = self.start(checkpoints="checkpoints { every_iterations: 60 }")
        folder = pathlib.Path(self.cluster.status(job)["outputDirectory"], "checkpoints")
        self.assertTrue(cluster.until("one is complete", lambda: self.complete(str(folder))))
        self.cluster.daemons["server-1"].kill()
        status = self.finish(job)
        self.assertEqual(self.model_hash(status), self.model_hash(undisturbed))
        self.assertLessEqual(len(self.complete(str(folder))), 2)

    def start_scheduler_again(self):
        """A killed one, on its data folder and its port."""
        scheduler = self.cluster.daemons["scheduler"]
        scheduler.command = [
            f"--listen={self.cluster.scheduler}" if argument.startswith("--listen") else argument
            for argument in scheduler.command
        ]
        scheduler.start()
        scheduler.address()

    def test_a_save_waits_for_the_scheduler_to_come_back(self):
        job = self.start(epochs=100000)
        self.cluster.daemons["scheduler"].kill()
        log = self.cluster.folder / "save.log"
        capstan = str(cluster.runfile("scheduler/cli/capstan"))
        with open(log, "wb") as out:
            saving = subprocess.Popen(
                [capstan, "checkpoint", "save", job, "--scheduler", self.cluster.scheduler],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.addCleanup(saving.kill)
        cluster.until("it has found nobody", lambda: "does not answer" in log.read_text())
        self.start_scheduler_again()
        code = saving.wait(timeout=cluster.DEADLINE_SECONDS * cluster.SLOWDOWN)
        self.assertEqual(code, 0, log.read_text())
        self.assertIn(f"of {job} on ", log.read_text())

    def test_checkpoints_go_on_when_the_scheduler_is_killed(self):
        undisturbed = self.finish(self.submit())
        job = self.start(checkpoints="checkpoints { every_iterations: 20 keep: 3 }")
        for _ in range(3):
            before = int(self.cluster.status(job)["iteration"])
            self.cluster.daemons["scheduler"].kill()
            self.start_scheduler_again()
            self.cluster.wait_iteration(job, before + 50)
        status = self.finish(job)
        self.assertEqual(self.model_hash(status), self.model_hash(undisturbed))
        folder = pathlib.Path(status["outputDirectory"], "checkpoints")
        self.assertTrue(self.complete(str(folder)))


if __name__ == "__main__":
    unittest.main()
