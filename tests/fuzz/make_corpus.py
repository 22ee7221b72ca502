#!/usr/bin/env python3
"""Writes the first inputs of the targets to corpus/NAME/seed-...: run it when a format changes.

Each is a valid input of its decoder, or nearly so, from which a fuzzer gets far. Files of other
names, such as regressions, stay.
"""

import contextlib
import gzip
import hashlib
import hmac
import io
import os
import sqlite3
import struct
import sys
import zipfile

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def varint(number):
    number &= (1 << 64) - 1
    digits = bytearray()
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(digits + bytes([number]))


def message(*fields):
    """Protobuf's bytes of (number, value): an int is a varint, bytes and text have a length."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            value = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def frames():
    push = bytes([3, 1, 1, 7, 5]) + b"hello"  # Operation, kind, what, call, bytes of the payload.
    ping = bytes([3, 5, 0, 0, 0])
    large = bytes([2, 2, 0, 7, 255])
    flip = bytes([1, 25, 0, 3])
    yield "whole", bytes([0, 0]) + push + ping + push
    yield "torn", bytes([2, 0, 3, 0]) + push + large + ping
    yield "placed", bytes([1, 90, 4, 1, 20, 2, 9]) + large + push
    yield "damaged", bytes([0, 0]) + push + push + flip
    yield "text", bytes([0, 0, 0, 30]) + b"GET / HTTP/1.1\r\nHost: there\r\n\r\n"


def tensor_messages():
    def payload(head, *values):
        sizes = b"".join(struct.pack("<I", len(each)) for each in values)
        return struct.pack("<II", len(head), len(values)) + sizes + head + b"".join(values)

    entry = message((1, 1), (2, 3), (3, 9), (4, 8), (5, 1))
    push = message((2, 77), (3, 0), (4, 1), (5, entry), (5, entry))
    answer = message((1, message((1, 1), (2, 12))), (2, message((1, 3))))
    yield "push", bytes([0, 3]) + payload(push, floats(1, 2), b"")
    yield "answer", bytes([1, 200]) + payload(answer, floats(0.5))
    yield "fits", bytes([128, 7, 2, 8]) + floats(1, 2) + bytes([0]) + push
    yield "fits_answer", bytes([129, 0, 1, 4]) + floats(0.5) + answer
    yield "short", bytes([0, 0]) + payload(push, floats(1, 2))
    yield "whole_push", bytes([2, 5]) + message((2, 7), (5, entry + message((6, floats(1)))))
    yield "whole_pull", bytes([3, 5]) + message((2, 7), (4, message((1, 1), (2, 3))))


PUSH = message((1, 1), (2, 3), (3, 0), (4, 5), (5, 2))
MEMBERSHIP = message((1, 4), (2, message((2, 1), (3, 1))), (2, message((1, 1), (2, 2))))
STATE = message((1, 2), (3, 1), (6, message((2, 1), (3, 1), (4, 2), (5, b"\x02\x04"))))
DENSE = message((1, 5), (2, b""), (3, 4), (4, floats(1, 2, 3, 4)))
BUCKET = message((1, 5), (2, b""), (3, 1))


def capabilities():
    def minted(scope, rank, incarnation, expiry, job):
        head = struct.pack("<BBiQqB", 1, scope, rank, incarnation, expiry, len(job)) + job
        return head + hmac.new(b"k" * 32, head, "sha256").digest()

    yield "task", minted(1, 3, 7, 1_800_000_000, b"lenet-1")
    yield "read", minted(2, 0, 0, 1_800_000_000, b"lenet-1")
    yield "forged", minted(1, 3, 7, 1_800_000_000, b"lenet-1")[:-1] + b"?"
    yield "past", minted(2, 0, 0, -1, b"j" * 128)


def replicated():
    records = [(7, message((1, 6), (2, PUSH), (6, floats(1, 2)))),
               (7, message((1, 7), (4, MEMBERSHIP))), (7, message((1, 8), (5, b""))),
               (7, message((1, 9), (3, message((1, 2)))))]
    head = [(1, "job-1"), (3, 1), (4, 2), (5, "server-1")]
    yield "records", message((1, message(*head, *records)), (1, message(*head)))
    yield "install", message((1, message(*head, (6, message((1, 5), (2, STATE), (3, 4))))))


def installs():
    update = message((1, 6), (3, message((1, 0))), (6, floats(1, 1, 1, 1)))
    push = message((1, 6), (2, PUSH), (6, floats(1, 1, 1, 1)))
    membership = message((1, 6), (4, MEMBERSHIP))
    rows = message((1, 6), (3, message((1, 0))), (6, struct.pack("<Q", 42) + floats(1, 1)))
    yield "bsp", b"\0" + message((6, DENSE), (7, update))
    yield "ssp", b"\1" + message((6, DENSE), (7, membership), (7, push))
    yield "bucket", b"\2" + message((6, BUCKET), (7, rows))
    yield "bucket_asp", b"\3" + message((6, BUCKET), (7, membership))


def manifests():
    table = message((2, "parameters"), (4, 64), (5, 1))
    first = message((4, 40), (5, 7), (6, "table-0-shard-0.part"), (7, 300))
    second = message((2, 1), (3, 40), (4, 64), (5, 7), (6, "table-0-shard-1.part"), (7, 200),
                     (9, 3), (10, message((1, 3), (2, 3), (3, "a.part"), (4, 100))))
    whole = message((1, 2), (2, "job-1"), (3, 7), (5, table), (6, first), (6, second))
    yield "whole", b"\0" + whole
    yield "no_parts", b"\0" + message((1, 2), (2, "job-1"), (3, 7))
    yield "gap", b"\0" + message((1, 2), (2, "job-1"), (3, 7), (5, table), (6, second))
    yield "raw", b"\1CAPCKPT1" + struct.pack("<Q", 3) + b"abc\0\0\0\0"


def bucket(keys, version, *more):
    values = struct.pack(f"<{len(keys)}Q", *keys) + floats(*range(len(keys)))
    return message((2, message((1, version))), (3, 1), (4, values), (6, floats(*keys)),
                   (7, message((1, struct.pack(f"<{len(keys)}I", *keys)))), *more)


def shard_files():
    piece = message((4, struct.pack("<Q", 9) + floats(1)), (6, floats(2)),
                    (7, message((1, struct.pack("<I", 3)))))
    yield "dense", b"\0\0\1" + DENSE
    yield "pieces", b"\0\7\0" + bucket([1, 2], 4, (9, piece), (9, piece))
    yield "bad_piece", b"\0\7\0" + bucket([1, 2], 4, (9, message((4, "odd"))))
    yield "raw", b"\1\0\0CAPSHRD1" + struct.pack("<IIII", 4, 0, 3, 5) + bytes(40) + b"job-1"


def row_deltas():
    def pair(base, delta):
        return struct.pack("<H", len(base)) + base + delta

    since = (8, message((1, 4), (2, 7), (3, struct.pack("<Q", 1))))
    yield "merged", pair(bucket([1, 2], 7), bucket([3], 8, since))
    yield "same_keys", pair(bucket([1, 2], 7), bucket([2], 8, since))
    yield "another_version", pair(bucket([1], 6), bucket([2], 8, since))


def record_files():
    frame = bytes([3, 2, 0, 4]) + b"abcd"  # Operation, type, synced bytes, bytes of the payload.
    yield "whole", frame * 3
    yield "torn", frame * 3 + bytes([2, 20])
    yield "damaged", frame + bytes([3, 7, 3, 0]) + bytes([1, 50, 0, 1])
    yield "other", frame + bytes([0, 4]) + b"CAPS"


def logs():
    def segment(number, before, *shard_frames):
        # Number, count, number again, those before it, synced bytes; then each frame; no tail.
        head = bytes([number, len(shard_frames), 0, len(before) // 2]) + bytes(before) + b"\0"
        return head + b"".join(shard_frames) + b"\0"

    def frame(kind, shard, base, term, position):
        return bytes([kind, shard, base, term, position, 1, 1, 1, 0])

    base, record = frame(2, 0, 1, 1, 0), frame(3, 0, 1, 1, 1)
    term, forget = frame(6, 0, 1, 2, 1), frame(4, 1, 2, 0, 0)
    yield "one", segment(1, [], base, record, term)
    yield "two", segment(1, [], base) + segment(2, [0, 1], record, forget)
    yield "doubt", segment(1, [], base, record) + segment(2, [192, 1], forget)
    yield "no_base", segment(1, [], record)
    yield "synced", segment(1, [], base, b"\7\xff", record)


def archives():
    """Rows of the newest golden store: a row that lacks a field is refused at once."""
    folder = os.path.join(os.path.dirname(FOLDER), "../../scheduler/store/testdata")
    versions = max([int(part) for part in name[:-len(".db")].split("-")[1:]]
                   for name in os.listdir(folder) if name.endswith(".db"))
    path = os.path.join(folder, "store-{}-{}.db".format(*versions))
    with contextlib.closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as store:
        rows = {key.decode(): value for key, value in store.execute("select key, value from rows")}

    def record(job):
        own = [key for key in (f"job/{job}", f"routing/{job}") if key in rows]
        pairs = [(1, message((1, key), (2, rows[key]))) for key in own]
        state = message((1, versions[0]), (2, versions[1]), (3, job), (4, f"aa-{job}"), (5, 3),
                        (6, 9), (7, "runs"), (8, message(*pairs)))
        return b"\0" + message((1, state))

    yield "record", record("restored-1")
    yield "record_waiting", record("pending-1")
    yield "point", b"\1" + rows["golden/job_state"]
    # The target reads the row as that of job-1.
    yield "admitted", b"\2" + rows["admitted/bsp-1"].replace(b"bsp-1", b"job-1")


def svmlight():
    yield "lines", b"1 1:0.5 7:2 18446744073709551615:1e3 # note\n-1 qid:3 2:+4\n\n# none\n"
    yield "wrong", b"1 3:1 2:1\nnan 1:1\n1 1:inf\n1 1\n0 18446744073709551616:1\n"


def criteo():
    good = "1\t" + "\t".join(["7"] * 13) + "\t" + "\t".join(["68fd1e64"] * 26)
    missing = "0" + "\t" * 39
    yield "lines", f"{good}\n{missing}\n".encode()
    yield "wrong", f"2{good[1:]}\n{good}\t\n{good[:30]}\n1\t-9223372036854775809\n".encode()


def columns():
    kinds = bytes([1, 0, 2, 0, 3, 0, 4, 0])  # A label, a number, a category, an id.
    yield "csv", b"\1,\4" + kinds + b'1,0.5,"a ""b""",7\n0,,x,8\n1,2,"open,3\n'
    yield "header", b"\3;\2" + bytes([1, 1, 1]) + b"y" + bytes([2, 1, 1]) + b"x" + b"y;x\n1;2\n"
    yield "bucket", b"\0\t\1" + bytes([5, 128]) + floats(1, 2) + b"1.5\n9\n-\n"
    yield "named", b"\1,\1" + bytes([1, 4]) + b"yes" + b"ye\nno\n"


