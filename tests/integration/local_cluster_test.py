"""`capstan cluster up` and `down`: what they leave behind, and a job that outlives them both."""

import hashlib
import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

import cluster
import synthetic

GRACE_SECONDS = 15  # After which `down` kills, and says so.


class LocalClusterTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.run_folder = self.folder / "run"
        self.addCleanup(self.capstan, "cluster", "down", check=False)
        self.scheduler = None

    def capstan(self, *arguments, check=True):
        folder = ["--dir", str(self.run_folder)] if arguments[0] == "cluster" else []
        settings = {"HOME": str(self.folder)}
        if self.scheduler and not folder:
            settings["CAPSTAN_SCHEDULER"] = self.scheduler
            settings["CAPSTAN_TLS_DIR"] = self.tls_dir
        done = subprocess.run(
            [str(cluster.runfile("scheduler/cli/capstan")), *arguments, *folder, "-o", "json"],
            env={**os.environ, **settings}, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=cluster.DEADLINE_SECONDS * cluster.SLOWDOWN)
        if check:
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout) if done.stdout and check else done

    def up(self):
        started = self.capstan("cluster", "up", "--servers", "2", "--workers", "2")
        self.scheduler, self.tls_dir = started["scheduler"], started["tlsDir"]
        return [process["pid"] for process in started["processes"]]

    def down(self, pids):
        before = time.monotonic()
        self.capstan("cluster", "down")
        seconds = time.monotonic() - before
        left = [pid for pid in pids if cluster.command_line(pid) not in ([], [b""])]
        self.assertEqual(left, [])
        return seconds

    def submit(self, more):
        data = synthetic.data_block(self.folder)
        path = self.folder / "job.textproto"
        path.write_text(synthetic.job(self.folder, data=data, epochs=40, more=more,
                                      resources="max_restarts: 10 server_wait_seconds: 60"))
        return self.capstan("job", "submit", str(path), "--no-wait")["jobId"]

    def wait(self, job):
        status = self.capstan("job", "watch", job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        model = pathlib.Path(status["outputDirectory"], "model.safetensors")
        return hashlib.sha256(model.read_bytes()).hexdigest()

    def wait_iteration(self, job, iteration):
        cluster.until(
            f"{job} passes iteration {iteration}",
            lambda: int(self.capstan("job", "status", job).get("iteration", 0)) >= iteration,
            poll_seconds=cluster.CLI_POLL_SECONDS)

    def test_a_job_with_a_log_goes_on_when_its_cluster_is_started_again(self):
        pids = self.up()
        expected = self.wait(self.submit("durability: LOG"))
        job = self.submit("durability: LOG")
        self.wait_iteration(job, 200)
        # In the middle of a job: no server can move its shards, and `down` does not wait for that.
        self.assertLess(self.down(pids), GRACE_SECONDS)
        self.assertFalse((self.run_folder / "cluster.json").exists())
        for server in ("server-1", "server-2"):
            self.assertTrue(list((self.run_folder / server).glob("logs/**/*.log")), server)
        pids = self.up()
        self.assertEqual(self.wait(job), expected)
        self.down(pids)


if __name__ == "__main__":
    unittest.main()
