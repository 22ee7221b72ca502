"""Nobody else can read the files that Capstan leaves on the disk, whatever the umask is."""

import json
import os
import pathlib
import stat
import subprocess
import tempfile
import unittest

import cluster
import synthetic

OTHERS = stat.S_IRWXG | stat.S_IRWXO


class FileModesTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.run_folder = self.folder / "run" / "cluster"
        self.addCleanup(os.umask, os.umask(0))
        self.settings = {"HOME": str(self.folder)}
        self.addCleanup(self.capstan, "cluster", "down", "--dir", str(self.run_folder))

    def capstan(self, *arguments):
        done = subprocess.run(
            [str(cluster.runfile("scheduler/cli/capstan")), *arguments, "-o", "json"],
            env={**os.environ, **self.settings}, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=cluster.DEADLINE_SECONDS * cluster.SLOWDOWN, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def open_to_others(self):
        """The files and folders at and below run/ that others may use, and how many there are."""
        found, count = [], 0
        for root, folders, files in os.walk(self.run_folder.parent):
            for name in [".", *folders, *files]:
                path = os.path.normpath(os.path.join(root, name))
                mode = os.lstat(path).st_mode
                count += 1
                if not stat.S_ISLNK(mode) and mode & OTHERS:
                    found.append(f"{path}: {stat.filemode(mode)}")
        return found, count

    def test_nothing_of_a_run_is_open_to_others_under_umask_000(self):
        started = json.loads(self.capstan(
            "cluster", "up", "--dir", str(self.run_folder), "--servers", "2", "--workers", "2"))
        self.settings |= {"CAPSTAN_SCHEDULER": started["scheduler"],
                          "CAPSTAN_TLS_DIR": started["tlsDir"]}
        job = self.folder / "job.textproto"
        job.write_text(synthetic.job(
            self.folder, resources="replicas: 1",
            more="durability: LOG checkpoints { every_iterations: 20 }"))
        self.capstan("job", "submit", str(job))
        found, count = self.open_to_others()
        self.assertEqual(found, [])
        names = {path.name for path in self.run_folder.rglob("*")}
        for name in ("cluster.json", "key.pem", "scheduler.db", "model.safetensors", "job.json",
                     "metrics.jsonl", "task.textproto", "task.log", "manifest.pb"):
            self.assertIn(name, names)
        self.assertGreater(count, 40)
        self.capstan("cluster", "down", "--dir", str(self.run_folder))
        self.assertEqual(self.open_to_others()[0], [])


if __name__ == "__main__":
    unittest.main()
