"""NumPy scripts as the programs of jobs: the same bits, NumPy's results, and what is refused."""

import hashlib
import json
import pathlib
import sys
import unittest

import cluster
import programs

try:
    import numpy
    import capstan
    import pace_program
    import tables_program
except ImportError:
    numpy = None

FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")
PROGRAM = ("tests/integration/tables_program.py",)

# The errors that tables_program.Misuse gets.
TOLD = {
    "dtype": "Error: the gradient of 'weights' is float64 of shape .3,., expected float32 of shape "
             ".3,.$",
    "shape": "Error: the gradient of 'weights' is float32 of shape .3, 1., expected float32 of "
             "shape .3,.$",
    "rows' shape": "Error: the gradient of 'ads' is float32 of shape .1, 2., expected float32 of "
                   r"shape .\d+, 1.$",
    "nan": 'Diverged: the gradient of "weights" has nan',
    "no array": "Error: the gradient of 'weights' is list, expected an array",
    "write": "ValueError: .*read-only",
    "no push": r"Error: iteration \d+: no gradient of 'weights' was pushed, expected one of each "
               "table",
    "late table": "Error: 'late' is made after the first batch, expected all tables before the",
    "second task": "Error: this process has started its task already$",
    "wide table": "Error: there is no table 4294967296, or no batch is under way$",
    "null gradient": "Error: table 0 and 1 elements of NULL, expected 0 to 1 and at least 0, and",
    "null keys": "Error: table 1 and 1 keys of NULL, expected 0 to 1 and at least 0, and no NULL",
    "finished batch": r"Error: iteration \d+: the batch is not the current one",
    "thread": "Error: thread 'helper' uses the job of another thread, expected the one that loops",
    "fork": r"Error: process \d+ was forked from \d+, which has the task: start processes with",
    "second push": r"Error: iteration \d+: the gradient of 'weights' was pushed already",
    "held": r"Error: iteration \d+: what 'weights'.pull.copy=False. returned is held at the batch",
    "pull afterwards": "Error: there is no batch",
    "push afterwards": "Error: there is no batch",
    "finish afterwards": "Error: there is no batch",
    "second loop": "Error: the script loops over its batches a second time",
}


def command(*words):
    return [sys.executable, *(str(cluster.runfile(word)) if word.endswith(".py") else word
                              for word in words)]


