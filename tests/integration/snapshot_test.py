"""Snapshots of a job while it trains: all of one moment, with the bits that the job has there."""

import importlib.util
import math
import struct
import threading
import unittest

import cluster
import synthetic

JOB = """
name: "clicks"
model { sparse { factorization_machine { rank: 4 factor_std: 0.1 } buckets: 16 } }
data {
  format: CLICK_LOG
  click_log {
    seed: 7 fields: 6 keys_per_field: 4000 linear_stddev: 1 interaction_stddev: 1 rank: 2
  }
  train { examples: 20000 }
  test { first_example: 20000 examples: 100 }
}
training { epochs: 100000 batch_size: 200 }
optimizer { adagrad {} learning_rate: 0.05 }
consistency { bsp {} }
resources { workers: 2 servers: 2 replicas: 1 }
"""
READERS = 3


def load_read_rows():
    path = cluster.runfile("common/tensor/read_rows.py")
    spec = importlib.util.spec_from_file_location("read_rows", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bits(row):
    """The bytes of a row of floats, however they were written."""
    return struct.pack(f"{len(row)}f", *row)


DENSE_JOB = """
name: "dense"
model { zoo: "softmax_regression" }
%s
training { epochs: 100000 batch_size: 20 }
optimizer { momentum {} learning_rate: 0.01 }
consistency { bsp {} }
resources { workers: 2 servers: 2 }
"""


class SnapshotTest(unittest.TestCase):
    def setUp(self):
        self.cluster = cluster.Cluster(servers=3, workers=2)
        self.addCleanup(self.cluster.close)

    def table(self, job):
        (server, *_) = self.cluster.json("table", "list", job)["servers"]
        (name,) = {table["name"] for table in server["tables"] if "rows" in table["name"]
                   or int(table.get("rows", {}).get("held", "0")) > 0}
        return name

    def read(self, job, table, keys):
        """Iteration, and rows by key; None for a key that has none."""
        output = self.cluster.json(
            "table", "read", job, table, "--keys", ",".join(str(key) for key in keys))
        self.assertEqual([int(row["key"]) for row in output["rows"]], keys)
        rows = {int(row["key"]): bits(row["values"]) if row["found"] else None
                for row in output["rows"]}
        return int(output["iteration"]), rows

    def exported_keys(self, job):
        folder = self.cluster.folder / "keys"
        output = self.cluster.json("table", "export", job, "-O", str(folder))
        return [key for key, _ in load_read_rows().read_rows(output["rows"][0])]

    def test_readers_see_one_moment_with_the_bits_of_a_job_that_ended_there(self):
        job = self.cluster.submit(JOB)
        self.cluster.wait_iteration(job, 30)
        table = self.table(job)
        keys = self.exported_keys(job)[:500] + [2**64 - 1]
        seen = []
        readers = [threading.Thread(target=lambda: seen.append(self.read(job, table, keys)))
                   for _ in range(READERS)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        self.assertEqual(len(seen), READERS)
        self.cluster.wait_iteration(job, max(iteration for iteration, _ in seen) + 10)
        self.cluster.run("job", "stop", job)
        iteration, rows = max(seen, key=lambda one: one[0])
        for other, same in seen:
            self.assertTrue(other < iteration or same == rows)
        self.assertIsNone(rows[2**64 - 1])  # Never pushed.
        ended = self.cluster.submit(
            JOB.replace("epochs: 100000", f"epochs: 100000 iterations_max: {iteration}"))
        self.cluster.wait(ended)
        folder = self.cluster.folder / "ended"
        output = self.cluster.json("table", "export", ended, "-O", str(folder))
        truth = {key: bits(row) for key, row in load_read_rows().read_rows(output["rows"][0])}
        self.assertEqual(rows, {key: truth.get(key) for key in keys})

    def test_a_dense_table_is_read_whole(self):
        job_text = DENSE_JOB % synthetic.data_block(self.cluster.folder)
        job = self.cluster.submit(job_text)
        self.cluster.wait_iteration(job, 20)
        file = self.cluster.folder / "now.safetensors"
        output = self.cluster.json("table", "read", job, "parameters", "--file", str(file))
        self.assertEqual(output["file"], str(file))
        shapes = {tensor["name"]: [int(size) for size in tensor["shape"]]
                  for tensor in output["tensors"]}
        self.assertEqual(set(shapes), {"fc.weight", "fc.bias"})
        self.assertTrue(all(not tensor["values"] for tensor in output["tensors"]))
        printed = self.cluster.json("table", "read", job, "parameters")
        self.assertGreater(int(printed["iteration"]), int(output["iteration"]))
        for tensor in printed["tensors"]:
            self.assertEqual(len(tensor["values"]), math.prod(shapes[tensor["name"]]))
        self.assertIn("fc.weight", self.cluster.run("table", "read", job, "parameters").stdout)
        refused = self.cluster.run("table", "read", job, "parameters", "--keys", "1", check=False)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("table parameters is dense", refused.stderr)
        self.cluster.run("job", "stop", job)
        ended = self.cluster.submit(job_text.replace(
            "epochs: 100000", f"epochs: 100000 iterations_max: {output['iteration']}"))
        self.cluster.wait(ended)
        model = self.cluster.output(ended) / "model.safetensors"
        self.assertEqual(file.read_bytes(), model.read_bytes())

    def test_a_lost_server_is_survived_and_bad_questions_are_named(self):
        job = self.cluster.submit(JOB)
        self.cluster.wait_iteration(job, 30)
        table = self.table(job)
        before, _ = self.read(job, table, [1, 2, 3])
        placement = self.cluster.json("table", "placement", job)
        self.cluster.daemons[placement["routing"]["servers"][0]["nodeId"]].kill()

        def reads():
            read = self.cluster.run("table", "read", job, table, "--keys", "1", check=False)
            self.assertIn(read.returncode, (0, 1, 75), read.stderr)
            return read.returncode == 0

        cluster.until("a snapshot after a server's death", reads)
        after, _ = self.read(job, table, [1, 2, 3])
        self.assertGreater(after, before)
        refused = self.cluster.run("table", "read", job, "colours", "--keys", "1", check=False)
        self.assertEqual(refused.returncode, 2)
        self.assertIn('has no table "colours"', refused.stderr)
        refused = self.cluster.run("table", "read", job, table, check=False)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("is sparse: expected --keys", refused.stderr)
        self.cluster.run("job", "stop", job)
        refused = self.cluster.run("table", "read", job, table, "--keys", "1", check=False)
        self.assertIn("trains no more", refused.stderr)


if __name__ == "__main__":
    unittest.main()
