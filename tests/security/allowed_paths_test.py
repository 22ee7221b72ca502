"""Daemons with different --allow-path: what each opens, and what becomes of the job."""

import unittest

import cluster
import synthetic


class NarrowCluster(cluster.Cluster):
    """`allowed` has the folders, in the cluster's own, of each role."""

    def __init__(self, allowed, **more):
        self.allowed = allowed
        super().__init__(**more)

    def _add(self, role, name, arguments):
        folders = self.allowed.get(role, ["nothing"])
        for folder in folders:
            (self.folder / folder).mkdir(exist_ok=True)
        rules = [f"--allow-path={self.folder / folder}" for folder in folders]
        super()._add(role, name, [*arguments, *rules])

    def job_text(self, output="out"):
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        more = f'output {{ directory: "{self.folder / output}" }}'
        more += " checkpoints { every_iterations: 50 }"
        return synthetic.job(self.folder, workers=1, data=synthetic.data_block(data), more=more)


ALL_OF_SCHEDULER = ["data", "out"]


class AllowedPathsTest(unittest.TestCase):
    def failed(self, running, job, *expected):
        status = running.wait(job)
        self.assertEqual(status["state"], "FAILED", status)
        self.assertEqual(status["failure"]["reason"], "BAD_DATA", status)
        for text in expected:
            self.assertIn(text, status["failure"]["message"])

    def test_what_a_host_may_not_open_goes_over_the_scheduler(self):
        allowed = {"scheduler": ALL_OF_SCHEDULER, "worker": ["data"]}
        with NarrowCluster(allowed) as running:
            job = running.submit(running.job_text())
            status = running.wait(job)
            self.assertEqual(status["state"], "SUCCEEDED", status)
            out = running.folder / "out"
            self.assertTrue((out / "model.safetensors").stat().st_size > 0)
            self.assertTrue(list(out.glob("checkpoints/checkpoint-*/manifest.pb")))
            found = list(out.glob("checkpoints/checkpoint-*"))
            restored = running.json("checkpoint", "restore", str(found[-1]), "--no-wait",
                                    "--replace")
            self.assertIn("jobId", restored)

    def test_a_job_that_names_another_folder_is_refused_by_its_field(self):
        with NarrowCluster({"scheduler": ALL_OF_SCHEDULER, "worker": ["data"]}) as running:
            path = running.write_job(running.job_text(output="elsewhere"))
            refused = running.run("job", "submit", str(path), "--no-wait", check=False)
            self.assertEqual(refused.returncode, 2, refused.stderr)
            elsewhere = running.folder / "elsewhere"
            self.assertIn(f'output.directory: "{elsewhere}" lies below no folder', refused.stderr)
            self.assertIn(f"allowed are {running.folder / 'data'}", refused.stderr)
            self.assertFalse(elsewhere.exists())

    def test_a_worker_that_may_not_open_the_data_says_so(self):
        with NarrowCluster({"scheduler": ALL_OF_SCHEDULER}) as running:
            job = running.submit(running.job_text())
            self.failed(running, job, "train-images.gz: cannot be read: ",
                        "lies below no folder that is allowed to jobs", "nothing")

    def test_a_link_that_is_put_in_place_after_the_admission_is_not_followed(self):
        allowed = {"scheduler": ALL_OF_SCHEDULER, "worker": ["data"]}
        with NarrowCluster(allowed, workers=0) as running:
            job = running.submit(running.job_text())
            secret = running.folder / "secret.gz"
            images = running.folder / "data" / "train-images.gz"
            images.rename(secret)
            images.symlink_to(secret)
            running.add("worker", 0)
            self.failed(running, job, "train-images.gz: cannot be read: a link leads out")


if __name__ == "__main__":
    unittest.main()
