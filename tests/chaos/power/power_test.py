"""A power cut leaves of a process's files all that was synced, and any part of the rest."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import power  # noqa: E402

WRITER = r"""
import os, signal, sys
os.chdir(sys.argv[1])
WRITE = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
def make(path, *pieces):
    file = os.open(path, WRITE, 0o644)
    for piece in pieces:
        os.write(file, piece) if piece else os.fdatasync(file)
    return file
def sync_folder():
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)
log = make("log", b"a" * 1000, b"")
make("old", b"old", b"")
make("gone", b"gone", b"")
make("emptied", b"e" * 2000, b"")
sync_folder()
os.write(log, b"b" * 8000)
os.pwrite(log, b"c" * 600, 200)
make("new", b"new", b"")
os.rename("new", "old")
os.unlink("gone")
make("emptied")
os.mkdir("folder")
make("folder/file", b"x")
os.kill(os.getpid(), signal.SIGKILL)
"""


class PowerTest(unittest.TestCase):
    def cut(self, seed, deaf=""):
        root = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        data = root / "data"
        data.mkdir()
        layer = power.Layer(root, deaf)
        done = subprocess.run([*layer.prefix(), sys.executable, "-c", WRITER, str(data)],
                              check=False)
        self.assertEqual(done.returncode, -signal.SIGKILL)
        lost = layer.cut(random.Random(seed))
        self.assertEqual(list(layer.control.iterdir()), [])
        return data, lost

    def test_what_was_synced_stays_and_any_part_of_the_rest_goes(self):
        holes = cut_short = names_back = removed_back = emptied_back = folders = 0
        for seed in range(60):
            data, lost = self.cut(seed)
            log = (data / "log").read_bytes()
            self.assertEqual(log[:200], b"a" * 200)
            self.assertEqual(log[800:1000], b"a" * 200)
            self.assertIn(log[200:512], (b"a" * 312, b"c" * 312))
            self.assertIn(log[512:800], (b"a" * 288, b"c" * 288))
            for begin in range(1024, len(log), power.SECTOR_BYTES):
                self.assertIn(set(log[begin:begin + power.SECTOR_BYTES]), ({0}, {ord("b")}))
            self.assertLessEqual(len(log), 9000)
            holes += lost.holes > 0
            cut_short += len(log) < 9000
            old = (data / "old").read_bytes()
            self.assertIn(old, (b"old", b"new"))
            self.assertFalse(old == b"old" and (data / "folder").exists())  # It was made later.
            names_back += old == b"old"
            removed_back += (data / "gone").exists()
            emptied_back += (data / "emptied").read_bytes() == b"e" * 2000
            folders += (data / "folder").exists()
        for count in (holes, cut_short, names_back, removed_back, emptied_back, folders):
            self.assertTrue(0 < count < 60)

    def test_without_syncs_what_they_should_have_kept_is_lost(self):
        lost = 0
        for seed in range(20):
            data, _ = self.cut(seed, deaf="/data")
            lost += not (data / "log").exists() or (data / "log").read_bytes()[:200] != b"a" * 200
        self.assertGreater(lost, 5)


if __name__ == "__main__":
    unittest.main()
