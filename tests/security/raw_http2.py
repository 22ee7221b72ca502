"""Connections of an attacker: TCP and TLS from an address of its own, and just enough of HTTP/2 to
do what a client of gRPC never would."""

import collections
import re
import socket
import ssl
import struct
import time

import cluster

ADDRESS = ("127.0.0.66", 0)
PATIENCE_SECONDS = 60 * cluster.SLOWDOWN
CLOSED = (ConnectionError, ssl.SSLError)  # By the daemon, which it may.


def connect(address):
    made = socket.create_connection(address, timeout=PATIENCE_SECONDS, source_address=ADDRESS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


class Http2:
    """A connection to a gRPC port, or to a data port with `alpn` None; just enough of HTTP/2."""

    DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW, MORE = 0, 1, 3, 4, 6, 7, 8, 9
    END_STREAM, END_HEADERS = 1, 4

    def __init__(self, address, folder, alpn="h2"):
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(f"{folder}/cert.pem", f"{folder}/key.pem")
        if alpn:
            context.set_alpn_protocols([alpn])
        self.socket = context.wrap_socket(connect(address))
        self.window = 65535
        self.received = b""
        self.agreed = False  # To the peer's settings.
        self.ended = False  # By the peer.
        self.answers = collections.defaultdict(bytes)  # By stream, headers and data as they come.
        self.over = set()
        self.next_stream = 1

    def begin(self):
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self.frame(self.SETTINGS, 0, 0, b"")
        return self

    def close(self):
        self.socket.close()

    def frame(self, kind, flags, stream, payload):
        head = struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream)
        self.socket.sendall(head + payload)

    @staticmethod
    def header(name, value):
        def text(raw):
            length, digits = len(raw), []
            if length < 127:
                return bytes([length]) + raw
            length -= 127
            while length >= 128:
                digits.append(length % 128 + 128)
                length //= 128
            return bytes([127, *digits, length]) + raw

        return b"\0" + text(name.encode()) + text(value.encode())

    def headers(self, method, more=b""):
        fields = {":method": "POST", ":scheme": "https", ":path": method, ":authority": "x",
                  "te": "trailers", "content-type": "application/grpc"}
        return b"".join(self.header(*field) for field in fields.items()) + more

    def start(self, method, more=b""):
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        self.frame(self.HEADERS, self.END_HEADERS, stream, self.headers(method, more))
        return stream

    def data(self, stream, payload, flags=1):
        while payload and not self.ended and stream not in self.over:
            part = payload[:min(16384, max(self.window, 0))]
            if not part:
                self.read()
                continue
            payload = payload[len(part):]
            self.window -= len(part)
            self.frame(self.DATA, 0 if payload else flags, stream, part)

    def read(self, seconds=PATIENCE_SECONDS):
        """Takes the frames that are there, or come first."""
        self.socket.settimeout(seconds)
        try:
            got = self.socket.recv(1 << 20)
        except CLOSED:
            got = b""
        self.ended = self.ended or not got
        self.received += got
        while len(self.received) >= 9:
            size = int.from_bytes(self.received[:3], "big")
            if len(self.received) < 9 + size:
                return
            kind, flags, stream = struct.unpack(">BBI", self.received[3:9])
            payload, self.received = self.received[9:9 + size], self.received[9 + size:]
            self.take(kind, flags, stream, payload)

    def take(self, kind, flags, stream, payload):
        if kind in (self.SETTINGS, self.PING) and not flags & 1:
            self.frame(kind, 1, 0, b"" if kind == self.SETTINGS else payload)
            self.agreed = self.agreed or kind == self.SETTINGS
        if kind == self.WINDOW and stream == 0:
            self.window += int.from_bytes(payload, "big")
        if kind in (self.DATA, self.HEADERS):
            self.answers[stream] += payload
        if kind == self.RESET or (kind in (self.DATA, self.HEADERS) and flags & self.END_STREAM):
            self.over.add(stream)

    def answer(self, stream):
        """Waits until the stream, or the connection, has ended; what was answered."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while stream not in self.over and not self.ended:
            if time.monotonic() > deadline:
                raise TimeoutError(f"stream {stream} is still open")
            self.read()
        return self.answers[stream]

    def call(self, method, message):
        stream = self.start(method)
        self.data(stream, struct.pack(">BI", 0, len(message)) + message)
        return self.answer(stream)


def status_of(answer):
    """The status in the answer, if it is the first one of its connection; else None."""
    found = re.search(rb"grpc-status.(\d+)", answer, re.DOTALL)
    return int(found.group(1)) if found else None