def text():
    yield "words", b"the quick  brown\tfox\r\n\njumps \xc3\xa9 over\0it\n"


def lines():
    contents = b"\xef\xbb\xbfone\r\ntwo two\n\nfour four four four"
    yield "ranges", bytes([60, 0, 3, 2, 5, 11]) + contents
    yield "windows", bytes([60, 6, 200, 3, 5, 11, 17]) + contents
    yield "long", bytes([4, 0, 3, 1, 7]) + contents


def idx():
    images = struct.pack(">IIII", 0x803, 2, 2, 3) + bytes(range(12))
    yield "images", images
    yield "labels", struct.pack(">II", 0x801, 4) + bytes([0, 9, 3, 1])
    yield "large", struct.pack(">IIII", 0x803, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF)


def cifar10():
    yield "two", bytes([2, 0, 3, 1, 4])
    yield "label", bytes([1, 0, 200])
    yield "cut", bytes([1, 7, 0])


def npy(shape, contents, kind="<f4"):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + contents


def numpy():
    array = npy("(2, 2)", floats(1, 2, 3, 4))
    yield "floats", array
    yield "labels", npy("(3,)", bytes([1, 9, 0]), "|u1")
    yield "scalar", npy("()", struct.pack("<q", 5), "<i8")
    for name, method in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr(zipfile.ZipInfo("a.npy"), array, method)
        yield name, archive.getvalue()


