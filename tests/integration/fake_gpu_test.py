"""Real daemons on a fake GPU (kernels/testing: a FakeDevice as plugin, and a driver that names it).

What it computes it computes on the CPU, in any order that its streams allow: fp32 jobs have the
CPU's bits.
"""

import hashlib
import os
import re
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
            for wire in ("", "wire { gradients: BF16 parameters: BF16 }",
                         "wire { gradients: FP16 parameters: FP16 }"):
                models = []
                for device in ("cpu", "cuda"):
                    job = live.submit(self.job(live, device, more=wire))
                    self.wait(live, job)
                    models.append(digest(live.output(job)))
                self.assertEqual(models[0], models[1], wire)
            for compute in ("FP32", "BF16", "FP16"):
                for consistency in ("ssp { staleness_bound: 1 }", "asp {}"):
                    job = live.submit(self.job(live, "cuda", consistency=consistency, epochs=6,
                                               training=f"compute: {compute}"))
                    status = self.wait(live, job)
                    self.assertGreater(status["results"][-1]["testAccuracy"], 0.95,
                                       (compute, consistency))

    def test_the_trainer_without_servers_has_the_same_loss_wherever_parameters_lie(self):
        said = set()
        for where in ("", "--gpu=0", "--gpu=0 --update=device"):
            done = subprocess.run(
                [str(cluster.runfile("tests/benchmark/train_steps")), "--batch=8",
                 "--image=20x24x2", "--classes=7", *where.split()],
                input="3\n2\n", capture_output=True, text=True, check=True, timeout=60)
            said.add(tuple(line.split()[2] for line in done.stdout.splitlines()))
        self.assertEqual(len(said), 1, said)

    def say(self, **fakes):
        """Sets how the drivers and plugins of daemons that are started from now on behave."""
        for name, value in fakes.items():
            os.environ[f"CAPSTAN_FAKE_{name.upper()}"] = value
            self.addCleanup(os.environ.pop, f"CAPSTAN_FAKE_{name.upper()}", None)

    def test_several_share_each_batch_with_the_bits_of_as_many_slots(self):
        self.say(gpus="8")
        with cluster.Cluster(servers=2, workers=1) as live:
            for gpus in (2, 8):
                slots = live.submit(self.job(live, batch_size=40 // gpus, epochs=2,
                                             training=f"slots: {gpus}"))
                shared = live.submit(self.job(live, "cuda", batch_size=40, epochs=2,
                                              more_resources=f"gpus: {gpus}"))
                for job in (slots, shared):
                    self.wait(live, job)
                self.assertEqual(digest(live.output(shared)), digest(live.output(slots)), gpus)
            # Batches that do not come out even, smaller ones at the end of the data, messages of
            # other numbers, a scaled loss.
            for compute, wire in (("FP32", ""), ("BF16", "wire { gradients: BF16 }"),
                                  ("FP16", "wire { gradients: FP16 }")):
                job = live.submit(self.job(live, "cuda", consistency="ssp { staleness_bound: 1 }",
                                           batch_size=33, epochs=6, more=wire,
                                           more_resources="gpus: 5",
                                           training=f"compute: {compute}"))
                status = self.wait(live, job)
                self.assertGreater(status["results"][-1]["testAccuracy"], 0.95, compute)

    def test_a_lost_one_is_named_and_its_task_starts_again_on_others(self):
        def model(**fakes):
            self.say(gpus="4", **fakes)
            with cluster.Cluster(servers=1, workers=1) as live:
                job = live.submit(self.job(live, "cuda", more_resources="gpus: 2"))
                self.wait(live, job)
                worker, = (node for node in live.json("node", "list")["nodes"]
                           if node["nodeId"] == "worker-0")
                return digest(live.output(job)), live.logs(), worker.get("gpusLost", [])
        whole, _, none = model()
        self.assertEqual(none, [])
        again, logs, lost = model(lost="1:3000")
        self.assertEqual(again, whole)
        self.assertIn("fake GPU 1 has fallen off the bus", logs)
        self.assertEqual(lost, [1])  # Not the other one of its task.

    def test_one_with_too_little_memory_is_named(self):
        self.say(gpus="2", memory="1:100000")
        with cluster.Cluster(servers=1, workers=1) as live:
            status = live.wait(live.submit(self.job(live, "cuda", more_resources="gpus: 2")))
            self.assertEqual(status["state"], "FAILED", status)
            self.assertIn("fake GPU 1, one of 2 that share each batch: no memory on the device",
                          str(status))
            self.assertIn("OUT_OF_MEMORY", str(status))

    def test_numbers_that_travel_as_halves_have_places_as_such_on_the_device(self):
        self.say(gpus="1", memory="0:100000")
        with cluster.Cluster(servers=1, workers=1) as live:
            needs = []
            for wire in ("", "wire { gradients: BF16 parameters: BF16 }"):
                status = live.wait(live.submit(self.job(live, "cuda", more=wire)))
                self.assertEqual(status["state"], "FAILED", status)
                said = re.search(r"gradient and batches need (\d+) bytes", str(status))
                self.assertTrue(said, status)
                needs.append(int(said.group(1)))
            self.assertGreater(needs[1], needs[0])

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
