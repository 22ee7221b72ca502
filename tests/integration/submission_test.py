"""Jobs that are submitted: what they may replace, where they wait, where they are placed."""

import json
import pathlib
import unittest

import cluster
import synthetic


class SubmissionTest(unittest.TestCase):
    def start_cluster(self, servers=1, workers=1):
        self.cluster = cluster.Cluster(servers=servers, workers=workers)
        self.addCleanup(self.cluster.close)
        self.data = synthetic.data_block(self.cluster.folder)

    def text(self, **arguments):
        settings = {"epochs": 2, "workers": 1, "data": self.data, **arguments}
        return synthetic.job(self.cluster.folder, **settings)

    def finish(self, job):
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        return status

    def model(self, folder):
        return pathlib.Path(folder, "model.safetensors").read_bytes()

    def submit_file(self, path, *flags, check=True):
        return self.cluster.run("job", "submit", str(path), "--no-wait", "-o", "json", *flags,
                                check=check)

    def test_a_job_that_is_shown_and_submitted_again_replaces_no_model(self):
        self.start_cluster()
        first = self.finish(self.cluster.submit(self.text(training="seed: 3")))
        trained = self.model(first["outputDirectory"])
        shown = self.cluster.json("job", "describe", first["jobId"])
        # The spec that is shown has no field that its owner did not write.
        self.assertFalse((shown["spec"].get("output") or {}).get("directory"))
        self.assertEqual(shown["effectiveSpec"]["training"]["slots"], 1)
        self.cluster.run("job", "label", first["jobId"], "team=ads")
        shown = self.cluster.json("job", "describe", first["jobId"])
        clone = self.cluster.folder / "clone.json"
        clone.write_text(json.dumps(shown["spec"]))
        again = self.submit_file(clone, "--set", "training.seed=4")
        second = self.finish(json.loads(again.stdout)["jobId"])
        self.assertNotEqual(second["outputDirectory"], first["outputDirectory"])
        self.assertEqual(self.model(first["outputDirectory"]), trained)
        self.assertEqual(second["labels"], {"team": "ads"})

    def test_a_model_is_replaced_only_if_that_is_asked_for(self):
        self.start_cluster()
        folder = self.cluster.folder / "kept"
        path = self.cluster.write_job(self.text(more=f'output {{ directory: "{folder}" }}'))
        first = json.loads(self.submit_file(path).stdout)["jobId"]
        self.finish(first)
        trained = self.model(folder)
        refused = self.submit_file(path, check=False)
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertIn(f"{folder} holds the model of {first}", refused.stderr)
        self.assertIn("--replace", refused.stderr)
        self.assertEqual(self.model(folder), trained)
        other = self.submit_file(path, "--replace", "--set", "training.seed=9")
        self.finish(json.loads(other.stdout)["jobId"])
        self.assertNotEqual(self.model(folder), trained)

    def test_a_job_that_no_cluster_could_run_is_told_so_and_holds_nobody_up(self):
        self.start_cluster()
        path = self.cluster.write_job(self.text(name="huge", workers=1000))
        answer = self.submit_file(path)
        why = "needs 1000 workers, 1 is free of 1 alive"
        self.assertIn(f"warning: huge-1: the cluster is too small for this job: {why}",
                      answer.stderr)
        self.assertIn(why, json.loads(answer.stdout)["warnings"][0])
        described = self.cluster.run("job", "describe", "huge-1").stdout
        self.assertIn(why, described)
        self.assertIn("jobs behind it go on", described)
        self.finish(self.cluster.submit(self.text(name="fits")))
        listed = self.cluster.json("job", "list", "--state", "pending")["jobs"]
        self.assertEqual([job["jobId"] for job in listed], ["huge-1"])

    def test_after_a_restart_of_the_scheduler_no_job_is_placed_on_a_dead_server(self):
        self.start_cluster(servers=2)
        scheduler = self.cluster.daemons["scheduler"]
        scheduler.kill()
        self.cluster.daemons["server-1"].kill()
        scheduler.command = [
            f"--listen={self.cluster.scheduler}" if argument.startswith("--listen") else argument
            for argument in scheduler.command
        ]
        scheduler.start()
        scheduler.address()
        self.finish(self.cluster.submit(self.text()))
        log = scheduler.log.read_text()
        self.assertIn("started on server-0\n", log)
        self.assertNotIn("started on server-0, server-1", log)

    def test_what_is_asked_for_wrongly_is_named(self):
        self.start_cluster()
        server = self.cluster.json("node", "list")["nodes"][0]["address"]
        wrong = self.cluster.run("node", "list", f"--scheduler={server}", check=False)
        self.assertEqual(wrong.returncode, 1)
        self.assertIn(f"what listens at {server} (from --scheduler) is no Capstan scheduler",
                      wrong.stderr)
        unknown = self.cluster.run("jobs", "list", check=False)
        self.assertEqual(unknown.returncode, 2)
        self.assertIn('there is no command "jobs"; did you mean "job"?', unknown.stderr)
        version = self.cluster.run("--version").stdout
        self.assertRegex(version, r"^capstan \d")

    def test_a_job_that_ends_well_leaves_no_warning_and_its_numbers_agree(self):
        self.start_cluster(workers=2)
        status = self.finish(self.cluster.submit(self.text(workers=2)))
        self.assertEqual([result["epoch"] for result in status["results"]], [1, 2])
        self.assertEqual(status["epoch"], 2)
        self.assertEqual({task["state"] for task in status["tasks"]}, {"finished"})
        lines = pathlib.Path(status["outputDirectory"], "metrics.jsonl").read_text().splitlines()
        self.assertEqual(json.loads(lines[-1])["epoch"], 2)
        self.assertNotIn("before the job was done",
                         self.cluster.daemons["scheduler"].log.read_text())
        for node in self.cluster.json("node", "list")["nodes"]:
            self.assertIsInstance(node["pid"], int)
        long = self.cluster.submit(self.text(name="long", epochs=100000))
        self.cluster.wait_iteration(long, 10)
        self.cluster.run("job", "stop", long)
        stopped = self.cluster.status(long)
        self.assertEqual({task["state"] for task in stopped["tasks"]}, {"stopped"})


if __name__ == "__main__":
    unittest.main()
