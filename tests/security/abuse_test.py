"""Strangers and a node with a certificate attack every port of a cluster while a job trains on it.

Each daemon may have 1,024 descriptors. The attacker is a process of its own at another address:

    half-open connections    nothing is said on them
    slow handshakes          a byte of TLS at a time
    lengths of 4 GiB         of a gRPC message, and of a frame on a data connection
    header floods            a megabyte of metadata
    cancelled streams        begun and reset
    decompression bombs      a megabyte that would become a gigabyte
    registrations            the same node, again and again

The job must have the bits that it has in peace, and the daemons must be as small as before. With
`--pace` the attacks go on until the job has ended, and how fast it was is printed.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import resource
import select
import struct
import subprocess
import sys
import time
import unittest
import zlib

import cluster
import raw_http2
import synthetic
import tls_cluster

DESCRIPTORS = 1024
NODE = "x-1"  # The attacker's certificate is this worker's.
TCP = "wire { shared_memory: OFF }"
MIB = 1 << 20

# ------------------------------------------------------------------ the attacker's connections


def connect_many(address, count):
    """As many connections as the daemon takes or closes at once."""
    made = []
    for _ in range(count):
        try:
            made.append(raw_http2.connect(address))
        except ConnectionError:
            pass
    return made


def await_closed(sockets, poke=None):
    """Waits until the peer has closed all; calls poke(socket) on the others now and then."""
    deadline = time.monotonic() + raw_http2.PATIENCE_SECONDS
    poll = select.poll()
    rest = {each.fileno(): each for each in sockets}
    for number in rest:
        poll.register(number, select.POLLIN)
    while rest:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(rest)} of {len(sockets)} connections are still open")
        for number, _ in poll.poll(250):
            try:
                if rest[number].recv(65536):
                    continue
            except OSError:
                pass
            poll.unregister(number)
            rest.pop(number).close()
        for each in list(rest.values()) if poke else ():
            try:
                poke(each)
            except OSError:
                pass  # It is found closed above.


def varint_field(number, value):
    return bytes([number << 3, value])


def text_field(number, text):
    return bytes([number << 3 | 2, len(text)]) + text.encode()


def registration():
    return (varint_field(1, 1) + varint_field(2, 2) + text_field(3, NODE) +
            text_field(4, "127.0.0.1:9") + varint_field(5, 1) + text_field(11, "attacker"))


REGISTER = "/capstan.v1.Scheduler/Register"
REGISTRATIONS_MAX = 120  # Per name and minute (scheduler/core/nodes/registration_limits.h).
OPEN_DATA = "/capstan.v1.ParameterServer/OpenDataConnections"
# A method that the attacker may call, where there is one, that does nothing.
METHODS = {"scheduler": "/capstan.v1.Scheduler/SyncNode", "server": OPEN_DATA,
           "worker": "/capstan.v1.Worker/ReadTaskLog"}


def data_port(server, folder):
    """Host, port and token, as the server tells them to another server."""
    answer = raw_http2.Http2(server, folder).begin().call(OPEN_DATA, b"")
    found = re.search(rb"\x10([\x80-\xff]*[\0-\x7f])\x1a\x10(.{16})", answer, re.DOTALL)
    port, shift = 0, 0
    for digit in found.group(1):
        port, shift = port | (digit & 127) << shift, shift + 7
    return (server[0], port), found.group(2)


# ------------------------------------------------------------------ attacks


def half_open(addresses, count):
    at_once = max(1, 8000 // count)  # Ports; the attacker's descriptors are bounded, too.
    for begin in range(0, len(addresses), at_once):
        some = addresses[begin:begin + at_once]
        await_closed([each for address in some for each in connect_many(address, count)])


def slow_handshakes(addresses, count):
    made = [each for address in addresses for each in connect_many(address, count)]
    for each in made:
        try:
            each.sendall(b"\x16\x03\x01\x02\x00\x01")
        except OSError:
            pass
    await_closed(made, lambda each: each.send(b"\0"))


def long_message(address, folder, method):
    connection = raw_http2.Http2(address, folder).begin()
    stream = connection.start(method)
    connection.data(stream, struct.pack(">BI", 0, 0xFFFFFFFF) + bytes(8 * MIB), flags=0)
    connection.close()


def crc32c(raw):
    value = 0xFFFFFFFF
    for byte in raw:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def long_frame(address, folder, token):
    connection = raw_http2.Http2(address, folder, alpn=None).socket
    connection.sendall(b"CAPSTN5\0" + token + b"\0\0")
    if connection.recv(8) != b"CAPSTN5\0":
        raise RuntimeError("the data connection does not begin")
    head = struct.pack("<BBHIQ", 1, 1, 0, 0xFFFFFFFF, 1)
    connection.sendall(head + struct.pack("<I", crc32c(head)) + b"abc")
    await_closed([connection])


def wrong_tokens(address, folder, count):
    made = []
    for _ in range(count):
        made.append(raw_http2.Http2(address, folder, alpn=None).socket)
        made[-1].sendall(b"CAPSTN5\0" + b"x" * 16 + b"\0\0")
    await_closed(made)


def header_flood(address, folder, method):
    connection = raw_http2.Http2(address, folder).begin()
    while not connection.agreed:  # Until then gRPC 1.51 takes 16 MiB of metadata.
        connection.read()
    field = b"".join(connection.header(f"x-{number}", "x" * 4000) for number in range(4))
    try:
        connection.frame(connection.HEADERS, 0, 1, connection.headers(method))
        for _ in range(64):
            connection.frame(connection.MORE, 0, 1, field)
        connection.frame(connection.MORE, connection.END_HEADERS, 1, b"")
    except raw_http2.CLOSED:
        return
    connection.answer(1)


def cancelled_streams(address, folder, method, count):
    connection = raw_http2.Http2(address, folder).begin()
    try:
        for _ in range(count):
            stream = connection.start(method)
            connection.frame(connection.RESET, 0, stream, struct.pack(">I", 8))
        connection.frame(connection.PING, 0, 0, b"12345678")
        connection.call(method, b"")
    except raw_http2.CLOSED:
        pass


def bomb(address, folder, method):
    packer = zlib.compressobj(9)
    begin = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(bytes(16 * MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    message = begin + piece * 64
    connection = raw_http2.Http2(address, folder).begin()
    stream = connection.start(method, connection.header("grpc-encoding", "deflate"))
    try:
        connection.data(stream, struct.pack(">BI", 1, len(message)) + message)
    except raw_http2.CLOSED:
        return
    connection.answer(stream)


def registrations(address, folder, count):
    connection = raw_http2.Http2(address, folder).begin()
    message = registration()
    streams = []
    try:
        for _ in range(count):
            streams.append(connection.start(REGISTER))
            connection.data(streams[-1], struct.pack(">BI", 0, len(message)) + message)
        for stream in streams:
            connection.answer(stream)
    except raw_http2.CLOSED:
        pass
    # The scheduler may have refused many of these for being too many streams at once. Two minutes
    # may take part.
    status = None
    for _ in range(2 * REGISTRATIONS_MAX + 1):
        try:
            connection = raw_http2.Http2(address, folder).begin()
            status = raw_http2.status_of(connection.call(REGISTER, message))
            connection.close()
        except raw_http2.CLOSED:
            continue
        if status == 8:
            return
    raise RuntimeError(f"{count} registrations and {2 * REGISTRATIONS_MAX + 1} more: the last one "
                       f"has the status {status}")


def attack(plan):
    """Each attack once; prints how long it took."""
    count, folder = plan["count"], plan["folder"]
    ports = {name: tuple(address) for name, address in plan["ports"].items()}
    peer = plan["peer"]
    data, token = data_port(ports["server"], peer)

    def run(name, function, *arguments):
        begin = time.monotonic()
        function(*arguments)
        print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)

    everywhere = [*ports.values(), data]
    run(f"{count} half-open connections, each port", half_open, everywhere, count)
    run(f"{count // 10} slow handshakes, each port", slow_handshakes, everywhere, count // 10)
    run("a frame of 4 GiB, data port", long_frame, data, peer, token)
    run(f"{count // 100} wrong tokens, data port", wrong_tokens, data, peer, count // 100)
    for name, address in ports.items():
        method = METHODS[name]
        run(f"a message of 4 GiB, {name}", long_message, address, folder, method)
        run(f"a header flood, {name}", header_flood, address, folder, method)
        run(f"{count} cancelled streams, {name}", cancelled_streams, address, folder, method, count)
        run(f"a bomb, {name}", bomb, address, folder, method)
    run(f"{max(count // 10, 200)} registrations", registrations, ports["scheduler"], folder,
        max(count // 10, 200))


# ------------------------------------------------------------------ the attacked cluster


def few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


def usage(daemon):
    folder = pathlib.Path("/proc", str(daemon.process.pid))
    status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines())
    return {"descriptors": len(list((folder / "fd").iterdir())),
            "threads": int(status["Threads"]),
            "MiB": int(status["VmRSS"].split()[0]) // 1024,
            "most MiB": int(status["VmHWM"].split()[0]) // 1024}


# How much larger a daemon may be when all is over: what caches and the allocator keep, and gRPC's
# pools, whose threads go with the processors and not with the connections.
MORE = {"descriptors": 16, "threads": 16 + 2 * os.cpu_count(), "MiB": 128, "most MiB": 512}


class Attacked(tls_cluster.TlsCluster):
    def __init__(self, epochs):
        cluster.before_daemon = few_descriptors
        super().__init__(servers=1, workers=2)
        self.text = synthetic.job(self.folder, epochs=epochs, more=TCP)
        self.attacker = self.make_certificate("worker", NODE)
        # Servers need no capability of a job for a data connection.
        self.peer = self.make_certificate("server", "x-2")

    def trained(self):
        """The digest of the job's model, and how long it took."""
        begin = time.monotonic()
        job = self.submit(self.text)
        status = self.wait(job)
        seconds = time.monotonic() - begin
        if status["state"] != "SUCCEEDED":
            raise RuntimeError(f"{job}: {status}\n{self.logs()}")
        model = (self.output(job) / "model.safetensors").read_bytes()
        return hashlib.sha256(model).hexdigest(), seconds

    def start_attack(self, count, forever=False):
        ports = {}
        for name, daemon in self.daemons.items():
            host, _, port = daemon.address().rpartition(":")
            ports[name.split("-")[0]] = (host, int(port))
        # The attacker's node is known, and gets no work.
        known = raw_http2.Http2(ports["scheduler"], self.attacker).begin()
        known.call(REGISTER, registration())
        known.close()
        self.run("node", "drain", NODE)
        plan = self.folder / "attack.json"
        plan.write_text(json.dumps({"count": count, "folder": os.fspath(self.attacker),
                                    "peer": os.fspath(self.peer), "ports": ports,
                                    "forever": forever}))
        return subprocess.Popen([sys.executable, __file__, f"--attack={plan}"])


