"""A cluster whose daemons and command line have certificates, made by `capstan cert`."""

import os
import subprocess

import cluster


class TlsCluster(cluster.Cluster):
    """As Cluster, over TLS. `cert` runs `capstan cert`; each folder of certificates is the target
    of a symbolic link, as where they are replaced while daemons run."""

    def _start(self, servers, workers, lease):
        self.cert("init", f"--dir={self.folder / 'ca'}", "--cluster=test")
        self.tls_dir = self.make_certificate("user", "ann", "--admin")
        super()._start(servers, workers, lease)

    def cert(self, *arguments):
        done = subprocess.run(
            [str(cluster.runfile("scheduler/cli/capstan")), "cert", *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=cluster.DEADLINE_SECONDS * cluster.SLOWDOWN)
        if done.returncode != 0:
            raise RuntimeError(f"capstan cert {arguments}: exit {done.returncode}: {done.stderr}")
        return done.stdout

    def host_of(self, _name):
        """The address of a daemon's host, for its certificate."""
        return "127.0.0.1"

    def make_certificate(self, kind, name, *more):
        """Makes, or replaces, the certificate of a daemon ("scheduler", "server", "worker") or a
        user; returns the path of its folder."""
        link = self.folder / f"tls-{name}"
        if not link.is_symlink():
            (self.folder / f"tls-{name}.first").mkdir()
            link.symlink_to(f"tls-{name}.first")
        of_node = ["node", f"--role={kind}", f"--host={self.host_of(name)}"]
        what = ["user"] if kind == "user" else of_node
        named = [] if kind == "scheduler" else [f"--name={name}"]
        self.cert(*what, *named, f"--ca={self.folder / 'ca'}", f"--out={link}", *more)
        return link

    def _add(self, role, name, arguments):
        folder = self.make_certificate(role, name)
        super()._add(role, name, [*arguments, f"--tls-dir={folder}"])

    def _cli(self, *arguments):
        command, environment = super()._cli(*arguments)
        return command, {**environment, "CAPSTAN_TLS_DIR": os.fspath(self.tls_dir)}
