"""Training by validation: early stopping, the best epoch, the rate on a plateau."""

import hashlib
import json
import pathlib
import unittest

import clicks
import cluster
import synthetic

# The rate rises until training becomes worse: the best epoch lies in the middle.
RISING = "sgd {} learning_rate: 60 schedule { constant {} warmup_steps: 900 }"
DECIDES = "keep_best: true early_stopping { patience: 3 } "


class ValidationTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cluster.Cluster(servers=3, workers=2)
        cls.folder = cls.cluster.folder

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def data(self):
        paths = {name: synthetic.write_idx(self.folder, name, count, noise=150, seed=seed)
                 for seed, (name, count) in enumerate(
                     (("train", 1000), ("validation", 300), ("test", 400)), start=1)}
        splits = " ".join(f'{name} {{ images: "{images}" labels: "{labels}" }}'
                          for name, (images, labels) in paths.items())
        return f"data {{ format: IDX {splits} }}"

    def job(self, name, training=DECIDES, resources="", **options):
        options = {"epochs": 40, "optimizer": RISING, **options}
        return synthetic.job(self.folder, name=name, data=self.data(), resources=resources,
                             training="slots: 2 " + training, **options)

    def ended(self, job):
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        return status

    def model_hash(self, status):
        model = pathlib.Path(status["outputDirectory"], "model.safetensors")
        return hashlib.sha256(model.read_bytes()).hexdigest()

    def test_the_best_epoch_is_exported_and_tested_once(self):
        status = self.ended(self.cluster.submit(self.job("best")))
        results, best = status["results"], status["bestEpoch"]
        losses = [result["validation"]["loss"] for result in results]
        self.assertEqual(losses.index(min(losses)) + 1, best, losses)
        self.assertEqual(len(results), best + 3, losses)
        tested = [result["epoch"] for result in results if int(result.get("testSamples", 0)) > 0]
        self.assertEqual(tested, [best])
        self.assertIn(f"the model is that of epoch {best}", status["detail"])

        model = status["outputDirectory"]
        figures = self.cluster.json("evaluate", model, "--split=validation")
        self.assertAlmostEqual(figures["loss"], min(losses), places=10)
        figures = self.cluster.json("evaluate", model)
        self.assertEqual(figures["accuracy"], results[best - 1]["testAccuracy"])
        lines = [json.loads(line)
                 for line in pathlib.Path(model, "metrics.jsonl").read_text().splitlines()]
        phases = [line["phase"] for line in lines if line["phase"] != "train"]
        self.assertEqual(phases, ["validation"] * len(results) + ["test"])
        shown = self.cluster.run("job", "describe", status["jobId"]).stdout
        self.assertIn("VALIDATION LOSS", shown)

    def test_the_same_bits_whatever_dies(self):
        training = DECIDES + "reduce_on_plateau { factor: 0.5 patience: 1 } "
        undisturbed = self.ended(self.cluster.submit(self.job("calm", training)))
        factors = [result.get("learningRateFactor", 1) for result in undisturbed["results"]]
        self.assertLess(factors[-1], 1, undisturbed["results"])
        job = self.cluster.submit(self.job("killed", training, resources="replicas: 1"))

        def reduced():
            results = self.cluster.status(job).get("results", [])
            return any("learningRateFactor" in result for result in results)

        self.cluster.wait_iteration(job, 100)
        self.cluster.daemons["server-1"].kill()
        self.cluster.kill_task(job, 1)
        cluster.until("the rate is reduced", reduced)
        self.cluster.daemons["server-1"].start()
        self.cluster.kill_task(job, 0)
        killed = self.ended(job)
        self.assertEqual(killed["bestEpoch"], undisturbed["bestEpoch"])
        for one, other in zip(undisturbed["results"], killed["results"], strict=True):
            self.assertEqual(one["validation"], other["validation"])
            self.assertEqual(one.get("learningRateFactor"), other.get("learningRateFactor"))
        self.assertEqual(self.model_hash(killed), self.model_hash(undisturbed))

    def test_models_on_examples_have_a_validation_split_too(self):
        splits = """train { examples: 4000 } test { first_example: 4000 examples: 2000 }
                    validation { first_example: 50000 examples: 1000 }"""
        text = clicks.job(name="clicks", epochs=6, data=clicks.LOG + splits,
                          training="metric: AUC keep_best: true early_stopping { patience: 2 }")
        status = self.ended(self.cluster.submit(text))
        scores = [result["validation"]["auc"] for result in status["results"]]
        self.assertEqual(scores.index(max(scores)) + 1, status["bestEpoch"])
        best = status["results"][status["bestEpoch"] - 1]
        self.assertEqual(int(best["validation"]["samples"]), 1000)
        figures = self.cluster.json("evaluate", status["outputDirectory"])
        self.assertEqual(figures["auc"], best["testAuc"])
        self.assertEqual(figures["samples"], 2000)


if __name__ == "__main__":
    unittest.main()
