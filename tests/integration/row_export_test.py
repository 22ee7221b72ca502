"""The rows of a sparse table are exported while they are trained, also while a server dies."""

import importlib.util
import json
import math
import unittest

import cluster

JOB = """
name: "clicks"
model { sparse { factorization_machine { rank: 4 factor_std: 0.1 } buckets: 16 } }
data {
  format: CLICK_LOG
  click_log { seed: 7 fields: 6 keys_per_field: 40 linear_stddev: 1 interaction_stddev: 1 rank: 2 }
  train { examples: 20000 }
  test { first_example: 20000 examples: 100 }
}
training { epochs: 100000 batch_size: 200 }
optimizer { adagrad {} learning_rate: 0.05 }
consistency { asp {} }
resources { workers: 1 servers: 2 replicas: 1 }
"""
KEYS_MAX = 6 * 40
DIM = 5  # A weight and the factors.


def load_read_rows():
    path = cluster.runfile("common/tensor/read_rows.py")
    spec = importlib.util.spec_from_file_location("read_rows", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.read_rows


class RowExportTest(unittest.TestCase):
    def setUp(self):
        self.cluster = cluster.Cluster(servers=3, workers=1)
        self.addCleanup(self.cluster.close)
        self.read_rows = load_read_rows()

    def export(self, job):
        """The rows by key, checked against the manifest; and the table's version."""
        folder = self.cluster.folder / "exported"
        output = self.cluster.json("table", "export", job, "-O", str(folder))
        manifest = json.loads((folder / "model.json").read_text())
        (table,) = [table for table in manifest["tables"] if "rows" in table]
        self.assertEqual(output["rows"], [str(folder / table["rows"]["file"])])
        rows = list(self.read_rows(output["rows"][0]))
        self.assertEqual(len(rows), int(table["rows"]["count"]))
        self.assertEqual(table["rows"]["dim"], DIM)
        by_key = dict(rows)
        self.assertEqual(len(by_key), len(rows), "a key is there twice")
        for row in by_key.values():
            self.assertEqual(len(row), DIM)
            self.assertTrue(all(math.isfinite(value) for value in row))
        return by_key, int(table["version"])

    def test_rows_come_once_and_a_lost_server_loses_none(self):
        job = self.cluster.submit(JOB)
        self.cluster.wait_iteration(job, 50)
        before, version = self.export(job)
        self.assertTrue(KEYS_MAX / 2 < len(before) <= KEYS_MAX, len(before))
        self.assertGreater(version, 0)
        placement = self.cluster.json("table", "placement", job)
        primary = placement["routing"]["servers"][0]["nodeId"]
        self.cluster.daemons[primary].kill()
        # At once: the export itself finds that the server is gone, and who took over.
        after, later = self.export(job)
        self.assertLessEqual(set(before), set(after))
        self.assertGreaterEqual(later, version)
        self.cluster.run("job", "stop", job)


if __name__ == "__main__":
    unittest.main()
