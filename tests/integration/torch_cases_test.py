"""PyTorch scripts with other loops: they do the same in other ways, or something wrong."""

import json
import signal
import subprocess
import sys
import unittest

import cluster
import programs

try:
    import torch
    import capstan.torch
    import torch_cases
except ImportError:
    torch = None

FAILURES = {  # The job's reason by case.
    "asks_too_early": "the next batch is asked for before the gradient of this one was sent",
    "wrong_sample": "Error: sample 17: ValueError: no such picture",
    "nan_gradient": 'the gradient of "3.bias" has nan',
    "nan_loss": "the loss is nan",
    "raises": "ValueError: told to fail",
    "exits": "the program has left before its job was done",
    "breaks": "the program has left before its job was done",
    "leaves": "the process exited with code 0 before the job was done",
    "wrong_keys": "'ads': keys are torch.float32, expected a tensor of torch.int64",
}


def command(case, *arguments):
    script = cluster.runfile("tests/integration/torch_cases.py")
    return [sys.executable, str(script), case, *arguments]


@unittest.skipIf(torch is None, "PyTorch is missing: deploy/install --tests")
class TorchCasesTest(programs.ProgramCase):
    workers = 4

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.plain_job = programs.declared(cls.cluster.folder, command("plain"))

    def submit(self, case, workers=1, declares=False, epochs=None):
        """Submits the job of a case: that of "plain" with another script, or what it declares."""
        file = self.cluster.folder / case
        job = json.loads(json.dumps(self.plain_job))
        if declares:
            job = self.declared(command(case), workers)
        job["program"]["command"] = command(case, str(file))
        job["training"]["epochs"] = epochs or job["training"]["epochs"]
        job["resources"] = {"workers": workers}
        return self.cluster.submit(json.dumps(job), "job.json")

    def model(self, case, workers=1):
        return programs.tensors(self.model_of(self.submit(case, workers)))

    def rows_of(self, name):
        return programs.rows(self.model_of(name).with_name("rows-ads.safetensors"))

    def test_overlap_and_loading_ahead_change_no_bits(self):
        plain = self.model("plain")
        self.assertEqual(self.model("overlap", workers=2), plain)
        noise = self.model("noise")
        self.assertNotEqual(noise, plain)
        self.assertEqual(self.model("noise_loaded_ahead", workers=2), noise)

    def test_parts_of_a_batch_and_a_scaler_compute_what_the_whole_batch_does(self):
        whole = self.model("whole")
        for case in ("accumulated", "scaled"):
            found = self.model(case, workers=2)
            self.assertEqual(found.keys(), whole.keys())
            for name, values in whole.items():
                for mine, theirs in zip(found[name], values):
                    self.assertAlmostEqual(mine, theirs, delta=1e-5, msg=f"{case}: {name}")

    def test_bfloat16_trains(self):
        for job in [self.submit(case, epochs=20) for case in ("autocast", "bfloat16")]:
            self.model_of(job)

    def test_the_test_data_are_evaluated_after_each_epoch(self):
        name = self.submit("evaluated", workers=2, declares=True)
        net = torch_cases.network().eval()
        capstan.torch.load(net, self.model_of(name).parent)
        tests = torch_cases.Line(40)
        out = net(tests.x)
        results = self.cluster.status(name)["results"]
        self.assertEqual([result["testSamples"] for result in results], ["40"] * 3)
        self.assertAlmostEqual(results[-1]["testLoss"],
                               float(torch.nn.functional.mse_loss(out, tests.y)), delta=1e-5)
        correct = int(((out > 0) == (tests.y > 0)).sum())
        self.assertAlmostEqual(results[-1]["testAccuracy"], correct / 40, delta=1e-6)
        self.assertGreater(results[0]["testLoss"], results[-1]["testLoss"])

    def test_rows_alone_are_trained_and_evaluated_also_with_a_scaler(self):
        name, scaled, ftrl = [self.submit(case, workers=2, declares=True) for case in (
            "embeddings_alone", "embeddings_scaled", "embeddings_by_ftrl")]
        rows = self.rows_of(name)
        self.assertEqual(sorted(rows), list(range(13)))
        self.assertEqual(self.rows_of(scaled), rows)
        rows[99] = (0.0,)
        loss = sum((rows[int(keys[0])][0] + rows[int(keys[1])][0] - label) ** 2
                   for keys, label in map(torch_cases.Keys(24, 99).__getitem__, range(24))) / 24
        results = self.cluster.status(name)["results"]
        self.assertAlmostEqual(results[-1]["testLoss"], loss, delta=1e-5)
        self.assertEqual(sorted(self.rows_of(ftrl)), list(range(13)))
        for results in (results, self.cluster.status(ftrl)["results"]):
            self.assertGreater(results[0]["testLoss"], results[-1]["testLoss"])

    def test_wrong_calls_are_refused_and_change_nothing(self):
        self.assertEqual(self.model("wrong_calls"), self.model("plain"))
        said = self.cluster.folder / "wrong_calls"
        cluster.until("the script has ended", lambda: said.exists() and said.read_text())

    def test_why_a_script_has_failed_is_the_jobs_reason(self):
        jobs = {case: self.submit(case, declares=case == "wrong_keys") for case in FAILURES}
        for case, words in FAILURES.items():
            with self.subTest(case=case):
                status = self.cluster.wait(jobs[case])
                self.assertEqual(status["state"], "FAILED", status)
                self.assertIn(words, status["failure"]["message"])

    def test_a_script_ends_though_its_scheduler_does_not_answer(self):
        self.model("copies_its_task")
        variables = {"CAPSTAN_TASK_SPEC": str(self.cluster.folder / "copies_its_task"),
                     "CAPSTAN_SCHEDULER": "127.0.0.1:1"}
        with subprocess.Popen(command("waits"), env={**programs.environment(), **variables},
                              text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as script:
            try:
                self.assertEqual(script.stdout.readline(), "waits\n")
                script.send_signal(signal.SIGINT)
                _, said = script.communicate(timeout=cluster.DEADLINE_SECONDS)
            finally:
                script.kill()
        self.assertIn("KeyboardInterrupt", said)
        self.assertNotEqual(script.returncode, 0)


if __name__ == "__main__":
    unittest.main()
