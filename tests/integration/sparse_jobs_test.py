"""Jobs on examples, whose models have rows by key, on a cluster of real daemons."""

import hashlib
import json
import os
import pathlib
import random
import unittest

import clicks
import cluster

BSP = {"consistency": "bsp {}", "training": "slots: 4", "epochs": 2, "train": 20000}
SAFE = {**BSP, "resources": "replicas: 1 server_wait_seconds: 30"}
# Names some 23,000 keys.
MANY_KEYS = """format: CLICK_LOG click_log { fields: 6 keys_per_field: 4000 zipf_exponent: 0 }
               train { examples: 20000 }"""


def hashes(folder):
    """The hash of each file of the exported model: of its dense tensors and of its rows."""
    files = sorted(pathlib.Path(folder).glob("*.safetensors"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


class SparseJobsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cluster.Cluster(servers=3, workers=2)
        cls.addClassCleanup(cls.cluster.close)

    def finish(self, job):
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        return status

    def train(self, **arguments):
        return self.finish(self.cluster.submit(clicks.job(**arguments)))

    def write_svmlight(self, name, lines, bad_at=None):
        """Labels follow from two of the keys."""
        draw = random.Random(5)
        path = self.cluster.folder / name
        with open(path, "w") as file:
            for number in range(lines):
                keys = sorted(draw.sample(range(1, 200), 5))
                label = 1 if keys[0] < 30 else -1
                text = f"{label} " + " ".join(f"{key}:1" for key in keys)
                file.write("nonsense\n" if number == bad_at else f"{text}\n")
        return path

    def test_each_mode_learns_what_is_in_pairs_of_keys(self):
        for mode in ("bsp {}", "ssp { staleness_bound: 2 }", "asp {}"):
            with self.subTest(mode=mode):
                status = self.train(consistency=mode, epochs=4)
                self.assertEqual(int(status["samplesDone"]), 4 * 40000)
                self.assertEqual(int(status["results"][-1]["testSamples"]), 5000)
                self.assertGreater(status["results"][-1]["testAuc"], 0.84)

    def test_a_linear_model_does_not(self):
        status = self.train(model="logistic_regression {}")
        self.assertLess(status["results"][-1]["testAuc"], 0.75)

    def test_each_model_trains(self):
        deep = "rank: 4 hidden: 8 hidden: 4"
        models = {
            "wide_and_deep": deep,
            "deep_fm": deep,
            "dlrm": "dim: 4 bottom: 8 top: 8",
        }
        for model, options in models.items():
            with self.subTest(model=model):
                status = self.train(model=f"{model} {{ {options} }}", train=10000, epochs=2)
                losses = [result["trainLoss"] for result in status["results"]]
                self.assertLess(losses[1], losses[0])
                self.assertTrue(hashes(status["outputDirectory"]))

    def test_bsp_has_the_same_bits_for_any_number_of_workers_and_servers(self):
        expected = hashes(self.train(**BSP)["outputDirectory"])
        self.assertEqual(set(expected), {"model.safetensors", "rows-rows.safetensors"})
        for workers, servers in ((1, 1), (2, 3)):
            with self.subTest(workers=workers, servers=servers):
                status = self.train(workers=workers, servers=servers, **BSP)
                self.assertEqual(hashes(status["outputDirectory"]), expected)

    def test_numbers_travel_as_halves_and_over_tcp(self):
        for wire in ("gradients: BF16 parameters: BF16", "shared_memory: OFF"):
            with self.subTest(wire=wire):
                status = self.train(rest=f"wire {{ {wire} }}", epochs=4)
                self.assertGreater(status["results"][-1]["testAuc"], 0.84)

    def test_rows_that_a_worker_has_are_used_again_within_the_bound(self):
        for rule, bound, wire in (
            ("ssp { staleness_bound: 4 cached_rows: 1000 }", 4, "OFF"),
            ("ssp { staleness_bound: 4 cached_rows: 50 }", 4, "AUTO"),
            ("asp { cached_rows: 1000 cached_iterations: 3 }", None, "AUTO"),
        ):
            with self.subTest(rule=rule, wire=wire):
                rest = f"wire {{ shared_memory: {wire} }}"
                status = self.train(consistency=rule, epochs=4, rest=rest)
                self.assertGreater(status["results"][-1]["testAuc"], 0.84)
                self.assertGreater(int(status["rowsCached"]), 0)
                self.assertGreater(int(status["rowsPulled"]), 0)
                counts = [int(count) for count in status["stalenessCounts"]]
                self.assertEqual(sum(counts), 4 * 40000 // 200)
                if bound is not None:
                    self.assertEqual(sum(counts[bound + 1:]), 0, counts)
                log = pathlib.Path(status["outputDirectory"]) / "metrics.jsonl"
                self.assertIn('"rows_cached":', log.read_text())

    def test_rows_leave_beyond_their_limit(self):
        model = f"{clicks.FACTORS} rows {{ rows_max: 1600 }}"
        status = self.train(model=model, data=MANY_KEYS, batch_size=50, epochs=1)
        manifest = json.loads((pathlib.Path(status["outputDirectory"]) / "model.json").read_text())
        (rows,) = [table["rows"] for table in manifest["tables"] if "rows" in table]
        # The rows of the update at hand stay, beyond the limit.
        self.assertLess(int(rows["count"]), 1600 + 6 * 50)

    def test_large_files_are_read_in_blocks(self):
        path = self.write_svmlight("large.svm", 60000)
        self.assertGreater(path.stat().st_size, 1 << 20)
        data = f"""format: SVMLIGHT examples {{ memory_mib: 0 }}
                   train {{ files: "{path}" }} test {{ files: "{path}" }}"""
        status = self.train(data=data, model="logistic_regression {}", epochs=2)
        self.assertEqual(int(status["samplesDone"]), 2 * 60000)
        self.assertGreater(status["results"][-1]["testAccuracy"], 0.95)

    def test_malformed_lines_are_named_or_left_out(self):
        path = self.write_svmlight("bad.svm", 3000, bad_at=1233)
        data = f'format: SVMLIGHT train {{ files: "{path}" }}'
        model = "logistic_regression {}"
        refused = self.cluster.write_job(clicks.job(data=data, model=model))
        done = self.cluster.run("job", "submit", str(refused), check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"{path}:1234: ", done.stdout + done.stderr)
        tolerant = data + " examples { max_bad_fraction: 0.001 }"
        status = self.train(data=tolerant, model=model, epochs=1)
        self.assertEqual(int(status["samplesDone"]), 2999)


class SparseFaultsTest(unittest.TestCase):
    def setUp(self):
        self.cluster = cluster.Cluster(servers=3, workers=2)
        self.addCleanup(self.cluster.close)

    def finish(self, job):
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        return status

    def test_a_killed_server_changes_nothing_that_has_a_replica(self):
        expected = hashes(self.finish(self.cluster.submit(clicks.job(**SAFE)))["outputDirectory"])
        job = self.cluster.submit(clicks.job(**SAFE))
        self.cluster.wait_iteration(job, 5)
        self.cluster.daemons["server-0"].kill()
        self.assertEqual(hashes(self.finish(job)["outputDirectory"]), expected)

    def test_rows_on_disk_change_nothing_and_outlive_their_server_in_a_log(self):
        job = {**BSP, "epochs": 12, "data": MANY_KEYS, "resources": "server_wait_seconds: 60",
               "rest": "durability: LOG"}
        factors = "factorization_machine { rank: 16 } rows { memory_mib: %d }"
        text = clicks.job(**job, model=factors % 0)
        expected = hashes(self.finish(self.cluster.submit(text))["outputDirectory"])
        job = self.cluster.submit(clicks.job(**job, model=factors % 1))
        self.cluster.wait_iteration(job, 40)
        servers = self.cluster.json("table", "list", job)["servers"]
        self.assertGreater(sum(int(table.get("rowsOnDisk", 0))
                               for server in servers for table in server["tables"]), 1000)
        self.cluster.daemons["server-0"].kill()
        self.cluster.daemons["server-0"].start()
        self.assertEqual(hashes(self.finish(job)["outputDirectory"]), expected)

    def test_a_killed_task_loses_no_example(self):
        job = self.cluster.submit(clicks.job(epochs=6, train=20000))
        self.cluster.wait_iteration(job, 20)
        self.cluster.kill_task(job, 1)
        status = self.finish(job)
        self.assertEqual(int(status["samplesDone"]), 6 * 20000)
        self.assertGreaterEqual(int(status["restarts"]), 1)

    def test_a_job_restored_on_more_servers_ends_with_the_same_bits(self):
        text = clicks.job(**{**BSP, "epochs": 6})
        expected = hashes(self.finish(self.cluster.submit(text))["outputDirectory"])
        job = self.cluster.submit(text)
        self.cluster.wait_iteration(job, 20)
        folder = self.cluster.json("checkpoint", "save", job)["folder"]
        self.cluster.run("job", "stop", job)
        restored = self.cluster.json(
            "checkpoint", "restore", folder, "--no-wait", "--servers", "3")["jobId"]
        self.assertEqual(hashes(self.finish(restored)["outputDirectory"]), expected)

    def write_mostly_hot(self, name, lines=60000, hot=500, wide_every=6000, wide=1600):
        """SVMLIGHT examples of five hot keys; one now and then names many that no other has."""
        draw = random.Random(11)
        path = self.cluster.folder / name
        with open(path, "w") as file:
            for number in range(lines):
                keys = sorted(draw.sample(range(1, hot), 5))
                if number % wide_every == 0:
                    first = hot + number // wide_every * wide
                    keys += range(first, first + wide)
                label = 1 if keys[0] < hot // 6 else -1
                file.write(f"{label} " + " ".join(f"{key}:0.1" for key in keys) + "\n")
        return path

    def test_a_job_goes_back_to_an_incremental_checkpoint_and_ends_with_the_same_bits(self):
        # However many iterations lie between two checkpoints on a busy machine, few rows change
        # in them: an example with many keys, old rows that leave for them, is rare.
        path = self.write_mostly_hot("mostly_hot.svm")
        changing = {
            **BSP,
            "data": f'format: SVMLIGHT train {{ files: "{path}" }}',
            "model": f"{clicks.FACTORS} rows {{ rows_max: 14000 }}",
            "batch_size": 12,
            "epochs": 4,  # Long enough to be seen training, however fast the machine is.
            "resources": "server_wait_seconds: 30",
        }
        status = self.finish(self.cluster.submit(clicks.job(**changing)))
        expected = hashes(status["outputDirectory"])
        often = clicks.job(**changing, rest="checkpoints { every_iterations: 4 }")
        job = self.cluster.submit(often)
        folder = str(self.cluster.output(job) / "checkpoints")
        newest = cluster.until("one rests on another", lambda: self.incremental(folder))
        self.cluster.daemons["server-0"].kill()
        self.assertEqual(hashes(self.finish(job)["outputDirectory"]), expected)
        log = self.cluster.daemons["scheduler"].log.read_text()
        self.assertRegex(log, "goes back to .*/checkpoint-")
        verified = self.cluster.json("checkpoint", "verify", folder)["checkpoints"]
        whole = [int(one["bytes"]) for one in verified if one["restsOn"] == one["checkpointId"]]
        # By how much depends on how many iterations the one before took to be written.
        self.assertLess(int(newest["bytes"]), max(whole))

    def incremental(self, folder):
        """The newest complete checkpoint, if it rests on another one."""
        done = self.cluster.run("checkpoint", "list", folder, "-o", "json", check=False)
        listed = json.loads(done.stdout)["checkpoints"] if done.returncode == 0 else []
        complete = [one for one in listed if one["state"] == "complete"]
        newest = complete[0] if complete else None
        return newest if newest and newest["restsOn"] != newest["checkpointId"] else None


@unittest.skipUnless(os.environ.get("CAPSTAN_TEST_DATA"),
                     "CAPSTAN_TEST_DATA names no folder of real data")
class RealDataTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.data = pathlib.Path(os.environ["CAPSTAN_TEST_DATA"])
        cls.cluster = cluster.Cluster(servers=2, workers=2)
        cls.addClassCleanup(cls.cluster.close)

    def split(self, form, train, test):
        train, test = self.data / train, self.data / test
        return f'format: {form} train {{ files: "{train}" }} test {{ files: "{test}" }}'

    def train(self, **arguments):
        status = self.cluster.wait(self.cluster.submit(clicks.job(**arguments)))
        self.assertEqual(status["state"], "SUCCEEDED", status)
        return status["results"][-1]

    # LIBLINEAR 2.3, `liblinear-train -s 0` and `liblinear-predict` on the same files: 84.9518 %.
    def test_logistic_regression_is_as_accurate_as_liblinear(self):
        arguments = {
            "model": "logistic_regression {}",
            "data": self.split("SVMLIGHT", "a9a/a9a", "a9a/a9a.t"),
            "epochs": 5,
            "batch_size": 100,
        }
        for optimizer in ("ftrl {} learning_rate: 0.1", "sgd {} learning_rate: 0.5"):
            for mode in ("ssp { staleness_bound: 2 }", "asp {}"):
                with self.subTest(optimizer=optimizer, mode=mode):
                    result = self.train(optimizer=optimizer, consistency=mode, **arguments)
                    self.assertAlmostEqual(result["testAccuracy"], 0.849518, delta=0.002)

    def test_each_model_trains_on_criteos_clicks(self):
        deep = "rank: 8 hidden: 32 hidden: 16"
        models = {
            "logistic_regression": "",
            "factorization_machine": "rank: 8",
            "wide_and_deep": deep,
            "deep_fm": deep,
            "dlrm": "dim: 8 bottom: 32 top: 32 top: 16",
        }
        data = self.split("CRITEO", "criteo-sample/train.tsv", "criteo-sample/test.tsv")
        for model, options in models.items():
            with self.subTest(model=model):
                result = self.train(
                    model=f"{model} {{ {options} }}",
                    data=data,
                    epochs=1,
                    batch_size=100,
                    optimizer="adagrad { row_wise: true } learning_rate: 0.05",
                )
                self.assertGreater(result["testAuc"], 0.6)
                self.assertLess(result["testLoss"], 0.55)

    def test_words_of_a_text(self):
        text = self.data / "tinyshakespeare/input.txt"
        status = self.train(
            model="skip_gram { dim: 16 window: 2 negatives: 2 }",
            data=f'format: TEXT train {{ files: "{text}" }}',
            epochs=1,
            batch_size=50,
        )
        self.assertLess(status["trainLoss"], 3 * 0.6931)


if __name__ == "__main__":
    unittest.main()
