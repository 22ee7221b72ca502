"""Jobs on CSV files: names as labels, scaled numbers, ranges of columns, headers."""

import json
import random
import unittest

import clicks
import cluster

LINES_OF_A_JOB = 25


def connections(path, count, seed, attack=("neptune.", "smurf.")):
    """Lines in the form of KDD Cup 99: a duration, three names, 37 numbers, the connection's kind.

    Attacks come over icmp more often, and send more bytes.
    """
    draw = random.Random(seed)
    with open(path, "w") as out:
        for _ in range(count):
            normal = draw.random() < 0.5
            protocol = "tcp" if normal == (draw.random() < 0.8) else "icmp"
            sent = draw.randrange(0, 1000 if normal else 100_000)
            row = [draw.randrange(100), protocol, draw.choice(["http", "smtp"]), "SF", sent,
                   draw.randrange(1000)]
            row += [draw.randrange(100) for _ in range(35)]
            row.append("normal." if normal else draw.choice(attack))
            out.write(",".join(map(str, row)) + "\n")
    return path


class ColumnsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cluster.Cluster(servers=2, workers=2)
        cls.folder = cls.cluster.folder

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def submit(self, path, *flags):
        done = self.cluster.run("job", "submit", str(path), "--no-wait", "-o", "json", *flags)
        answer = json.loads(done.stdout)
        status = self.cluster.wait(answer["jobId"])
        self.assertEqual(status["state"], "SUCCEEDED", status)
        return status, answer.get("warnings", [])

    def test_the_example_of_names_as_labels_learns_which_connections_are_normal(self):
        example = cluster.runfile("deploy/jobs/kdd_columns_ssp.textproto")
        self.assertLess(len(example.read_text().splitlines()), LINES_OF_A_JOB)
        train = connections(self.folder / "train.csv", 6000, seed=1)
        test = connections(self.folder / "test.csv", 2000, seed=2, attack=("teardrop.",))
        status, warnings = self.submit(example, "--set", f"data.train.files={train}",
                                       "--set", f"data.test.files={test}")
        result = status["results"][-1]
        self.assertGreater(result["testAuc"], 0.97, result)
        self.assertGreater(result["testAccuracy"], 0.9, result)
        # The flag is "SF" in every line that was made here.
        self.assertEqual([w for w in warnings if "column 4 never varies" not in w], [])
        self.assertEqual(len(warnings), 2)
        figures = self.cluster.json("evaluate", status["outputDirectory"])
        self.assertEqual(figures["auc"], result["testAuc"])

    def test_labels_that_are_all_equal_are_told_when_the_job_is_submitted(self):
        train = connections(self.folder / "mistaken.csv", 500, seed=3)
        text = clicks.job(name="mistaken", model="logistic_regression {}", epochs=1, data=f"""
          format: COLUMNS
          columns {{
            columns {{ range: "2-4" kind: CATEGORY }}
            columns {{ range: "42" kind: LABEL label {{ positive: "normal" }} }}
          }}
          train {{ files: "{train}" }}""")
        _, warnings = self.submit(self.cluster.write_job(text))
        self.assertIn("data.train: in 500 examples every label is 0", warnings[0])

    def test_splits_have_headers_of_their_own(self):
        (self.folder / "with.csv").write_text("age,bought\n" + "17,0\n70,1\n" * 50)
        (self.folder / "without.csv").write_text("18,0\n80,1\n")
        text = clicks.job(name="headers", model="logistic_regression {}", batch_size=10, data=f"""
          format: COLUMNS
          columns {{
            columns {{ kind: BUCKET name: "age" boundaries: [20, 40, 60] }}
            columns {{ kind: LABEL name: "bought" }}
            header: true
          }}
          train {{ files: "{self.folder}/with.csv" }}
          test {{ files: "{self.folder}/without.csv" header: false }}""")
        status, warnings = self.submit(self.cluster.write_job(text))
        self.assertEqual(status["results"][-1]["testAccuracy"], 1)
        self.assertEqual(status["results"][-1]["testSamples"], "2")
        self.assertEqual(warnings, [])

    def test_a_wrong_range_is_named(self):
        path = self.cluster.write_job(clicks.job(data="""
          format: COLUMNS
          columns {
            columns { range: "1-3" kind: DENSE }
            columns { range: "3" kind: LABEL }
          }
          train { files: "/none" }"""))
        done = self.cluster.run("job", "submit", str(path), check=False)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr,
                         r'job.textproto:\d+:\d+: data.columns.columns\[1\].range: got "3", '
                         r'expected columns of no other range: column 3 is in "1-3", too')


if __name__ == "__main__":
    unittest.main()
