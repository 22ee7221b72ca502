"""Losses of numbers and of several labels, weights, and their figures."""

import csv
import hashlib
import pathlib
import random
import struct
import unittest

import cluster
import synthetic


def npy(shape, numbers, kind):
    header = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + numbers


class NumbersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cluster.Cluster(servers=2, workers=3)
        cls.folder = cls.cluster.folder
        cls.draw = random.Random(7)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def split(self, name, count, label_of, kind="<f4", code="f"):
        """Pixels [count, 1, 4], and labels that label_of makes of each four."""
        pixels = [[self.draw.randrange(256) for _ in range(4)] for _ in range(count)]
        labels = [label_of(four) for four in pixels]
        width = len(labels[0])
        x, y = self.folder / f"x-{name}.npy", self.folder / f"y-{name}.npy"
        x.write_bytes(npy((count, 1, 4), bytes(p for four in pixels for p in four), "|u1"))
        numbers = [number for label in labels for number in label]
        shape = (count,) if width == 1 else (count, width)
        y.write_bytes(npy(shape, struct.pack(f"<{len(numbers)}{code}", *numbers), kind))
        return f'images: "{x}" labels: "{y}"'

    def data(self, label_of, **kind):
        train, test = self.split("train", 1000, label_of, **kind), self.split(
            "test", 200, label_of, **kind)
        return f"data {{ format: NUMPY train {{ {train} }} test {{ {test} }} }}"

    def train(self, **options):
        options = {"epochs": 12, "optimizer": "adam {} learning_rate: 0.05", **options}
        status = self.cluster.wait(self.cluster.submit(synthetic.job(self.folder, **options)))
        self.assertEqual(status["state"], "SUCCEEDED", status)
        return status

    def model_hash(self, status):
        model = pathlib.Path(status["outputDirectory"], "model.safetensors")
        return hashlib.sha256(model.read_bytes()).hexdigest()

    def test_numbers_are_learnt_and_predicted(self):
        data = self.data(lambda p: [(p[0] - 2 * p[1]) / 100, p[2] / 50 + 1], kind="<f8", code="d")
        for loss in ("squared {}", "huber { delta: 0.5 }", "quantile {}"):
            with self.subTest(loss=loss):
                status = self.train(
                    name="numbers", data=data, epochs=25,
                    model=f'zoo: "softmax_regression" loss {{ {loss} }}')
                self.assertEqual(status["objective"], "NUMBERS")
                first, last = status["results"][0], status["results"][-1]
                self.assertLess(last["testRmse"], 0.5 * first["testRmse"])
                self.assertLessEqual(last["testMae"], last["testRmse"])
                figures = self.cluster.json("evaluate", status["outputDirectory"])
                self.assertAlmostEqual(figures["rmse"], last["testRmse"], places=12)
                self.assertAlmostEqual(figures["mae"], last["testMae"], places=12)
                self.assertNotIn("accuracy", figures)
        shown = self.cluster.run("job", "describe", status["jobId"]).stdout
        self.assertIn("TEST RMSE", shown)
        self.assertIn("TEST MAE", shown)
        rows = list(csv.DictReader(
            self.cluster.run("predict", status["outputDirectory"]).stdout.splitlines()))
        self.assertEqual(list(rows[0]),
                         ["index", "label0", "predicted0", "label1", "predicted1"])
        errors = [abs(float(row[f"label{k}"]) - float(row[f"predicted{k}"]))
                  for row in rows for k in range(2)]
        self.assertAlmostEqual(sum(errors) / len(errors), last["testMae"], places=5)
        metrics = pathlib.Path(status["outputDirectory"], "metrics.jsonl").read_text()
        self.assertIn('"mae":', metrics)

    def test_figures_do_not_depend_on_the_number_of_workers(self):
        data = self.data(lambda p: [p[0] / 100])
        runs = [self.train(name="same", data=data, workers=workers, epochs=3,
                           training="slots: 3 ", model='zoo: "mlp" loss { squared {} }')
                for workers in (1, 3)]
        self.assertEqual([run["results"][-1]["testRmse"] for run in runs],
                         [runs[0]["results"][-1]["testRmse"]] * 2)
        self.assertEqual(self.model_hash(runs[0]), self.model_hash(runs[1]))

    def test_several_labels_have_an_auc_and_f1(self):
        data = self.data(lambda p: [p[0] > 200, p[1] > p[2]], kind="|u1", code="B")
        status = self.train(name="labels", data=data,
                            model='zoo: "mlp" loss { sigmoid_cross_entropy {} }')
        result = status["results"][-1]
        self.assertEqual(status["objective"], "LABELS")
        self.assertGreater(result["testAuc"], 0.95, result)
        self.assertGreater(result["testF1"], 0.8, result)
        figures = self.cluster.json("evaluate", status["outputDirectory"])
        self.assertEqual(figures["auc"], result["testAuc"])
        self.assertEqual(figures["f1"], result["testF1"])
        rows = list(csv.DictReader(
            self.cluster.run("predict", status["outputDirectory"]).stdout.splitlines()))
        found = sum(row["predicted0"] == "1" for row in rows)
        weighted = self.train(name="weighted", data=data, training="positive_weights: [ 20, 1 ] ",
                              model='zoo: "mlp" loss { sigmoid_cross_entropy {} }')
        rows = list(csv.DictReader(
            self.cluster.run("predict", weighted["outputDirectory"]).stdout.splitlines()))
        self.assertGreaterEqual(sum(row["predicted0"] == "1" for row in rows), found)

    def test_weights_of_classes_favour_them(self):
        # Nothing tells the classes apart: the model learns how often each is.
        data = self.data(lambda p: [self.draw.randrange(10) == 0], kind="|u1", code="B")

        def predicted(name, weights):
            status = self.train(name=name, data=data, epochs=4, training=weights,
                                model='zoo: "softmax_regression" classes: 2',
                                optimizer="adam {} learning_rate: 0.01")
            rows = self.cluster.run("predict", status["outputDirectory"]).stdout.splitlines()
            return sum(row["predicted"] == "1" for row in csv.DictReader(rows))

        self.assertEqual(predicted("plain", ""), 0)
        self.assertGreater(predicted("weighted", "class_weights: [ 0.01, 1 ] "), 150)

    def test_what_is_wrong_is_named(self):
        def refused(said, **options):
            path = self.cluster.write_job(synthetic.job(self.folder, **options))
            run = self.cluster.run("job", "submit", str(path), check=False)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn(said, run.stderr)

        refused("model.loss: got squared, expected softmax_cross_entropy, as data.format is IDX",
                model='zoo: "mlp" loss { squared {} }')
        flags = self.data(lambda p: [p[0]])
        refused("expected 0 or 1", data=flags,
                model='zoo: "mlp" loss { sigmoid_cross_entropy {} }')
        refused("training.class_weights: got 3 weights, expected 10, one for each class",
                training="class_weights: [ 1, 2, 3 ] ")
        refused("no loss squared is computed on GPUs", data=flags, resources='device: "cuda"',
                model='zoo: "mlp" loss { squared {} }')


if __name__ == "__main__":
    unittest.main()
