"""Jobs whose scheduler has lost its store: taken up again from the logs of their servers."""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import unittest

import cluster
import synthetic

LOG = "durability: LOG"
# A model of several shards, so that each server has some.
WIDE = """layers { name: "fc1" fully_connected { units: 300 } }
          layers { name: "out" fully_connected { units: 10 } }"""
BATCHES_AN_EPOCH = 100  # 2,000 samples, 20 a batch.


class RecoverTest(unittest.TestCase):
    def setUp(self):
        self.cluster = cluster.Cluster(servers=2, workers=2)
        self.addCleanup(self.cluster.close)
        # Beside the scheduler's folder, which goes.
        self.data = synthetic.data_block(self.cluster.folder)

    def submit(self, epochs=10, name="lost", more=LOG, **arguments):
        return self.cluster.submit(synthetic.job(
            self.cluster.folder, name=name, data=self.data, epochs=epochs, model=WIDE, more=more,
            **arguments))

    def finish(self, job):
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        return status

    def model_hash(self, status):
        model = pathlib.Path(status["outputDirectory"], "model.safetensors")
        return hashlib.sha256(model.read_bytes()).hexdigest()

    def kill(self, names):
        """With all of their tasks, at once."""
        daemons = [self.cluster.daemons[name] for name in names]
        tasks = [child for daemon in daemons if "worker" in daemon.name
                 for child in cluster.children(daemon.process.pid)]
        for daemon in daemons:
            os.kill(daemon.process.pid, signal.SIGKILL)
        for task in tasks:
            with contextlib.suppress(ProcessLookupError):  # It dies with its daemon.
                os.kill(task, signal.SIGKILL)
        for daemon in daemons:
            daemon.process.wait()

    def start(self, name):
        daemon = self.cluster.daemons[name]
        if name == "scheduler":
            daemon.command = [f"--listen={self.cluster.scheduler}"
                              if argument.startswith("--listen") else argument
                              for argument in daemon.command]
        daemon.start()
        daemon.address()

    def lose_store(self, killed=None, without=()):
        """Kills daemons (all), removes the scheduler's folder, starts all but some again."""
        killed = killed or list(self.cluster.daemons)
        self.kill(killed)
        shutil.rmtree(self.cluster.folder / "scheduler")
        again = [name for name in killed if name not in without]
        for name in again:
            self.start(name)
        self.cluster.wait_for_nodes(len(self.cluster.daemons) - 1 - len(without))

    def recoverable(self):
        return self.cluster.json("job", "recover").get("jobs", [])

    def refused(self, job, *reasons):
        [listed] = self.recoverable()
        said = self.cluster.run("job", "recover", job, "--no-wait", check=False)
        self.assertEqual(said.returncode, 1, said.stdout + said.stderr)
        for reason in reasons:
            self.assertIn(reason, said.stderr)
            self.assertIn(reason, listed["whyNot"])
        self.assertEqual(self.recoverable(), [listed])  # Nothing has changed.

    def recover(self, job):
        taken = self.cluster.json("job", "recover", job, "--no-wait")
        self.assertEqual(taken["jobId"], job)
        return taken

    def events(self, status):
        return [event for event in status.get("events", []) if event["kind"] == "RECOVERED"]

    def test_a_bsp_job_ends_with_the_same_bits(self):
        expected = self.model_hash(self.finish(self.submit(name="clean")))
        job = self.submit()
        self.cluster.wait_iteration(job, BATCHES_AN_EPOCH + 30)
        self.lose_store()
        # Nobody takes it up unasked.
        self.assertEqual(self.cluster.json("job", "list").get("jobs", []), [])
        [listed] = self.recoverable()
        self.assertEqual((listed["jobId"], listed["whyNot"]), (job, ""))
        self.assertEqual([log["nodeId"] for log in listed["logs"]], ["server-0", "server-1"])
        self.assertIn(f"capstan job recover {job}", self.cluster.run("job", "recover").stdout)
        # A scheduler that is started again still knows of it.
        self.kill(["scheduler"])
        self.start("scheduler")
        self.cluster.wait_for_nodes(4)
        taken = self.recover(job)
        self.assertEqual(taken["clusterId"], listed["clusterId"])
        status = self.finish(job)
        self.assertEqual(self.model_hash(status), expected)
        self.assertEqual(len(status["results"]), 10)
        [event] = self.events(status)
        self.assertIn(f"of cluster {taken['clusterId']}", event["text"])
        self.assertEqual(self.recoverable(), [])
        # The next job does not get its number.
        self.assertNotEqual(self.submit(name="lost", epochs=1), job)

    def test_a_scheduler_alone_loses_its_store(self):
        expected = self.model_hash(self.finish(self.submit(name="clean")))
        job = self.submit()
        self.cluster.wait_iteration(job, BATCHES_AN_EPOCH + 20)
        self.lose_store(["scheduler"])
        cluster.until("both logs are told", lambda: any(
            len(one["logs"]) == 2 for one in self.recoverable()))
        self.recover(job)
        self.assertEqual(self.model_hash(self.finish(job)), expected)

    def test_ssp_and_asp_lose_nothing_and_say_what_is_repeated(self):
        for mode in ("ssp { staleness_bound: 2 }", "asp {}"):
            with self.subTest(mode=mode):
                job = self.submit(consistency=mode)
                self.cluster.wait_iteration(job, 2 * BATCHES_AN_EPOCH)
                self.lose_store()
                self.recover(job)
                status = self.finish(job)
                self.assertEqual(status["samplesDone"], status["samplesTotal"])
                self.assertEqual(len(status["results"]), 10)
                self.assertGreater(status["results"][-1]["testAccuracy"], 0.95)
                model = pathlib.Path(status["outputDirectory"], "model.json").read_text()
                version = max(int(table["version"]) for table in json.loads(model)["tables"])
                batches = 10 * BATCHES_AN_EPOCH
                said = [re.search(r"at most (\d+) batches", event["text"])
                        for event in self.events(status)]
                bound = sum(int(found.group(1)) for found in said if found)
                # Each batch is in the model, and no more of them twice than it says.
                self.assertGreaterEqual(version, batches)
                self.assertLessEqual(version, batches + bound)
                self.cluster.run("job", "delete", job)

    def test_a_servers_missing_log_is_named(self):
        job = self.submit()
        self.cluster.wait_iteration(job, 50)
        self.lose_store(without=["server-1"])
        self.refused(job, "server-1 (table/shard", "Start each again under its name")
        self.start("server-1")
        self.cluster.wait_for_nodes(4)
        self.recover(job)
        self.finish(job)

    def test_a_damaged_log_is_named_and_stays(self):
        job = self.submit()
        self.cluster.wait_iteration(job, 50)
        self.kill(["server-1"])
        [folder] = (self.cluster.folder / "server-1" / "logs").glob(f"{job}.*")
        segment = sorted(folder.glob("segment-*.log"))[0]
        whole = segment.read_bytes()
        segment.write_bytes(whole[:500] + bytes([whole[500] ^ 1]) + whole[501:])
        self.lose_store(["scheduler", "server-0", "worker-0", "worker-1"], without=["server-1"])
        self.start("server-1")
        self.cluster.wait_for_nodes(4)
        self.refused(job, "the log on server-1 is damaged", segment.name)
        self.assertTrue(segment.exists())

    def test_a_damaged_record_is_named_and_another_servers_does(self):
        job = self.submit()
        self.cluster.wait_iteration(job, 50)
        self.kill(list(self.cluster.daemons))
        records = sorted(self.cluster.folder.glob("server-*/logs/*/record"))
        self.assertEqual(len(records), 2)
        whole = records[0].read_bytes()
        records[0].write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        shutil.rmtree(self.cluster.folder / "scheduler")
        for name in self.cluster.daemons:
            self.start(name)
        self.cluster.wait_for_nodes(4)
        [listed] = self.recoverable()
        self.assertEqual(listed["whyNot"], "")
        self.assertIn("record", listed["logs"][0]["damage"])
        self.recover(job)
        self.finish(job)

    def test_a_log_that_was_removed_is_offered_no_more(self):
        job = self.submit()
        self.cluster.wait_iteration(job, 50)
        for name in ("server-0", "server-1"):
            self.cluster.daemons[name].command.append("--log-grace=1s")
        self.lose_store()
        cluster.until("both logs are removed", lambda: not self.recoverable())
        said = self.cluster.run("job", "recover", job, "--no-wait", check=False)
        self.assertEqual(said.returncode, 2, said.stdout + said.stderr)
        self.assertIn(f'"{job}"', said.stderr)

    def test_an_id_that_is_taken_is_said(self):
        job = self.submit()
        self.cluster.wait_iteration(job, 50)
        self.lose_store()
        self.assertEqual(self.submit(epochs=10000), job)  # Names come again.
        self.refused(job, f"another job of this cluster has the id {job}")
        self.cluster.run("job", "stop", job)
        self.cluster.run("job", "delete", job)
        self.recover(job)
        self.finish(job)

    def test_without_a_worker_nothing_is_taken_up(self):
        job = self.submit()
        self.cluster.wait_iteration(job, 50)
        self.lose_store(without=["worker-0", "worker-1"])
        self.refused(job, "no worker")

    def test_what_is_not_there_is_refused(self):
        said = self.cluster.run("job", "recover", "none-7", check=False)
        self.assertEqual(said.returncode, 2, said.stderr)
        self.assertIn('"none-7"', said.stderr)
        self.assertIn("--from=FOLDER", self.cluster.run("job", "recover").stdout)
        said = self.cluster.run("job", "recover", "none-7", "--servers=2", check=False)
        self.assertIn("go with --from", said.stderr)

    def test_a_job_without_a_log_is_taken_up_from_its_checkpoint(self):
        expected = self.model_hash(self.finish(self.submit(name="clean", more="")))
        kept = self.cluster.folder / "kept"
        job = self.submit(more=f'output {{ directory: "{kept}" }}'
                               "checkpoints { every_iterations: 60 }")
        self.cluster.wait_iteration(job, 150)
        self.lose_store()
        self.assertEqual(self.recoverable(), [])
        folder = str(kept / "checkpoints")
        again = self.cluster.json("job", "recover", f"--from={folder}", "--no-wait")["jobId"]
        self.assertEqual(self.model_hash(self.finish(again)), expected)


if __name__ == "__main__":
    unittest.main()
