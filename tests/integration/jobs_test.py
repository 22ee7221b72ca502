"""Jobs on a cluster of real daemons: run, queue, stop, watch, export."""

import array
import json
import re
import struct
import unittest

import cluster
import synthetic


def fp32_tensor(path, name):
    """The numbers of one tensor of a safetensors file."""
    data = path.read_bytes()
    header_end = 8 + struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8:header_end])[name]["data_offsets"]
    return array.array("f", data[header_end + begin : header_end + end])


class JobsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cluster.Cluster(servers=2, workers=2)
        cls.addClassCleanup(cls.cluster.close)
        cls.data = synthetic.data_block(cls.cluster.folder)

    def job(self, **arguments):
        return synthetic.job(self.cluster.folder, data=self.data, **arguments)

    def test_each_mode_trains_and_leaves_its_files(self):
        for mode in ("bsp {}", "ssp { staleness_bound: 2 }", "asp {}"):
            with self.subTest(mode=mode):
                job = self.cluster.submit(self.job(consistency=mode, epochs=4))
                # The remains of a model from a task that died.
                output = self.cluster.output(job)
                (output / ".export-9-9").mkdir()
                (output / ".export-9-9" / "model.json").write_text("{}")
                status = self.cluster.wait(job)
                self.assertEqual(status["state"], "SUCCEEDED", status)
                self.assertEqual(len(status["results"]), 4)
                self.assertGreater(status["results"][-1]["testAccuracy"], 0.95)
                self.assertEqual(int(status["results"][-1]["testSamples"]), 500)
                for file in ("model.safetensors", "model.json", "metrics.jsonl", "curve.svg"):
                    self.assertTrue((output / file).stat().st_size > 0, file)
                self.assertEqual(list(output.glob(".export-*")), [])
                for line in (output / "metrics.jsonl").read_text().splitlines():
                    self.assertEqual(json.loads(line)["job"], job)
                self.assertIn("<svg", (output / "curve.svg").read_text())

    def test_numbers_travel_as_halves(self):
        for wire in ("gradients: BF16 parameters: BF16", "gradients: FP16"):
            with self.subTest(wire=wire):
                text = self.job(epochs=4) + f"wire {{ {wire} }}"
                status = self.cluster.wait(self.cluster.submit(text))
                self.assertEqual(status["state"], "SUCCEEDED", status)
                self.assertGreater(status["results"][-1]["testAccuracy"], 0.95)

    def test_ftrl_with_l1_exports_weights_that_are_exactly_0(self):
        zeros = {}
        for l1 in (0, 2):
            optimizer = f"ftrl {{ l1: {l1} }} learning_rate: 0.5"
            job = self.cluster.submit(self.job(name=f"l1-{l1}", optimizer=optimizer, epochs=4))
            status = self.cluster.wait(job)
            self.assertEqual(status["state"], "SUCCEEDED", status)
            self.assertGreater(status["results"][-1]["testAccuracy"], 0.95)
            model = self.cluster.output(job) / "model.safetensors"
            weights = fp32_tensor(model, "fc.weight")
            zeros[l1] = weights.count(0.0)
        self.assertEqual(zeros[0], 0)
        self.assertGreater(zeros[2], len(weights) // 4)

    def test_every_sample_is_trained_once_an_epoch(self):
        job = self.cluster.submit(self.job(consistency="asp {}", epochs=3))
        status = self.cluster.wait(job)
        self.assertEqual(int(status["samplesDone"]), 3 * 2000)

    def test_a_trace_shows_layers_and_messages_of_the_first_batches(self):
        model = """
          layers { name: "fc" fully_connected { units: 16 } } layers { name: "r" relu {} }
          layers { name: "out" fully_connected { units: 10 } }"""
        text = self.job(model=model, workers=1, more="output { trace_batches: 3 }")
        job = self.cluster.submit(text)
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        (path,) = self.cluster.output(job).glob("trace-0-*.json")
        events = json.loads(path.read_text())["traceEvents"]
        spans = [event for event in events if event["ph"] == "X"]
        by_track = {track: [span for span in spans if span["cat"] == track]
                    for track in ("forward", "backward", "push", "pull", "wait")}
        first = [span for span in by_track["forward"] if 'layer "fc"' in span["name"]]
        # A forward pass that a new assignment interrupts begins anew.
        self.assertGreaterEqual(len(first), 3)
        self.assertEqual(len(by_track["backward"]), 3 * 5)
        for track in ("push", "pull", "wait"):
            self.assertTrue(by_track[track], track)
        # A batch's pushes arrive after its first gradient was computed.
        computed = [span["ts"] + span["dur"] for span in by_track["backward"][::5]]
        arrived = {}
        for push in by_track["push"]:
            iteration = int(push["name"].rpartition("iteration ")[2])
            end = push["ts"] + push["dur"]
            arrived[iteration] = min(end, arrived.get(iteration, end))
        for gradient, iteration in zip(computed, sorted(arrived)):
            self.assertGreater(arrived[iteration], gradient)

    def test_submit_follows_the_job_and_exits_with_its_result(self):
        path = self.cluster.write_job(self.job(), "followed.textproto")
        done = self.cluster.run("job", "submit", str(path))
        self.assertEqual(done.returncode, 0)
        self.assertIn("SUCCEEDED", done.stdout + done.stderr)

    def test_auto_computes_on_the_cpu_where_no_gpu_is_free(self):
        status = self.cluster.wait(self.cluster.submit(self.job(resources='device: "auto"')))
        self.assertEqual(status["state"], "SUCCEEDED", status)
        self.assertEqual(status["effectiveSpec"]["resources"]["gpus"], 1)

    def test_a_job_that_needs_a_gpu_waits_and_says_what_each_worker_lacks(self):
        node = self.cluster.run("node", "describe", "worker-0").stdout
        reason = re.search(r"^GPUs +(?:none|unusable): (.+)$", node, re.MULTILINE)
        if reason is None:
            self.skipTest("the workers have GPUs that tasks can use")
        job = self.cluster.submit(self.job(name="gpu", workers=1, resources="gpus: 1"))
        status = self.cluster.status(job)
        self.assertEqual(status["state"], "PENDING")
        lacks = "; ".join(f"worker-{n}: {reason.group(1)}" for n in (0, 1))
        self.assertEqual(status["detail"], f"needs 1 GPU; no live worker has one: {lacks}; "
                         "waits until more join, and jobs behind it go on")
        self.cluster.run("job", "stop", job)

    def test_two_jobs_run_one_after_the_other(self):
        first = self.cluster.submit(self.job(name="first", epochs=20))
        second = self.cluster.submit(self.job(name="second"))
        self.assertEqual(self.cluster.status(second)["state"], "PENDING")
        self.assertEqual(self.cluster.wait(first)["state"], "SUCCEEDED")
        self.assertEqual(self.cluster.wait(second)["state"], "SUCCEEDED")
        ids = [job["jobId"] for job in self.cluster.json("job", "list")["jobs"]]
        self.assertLess(ids.index(first), ids.index(second))

    def test_each_change_of_a_job_can_be_watched(self):
        job = self.cluster.submit(self.job(name="watched", epochs=20))
        watched = self.cluster.run("job", "watch", job, "--changes", "-o", "json").stdout
        changes = [json.loads(line) for line in watched.splitlines()]
        self.assertEqual(changes[-1]["state"], "SUCCEEDED")
        self.assertIn(changes[0]["state"], ("PENDING", "RUNNING"))
        self.assertTrue(all(one != next for one, next in zip(changes, changes[1:])), watched)
        refused = self.cluster.run("job", "watch", job, "--changes", check=False)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--changes needs -o json", refused.stderr)

    def test_a_stopped_job_leaves_no_task_and_frees_its_place(self):
        job = self.cluster.submit(self.job(name="endless", epochs=100000))
        self.cluster.wait_iteration(job, 20)
        self.cluster.run("job", "stop", job)
        self.assertEqual(self.cluster.wait(job)["state"], "STOPPED")
        cluster.until("its tasks have ended", lambda: not self.cluster.task_pids(job))
        after = self.cluster.submit(self.job(name="after"))
        self.assertEqual(self.cluster.wait(after)["state"], "SUCCEEDED")

    def test_a_job_that_asks_for_too_many_workers_waits_and_says_why(self):
        job = self.cluster.submit(self.job(name="greedy", workers=5))
        status = self.cluster.status(job)
        self.assertEqual(status["state"], "PENDING")
        described = self.cluster.run("job", "describe", job).stdout
        self.assertIn("5 workers", described)
        self.cluster.run("job", "stop", job)
        self.assertEqual(self.cluster.wait(job)["state"], "STOPPED")

    def test_tables_of_a_running_job_can_be_listed_and_exported(self):
        job = self.cluster.submit(self.job(name="tables", epochs=100000))
        self.cluster.wait_iteration(job, 5)
        self.assertIn("parameters", self.cluster.run("table", "list", job).stdout)
        folder = self.cluster.folder / "exported"
        self.cluster.run("table", "export", job, "-O", str(folder))
        self.assertTrue((folder / "model.safetensors").stat().st_size > 0)
        self.cluster.run("job", "stop", job)

    def test_logs_of_a_task_can_be_read(self):
        job = self.cluster.submit(self.job(name="logged"))
        self.cluster.wait(job)
        self.assertIn("training samples", self.cluster.run("job", "logs", job).stdout)


if __name__ == "__main__":
    unittest.main()