def gzips():
    one = gzip.compress(b"hello hello hello hello\n", mtime=0)
    yield "one", b"\3" + one
    yield "two", b"\xff" + one + gzip.compress(b"", mtime=0) + one
    yield "cut", b"\0" + one[:-5]
    yield "more", b"\0" + one + b"more"
    yield "bomb", b"\xff" + gzip.compress(bytes(1 << 17), mtime=0)


def zstds():
    def frame(kind, size, contents):  # One block of a frame that says its size in four bytes.
        block = (1 | kind << 1 | size << 3).to_bytes(3, "little") + contents
        return b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", size) + block

    raw, run = frame(0, 5, b"hello"), frame(1, 1000, b"x")
    yield "raw", b"\1" + raw
    yield "run", b"\xff" + run + raw
    yield "skipped", b"\3" + struct.pack("<II", 0x184D2A50, 2) + b"no" + raw
    yield "cut", b"\0" + raw[:-2]


def safetensors():
    yield "two", b"\x14" + (b'{"b":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},'
                            b'"\\u00e9":{"dtype":"BF16","shape":[2],"data_offsets":[16,20]}}')
    yield "metadata", b"\0" + b'{"__metadata__":{"format":"pt"},"a":{"dtype":"U64",' \
        b'"shape":[0,3],"data_offsets":[0,0]}}  '
    yield "gap", b"\x08" + b'{"a":{"dtype":"F16","shape":[],"data_offsets":[2,4]}}'


