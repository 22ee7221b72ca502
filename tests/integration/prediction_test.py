"""Exported models on data: predictions, and the figures that training had."""

import csv
import json
import pathlib
import unittest

import clicks
import cluster
import synthetic


class PredictionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cluster.Cluster(servers=2, workers=2)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def train(self, text):
        status = self.cluster.wait(self.cluster.submit(text))
        self.assertEqual(status["state"], "SUCCEEDED", status)
        return status["outputDirectory"], status["results"][-1]

    def test_layers_have_the_accuracy_of_training(self):
        model, trained = self.train(synthetic.job(self.cluster.folder, name="layers", epochs=1))
        figures = self.cluster.json("evaluate", model)
        self.assertEqual(figures["samples"], 500)
        self.assertEqual(figures["accuracy"], trained["testAccuracy"])
        self.assertAlmostEqual(figures["loss"], trained["testLoss"], places=12)
        said = self.cluster.run("evaluate", model).stdout
        self.assertRegex(said, r"^test: accuracy \d+\.\d\d %, loss \d\.\d{4}, "
                         r"top-5 accuracy [01]\.\d{4} on 500 samples\n$")
        self.assertGreaterEqual(figures["top_5_accuracy"], figures["accuracy"])

        predicted = self.cluster.run("predict", model)
        self.assertIn("test: accuracy", predicted.stderr)
        rows = list(csv.DictReader(predicted.stdout.splitlines()))
        self.assertEqual([row["index"] for row in rows], [str(i) for i in range(500)])
        hits = sum(row["label"] == row["predicted"] for row in rows)
        self.assertEqual(hits / 500, trained["testAccuracy"])

        to = self.cluster.folder / "predictions.jsonl"
        self.cluster.run("predict", model, "--split=train", "--format=jsonl", f"--to={to}",
                         "--probabilities")
        lines = [json.loads(line) for line in to.read_text().splitlines()]
        self.assertEqual(len(lines), 2000)
        for line in lines[::100]:
            self.assertAlmostEqual(sum(line["probabilities"]), 1, places=5)
            self.assertEqual(line["probability"], max(line["probabilities"]))

    def test_examples_have_the_figures_of_training(self):
        # Some keys of the test set were never trained: they have no row.
        model, trained = self.train(clicks.job(train=4000, test=5000, epochs=1))
        figures = self.cluster.json("evaluate", model)
        self.assertEqual(figures["samples"], 5000)
        self.assertEqual(figures["accuracy"], trained["testAccuracy"])
        self.assertEqual(figures["auc"], trained["testAuc"])
        self.assertAlmostEqual(figures["loss"], trained["testLoss"], places=12)
        other = self.cluster.json("evaluate", model, "--set", "data.test.examples=100")
        self.assertEqual(other["samples"], 100)
        rows = list(csv.DictReader(self.cluster.run("predict", model).stdout.splitlines()))
        self.assertEqual(len(rows), 5000)
        hits = sum((float(row["label"]) > 0) == (row["predicted"] == "1") for row in rows)
        self.assertEqual(hits / 5000, trained["testAccuracy"])
        clicked = [row["predicted"] == "1" for row in rows if float(row["label"]) > 0]
        self.assertAlmostEqual(figures["recall"], sum(clicked) / len(clicked), places=12)

    def test_ratings_of_new_files_are_predicted(self):
        folder = self.cluster.folder
        ratings = [f"{user},{item},{(user * item) % 5 + 1}\n"
                   for user in range(20) for item in range(20)]
        (folder / "ratings.csv").write_text("".join(ratings))
        (folder / "new.csv").write_text("".join(ratings[:7]))
        data = f"""
          format: COLUMNS
          columns {{ columns {{ kind: ID }} columns {{ kind: ID }} columns {{ kind: LABEL }} }}
          train {{ files: "{folder}/ratings.csv" }} test {{ files: "{folder}/ratings.csv" }}
        """
        model, trained = self.train(clicks.job(
            name="ratings", model="matrix_factorization { rank: 4 }", data=data, batch_size=50))
        figures = self.cluster.json("evaluate", model)
        self.assertAlmostEqual(figures["rmse"], trained["testRmse"], places=12)
        self.assertLessEqual(figures["mae"], figures["rmse"])
        new = self.cluster.run("predict", model, "--set", f"data.test.files={folder}/new.csv")
        self.assertEqual(len(new.stdout.splitlines()), 8)
        self.assertIn("RMSE", new.stderr)

    def test_what_is_wrong_is_named(self):
        missing = self.cluster.run("evaluate", "/none", check=False)
        self.assertEqual(missing.returncode, 2)
        self.assertIn("/none/model.json: no such file", missing.stderr)
        flags = self.cluster.run("predict", "/none", "--format=xml", check=False)
        self.assertEqual(flags.returncode, 2)
        self.assertIn("--format", flags.stderr)
        helped = self.cluster.run("predict", "--help").stdout
        self.assertIn("--probabilities", helped)
        self.assertIn("capstan predict", helped)
        self.assertIn("predict", self.cluster.run("--help").stdout)
        text = synthetic.job(self.cluster.folder, name="untested", epochs=1,
                             data=synthetic.train_only_block(self.cluster.folder, 100, 8))
        model, _ = self.train(text)
        refused = self.cluster.run("evaluate", model, check=False)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("model.json: data.test is missing", refused.stderr)
        self.assertEqual(self.cluster.json("evaluate", model, "--split=train")["samples"], 100)
        # Data of another size.
        images, labels = synthetic.write_idx(self.cluster.folder, "wide", 10, 9)
        other = self.cluster.run("evaluate", model, "--set", f"data.test.images={images}",
                                 "--set", f"data.test.labels={labels}", check=False)
        self.assertEqual(other.returncode, 2)
        self.assertRegex(other.stderr, r"found \[10, 64\], expected \[10, 81\]")
        damaged = pathlib.Path(model, "model.safetensors")
        damaged.write_bytes(damaged.read_bytes()[:-4])
        torn = self.cluster.run("evaluate", model, "--split=train", check=False)
        self.assertEqual(torn.returncode, 1)
        self.assertIn("model.safetensors", torn.stderr)


if __name__ == "__main__":
    unittest.main()
