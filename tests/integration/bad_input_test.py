"""Bad input gets an error that names it, the right exit code, and harms nobody."""

import gzip
import socket
import struct
import subprocess
import unittest

import cluster
import synthetic


class BadInputTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cluster.Cluster(servers=1, workers=1)
        cls.addClassCleanup(cls.cluster.close)
        cls.folder = cls.cluster.folder
        cls.data = synthetic.data_block(cls.folder)

    def refuse(self, text, *expected):
        path = self.cluster.write_job(text, "bad.textproto")
        done = self.cluster.run("job", "submit", str(path), check=False)
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 2, said)
        for words in expected:
            self.assertIn(words, said)

    def job(self, **arguments):
        return synthetic.job(self.folder, **{"data": self.data, "workers": 1, **arguments})

    def test_job_files_with_errors_are_refused_by_field(self):
        cases = [
            (self.job() + "colour: 3", ("bad.textproto", "colour")),
            (self.job(batch_size=-4), ("training.batch_size", "-4")),
            (self.job(epochs=0), ("training.epochs",)),
            (self.job(model='zoo: "lenett"'), ("lenett", "lenet")),
            (self.job(model='layers { name: "a" convolution { filters: 4 kernel: 90 } }'), ("a", "90")),
            (self.job(model='layers { name: "out" fully_connected { units: 7 } }'), ("out", "7", "10")),
            (self.job(model='layers { name: "x" warp {} }'), ("warp",)),
            (self.job(optimizer="adam {} learning_rate: -1"), ("learning_rate", "-1")),
            (self.job(workers=0), ("resources.workers",)),
            (self.job(consistency="ssp { staleness_bound: -1 }"), ("staleness_bound", "-1")),
        ]
        for text, expected in cases:
            with self.subTest(expected=expected):
                self.refuse(text, *expected)

    def bad_data(self, images=None, labels=None):
        good_images, good_labels = self.folder / "train-images.gz", self.folder / "train-labels"
        return self.job(data=f'data {{ format: IDX train {{ images: "{images or good_images}" '
                             f'labels: "{labels or good_labels}" }} }}')

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path

    def test_data_files_with_errors_are_refused_by_name(self):
        whole = (self.folder / "train-images.gz").read_bytes()
        labels = (self.folder / "train-labels").read_bytes()
        small = gzip.compress(struct.pack(">IIII", 0x803, 2000, 8, 9) + bytes(2000 * 8 * 8))
        cases = [
            (self.bad_data(images=self.folder / "nowhere"), ("nowhere",)),
            (self.bad_data(images=self.write("cut.gz", whole[: len(whole) // 2])), ("cut.gz", "truncated")),
            (self.bad_data(images=self.write("magic", struct.pack(">IIII", 0x999, 1, 8, 8))), ("magic",)),
            (self.bad_data(images=self.write("size.gz", small)), ("size.gz",)),
            (self.bad_data(labels=self.write("range", labels[:-1] + b"\x63")), ("range", "99")),
        ]
        for text, expected in cases:
            with self.subTest(expected=expected):
                self.refuse(text, *expected)

    def test_unknown_jobs_and_commands(self):
        self.assertNotEqual(self.cluster.run("job", "status", "none-1", check=False).returncode, 0)
        self.assertEqual(self.cluster.run("job", "fly", check=False).returncode, 2)

    def test_an_unreachable_scheduler_means_try_again(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            done = self.cluster.run("job", "list", check=False, env={"CAPSTAN_SCHEDULER": f"127.0.0.1:{port}"})
        self.assertEqual(done.returncode, 75)
        self.assertIn(str(port), done.stderr)

    def test_a_port_in_use_is_named(self):
        for role, binary in (("scheduler", "scheduler/capstan-scheduler"), ("server", "server/capstan-server")):
            with self.subTest(role=role):
                command = [str(cluster.runfile(binary)), f"--listen={self.cluster.scheduler}"]
                command += [f"--data-dir={self.folder / 'other'}"] if role == "scheduler" else [
                    f"--scheduler={self.cluster.scheduler}"]
                done = subprocess.run(command, capture_output=True, text=True, timeout=30)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(self.cluster.scheduler, done.stdout + done.stderr)

    def test_the_cluster_still_works_after_all_this(self):
        job = self.cluster.submit(self.job())
        self.assertEqual(self.cluster.wait(job)["state"], "SUCCEEDED")


if __name__ == "__main__":
    unittest.main()
