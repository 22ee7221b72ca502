"""`capstan init`: what it writes trains as it is."""

import random
import unittest

import cluster


class InitTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cluster.Cluster(servers=1, workers=1)
        cls.folder = cls.cluster.folder

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def people(self, name, count, seed):
        draw = random.Random(seed)
        lines = ["id,age,town,income"]
        for i in range(count):
            age, town = draw.randrange(18, 80), draw.choice(["Oslo", "Bern, \"CH\"", "Ulm"])
            rich = age + (30 if town == "Oslo" else 0) + draw.randrange(20) > 70
            quoted = '"' + town.replace('"', '""') + '"'
            lines.append(f"p-{seed}-{i},{age},{quoted},{'>50K' if rich else '<=50K'}")
        path = self.folder / name
        path.write_text("\n".join(lines) + "\n")
        return path

    def test_a_table_trains_as_it_is(self):
        train, test = self.people("train.csv", 3000, 1), self.people("test.csv", 1000, 2)
        job = self.folder / "written.textproto"
        said = self.cluster.run("init", "--csv", str(train), "--test", str(test), str(job)).stdout
        self.assertIn(f"capstan job submit {job}", said)
        text = job.read_text()
        self.assertIn('positive: ', text)
        self.assertIn("# Another text in nearly every line.", text)
        done = self.cluster.run("job", "submit", str(job))
        self.assertNotIn("warning", done.stderr)
        status = self.cluster.json("job", "list")["jobs"][-1]
        self.assertEqual(status["state"], "SUCCEEDED", status)
        result = self.cluster.status(status["jobId"])["results"][-1]
        self.assertGreater(result["testAuc"], 0.95, result)

    def test_what_cannot_be_written_is_named(self):
        train = self.people("again.csv", 50, 3)
        job = self.folder / "there.textproto"
        job.write_text("mine")
        refused = self.cluster.run("init", "--csv", str(train), str(job), check=False)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("is there already; --force replaces it", refused.stderr)
        self.assertEqual(job.read_text(), "mine")
        self.cluster.run("init", "--csv", str(train), str(job), "--force")
        self.assertIn("model {", job.read_text())
        missing = self.cluster.run("init", "--csv", "/none.csv", "/tmp/none.job", check=False)
        self.assertEqual(missing.returncode, 2)
        self.assertIn("/none.csv", missing.stderr)
        nothing = self.cluster.run("init", check=False)
        self.assertEqual(nothing.returncode, 2)
        self.assertIn("--csv=FILE or --images=FOLDER", nothing.stderr)


if __name__ == "__main__":
    unittest.main()