LAYERS = """name: "layers"
model {
  layers { name: "conv" convolution { filters: 8 kernel: 3 padding: 1 } }
  layers { name: "norm" batch_normalization {} }
  layers { name: "relu" relu {} }
  layers { name: "sum" add {} inputs: "relu" inputs: "conv" }
  layers { name: "pool" max_pooling { kernel: 2 } }
  layers { name: "flat" flatten {} }
  layers { name: "out" fully_connected { units: 10 initial { normal_std: 0.1 } } }
}
data { format: IDX train { images: "a" labels: "b" } }
training { epochs: 2 batch_size: 16 }
optimizer { adam {} learning_rate: 0.001 }
consistency { ssp { staleness_bound: 2 } }
resources { workers: 2 }
#set training.epochs=3
"""

COLUMNS = """name: "kdd"
model { sparse { logistic_regression {} buckets: 8 } }
data {
  format: COLUMNS
  columns {
    columns { range: "1" kind: DENSE log1p: true }
    columns { range: "2-4" kind: CATEGORY }
    columns { range: "5" kind: LABEL label { positive: "normal." } }
  }
  train { files: "/data/kdd.gz" }
}
training { epochs: 2 batch_size: 200 }
optimizer { adagrad {} learning_rate: 0.1 }
consistency { asp {} }
resources { workers: 2 }
"""


def jobs():
    yield "layers", LAYERS.encode()
    yield "columns", COLUMNS.encode()
    yield "zoo", b'name: "zoo"\nmodel { zoo: "resnet18" }\n'
    yield "json", (b'{"name": "json", "model": {"zoo": "lenet"}, "training": {"epochs": 1.5,\n'
                   b'"batchSize": 4}, "nothing": [1, {"a": null}]}')
    yield "unknown", b'name: "a"\nmodle { zoo: "mlp" }\ntraining { epochs: x batch_size: -1 }\n'