class AbuseTest(unittest.TestCase):
    count = 1000

    def test_a_job_trains_through_every_attack(self):
        with Attacked(epochs=40) as running:
            expected, seconds = running.trained()
            print(f"in peace: {seconds:.1f} s")
            before = {name: usage(daemon) for name, daemon in running.daemons.items()}
            attacker = running.start_attack(self.count)
            jobs = 0
            while attacker.poll() is None or jobs == 0:
                found, seconds = running.trained()
                jobs += 1
                print(f"job {jobs} under attack: {seconds:.1f} s", flush=True)
                self.assertEqual(found, expected)
            self.assertEqual(attacker.wait(), 0)
            for name, daemon in running.daemons.items():
                self.assertIsNone(daemon.process.poll(), name)
                self.await_small(name, daemon, before[name])
            found, _ = running.trained()
            self.assertEqual(found, expected)

    def await_small(self, name, daemon, before):
        allowed = {what: before[what] + more for what, more in MORE.items()}
        if cluster.SLOWDOWN > 1:  # A sanitizer's allocator keeps what was freed.
            allowed.update({"MiB": 8 * MORE["MiB"], "most MiB": 8 * MORE["most MiB"]})

        def small():
            found = usage(daemon)
            return found if all(found[what] <= allowed[what] for what in MORE) else None

        try:
            after = cluster.until(f"{name} is as small as before", small, 30)
        except TimeoutError as error:
            raise AssertionError(f"{error}: {usage(daemon)}, before {before}") from error
        print(f"{name}: {before} -> {after}")


def pace(count):
    """Prints the pace of a job under attacks that go on, as part of its pace in peace."""
    with Attacked(epochs=100) as running:
        expected, peace = running.trained()
        attacker = running.start_attack(count, forever=True)
        try:
            found, attacked = running.trained()
        finally:
            attacker.kill()
            attacker.wait()
        if found != expected:
            raise RuntimeError(f"the model is {found}, expected {expected}")
        print(f"in peace {peace:.1f} s, under attack {attacked:.1f} s: pace {peace / attacked:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=AbuseTest.count,
                        help="half-open connections and cancelled streams at a time")
    parser.add_argument("--pace", action="store_true", help="measure, instead of testing")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # The attacker's own.
    if flags.attack:
        plan = json.loads(pathlib.Path(flags.attack).read_text())
        attack(plan)
        while plan["forever"]:
            attack(plan)
    elif flags.pace:
        pace(flags.count)
    else:
        AbuseTest.count = flags.count
        unittest.main(argv=sys.argv[:1])


if __name__ == "__main__":
    main()
