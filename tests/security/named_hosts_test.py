"""A cluster as deploy/README.md sets one up: hosts that know each other by name, daemons that
listen on all addresses, certificates; a job, new certificates, and a user who is denied.

Each host is a network namespace with a host name of its own. Skipped, with the reason, where
namespaces are not allowed.
"""

import subprocess
import unittest

import cluster
import namespaces
import synthetic
import tls_cluster

RENAME = 'hostname "$0" && exec "$@"'


class NamedHosts(namespaces.Hosts, tls_cluster.TlsCluster):
    """Daemons open the folder `data`, the scheduler also `out`: they share no folder for output."""

    def _start(self, *arguments):
        self.names = self.folder / "hosts"
        self.names.write_text("127.0.0.1 localhost\n")
        subprocess.run(["mount", "--bind", str(self.names), "/etc/hosts"], check=True)
        super()._start(*arguments)

    def _add(self, role, name, arguments):
        folders = ["data", "out"] if role == "scheduler" else ["data"]
        for folder in folders:
            (self.folder / folder).mkdir(exist_ok=True)
        allowed = [f"--allow-path={self.folder / folder}" for folder in folders]
        super()._add(role, name, [*arguments, *allowed])

    def place(self, name):
        inside = super().place(name)["prefix"]
        with open(self.names, "a", encoding="utf-8") as names:
            names.write(f"{self.hosts[name]} {name}\n")
        return {"host": "0.0.0.0", "prefix": ("unshare", "-u", "sh", "-c", RENAME, name, *inside)}


class NamedHostsTest(unittest.TestCase):
    def test_the_cluster_of_deploy_readme(self):
        refused = namespaces.enter()
        if refused:
            self.skipTest(refused)
        with NamedHosts(servers=1, workers=1) as live:
            self.assertRegex(live.scheduler, r"^scheduler:\d+$")
            self.assertRegex(live.run("node", "list").stdout, r"server-0 .* server-0:\d+")
            self.train(live)
            live.make_certificate("worker", "worker-0")
            self.train(live)
            live.cert("deny", f"--ca={live.folder / 'ca'}", "capstan://test/admin/ann")
            denied = (live.folder / "ca" / "denied.txt").read_text()
            (live.folder / "tls-scheduler" / "denied.txt").write_text(denied)
            cluster.until("ann is refused", lambda: "is on the deny list" in live.run(
                "node", "list", check=False).stderr)

    def train(self, live):
        job = synthetic.job(live.folder, model='zoo: "lenet"', workers=1,
                            data=synthetic.data_block(live.folder / "data", side=28),
                            more=f'output {{ directory: "{live.folder / "out"}" }}')
        path = live.write_job(job)
        status = live.wait(live.json("job", "submit", str(path), "--no-wait", "--replace")["jobId"])
        self.assertEqual(status["state"], "SUCCEEDED", status)
        # A process that ends slowly looks dead: gRPC 1.51 took up to 10 s to shut down.
        died = [event for event in status.get("events", []) if event["kind"] == "TASK_DIED"]
        self.assertEqual(died, [], live.logs())
        self.assertGreater((live.folder / "out" / "model.safetensors").stat().st_size, 0)


if __name__ == "__main__":
    unittest.main()
