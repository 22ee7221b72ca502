"""Jobs over TLS: the same bits as in plain text, while certificates are replaced."""

import hashlib
import json
import re
import unittest

import cluster
import synthetic
import tls_cluster

ROTATIONS = 20
TCP = "wire { shared_memory: OFF }"


def trained(running, text, during=lambda job: None):
    """The digest of the job's model, and its status."""
    job = running.submit(text)
    during(job)
    status = running.wait(job)
    if status["state"] != "SUCCEEDED":
        raise RuntimeError(f"{job}: {status}\n{running.logs()}")
    model = (running.output(job) / "model.safetensors").read_bytes()
    return hashlib.sha256(model).hexdigest(), status


def job_text(running, epochs=160):
    return synthetic.job(running.folder, epochs=epochs, resources="replicas: 1", more=TCP)


class TlsJobsTest(unittest.TestCase):
    def test_certificates_are_replaced_under_a_job_that_has_the_bits_of_plain_text(self):
        with cluster.Cluster(servers=2, workers=2) as plain:
            expected, _ = trained(plain, job_text(plain))
        with tls_cluster.TlsCluster(servers=2, workers=2) as running:
            def rotate(job):
                for number in range(ROTATIONS):
                    running.wait_iteration(job, 100 * number)
                    for name in running.daemons:
                        running.make_certificate(name.split("-")[0], name)

            found, status = trained(running, job_text(running), rotate)
            self.assertEqual(found, expected)
            self.assertEqual(status.get("restarts", 0), 0)
            listed = running.cert("list", f"--ca={running.folder / 'ca'}")
            self.assertEqual(listed.count("server-1"), ROTATIONS + 1, listed)
            traffic = running.run("table", "traffic", "-o", "json").stdout
            over_data_connections = re.findall(r'"dataCalls": ?"?(\d+)', traffic)
            self.assertGreater(sum(map(int, over_data_connections)), 100, traffic)
            audited = [json.loads(line) for line in
                       (running.folder / "scheduler" / "audit.jsonl").read_text().splitlines()]
            submitted = [line for line in audited if line.get("method", "").endswith("SubmitJob")]
            self.assertEqual(len(submitted), 1, submitted)
            self.assertEqual(submitted[0]["identity"], "capstan://test/admin/ann")
            self.assertRegex(submitted[0]["peer"], r"^127\.0\.0\.1:\d+$")
            self.assertTrue(submitted[0]["allowed"])
            self.assertEqual(submitted[0]["job"], status["jobId"])

    def test_a_denied_user_is_refused_a_second_later(self):
        with tls_cluster.TlsCluster() as running:
            bob = running.make_certificate("user", "bob")
            as_bob = {"CAPSTAN_TLS_DIR": str(bob)}
            running.run("job", "list", env=as_bob)
            refused = running.run("node", "drain", "server-0", env=as_bob, check=False)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn("expected a certificate of the roles admin", refused.stderr)
            self.assertRegex(running.run("node", "list").stdout,
                             r"The scheduler has refused \d+ calls")
            nodes = json.loads(running.run("node", "list", "-o", "json").stdout)
            self.assertIn({"method": "/capstan.v1.Scheduler/DrainNode", "outcome": "gate",
                           "calls": "1"}, nodes["schedulerCalls"])
            (running.folder / "tls-scheduler" / "denied.txt").write_text(
                "capstan://test/user/bob\n")
            cluster.until("bob is refused", lambda: "is on the deny list" in running.run(
                "job", "list", env=as_bob, check=False).stderr)
            running.run("job", "list")

    def test_a_daemon_of_another_role_or_name_does_not_start(self):
        with tls_cluster.TlsCluster(servers=1, workers=0) as running:
            wrong = running.make_certificate("worker", "worker-9")
            with self.assertRaisesRegex(RuntimeError, "expected the role server"):
                cluster.Daemon("server-8", "server/capstan-server",
                               [f"--scheduler={running.scheduler}", f"--tls-dir={wrong}"],
                               running.folder).address()
            named = running.make_certificate("server", "server-7")
            with self.assertRaisesRegex(RuntimeError, "capstan://test/server/server-7"):
                cluster.Daemon("server-6", "server/capstan-server",
                               [f"--scheduler={running.scheduler}", f"--tls-dir={named}",
                                "--name=server-6"], running.folder).address()

    def test_plain_text_beyond_loopback_needs_a_flag(self):
        with cluster.Cluster(servers=0, workers=0) as running:
            daemon = ["server-1", "server/capstan-server", [f"--scheduler={running.scheduler}"],
                      running.folder]
            with self.assertRaisesRegex(RuntimeError, "give --tls-dir"):
                started = cluster.Daemon(*daemon)
                started.command.remove("--listen=127.0.0.1:0")
                started.stop()
                started.command.append("--listen=0.0.0.0:0")
                started.start()
                started.address()


if __name__ == "__main__":
    unittest.main()
