"""Real daemons on emulated GPUs: the plugin's own code over CUDA on the host.

What a job comes to is compared with the local trainer on the same GPUs, bit for bit where bits are
promised.
"""

import contextlib
import hashlib
import os
import subprocess
import unittest

import cluster
import synthetic

_PLUGIN = "kernels/cuda/emulation/libcapstan_emulated_cuda.so"
_DRIVER = "kernels/testing/libcuda.so.1"
_TRAINER = "tests/convergence/reference_trainer"
_GPUS = "2"
_POINTS = 0.03  # Accuracy that a run may lose to the one on the CPU: 6 of the 200 test images.

_MODEL = """
  layers { name: "conv1" convolution { filters: 8 kernel: 3 padding: 1 bias: false } }
  layers { name: "norm1" batch_normalization {} }
  layers { name: "relu1" relu {} }
  layers { name: "pool1" max_pooling { kernel: 2 } }
  layers { name: "conv2" convolution { filters: 8 kernel: 3 padding: 1 } }
  layers { name: "join" inputs: "conv2" inputs: "pool1" add {} }
  layers { name: "drop" dropout { rate: 0.25 } }
  layers { name: "out" fully_connected { units: 10 } }"""


def digest(folder):
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


class EmulatedGpuTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ.update(CAPSTAN_CUDA_PLUGIN=str(cluster.runfile(_PLUGIN)),
                          CAPSTAN_EMULATED_GPUS=_GPUS, CAPSTAN_FAKE_GPUS=_GPUS)
        # The local trainer needs no driver to ask, and cuDNN finds this one wanting.
        cls.without_driver = dict(os.environ)
        driver, others = str(cluster.runfile(_DRIVER).parent), os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = f"{driver}:{others}" if others else driver

    @contextlib.contextmanager
    def start(self, **options):
        with cluster.Cluster(servers=1, **options) as live:
            live.data = synthetic.data_block(live.folder, train=300, test=200)
            yield live

    def job(self, live, compute="FP32", resources='device: "cuda"', training="", **others):
        chosen = {"model": _MODEL, "workers": 1, "epochs": 2, "batch_size": 30, "data": live.data,
                  "optimizer": "adam {} learning_rate: 0.005", **others}
        return synthetic.job(live.folder, resources=resources,
                             training=f"compute: {compute} {training}", **chosen)

    def trained(self, live, text):
        """The job that has done as `text` says, and the last accuracy."""
        job = live.submit(text)
        status = live.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        return job, float(status["results"][-1]["testAccuracy"])

    def expect_bits_of_the_local_trainer(self, live, text):
        job, _ = self.trained(live, text)
        path, out = live.write_job(text), live.folder / f"local-{job}"
        subprocess.run([str(cluster.runfile(_TRAINER)), f"--job={path}", f"--output={out}"],
                       env=self.without_driver, check=True, stdout=subprocess.DEVNULL,
                       timeout=60 * cluster.SLOWDOWN)
        self.assertEqual(digest(live.output(job)), digest(out), text)

    def test_a_bsp_job_has_the_bits_of_the_local_trainer_on_as_many(self):
        with self.start() as live:
            for compute in ("FP32", "BF16"):
                for resources in ('device: "cuda"', 'device: "cuda" gpus: 2'):
                    self.expect_bits_of_the_local_trainer(
                        live, self.job(live, compute, resources=resources))

    def test_tasks_with_one_each_have_the_bits_of_as_many_slots(self):
        with self.start(workers=2) as live:
            self.expect_bits_of_the_local_trainer(
                live, self.job(live, "BF16", workers=2, batch_size=15))

    def test_stale_parameters_bring_the_accuracy_of_the_cpu(self):
        with self.start() as live:
            stale = {"epochs": 6, "consistency": "ssp { staleness_bound: 1 }"}
            _, on_cpu = self.trained(live, self.job(live, resources="", **stale))
            self.assertGreater(on_cpu, 0.95)
            for compute in ("FP32", "BF16"):
                _, accuracy = self.trained(live, self.job(live, compute, **stale))
                self.assertGreaterEqual(accuracy, on_cpu - _POINTS, compute)

    def test_shards_that_lie_on_one_have_the_same_bits(self):
        halves = []
        for flags in ((), ("--device=cuda:1",)):
            with self.start(server_flags=flags) as live:
                log = live.daemons["server-0"].log.read_text()
                self.assertEqual("shards of layers lie on cuda:1" in log, bool(flags), log)
                self.expect_bits_of_the_local_trainer(live, self.job(live))
                job, _ = self.trained(live, self.job(
                    live, "BF16", more="wire { gradients: BF16 parameters: BF16 }"))
                halves.append(digest(live.output(job)))
        self.assertEqual(halves[0], halves[1])


if __name__ == "__main__":
    unittest.main()
