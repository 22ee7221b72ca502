"""A program at its own pace over TLS: it reads snapshots of its own job."""

import json
import unittest

import cluster
import own_pace_test
import tls_cluster


class TlsProgramsTest(unittest.TestCase):
    def test_a_program_opens_reads_and_closes_snapshots_of_its_job(self):
        with tls_cluster.TlsCluster(servers=2, workers=own_pace_test.WORKERS, worker_flags=(
                "--run-programs", "--program-uids=off")) as running:
            said = running.folder / "said"
            said.mkdir()
            job = running.submit(own_pace_test.job(said))
            cluster.until("rank 0 has read a snapshot", lambda: (
                (said / "0").exists() and "snapshot" in (said / "0").read_text()))
            (said / "stop").touch()
            status = running.wait(job)
            self.assertEqual(status["state"], "SUCCEEDED", f"{status}\n{running.logs()}")
            for daemon in ("scheduler", "server-0", "server-1"):
                lines = (running.folder / daemon / "audit.jsonl").read_text().splitlines()
                self.assertEqual([line for line in map(json.loads, lines) if not line["allowed"]
                                  and line.get("method", "").endswith("Snapshot")], [])


if __name__ == "__main__":
    unittest.main()
