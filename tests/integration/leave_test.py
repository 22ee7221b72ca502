"""Daemons that are told to stop in mid-job leave in good order; nothing is lost."""

import hashlib
import pathlib
import signal
import time
import unittest

import cluster
import synthetic

LONG = {"epochs": 30, "name": "long"}
GRACE_SECONDS = 30 * cluster.SLOWDOWN


class LeaveTest(unittest.TestCase):
    def start_cluster(self, servers, grace=f"{GRACE_SECONDS}s"):
        self.cluster = cluster.Cluster(servers=servers, workers=2, grace=grace)
        self.addCleanup(self.close)
        self.data = synthetic.data_block(self.cluster.folder)

    def close(self):
        for name, daemon in self.cluster.daemons.items():
            if name.startswith("server"):
                daemon.kill()  # A test that failed does not wait for its grace.
        self.cluster.close()

    def submit(self, **arguments):
        return self.cluster.submit(
            synthetic.job(self.cluster.folder, data=self.data, **{**LONG, **arguments}))

    def start(self, iteration=100, **arguments):
        job = self.submit(**arguments)
        self.cluster.wait_iteration(job, iteration)
        return job

    def finish(self, job):
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        return status

    def model_hash(self, status):
        model = pathlib.Path(status["outputDirectory"], "model.safetensors")
        return hashlib.sha256(model.read_bytes()).hexdigest()

    def servers_of(self, job):
        routing = self.cluster.json("table", "placement", job)["routing"]
        names = [server["nodeId"] for server in routing["servers"]]
        return {names[shard.get("server", 0)] for shard in routing["shards"]}

    def stop(self, name, seconds=GRACE_SECONDS):
        """SIGTERM; returns the exit code and how long it took."""
        daemon = self.cluster.daemons[name]
        before = time.monotonic()
        daemon.signal(signal.SIGTERM)
        code = daemon.process.wait(timeout=seconds + 10 * cluster.SLOWDOWN)
        return code, time.monotonic() - before

    def test_a_server_told_to_stop_moves_its_shards_away_first(self):
        self.start_cluster(servers=3)
        undisturbed = self.finish(self.submit())
        for mode in ("bsp {}", "asp {}"):
            with self.subTest(mode=mode):
                job = self.start(consistency=mode)
                leaving = sorted(self.servers_of(job))[-1]
                code, seconds = self.stop(leaving)
                log = self.cluster.daemons[leaving].log.read_text()
                self.assertEqual(code, 0, log)
                self.assertLess(seconds, GRACE_SECONDS)
                self.assertIn("nothing of a job is here any more: stops", log)
                self.assertNotIn("still holds", log)
                self.assertEqual(self.cluster.status(job)["state"], "RUNNING")
                self.assertNotIn(leaving, self.servers_of(job))
                status = self.finish(job)
                self.assertEqual(status.get("restarts", 0), 0, status)
                if mode == "bsp {}":
                    self.assertEqual(self.model_hash(status), self.model_hash(undisturbed))
                else:
                    self.assertGreater(status["results"][-1]["testAccuracy"], 0.95)

    def test_a_single_server_goes_after_its_grace_and_says_what_it_held(self):
        self.start_cluster(servers=1, grace="1s")
        job = self.start(epochs=100000)
        code, seconds = self.stop("server-0", 1)
        self.assertEqual(code, 0)
        self.assertGreaterEqual(seconds, 1)
        self.assertIn(f"stops after its grace of 1.0 s and still holds shards of {job}",
                      self.cluster.daemons["server-0"].log.read_text())
        status = self.cluster.wait(job)
        self.assertEqual(status["failure"]["reason"], "SERVER_LOST", status)

    def test_a_second_signal_ends_a_server_at_once(self):
        self.start_cluster(servers=1)
        job = self.start(epochs=100000)
        server = self.cluster.daemons["server-0"]
        server.signal(signal.SIGTERM)
        cluster.until("it leaves", lambda: "leaving: serves on" in server.log.read_text())
        _, seconds = self.stop("server-0")
        self.assertLess(seconds, GRACE_SECONDS / 2)
        self.assertIn(f"stops at once and still holds shards of {job}", server.log.read_text())

    def test_a_worker_told_to_stop_gives_its_leases_back(self):
        self.start_cluster(servers=2)
        undisturbed = self.finish(self.submit(training="slots: 4"))
        for mode in ("bsp {}", "ssp { staleness_bound: 1 }"):
            with self.subTest(mode=mode):
                slots = "slots: 4" if mode == "bsp {}" else ""
                job = self.start(consistency=mode, training=slots)
                code, _ = self.stop("worker-1")
                self.assertEqual(code, 0)
                # It is no crash, and nothing waits for a lease to run out.
                status = self.finish(job)
                self.assertEqual(status.get("restarts", 0), 0, status)
                self.assertEqual(status["samplesDone"], status["samplesTotal"])
                if mode == "bsp {}":
                    self.assertEqual(self.model_hash(status), self.model_hash(undisturbed))
                self.cluster.daemons["worker-1"].start()
                self.cluster.wait_for_nodes(4)


if __name__ == "__main__":
    unittest.main()
