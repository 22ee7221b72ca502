"""Real daemons on a fake GPU (kernels/testing: a FakeDevice as plugin, and a driver that names it).

What it computes it computes on the CPU, in any order that its streams allow: fp32 jobs have the
CPU's bits.
"""

import hashlib
import os
import subprocess
import unittest

import cluster
import synthetic

_PLUGIN = "kernels/testing/libfake_cuda.so"
_DRIVER = "kernels/testing/libcuda.so.1"
_MODEL = """
  layers { name: "conv" convolution { filters: 4 kernel: 3 bias: false } }
  layers { name: "norm" batch_normalization {} } layers { name: "relu" relu {} }
  layers { name: "out" fully_connected { units: 10 } }"""


def digest(folder):
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


class FakeGpuTest(unittest.TestCase):
    def setUp(self):
        os.environ["CAPSTAN_CUDA_PLUGIN"] = str(cluster.runfile(_PLUGIN))
        os.environ["LD_LIBRARY_PATH"] = str(cluster.runfile(_DRIVER).parent)

    def job(self, live, device="cpu", **others):
        chosen = {"model": _MODEL, "workers": 1, "epochs": 4,
                  "optimizer": "adam {} learning_rate: 0.003", **others}
        resources = f'device: "{device}" {chosen.pop("more_resources", "")}'
        return synthetic.job(live.folder, resources=resources, **chosen)

    def wait(self, live, job):
        status = live.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status)
        return status

    def test_tasks_train_on_it(self):
        with cluster.Cluster(servers=1, workers=1) as live:
            self.assertIn("fake GPU", live.run("node", "describe", "worker-0").stdout)
            models = []
            for device in ("cpu", "cuda"):
                job = live.submit(self.job(live, device))
                self.wait(live, job)
                models.append(digest(live.output(job)))
            self.assertEqual(models[0], models[1])
            for compute in ("FP32", "BF16", "FP16"):
                for consistency in ("ssp { staleness_bound: 1 }", "asp {}"):
                    job = live.submit(self.job(live, "cuda", consistency=consistency, epochs=6,
                                               training=f"compute: {compute}"))
                    status = self.wait(live, job)
                    self.assertGreater(status["results"][-1]["testAccuracy"], 0.95,
                                       (compute, consistency))

    def shards_on(self, flags, lose_a_server=False):
        """The model of a job on two servers with these flags; one may die on the way."""
        with cluster.Cluster(servers=2, workers=1, server_flags=flags) as live:
            for name in ("server-0", "server-1"):
                log = live.daemons[name].log.read_text()
                self.assertEqual("shards of layers lie on cuda:0" in log, bool(flags), log)
            job = live.submit(self.job(live, epochs=8, more_resources="replicas: 1"))
            if lose_a_server:
                live.wait_iteration(job, 20)
                live.daemons["server-0"].kill()
            self.wait(live, job)
            return digest(live.output(job))

    def test_shards_on_it_have_the_bits_of_the_host_also_from_a_replica(self):
        host = self.shards_on(())
        self.assertEqual(self.shards_on(("--device=cuda",)), host)
        self.assertEqual(self.shards_on(("--device=cuda",), lose_a_server=True), host)

    def test_a_server_without_its_device_does_not_start_and_says_what_is_missing(self):
        os.environ["CAPSTAN_CUDA_PLUGIN"] = "/none/libcapstan_cuda.so"
        done = subprocess.run(
            [str(cluster.runfile("server/capstan-server")), "--scheduler=127.0.0.1:1",
             "--listen=127.0.0.1:0", "--device=cuda:1"],
            capture_output=True, text=True, timeout=60)
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 1, said)
        self.assertIn("--device: GPU 1: no CUDA plugin could be loaded: /none/", said)


if __name__ == "__main__":
    unittest.main()
