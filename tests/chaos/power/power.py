"""Power that can be cut: what daemons have not synced is lost, any part of it.

    layer = power.Layer(folder)
    Daemon(..., prefix=layer.prefix())      # and more of them
    (all of them are killed)
    lost = layer.cut(random.Random(seed))

unsynced_writes.cc, loaded into each daemon, has written down what they changed. `cut` takes back
any of the sectors (512 bytes) that no finished sync came after, and in each folder the last of the
changes of names; what stood there before comes back. A daemon must never be alive meanwhile.
"""

import collections
import dataclasses
import os
import pathlib
import shutil
import struct

import cluster

SECTOR_BYTES = 512
LIBRARY = "tests/chaos/power/libunsynced_writes.so"


@dataclasses.dataclass
class Lost:
    """Counts of the changes that a cut has taken back."""

    sectors: int = 0
    holes: int = 0  # Files in which a later sector was kept and an earlier one was not.
    names: int = 0

    def __str__(self):
        return f"{self.sectors} sectors ({self.holes} files with holes), {self.names} names"


@dataclasses.dataclass
class Change:
    """One record of the journal."""

    index: int
    kind: str
    numbers: tuple
    rest: bytes

    def paths(self):
        return [os.fsdecode(path) for path in self.rest.split(b"\0")]


# How many numbers a record of each kind begins with; see unsynced_writes.cc.
NUMBERS = {"W": 4, "T": 3, "C": 1, "R": 1, "U": 1, "X": 1, "M": 0, "B": 2, "S": 2, "E": 1, "D": 1}
NAMES = "CRUXM"


def read_journal(path):
    changes = []
    data = path.read_bytes() if path.exists() else b""
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("=I", data, at)
        kind = chr(data[at + 4])
        count = NUMBERS[kind]
        numbers = struct.unpack_from(f"={count}Q", data, at + 5)
        rest = data[at + 5 + 8 * count:at + length]
        changes.append(Change(len(changes), kind, numbers, rest))
        at += length
    return changes


class Layer:
    def __init__(self, folder, deaf=""):
        """Looks after what daemons write below `folder`. `deaf`: files and folders whose paths
        contain it are never synced, whatever the daemons ask for."""
        self.root = pathlib.Path(folder).resolve()
        self.control = self.root / "power"
        self.control.mkdir()
        self.deaf = deaf

    def prefix(self):
        return ("env", f"LD_PRELOAD={cluster.runfile(LIBRARY).resolve()}",
                f"CAPSTAN_POWER_ROOT={self.root}", f"CAPSTAN_POWER_CONTROL={self.control}",
                f"CAPSTAN_POWER_DEAF={self.deaf}")

    def cut(self, draw):
        changes = read_journal(self.control / "journal")
        lost = Lost()
        self._cut_bytes(changes, draw, lost)
        self._cut_names(changes, draw, lost)
        shutil.rmtree(self.control)
        self.control.mkdir()
        return lost

    # ------------------------------------------------------------ bytes

    def _cut_bytes(self, changes, draw, lost):
        begun = {c.numbers[0]: c.index for c in changes if c.kind == "B"}
        synced = collections.defaultdict(int)  # By inode: changes before this index are durable.
        for change in changes:
            if change.kind == "S":
                token, inode = change.numbers
                synced[inode] = max(synced[inode], begun[token])
            elif change.kind == "C":  # The number of a file that is gone may come again.
                synced[change.numbers[0]] = change.index
        pending = collections.defaultdict(list)
        for change in changes:
            if change.kind in "WT" and change.index > synced[change.numbers[0]]:
                pending[change.numbers[0]].append(change)
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = os.path.join(folder, name)
                inode = os.lstat(path).st_ino
                if inode in pending:
                    tear(path, pending.pop(inode), draw, lost)

    # ------------------------------------------------------------ names

    def _cut_names(self, changes, draw, lost):
        begun = {c.numbers[0]: c.index for c in changes if c.kind == "E"}
        synced = collections.defaultdict(int)
        for change in changes:
            if change.kind == "D":
                folder = change.paths()[0]
                synced[folder] = max(synced[folder], begun[change.numbers[0]])
        pending = collections.defaultdict(list)
        for change in changes:
            if change.kind not in NAMES:
                continue
            folder = os.path.dirname(change.paths()[-1])
            if change.index >= synced[folder]:
                pending[folder].append(change)
        undone = []
        for folder in sorted(pending):
            kept = draw.randint(0, len(pending[folder]))
            undone += pending[folder][kept:]
        for change in sorted(undone, key=lambda c: c.index, reverse=True):
            self._undo(change)
        lost.names += len(undone)

    def _undo(self, change):
        *source, path = change.paths()
        if not os.path.isdir(os.path.dirname(path)):
            return  # Its folder has gone with its own name.
        if change.kind == "C":
            os.unlink(path)
        elif change.kind == "M":
            shutil.rmtree(path)
        elif change.kind == "X":
            os.mkdir(path)
        else:
            if change.kind == "R":
                os.rename(path, source[0])
            if change.numbers[0] != 0:
                os.rename(self.control / f"kept-{change.numbers[0]}", path)


def tear(path, changes, draw, lost):
    """Leaves of what was not synced any of the sectors; of the others, what was there before."""
    after = pathlib.Path(path).read_bytes()
    before = bytearray(after)
    touched = set()
    for change in reversed(changes):
        _, offset, *_ = change.numbers
        if change.kind == "W":
            _, offset, count, size = change.numbers
            del before[size:]
            before[offset:offset + len(change.rest)] = change.rest
            touched.update(range(offset // SECTOR_BYTES,
                                 (offset + count + SECTOR_BYTES - 1) // SECTOR_BYTES))
        else:
            _, new_size, size = change.numbers
            del before[min(new_size, size):]
            before += change.rest
            before += bytes(size - len(before))
    share = draw.choice((0, 0.1, 0.5, 0.9, 1))
    torn = bytearray(before)
    end = len(before)
    dropped = hole = False
    for sector in sorted(touched):
        begin = sector * SECTOR_BYTES
        new = after[begin:begin + SECTOR_BYTES]
        if new == before[begin:begin + SECTOR_BYTES]:
            continue
        if draw.random() >= share:
            lost.sectors += 1
            dropped = True
            continue
        hole = hole or dropped
        torn += bytes(max(0, begin + len(new) - len(torn)))
        torn[begin:begin + len(new)] = new
        end = max(end, begin + len(new))
    lost.holes += hole
    # The new length may be on the disk or not, whichever sectors are.
    if draw.random() < 0.5:
        size = len(after)
    else:
        size = end if len(after) > len(before) else len(before)
    torn += bytes(max(0, size - len(torn)))
    del torn[size:]
    with open(path, "r+b") as file:
        file.truncate(0)
        file.write(torn)
