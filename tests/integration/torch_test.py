"""PyTorch scripts as the programs of jobs: the results of PyTorch alone, and the same bits."""

import json
import os
import subprocess
import sys
import unittest

import cluster
import programs
from programs import ENVIRONMENT, tensors

try:
    import torch
except ImportError:
    torch = None

SCRIPT = str(cluster.runfile("tests/integration/torch_program.py"))


def command(*arguments):
    return [sys.executable, SCRIPT, *arguments]


@unittest.skipIf(torch is None, "PyTorch is missing: deploy/install --tests")
class TorchTest(programs.ProgramCase):
    workers = 4

    def declared(self, *arguments):
        """The job that the script describes, with how it is started."""
        folder = self.cluster.folder / "declared"
        folder.mkdir(exist_ok=True)
        environment = {**os.environ, **ENVIRONMENT}
        subprocess.run(command(*arguments), env={**environment, "CAPSTAN_DECLARE": str(folder)},
                       check=True, timeout=cluster.DEADLINE_SECONDS)
        job = json.loads((folder / "job.json").read_text())
        job["program"] |= {"command": command(*arguments), "environment": ENVIRONMENT}
        return job

    def train(self, job, workers, kill_at=None):
        job["resources"] = {"workers": workers, "replicas": 1}
        return self.finish(json.dumps(job), kill_at, "job.json")

    def test_one_worker_computes_what_pytorch_computes_alone(self):
        log, saved = self.cluster.folder / "batches.jsonl", self.cluster.folder / "state.pt"
        model = self.train(self.declared(f"--log={log}"), workers=1)
        replay = subprocess.run(command(f"--replay={log}", f"--save={saved}"), check=True,
                                env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True)
        ours = [json.loads(line)["loss"] for line in log.read_text().splitlines()]
        theirs = [json.loads(line)["loss"] for line in replay.stdout.splitlines()]
        self.assertEqual(len(ours), 4 * 256 // 16)
        for mine, plain in zip(ours, theirs):
            self.assertAlmostEqual(mine, plain, delta=1e-5)
        self.assertLess(sum(ours[-8:]), 0.5 * sum(ours[:8]))
        found = tensors(model)
        for name, tensor in torch.load(saved).items():
            for mine, plain in zip(found[name], tensor.flatten().tolist()):
                self.assertAlmostEqual(mine, plain, delta=1e-5, msg=name)

    def test_the_bits_are_the_same_for_any_number_of_workers_and_kills(self):
        job = self.declared()
        results = [tensors(self.train(job, workers)) for workers in (1, 2)]
        results.append(tensors(self.train(job, 2, kill_at=5)))
        self.assertEqual(results[1], results[0])
        self.assertEqual(results[2], results[0])


if __name__ == "__main__":
    unittest.main()
