"""Jobs that stop and go on: saved stops, resumed jobs, changed fields, initial weights."""

import hashlib
import json
import pathlib
import struct
import unittest

import cluster
import synthetic

MODES = ("bsp {}", "ssp { staleness_bound: 1 }", "asp {}")
SAMPLES = 2000
BATCH = 20


def read_tensors(path):
    """name -> (dtype, shape, bytes) of a safetensors file."""
    whole = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", whole[:8])[0]
    data = whole[8 + size:]
    header = json.loads(whole[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
            for name, entry in header.items()}


def write_tensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


class ResumeTest(unittest.TestCase):
    def setUp(self):
        self.cluster = cluster.Cluster(servers=2, workers=2)
        self.addCleanup(self.cluster.close)
        self.data = synthetic.data_block(self.cluster.folder)

    def submit(self, checkpoints="", **arguments):
        settings = {"epochs": 30, "name": "long", "data": self.data, **arguments}
        return self.cluster.submit(synthetic.job(self.cluster.folder, **settings) + checkpoints)

    def finish(self, job):
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        return status

    def model(self, status):
        return pathlib.Path(status["outputDirectory"], "model.safetensors")

    def model_hash(self, status):
        return hashlib.sha256(self.model(status).read_bytes()).hexdigest()

    def versions(self, status):
        model = json.loads(pathlib.Path(status["outputDirectory"], "model.json").read_text())
        return {int(table["version"]) for table in model["tables"]}

    def stop_saved(self, job):
        return self.cluster.json("job", "stop", job, "--save")

    def resume(self, job, *arguments):
        return self.cluster.json("job", "resume", job, "--no-wait", *arguments)["jobId"]

    def refused(self, code, *arguments):
        done = self.cluster.run(*arguments, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr

    def test_a_job_that_is_stopped_saved_and_resumed_ends_with_the_same_bits(self):
        undisturbed = self.finish(self.submit())
        job = self.submit()
        self.cluster.wait_iteration(job, 300)
        stopped = self.stop_saved(job)
        self.assertEqual(stopped["state"], "STOPPED")
        # Its model is the parameters that were saved.
        iteration = int(stopped["iteration"])
        self.assertLess(iteration, int(undisturbed["iteration"]))
        self.assertEqual(self.versions(stopped), {iteration})
        self.assertTrue(stopped["hasModel"])
        [saved] = self.cluster.json("checkpoint", "verify", stopped["savedCheckpoint"])[
            "checkpoints"]
        self.assertEqual(saved["state"], "verified")
        self.assertEqual(int(saved["iteration"]), iteration)
        described = self.cluster.run("job", "describe", job).stdout
        self.assertIn(stopped["savedCheckpoint"], described)

        # On one worker, where the slots would be one by default.
        resumed = self.resume(job, "--workers", "1")
        again = self.finish(resumed)
        self.assertNotEqual(again["outputDirectory"], stopped["outputDirectory"])
        self.assertEqual(self.model_hash(again), self.model_hash(undisturbed))
        self.assertEqual(len(again["results"]), 30)

    def test_a_killed_job_goes_on_from_its_newest_checkpoint(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                job = self.submit(consistency=mode,
                                  checkpoints="checkpoints { every_iterations: 60 }")
                folder = pathlib.Path(self.cluster.status(job)["outputDirectory"], "checkpoints")
                cluster.until("one is complete",
                              lambda: list(folder.glob("checkpoint-*/manifest.pb")))
                self.cluster.run("job", "stop", job)
                self.assertFalse(self.model(self.cluster.status(job)).exists())
                again = self.finish(self.resume(job))
                self.assertEqual(again["samplesDone"], again["samplesTotal"])
                if mode != "bsp {}":
                    self.assertEqual(self.versions(again), {30 * SAMPLES // BATCH})

    def test_more_epochs_are_exactly_those(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                more = "checkpoints { every_iterations: 50 }"
                whole = self.finish(self.submit(epochs=5, consistency=mode))
                job = self.submit(epochs=2, consistency=mode, checkpoints=more)
                first = self.finish(job)
                submitted = self.cluster.json("job", "resume", job, "--no-wait",
                                              "--set", "training.epochs=5")
                again = self.finish(submitted["jobId"])
                self.assertEqual([one["epoch"] for one in again["results"]], [1, 2, 3, 4, 5])
                self.assertEqual(self.versions(again), self.versions(whole))
                trained = sum(int(task["samplesTotal"]) for task in again["tasks"])
                # In BSP the last checkpoint is that of the last iteration.
                iteration = int(submitted["restored"]["iteration"])
                batches = iteration * (2 if mode == "bsp {}" else 1)
                self.assertEqual(trained, 5 * SAMPLES - batches * BATCH)
                if mode == "bsp {}":
                    self.assertEqual(trained, 3 * SAMPLES)
                    for one, before in zip(again["results"], first["results"]):
                        self.assertEqual(one["testLoss"], before["testLoss"])
                    self.assertEqual(self.model_hash(again), self.model_hash(whole))

    def test_what_cannot_change_is_refused_by_name(self):
        job = self.submit()
        self.cluster.wait_iteration(job, 20)
        folder = self.cluster.json("checkpoint", "save", job)["folder"]
        self.assertIn(f"{job} has not ended: ", self.refused(1, "job", "resume", job))
        self.cluster.run("job", "stop", job)
        restore = ("checkpoint", "restore", folder, "--no-wait")
        for command in (restore, ("job", "resume", job, "--no-wait")):
            for change, why in (
                ("training.epoch=3", 'no such field; did you mean "epochs"?'),
                ("optimizer.learning_rate=fast", "expected a number"),
                ("training.batch_size=10", "training.batch_size: 10, the checkpoint has 20: the "
                 "position in the data is counted in batches"),
                ("training.slots=4", "training.slots: 4, the checkpoint has 2"),
                ("consistency.asp={}", "consistency: asp, the checkpoint has bsp: "),
                ("optimizer.adam={}", "optimizer: adam, the checkpoint has momentum"),
                ("model.zoo=mlp", "model: it differs from the checkpoint's"),
                ("training.initial_weights=/tmp/w",
                 "training.initial_weights: got \"/tmp/w\", expected nothing"),
            ):
                with self.subTest(command=command[1], change=change):
                    self.assertIn(why, self.refused(2, *command, "--set", change))
        other = self.cluster.json(*restore, "--set", "optimizer.learning_rate=0.001",
                                  "--set", "training.epochs=31", "--set", "resources.workers=1")
        self.finish(other["jobId"])
        none = self.submit(name="none", epochs=1)
        self.finish(none)
        self.assertIn(f"{none} cannot go on: no complete checkpoint in ",
                      self.refused(2, "job", "resume", none))
        self.assertIn("trains no more", self.refused(1, "job", "stop", none, "--save"))

    def test_a_save_that_fails_says_why_and_the_job_goes_on(self):
        blocked = self.cluster.folder / "blocked"
        job = self.submit(epochs=100000, checkpoints=f'checkpoints {{ directory: "{blocked}" }}')
        self.cluster.wait_iteration(job, 20)
        folder = blocked / job
        folder.rmdir()
        folder.write_text("a file where the folder was")
        said = self.refused(1, "job", "stop", job, "--save")
        self.assertRegex(said, f"checkpoint 1 of {job} was given up: .*; "
                         f"{job} is RUNNING, and goes on: ")
        before = int(self.cluster.status(job)["iteration"])
        self.cluster.wait_iteration(job, before + 20)
        folder.unlink()
        self.assertEqual(self.stop_saved(job)["state"], "STOPPED")

    def test_a_job_begins_with_the_weights_of_an_exported_model(self):
        lenet = {"model": 'zoo: "lenet"', "data": synthetic.data_block(
            self.cluster.folder, train=200, test=100, side=28), "name": "lenet"}
        # A rate that changes no fp32: the first evaluation is that of the weights.
        still = {"optimizer": "adam {} learning_rate: 1e-30", "epochs": 1, **lenet}
        first = self.finish(self.submit(epochs=2, optimizer="adam {} learning_rate: 0.001",
                                        **lenet))
        exported = first["outputDirectory"]
        for more in ("", "resources.replicas=1", "durability=LOG"):
            with self.subTest(more=more):
                path = self.cluster.write_job(synthetic.job(self.cluster.folder, **still,
                                                            training="seed: 9"))
                flags = ["--set", more] if more else []
                job = json.loads(self.cluster.run(
                    "job", "submit", str(path), "--no-wait", "-o", "json",
                    "--set", f"training.initial_weights={exported}", *flags).stdout)["jobId"]
                again = self.finish(job)
                result, expected = again["results"][0], first["results"][-1]
                self.assertEqual(result["testAccuracy"], expected["testAccuracy"])
                self.assertEqual(result["testLoss"], expected["testLoss"])
                self.assertEqual(self.model_hash(again), self.model_hash(first))
        kept = self.cluster.folder / "scheduler" / "initial-weights"
        cluster.until("nobody needs them any more", lambda: not list(kept.iterdir()))
        self.half_and_other_weights(first, still)

    def half_and_other_weights(self, first, still):
        tensors = read_tensors(self.model(first))
        # bf16 is the upper half of fp32.
        half = {name: ("BF16", shape, b"".join(
            values[i + 2:i + 4] for i in range(0, len(values), 4)))
            for name, (_, shape, values) in tensors.items()}
        path = self.cluster.folder / "half.safetensors"
        write_tensors(path, half)
        status = self.finish(self.submit(training=f'initial_weights: "{path}"', **still))
        for name, (_, _, values) in read_tensors(self.model(status)).items():
            cut = b"".join(b"\0\0" + half[name][2][i:i + 2]
                           for i in range(0, len(half[name][2]), 2))
            self.assertEqual(values, cut, name)

        # Another number of classes: what fits is taken, the rest is told.
        wider = {**still, "model": 'zoo: "lenet" classes: 12'}
        job_file = self.cluster.write_job(synthetic.job(
            self.cluster.folder,
            training=f'initial_weights: "{first["outputDirectory"]}"', **wider))
        refused = self.refused(2, "job", "submit", str(job_file), "--no-wait")
        self.assertRegex(refused, r"job\.textproto:\d+:\d+: training\.initial_weights: .*\n"
                         r"fc2\.weight: the file has \[10, \d+\], expected \[12, \d+\]")
        taken = self.cluster.run("job", "submit", str(job_file), "--no-wait", "-o", "json",
                                 "--set", "training.initial_weights_partial=true")
        self.assertIn("fc2.weight: the file has [10, ", taken.stderr)
        status = self.finish(json.loads(taken.stdout)["jobId"])
        there = read_tensors(self.model(status))
        self.assertEqual(there["conv1.weight"], tensors["conv1.weight"])
        self.assertEqual(there["fc2.weight"][1][0], 12)


if __name__ == "__main__":
    unittest.main()