def der(tag, *parts):
    contents = b"".join(parts)
    size = len(contents)
    long = size.to_bytes((size.bit_length() + 7) // 8, "big")
    length = bytes([size]) if size < 0x80 else bytes([0x80 | len(long)]) + long
    return bytes([tag]) + length + contents


def der_number(number):
    return der(0x02, number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))


def der_oid(*numbers):
    out = bytes([40 * numbers[0] + numbers[1]])
    for number in numbers[2:]:
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.append(number & 0x7F | 0x80)
        out += bytes(reversed(digits))
    return der(0x06, out)


# The generator of P-256, which is the public key of the private key 1, and its order.
P256_G = bytes.fromhex("6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"
                       "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5")
P256_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
P256 = der(0x30, der_oid(1, 2, 840, 10045, 2, 1), der_oid(1, 2, 840, 10045, 3, 1, 7))
P256_KEY = der(0x30, der_number(0), P256,
               der(0x04, der(0x30, der_number(1), der(0x04, (1).to_bytes(32, "big")))))


def certificate(serial, names, end=b"330101000000Z"):
    """A certificate that P256_KEY has signed for itself. `names`: pairs of a tag and bytes."""
    algorithm = der(0x30, der_oid(1, 2, 840, 10045, 4, 3, 2))
    name = der(0x30, der(0x31, der(0x30, der_oid(2, 5, 4, 3), der(0x0C, b"a"))))
    sans = der(0x30, *(der(tag, value) for tag, value in names))
    extensions = der(0xA3, der(0x30, der(0x30, der_oid(2, 5, 29, 17), der(0x04, sans))))
    facts = der(0x30, der(0xA0, der_number(2)), der_number(serial), algorithm, name,
                der(0x30, der(0x17, b"230101000000Z"), der(0x17, end)), name,
                der(0x30, P256, der(0x03, b"\0\4" + P256_G)), extensions)
    # With 1 as the key and as the random number, ECDSA needs no multiplication of points.
    r = int.from_bytes(P256_G[:32], "big") % P256_N
    s = (int.from_bytes(hashlib.sha256(facts).digest(), "big") + r) % P256_N
    return der(0x30, facts, algorithm,
               der(0x03, b"\0" + der(0x30, der_number(r), der_number(s))))


def certificates():
    def block(kind, contents):  # Kinds: 0 text as it is, 1 a certificate, 2 a key.
        return bytes([kind]) + struct.pack("<H", len(contents)) + contents

    uri, dns, address = 0x86, 0x82, 0x87
    node = [(uri, b"capstan://a/server/s-1"), (dns, b"host"), (address, bytes([10, 0, 0, 1]))]
    yield "node", b"\0" + block(1, certificate(0x4FD0, node)) + block(2, P256_KEY)
    yield "expired", b"\xff" + block(1, certificate(1, node, b"240101000000Z"))
    yield "two_names", b"\0" + block(1, certificate(1, node + [(uri, b"capstan://a/user/b")]))
    yield "negative", b"\0" + block(1, certificate(-1, [(uri, b"capstan://a/scheduler")]))
    yield "long_serial", b"\0" + block(1, certificate(1 << 160, node))
    yield "text", b"\0" + block(0, b"-----BEGIN CERTIFICATE-----\nMAA=\n") + block(2, b"0")


def deny_lists():
    yield "list", (b"# Stolen.\n4FD0:8b1a:00\ncapstan://a/worker/w-7  # The old one.\n\n"
                   b"000\ncapstan://a/scheduler\n")
    yield "wrong", b"12g4\n"
    yield "identities", b"capstan://a.b-c/user/x\ncapstan://a/admin/..\ncapstan://a/scheduler/b\n"


def addresses():
    yield "name", b"host:7070"
    yield "v6", b"[::1]:0"
    yield "loopback", b"127.0.0.1:65535"
    yield "wrong", b"::1:7"


