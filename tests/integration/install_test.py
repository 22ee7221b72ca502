"""`./install` puts the programs where a shell finds them, and they find each other there."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import cluster

PROGRAMS = ("capstan", "capstan-scheduler", "capstan-server", "capstan-worker")


class InstallTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.bin = self.folder / "there" / "bin"
        self.root = cluster.runfile("scheduler/cli/capstan").parents[2]

    def install(self, *arguments, check=True):
        command = [str(cluster.runfile("install")), f"--prefix={self.folder / 'there'}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              timeout=60 * cluster.SLOWDOWN)
        if check:
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def capstan(self, *arguments):
        path = f"{self.bin}:{os.environ['PATH']}"
        done = subprocess.run(["capstan", *arguments], capture_output=True, text=True, check=False,
                              env={**os.environ, "PATH": path, "HOME": str(self.folder)},
                              cwd=self.folder, timeout=60 * cluster.SLOWDOWN)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_installed_programs_run_a_cluster_and_are_removed_again(self):
        for _ in range(2):  # Safe to repeat.
            said = self.install(f"--from={self.root}").stdout
            self.assertIn(f'export PATH="{self.bin}:$PATH"', said)
        self.assertEqual(sorted(path.name for path in self.bin.iterdir()), sorted(PROGRAMS))
        self.assertIn("capstan ", self.capstan("--version"))
        self.capstan("cluster", "up", "--servers=1", "--workers=1", f"--dir={self.folder / 'run'}")
        self.capstan("cluster", "down", f"--dir={self.folder / 'run'}")
        self.install("--uninstall")
        self.assertEqual(list(self.bin.iterdir()), [])

    def test_what_is_missing_is_named(self):
        refused = self.install(f"--from={self.folder}", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(f"found no program {self.folder}/scheduler/cli/capstan", refused.stderr)
        self.assertEqual(self.install("--perfix=/x", check=False).returncode, 2)


if __name__ == "__main__":
    unittest.main()
