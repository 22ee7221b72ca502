"""Two runs of a job are compared by the hashes of their updates: `capstan diff`."""

import json
import shutil
import sys
import unittest

import cluster
import program_test
import programs
import synthetic

try:
    import torch
except ImportError:
    torch = None

RECORD = "output { record_updates: true }"


class DiffTest(programs.ProgramCase):
    workers = 3

    def diff(self, first, second, exit_code):
        """The output of `capstan diff`, as text and as JSON."""
        runs = ("diff", str(first), str(second))
        text = self.cluster.run(*runs, check=False)
        self.assertEqual(text.returncode, exit_code, text.stdout + text.stderr)
        found = self.cluster.run(*runs, "-o", "json", check=False)
        self.assertEqual(found.returncode, exit_code, found.stderr)
        return text.stdout, json.loads(found.stdout)

    def expect_same(self, first, second, iterations):
        text, found = self.diff(first, second, 0)
        self.assertIn("the same: ", text)
        self.assertEqual(int(found["equalIterations"]), iterations, text)

    def expect_gradient(self, first, second, iteration, slot):
        """They differ first in the gradient of this micro-batch."""
        text, found = self.diff(first, second, 1)
        difference = found["difference"]
        self.assertEqual((difference["what"], difference["between"]), ("gradient", "runs"), text)
        self.assertEqual([int(difference["iteration"]), difference["slot"]], [iteration, slot])
        self.assertEqual(found["trainingDifferences"], [])
        self.assertEqual(difference["first"]["samples"], difference["second"]["samples"])
        self.assertIn("not deterministic there", text)

    def lenet(self, data, workers=1, seed=1, kill=False):
        """The id of a LeNet job that has ended."""
        job = self.cluster.submit(synthetic.job(
            self.cluster.folder, data=data, model='zoo: "lenet"', workers=workers, epochs=12,
            training=f"slots: 3 seed: {seed}", more=RECORD))
        if kill:
            self.cluster.wait_iteration(job, 10)
            self.cluster.kill_task(job, 1)
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        return job

    def test_lenet_is_the_same_with_other_workers_and_kills_and_not_with_another_seed(self):
        data = synthetic.data_block(self.cluster.folder, train=600, test=100, side=28)
        first = self.lenet(data)
        other = self.lenet(data, workers=3, kill=True)
        self.expect_same(first, other, 120)
        text, _ = self.diff(first, other, 0)
        self.assertIn("the jobs differ in what must not matter:\n  resources.workers: 1 -> 3\n",
                      text)
        text, found = self.diff(first, self.lenet(data, seed=2), 1)
        self.assertEqual(found["trainingDifferences"], ["training.seed: 1 -> 2"])
        self.assertEqual(found["difference"]["what"], "parameters")
        self.assertEqual(int(found["difference"]["iteration"]), 0)
        self.assertIn("the jobs differ in what is trained, see above", text)

    @property
    def noise(self):
        """A file with the iteration in which scripts compute what no seed determines."""
        path = self.cluster.folder / "noise"
        path.touch()
        return path

    def program(self, noise):
        """The folder of a job whose program is not deterministic in iteration `noise`."""
        self.noise.write_text(noise)
        return self.finish(program_test.job(f"--noise={self.noise}", more=RECORD)).parent

    def test_noise_in_a_program_is_named_by_iteration_and_slot(self):
        plain, noisy = self.program(""), self.program("7")
        self.expect_same(plain, self.program(""), 25)
        self.expect_gradient(plain, noisy, 7, 1)
        copied = self.cluster.folder / "copied"
        copied.mkdir()
        shutil.copy(noisy / "updates.csv", copied)  # Without job.json.
        text, _ = self.diff(noisy.name, copied / "updates.csv", 0)
        self.assertIn("the same: ", text)

    def test_what_cannot_be_compared_is_an_error_with_another_exit_code(self):
        unrecorded = self.finish(program_test.job()).parent.name
        for runs, words in (((unrecorded, unrecorded), "output.record_updates=true"),
                            (("none-1", "none-1"), "none-1"),
                            ((self.cluster.folder, self.cluster.folder), "updates.csv")):
            done = self.cluster.run("diff", *map(str, runs), check=False)
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertIn(words, done.stderr)

    @unittest.skipIf(torch is None, "PyTorch is missing: deploy/install --tests")
    def test_a_pytorch_script_is_the_same_after_kills_and_its_noise_is_named(self):
        script = str(cluster.runfile("tests/integration/torch_program.py"))
        self.noise.write_text("")
        job = self.declared([sys.executable, script, f"--gate={self.gate}",
                             f"--noise={self.noise}"])
        job["output"] = {"record_updates": True}
        first = self.train(job, workers=1).parent
        self.expect_same(first, self.train(job, workers=3, kill=True).parent, 16)
        self.noise.write_text("9")
        self.expect_gradient(first, self.train(job, workers=3).parent, 9, 1)


if __name__ == "__main__":
    unittest.main()
