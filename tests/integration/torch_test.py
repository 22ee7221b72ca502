"""PyTorch scripts as the programs of jobs: the results of PyTorch alone, and the same bits."""

import json
import sys
import unittest

import cluster
import programs

try:
    import torch
    import capstan.torch
    import torch_cases
    import torch_program
except ImportError:
    torch = None


def command(script, *arguments):
    return [sys.executable, str(cluster.runfile(f"tests/integration/{script}")), *arguments]


@unittest.skipIf(torch is None, "PyTorch is missing: deploy/install --tests")
class TorchTest(programs.ProgramCase):
    workers = 4

    def trained_and_replayed(self, script):
        """A job with one worker, and its batches with PyTorch alone: its model's file, both lists
        of losses, and what PyTorch alone saved."""
        log, saved = self.cluster.folder / f"{script}.jsonl", self.cluster.folder / f"{script}.pt"
        model = self.train(self.declared(command(script, f"--log={log}")), workers=1)
        replayed = programs.run(command(script, f"--replay={log}", f"--save={saved}"))
        ours = programs.losses(log.read_text())
        theirs = programs.losses(replayed)
        self.assertEqual(len(ours), len(theirs))
        self.assertLess(sum(ours[-8:]), 0.5 * sum(ours[:8]))
        return model, ours, theirs, torch.load(saved)

    def expect_near(self, found, expected, name=""):
        self.assertEqual(len(found), len(expected), name)
        for mine, plain in zip(found, expected):
            self.assertAlmostEqual(mine, plain, delta=1e-5, msg=name)

    def test_one_worker_computes_what_pytorch_computes_alone(self):
        model, ours, theirs, saved = self.trained_and_replayed("torch_program.py")
        self.assertEqual(len(ours), 4 * 256 // 16)
        self.expect_near(ours, theirs)
        net = torch_program.network()
        capstan.torch.load(net, model.parent)
        for name, tensor in saved.items():
            self.expect_near(net.state_dict()[name].flatten().tolist(), tensor.flatten().tolist(),
                             name)

    def test_the_bits_are_the_same_for_any_number_of_workers_and_kills(self):
        job = self.declared(command("torch_program.py", f"--gate={self.gate}"))
        undisturbed = programs.tensors(self.train(job, workers=1))
        for workers in (1, 2, 4):
            with self.subTest(workers=workers):
                disturbed = programs.tensors(self.train(job, workers, kill=True))
                self.assertEqual(disturbed, undisturbed)

    def test_rows_groups_and_a_schedule_are_pytorchs(self):
        model, ours, theirs, saved = self.trained_and_replayed("embedding_program.py")
        self.expect_near(ours, theirs)
        found = programs.tensors(model)
        for name, tensor in saved["state"].items():
            self.expect_near(found[f"head.{name}"], tensor.flatten().tolist(), name)
        rows = programs.rows(model.with_name("rows-ads.safetensors"))
        for key, row in saved["rows"].items():
            self.expect_near(rows.pop(key, [0.0] * len(row)), row, str(key))
        self.assertEqual(rows, {})

    def test_the_bits_of_rows_are_the_same_for_any_number_of_workers_and_kills(self):
        job = self.declared(command("embedding_program.py", f"--gate={self.gate}"))
        results = []
        for workers, kill in ((1, False), (1, True), (2, True)):
            model = self.train(job, workers, kill)
            results.append((programs.tensors(model),
                            programs.rows(model.with_name("rows-ads.safetensors"))))
        self.assertEqual(results[1], results[0])
        self.assertEqual(results[2], results[0])
        self.assertGreater(len(results[0][1]), 20)

    def case(self, name, workers=1):
        """A case of torch_cases.py: its job's name."""
        job = self.declared(command("torch_cases.py", name, str(self.cluster.folder / name)))
        job["resources"] = {"workers": workers}
        return self.cluster.submit(json.dumps(job), "job.json")

    def model(self, case, workers=1):
        return programs.tensors(self.model_of(self.case(case, workers)))

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
                self.expect_near(found[name], values, f"{case} {name}")

    def test_bfloat16_trains(self):
        for case in ("autocast", "bfloat16"):
            self.model_of(self.case(case))

    def test_the_test_data_are_evaluated_after_each_epoch(self):
        name = self.case("evaluated", workers=2)
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

    def test_rows_alone_are_trained_and_evaluated(self):
        name = self.case("embeddings_alone", workers=2)
        rows = programs.rows(self.model_of(name).with_name("rows-ads.safetensors"))
        self.assertEqual(sorted(rows), list(range(13)))
        rows[99] = (0.0,)
        loss = sum((rows[int(keys[0])][0] + rows[int(keys[1])][0] - label) ** 2
                   for keys, label in map(torch_cases.Keys(24, 99).__getitem__, range(24))) / 24
        results = self.cluster.status(name)["results"]
        self.assertAlmostEqual(results[-1]["testLoss"], loss, delta=1e-5)
        self.assertGreater(results[0]["testLoss"], results[-1]["testLoss"])

    def test_wrong_calls_are_refused_and_change_nothing(self):
        plain = self.model("plain")
        self.assertEqual(self.model("wrong_calls"), plain)
        said = self.cluster.folder / "wrong_calls"
        cluster.until("the script has ended", lambda: said.exists() and said.read_text())

    def test_why_a_script_has_failed_is_the_jobs_reason(self):
        for case, words in (
                ("asks_too_early", "the next batch is asked for before the gradient of this one"),
                ("wrong_sample", "Error: sample 17: ValueError: no such picture"),
                ("wrong_keys", "'ads': keys are torch.float32, expected a tensor of torch.int64"),
                ("nan_gradient", 'the gradient of "3.bias" has nan'),
                ("nan_loss", "the loss is nan"),
                ("raises", "ValueError: told to fail"),
                ("exits", "the program has left before its job was done"),
                ("breaks", "the program has left before its job was done"),
                ("leaves", "the process exited with code 0 before the job was done")):
            with self.subTest(case=case):
                status = self.cluster.wait(self.case(case))
                self.assertEqual(status["state"], "FAILED", status)
                self.assertIn(words, json.dumps(status, ensure_ascii=False).replace('\\"', '"'))

    def test_rows_are_read_ahead_without_a_barrier(self):
        for sync in ("ssp:2", "asp"):
            job = self.declared(command("embedding_program.py", f"--sync={sync}",
                                        f"--gate={self.gate}"))
            model = self.train(job, workers=2, kill=True)
            self.assertGreater(len(programs.rows(model.with_name("rows-ads.safetensors"))), 20)


if __name__ == "__main__":
    unittest.main()
