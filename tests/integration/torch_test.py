"""PyTorch scripts as the programs of jobs: the results of PyTorch alone, and the same bits."""

import json
import sys
import unittest

import cluster
import programs

try:
    import torch
    import capstan.torch
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

    def test_rows_are_read_ahead_without_a_barrier(self):
        for sync in ("ssp:2", "asp"):
            job = self.declared(command("embedding_program.py", f"--sync={sync}",
                                        f"--gate={self.gate}"))
            model = self.train(job, workers=2, kill=True)
            self.assertGreater(len(programs.rows(model.with_name("rows-ads.safetensors"))), 20)


if __name__ == "__main__":
    unittest.main()
