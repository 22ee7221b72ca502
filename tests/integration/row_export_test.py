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
    return module


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
        rows = list(self.read_rows.read_rows(output["rows"][0]))
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


    def test_deltas_applied_are_the_rows(self):
        # The examples name some 94,000 keys: after a while each batch makes others leave.
        text = JOB.replace("keys_per_field: 40", "keys_per_field: 40000 zipf_exponent: 0").replace(
            "buckets: 16", "buckets: 4 rows { rows_max: 60000 }")
        job = self.cluster.submit(text)
        self.cluster.wait_iteration(job, 200)
        folders = [str(self.cluster.folder / name) for name in ("whole", "delta")]
        self.cluster.run("table", "export", job, "-O", folders[0])
        self.cluster.wait_iteration(job, 260)
        output = self.cluster.json(
            "table", "export", job, "-O", folders[1], "--since", folders[0])
        self.assertEqual(len(output["removed"]), 1)
        applied = self.read_rows.apply_exports("rows", folders)
        whole = self.read_rows.apply_exports("rows", folders[:1])
        changed = dict(self.read_rows.read_rows(output["rows"][0]))
        removed = [key for key, _ in self.read_rows.read_rows(output["removed"][0])]
        self.assertTrue(changed and removed)
        self.assertLessEqual(set(removed), set(whole))
        self.assertFalse(set(removed) & set(applied))
        self.assertEqual({**{k: v for k, v in whole.items() if k in applied}, **changed}, applied)
        refused = self.cluster.run(
            "table", "export", job, "-O", folders[0], "--since", folders[1], check=False)
        self.assertIn("is a delta", refused.stderr)
        self.cluster.run("job", "stop", job)

    def test_a_consistent_export_is_of_one_iteration(self):
        text = JOB.replace("consistency { asp {} }", "consistency { bsp {} }")
        job = self.cluster.submit(text)
        self.cluster.wait_iteration(job, 30)
        folders = [str(self.cluster.folder / name) for name in ("moment", "since")]
        self.cluster.run("table", "export", job, "-O", folders[0], "--consistent")
        manifest = json.loads((self.cluster.folder / "moment" / "model.json").read_text())
        versions = {int(table["version"]) for table in manifest["tables"]}
        self.assertEqual(len(versions), 1)
        (rows,) = [table["rows"] for table in manifest["tables"] if "rows" in table]
        self.assertEqual({int(version) for version in rows["bucket_versions"]}, versions)
        exported = self.read_rows.apply_exports("rows", folders[:1])
        self.assertEqual(len(exported), int(rows["count"]))
        self.cluster.wait_iteration(job, max(versions) + 5)
        self.cluster.run("table", "export", job, "-O", folders[1], "--since", folders[0])
        later = self.read_rows.apply_exports("rows", folders)
        self.assertLessEqual(set(exported), set(later))
        self.assertNotEqual(exported, later)
        self.cluster.run("job", "stop", job)


if __name__ == "__main__":
    unittest.main()
