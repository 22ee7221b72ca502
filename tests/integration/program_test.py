"""Jobs whose workers run a program of the user's."""

import hashlib
import json
import sys
import unittest

import cluster
import programs
from programs import ENVIRONMENT, tensors

SAMPLES = 200


def job(*arguments, workers=2, epochs=5, more=""):
    script = cluster.runfile("tests/integration/linear_program.py")
    words = (sys.executable, script, *arguments)
    command = " ".join(f"command: {json.dumps(str(word))}" for word in words)
    variables = " ".join(f"environment {{ key: {json.dumps(name)} value: {json.dumps(value)} }}"
                         for name, value in ENVIRONMENT.items())
    return f"""
        program {{
          {command} {variables}
          samples: {SAMPLES}
          parameters {{ name: "weight" shape: 8 }} parameters {{ name: "bias" }}
          averages {{ name: "sample" }}
        }}
        training {{ epochs: {epochs} batch_size: 10 slots: 4 }}
        optimizer {{ momentum {{}} learning_rate: 0.1 }}
        resources {{ workers: {workers} max_restarts: 3 }}
        {more}
    """


class ProgramTest(programs.ProgramCase):
    def test_it_learns_and_has_the_same_bits_with_any_number_of_workers_and_kills(self):
        hashes = set()
        for workers, kill in ((1, False), (2, False), (2, True)):
            with self.subTest(workers=workers, kill=kill):
                epochs = 60 if kill else 5
                model = self.finish(job(workers=workers, epochs=epochs), 10 if kill else None)
                if kill:
                    same = self.finish(job(workers=1, epochs=epochs))
                    self.assertEqual(model.read_bytes()[-36:], same.read_bytes()[-36:])
                    weights = tensors(model)["weight"]
                    for i, weight in enumerate(weights):
                        self.assertAlmostEqual(weight, i - 3, places=2)
                else:
                    hashes.add(hashlib.sha256(repr(tensors(model)).encode()).hexdigest())
        self.assertEqual(len(hashes), 1)

    def test_averages_are_the_mean_over_the_samples_of_an_iteration(self):
        text = job(workers=2, epochs=1).replace("batch_size: 10", f"batch_size: {SAMPLES // 4}")
        self.assertAlmostEqual(tensors(self.finish(text))["sample"][0], (SAMPLES - 1) / 2, places=3)

    def test_ssp_and_asp(self):
        for mode in ("ssp { staleness_bound: 1 }", "asp {}"):
            with self.subTest(mode=mode):
                text = job(epochs=40, more=f"consistency {{ {mode} }}").replace("slots: 4", "")
                weights = tensors(self.finish(text.replace("momentum {}", "sgd {}")))["weight"]
                self.assertAlmostEqual(weights[0], -3, places=1)

    def fails_with(self, words, *arguments):
        status = self.cluster.wait(self.cluster.submit(job(*arguments)))
        self.assertEqual(status["state"], "FAILED", status)
        self.assertIn(words, json.dumps(status))

    def test_an_error_of_the_program_is_the_reason_of_the_job(self):
        self.fails_with("ValueError: told to fail", "--fail-at=3")

    def test_a_program_that_leaves_early_fails_the_job(self):
        self.fails_with("the process exited with code 0 before the job was done", "--leave-at=2")

    def test_a_program_that_is_not_there_fails_the_job(self):
        status = self.cluster.wait(self.cluster.submit(
            job().replace(json.dumps(sys.executable), '"no-such-program"')))
        self.assertEqual(status["state"], "FAILED", status)
        self.assertIn("no-such-program", json.dumps(status))


class NoProgramsTest(unittest.TestCase):
    def test_a_worker_runs_programs_only_if_it_was_told_to(self):
        with cluster.Cluster() as live:
            status = live.wait(live.submit(job(workers=1)))
            self.assertEqual(status["state"], "FAILED", status)
            self.assertIn("was started without --run-programs", json.dumps(status))


if __name__ == "__main__":
    unittest.main()