def settings_files():
    yield "all", b"# mine\noutput = json\nscheduler=a:1 # x\ntls-dir = /tls\n"
    yield "unknown", b"output = wide\nschedule=a:1\n"


def daemon_configs():
    yield "all", (b"# TOML\nscheduler = \"a:7070\"\nlisten=\"0.0.0.0:0\"\nname = 's-1'\n"
                  b"insecure = true\nlog-format=json\nadvertise = b\ntls-dir = \"/tls\"\n")
    yield "section", b"[daemon]\nscheduler = [\"a:1\", 'b:2']\n; note\n++\nreflection\n--\n"


def greetings():
    token = bytes(range(16))
    yield "right", token + bytes([26]) + b"frames"
    yield "capability", token + bytes([24]) + b"\3\0abcframes"
    yield "long", token + bytes([24]) + b"\xff\xff"
    yield "token", token + bytes([8]) + bytes(18)
    yield "short", token + bytes([25])
    yield "text", token + b"\0GET / HTTP/1.1\r\nHost: there\r\n\r\n"


def images():
    def chunk(kind, contents):
        return bytes([kind, len(contents)]) + contents

    def header(width, height, kind, interlaced=0):
        return chunk(0, struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, interlaced))

    rows = bytes([0, 1, 2, 3, 1, 4, 5, 6])  # A filter, and three bytes, of each.
    yield "png_grey", b"\x80" + header(3, 2, 0) + chunk(4, rows) + chunk(5, b"")
    yield "png_color", b"\x95" + header(1, 2, 2) + chunk(4, rows) + chunk(5, b"")
    yield "png_palette", (b"\x81" + header(3, 2, 3) + chunk(1, bytes(range(21))) +
                          chunk(2, b"\x80\0") + chunk(4, rows) + chunk(5, b""))
    yield "png_interlaced", b"\x80" + header(1, 1, 0, 1) + chunk(4, b"\0\7") + chunk(5, b"")

    def segment(kind, contents):
        return bytes([0xFF, kind]) + struct.pack(">H", len(contents) + 2) + contents

    one_code = bytes([1]) + bytes(15) + b"\0"  # One code, of one bit.
    for name, kind, end in (("jpeg", 0xC0, 63), ("jpeg_progressive", 0xC2, 0)):
        yield name, (b"\1\xff\xd8" + segment(0xDB, b"\0" + bytes([1] * 64)) +
                     segment(kind, bytes([8, 0, 8, 0, 8, 1, 1, 0x11, 0])) +
                     segment(0xC4, b"\0" + one_code) + segment(0xC4, b"\x10" + one_code) +
                     segment(0xDA, bytes([1, 1, 0, 0, end, 0])) + b"\x3f\xff\xd9")


ALL = {"frame_reader": frames, "tensor_message": tensor_messages, "capability": capabilities,
       "replicate": replicated, "install": installs, "manifest": manifests,
       "shard_file": shard_files, "row_delta": row_deltas, "record_file": record_files,
       "job_log": logs, "archive": archives,
       "svmlight": svmlight, "criteo": criteo, "columns": columns, "text": text,
       "line_reader": lines, "idx": idx, "cifar10": cifar10, "numpy": numpy, "gzip": gzips,
       "zstd": zstds, "safetensors_header": safetensors, "job_file": jobs,
       "certificate": certificates, "deny_list": deny_lists, "greeting": greetings,
       "host_port": addresses, "settings": settings_files, "daemon_config": daemon_configs,
       "image_file": images}


def main():
    for target, seeds in ALL.items():
        folder = os.path.join(FOLDER, target)
        os.makedirs(folder, exist_ok=True)
        for name in os.listdir(folder):
            if name.startswith("seed-"):
                os.remove(os.path.join(folder, name))
        for name, contents in seeds():
            with open(os.path.join(folder, "seed-" + name), "wb") as file:
                file.write(contents)


if __name__ == "__main__":
    sys.exit(main())