@unittest.skipIf(numpy is None, "NumPy is missing: deploy/install --tests")
class NumpyTest(programs.ProgramCase):
    workers = 4

    @unittest.skipUnless(FASHION.exists(), f"{FASHION} is missing: deploy/install --tests")
    def test_the_bits_are_the_same_for_any_number_of_workers_and_kills(self):
        job = self.declared(command(
            "tests/integration/gated.py", f"--gate={self.gate}",
            f"--at={programs.GATE_AT}",
            "worker/python/examples/softmax_regression.py", "--samples=4000", "--epochs=2"))
        hashes = set()
        for workers, kill in ((1, False), (1, True), (2, True), (4, True)):
            with self.subTest(workers=workers, kill=kill):
                model = capstan.load(self.train(job, workers, kill).parent)
                self.assertGreater(float(numpy.abs(model["weights"]).max()), 0.01)
                hashes.add(hashlib.sha256(model["weights"].tobytes() + model["bias"].tobytes())
                           .hexdigest())
        self.assertEqual(len(hashes), 1)

    def test_tables_at_a_scripts_own_pace(self):
        job = self.declared(command("tests/integration/pace_program.py"))
        model = capstan.load(self.train(job, workers=2).parent)
        self.assertEqual(model["total"].tolist(),
                         [2 * pace_program.ROUNDS] * pace_program.SIZE)
        self.assertEqual(float(model["quiet"][0]), 2 * pace_program.MORE_THAN_KEPT)
        ads = dict(zip(model["ads"].keys.astype("i8").tolist(), model["ads"].values[:, 0].tolist()))
        self.assertEqual(ads, {0: pace_program.ROUNDS, 1: pace_program.ROUNDS,
                               pace_program.SHARED: 2 * pace_program.ROUNDS})

    def test_a_script_at_its_own_pace_that_raises_or_exits_fails_its_job(self):
        for how, words in (("--raise", "RuntimeError: asked for"),
                           ("--exit", "SystemExit: asked for")):
            with self.subTest(how=how):
                job = self.declared([*command("tests/integration/pace_program.py"), how])
                job["resources"] = {"workers": 1}
                status = self.cluster.wait(self.cluster.submit(json.dumps(job), "job.json"))
                self.assertEqual(status["state"], "FAILED", status)
                self.assertIn(words, str(status["failure"]))

    def replayed(self, lines):
        """The logged batches with NumPy alone: losses, weights and rows by key."""
        data, losses = tables_program.Clicks(), []
        known, places = numpy.unique(data.keys, return_inverse=True)
        places = places.reshape(data.keys.shape)
        weights = numpy.zeros(tables_program.FEATURES, "f4")
        rows = numpy.zeros((len(known), 1), "f4")
        for iteration, line in enumerate(map(json.loads, lines)):
            rate = tables_program.RATE * tables_program.FACTOR**(iteration // tables_program.EVERY)
            samples = line["samples"]
            loss, of_weights, of_rows = tables_program.gradients_of(
                weights, rows, places[samples], data.features[samples], data.labels[samples])
            weights -= rate * of_weights
            rows -= rate * of_rows
            losses.append(float(loss))
        return losses, weights, dict(zip(known.tolist(), rows))

    def test_one_worker_computes_what_numpy_computes_alone(self):
        log = self.cluster.folder / "tables.jsonl"
        model = capstan.load(self.train(self.declared(command(
            *PROGRAM, "--slots=1", f"--log={log}")), workers=1).parent)
        losses, weights, rows = self.replayed(log.read_text().splitlines())
        self.assertEqual(len(losses), 4 * 240 // 16)
        self.assertLess(sum(losses[-15:]), 0.7 * sum(losses[:15]))
        numpy.testing.assert_allclose(programs.losses(log.read_text()), losses, atol=1e-5)
        numpy.testing.assert_allclose(model["weights"], weights, atol=1e-5)
        found = dict(zip(model["ads"].keys.tolist(), model["ads"].values))
        self.assertEqual(found.keys(), rows.keys())
        for key, row in rows.items():
            numpy.testing.assert_allclose(found[key], row, atol=1e-5, err_msg=str(key))

    def test_wrong_calls_are_refused_and_change_nothing(self):
        told = self.cluster.folder / "told.json"
        plain = programs.tensors(self.train(self.declared(command(*PROGRAM)), workers=1))
        misused = programs.tensors(self.train(self.declared(command(
            *PROGRAM, f"--misuse={told}")), workers=1))
        self.assertEqual(misused, plain)
        found = json.loads(told.read_text())
        for name, words in TOLD.items():
            self.assertRegex(found[name], f"^{words}", name)
        self.assertEqual(found.keys(), TOLD.keys())

    def test_a_script_that_ends_wrongly_is_the_reason_of_the_job(self):
        for way, words in (
            ("next", "Error: iteration 3: the next batch is asked for before the gradient"),
            ("error", "LookupError: told to fail"),
            ("nan", "the loss is nan"),
            ("break", "the program has left before its job was done"),
        ):
            with self.subTest(way=way):
                job = self.declared(command(*PROGRAM, f"--end={way}"))
                job["resources"] = {"workers": 1, "max_restarts": 0}
                status = self.cluster.wait(self.cluster.submit(json.dumps(job), "job.json"))
                self.assertEqual(status["state"], "FAILED", status)
                self.assertIn(words, json.dumps(status))

    def test_it_needs_the_standard_library_alone(self):
        # Without packages of the machine, NumPy among them.
        line = [sys.executable, "-S", str(cluster.runfile("worker/python/tests/line_program.py"))]
        found = programs.tensors(self.train(self.declared(line), workers=2))
        self.assertAlmostEqual(found["slope"][0], 3, delta=1e-3)
        self.assertAlmostEqual(found["offset"][0], -1, delta=1e-3)


if __name__ == "__main__":
    unittest.main()
