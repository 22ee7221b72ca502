"""TLS 1.3 alone: no gRPC port accepts TLS 1.2, and no program of ours speaks it as a client."""

import contextlib
import os
import socket
import ssl
import subprocess
import unittest

import cluster
import raw_http2
import tls_cluster

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def context_of(purpose, folder, version):
    context = ssl.SSLContext(purpose)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")  # Whatever TLS 1.2 could be spoken with.
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(f"{folder}/cert.pem", f"{folder}/key.pem")
    return context


class TlsVersionsTest(unittest.TestCase):
    def test_no_port_accepts_tls_1_2(self):
        with tls_cluster.TlsCluster() as running:
            for name, daemon in running.daemons.items():
                host, _, port = daemon.address().rpartition(":")

                def handshake(version):
                    client = context_of(ssl.PROTOCOL_TLS_CLIENT, running.tls_dir, version)
                    with client.wrap_socket(raw_http2.connect((host, int(port)))) as made:
                        return made.version()

                with self.subTest(daemon=name):
                    self.assertEqual(handshake(V13), "TLSv1.3")
                    with self.assertRaises(raw_http2.CLOSED):
                        print(name, handshake(V12))

    def spoken(self, folder, version, program):
        """The TLS version of a client's connection to a scheduler of this version: "TLSv1.3", or ""
        if the handshake failed."""
        context = context_of(ssl.PROTOCOL_TLS_SERVER, folder, version)
        with contextlib.ExitStack() as stack:
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            listening.settimeout(raw_http2.PATIENCE_SECONDS)
            client = program(f"--scheduler=127.0.0.1:{listening.getsockname()[1]}")
            stack.callback(client.wait)
            stack.callback(client.kill)
            accepted = stack.enter_context(listening.accept()[0])
            accepted.settimeout(raw_http2.PATIENCE_SECONDS)
            try:
                return context.wrap_socket(accepted, server_side=True).version()
            except raw_http2.CLOSED:
                return ""

    def test_no_program_speaks_tls_1_2_as_a_client(self):
        with tls_cluster.TlsCluster(servers=0, workers=0) as running:
            scheduler = running.folder / "tls-scheduler"
            folders = {"server": running.make_certificate("server", "s-1"),
                       "worker": running.make_certificate("worker", "w-1"),
                       "": running.tls_dir}
            for role, folder in folders.items():
                binary = f"{role}/capstan-{role}" if role else "scheduler/cli/capstan"
                command = [str(cluster.runfile(binary)), *([] if role else ["node", "list"])]

                def program(flag):
                    environment = {**os.environ, "CAPSTAN_TLS_DIR": str(folder)}
                    return subprocess.Popen([*command, flag], cwd=running.folder, env=environment,
                                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                            stderr=subprocess.DEVNULL)

                with self.subTest(program=binary):
                    self.assertEqual(self.spoken(scheduler, V13, program), "TLSv1.3")
                    self.assertEqual(self.spoken(scheduler, V12, program), "")


if __name__ == "__main__":
    unittest.main()
