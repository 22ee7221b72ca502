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

    def layers(self, layer):
        return self.job(model=f"layers {{ {layer} }}")

    def test_job_files_with_errors_are_refused_by_field(self):
        cases = [
            (self.job() + "colour: 3", ("bad.textproto", "colour")),
            (self.job(batch_size=-4), ("training.batch_size", "-4")),
            (self.job(epochs=0), ("training.epochs",)),
            (self.job(model='zoo: "lenett"'), ("lenett", "lenet")),
            (self.layers('name: "a" convolution { filters: 4 kernel: 90 }'), ("a", "90")),
            (self.layers('name: "out" fully_connected { units: 7 }'), ("out", "7", "10")),
            (self.layers('name: "x" warp {}'), ("warp",)),
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
        cut = self.write("cut.gz", whole[: len(whole) // 2])
        magic = self.write("magic", struct.pack(">IIII", 0x999, 1, 8, 8))
        small = struct.pack(">IIII", 0x803, 2000, 8, 9) + bytes(2000 * 8 * 8)
        size = self.write("size.gz", gzip.compress(small))
        label_99 = self.write("range", labels[:-1] + b"\x63")
        cases = [
            (self.bad_data(images=self.folder / "nowhere"), ("nowhere",)),
            (self.bad_data(images=cut), ("cut.gz", "truncated")),
            (self.bad_data(images=magic), ("magic",)),
            (self.bad_data(images=size), ("size.gz",)),
            (self.bad_data(labels=label_99), ("range: label number", "is out of range")),
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
            nobody = {"CAPSTAN_SCHEDULER": f"127.0.0.1:{port}"}
            done = self.cluster.run("job", "list", check=False, env=nobody)
        self.assertEqual(done.returncode, 75)
        self.assertIn(str(port), done.stderr)

    def test_a_port_in_use_is_named(self):
        daemons = {
            "scheduler/capstan-scheduler": f"--data-dir={self.folder / 'other'}",
            "server/capstan-server": f"--scheduler={self.cluster.scheduler}",
        }
        for binary, argument in daemons.items():
            with self.subTest(binary=binary):
                listen = f"--listen={self.cluster.scheduler}"
                command = [str(cluster.runfile(binary)), listen, argument]
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=30 * cluster.SLOWDOWN
                )
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(self.cluster.scheduler, done.stdout + done.stderr)

    def test_the_cluster_still_works_after_all_this(self):
        job = self.cluster.submit(self.job())
        self.assertEqual(self.cluster.wait(job)["state"], "SUCCEEDED")


if __name__ == "__main__":
    unittest.main()
