"""Two daemons ask for one name: the second is refused, and the job of the first goes on."""

import shutil
import subprocess
import unittest

import cluster
import synthetic

LONG = {"epochs": 40, "name": "long"}


class NamesTest(unittest.TestCase):
    def setUp(self):
        self.cluster = cluster.Cluster(servers=1, workers=1)
        self.addCleanup(self.cluster.close)

    def incarnations(self):
        return {n["nodeId"]: n["incarnation"] for n in self.cluster.json("node", "list")["nodes"]}

    def run_second(self, name, *flags):
        """Runs another daemon of this name in a folder of its own until it ends."""
        first = self.cluster.daemons[name]
        folder = self.cluster.folder / "second"
        command = [str(cluster.runfile(f"{name.split('-')[0]}/capstan-{name.split('-')[0]}")),
                   "--listen=127.0.0.1:0", f"--scheduler={self.cluster.scheduler}",
                   f"--name={name}", *[flag.format(folder=folder) for flag in flags]]
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              timeout=60 * cluster.SLOWDOWN)
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 1, said)
        self.assertIn(f'"{name}" is held by', said)
        self.assertIn(f"process {first.process.pid} on ", said)
        self.assertIn("registered", said)

    def test_a_second_daemon_of_a_name_is_refused_and_the_job_goes_on(self):
        data = synthetic.data_block(self.cluster.folder)
        job = self.cluster.submit(synthetic.job(self.cluster.folder, data=data, workers=1, **LONG))
        self.cluster.wait_iteration(job, 100)
        before = self.incarnations()
        self.run_second("server-0", "--data-dir={folder}")
        self.run_second("server-0")
        self.run_second("worker-0", "--work-dir={folder}")
        # In the folder of the first, whose identity it must not get.
        self.run_second("worker-0", f"--work-dir={self.cluster.folder / 'worker-0'}")
        # In copies of its folder, with its identity.
        for name, flag in (("server-0", "--data-dir"), ("worker-0", "--work-dir")):
            copy = self.cluster.folder / f"copy-of-{name}"
            shutil.copytree(self.cluster.folder / name, copy, symlinks=True)
            self.run_second(name, f"{flag}={copy}")
        self.assertEqual(self.incarnations(), before)
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        self.assertEqual(status.get("restarts", 0), 0, status)

    def test_a_killed_daemon_takes_its_name_back(self):
        for name in ("server-0", "worker-0"):
            with self.subTest(name=name):
                before = self.incarnations()[name]
                self.cluster.daemons[name].kill()
                self.cluster.daemons[name].start()
                cluster.until(f"{name} has a new incarnation",
                              lambda: self.incarnations()[name] != before)


if __name__ == "__main__":
    unittest.main()
