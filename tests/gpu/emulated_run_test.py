"""tests/gpu/run on an emulated GPU, killed after each part: no row is lost, and nothing goes on.

Sizes are small. There is no PyTorch and no compute-sanitizer for such a GPU, so that what needs
them is left out, as on a machine without them.
"""

import contextlib
import os
import pathlib
import re
import select
import subprocess
import sys
import tempfile
import time
import unittest

import cluster
import parts

_HERE = pathlib.Path(parts.__file__).resolve().parent
# Where tests/gpu/pack puts what Bazel has built.
_PROGRAMS = {
    "bin/conformance_test": "tests/gpu/conformance_test",
    "bin/gpu_bench": "tests/gpu/gpu_bench",
    "bin/libcapstan_cuda.so": "kernels/cuda/emulation/libcapstan_emulated_cuda.so",
    **{f"capstan/{path}": path for path in (
        "scheduler/capstan-scheduler", "scheduler/cli/capstan", "server/capstan-server",
        "tests/benchmark/train_steps", "tests/convergence/reference_trainer",
        "worker/capstan-worker")},
}


def rows(report):
    """(part, check, outcome) of each row; every line of a table must be whole."""
    found = []
    for line in report.splitlines():
        if not line.startswith("|"):
            continue
        columns = re.fullmatch(r"\| (.*) \| (.*) \| (.*) \| (.*) \| (.*) \|", line)
        if columns and columns[1] != "part":
            found.append((columns[1], columns[2], columns[3]))
        elif not columns and not line.startswith("|---"):
            raise AssertionError(f"a torn row: {line}")
    return found


def processes_with(text):
    """Process ids whose environment or command line has the text, but for this one."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            seen = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if text.encode() in seen:
            found.append(int(entry.name))
    return found


class EmulatedRunTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="capstan-gpu-run-"))
        cls.pack, cls.out = cls.folder / "pack", cls.folder / "out"
        for packed, built in _PROGRAMS.items():
            (cls.pack / packed).parent.mkdir(parents=True, exist_ok=True)
            (cls.pack / packed).symlink_to(cluster.runfile(built))
        (cls.pack / "commit").write_text("1234\n")
        cls.environment = dict(
            os.environ, CAPSTAN_EMULATED_GPUS="1", CAPSTAN_FAKE_GPUS="1",
            CAPSTAN_GPU_DRIVER=str(cluster.runfile("kernels/testing/libcuda.so.1").parent))

    def start(self, names):
        return subprocess.Popen(
            [sys.executable, "-B", str(_HERE / "run_gpu.py"), "--small", f"--pack={self.pack}",
             f"--out={self.out}", "--minutes=240", f"--parts={','.join(names)}"],
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace")

    def report(self):
        path = self.out / "report.md"
        return path.read_text() if path.exists() else ""

    def run_until_the_part_has_ended(self, names):
        """Runs parts until the first one's last row is there, and kills the run at once."""
        with self.start(names) as runner:
            for line in runner.stdout:
                if line.startswith(f"-- {names[0]}: all of it: "):
                    break
            runner.kill()
        self.assert_nothing_runs()

    def assert_nothing_runs(self):
        """Looks until it finds none: what is just being started has no words to be found by yet."""
        end = time.monotonic() + 20 * cluster.SLOWDOWN
        while found := processes_with(str(self.pack)):
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    with open(os.pidfd_open(pid), "rb") as process:
                        left = max(0.0, end - time.monotonic())
                        ended = select.select([process], [], [], left)[0]
                        self.assertTrue(ended, f"process {pid} goes on")

    def test_killed_after_each_part_it_has_all_rows(self):
        every = parts.all_parts(small=True)
        for i, part in enumerate(every):
            before = self.report()
            self.run_until_the_part_has_ended([one.name for one in every[i:]])
            after = self.report()
            self.assertTrue(after.startswith(before), after)
            wanted = [step.name for step in part.steps] + ["all of it"]
            new = rows(after)[len(rows(before)):]
            self.assertEqual([row[1] for row in new[:len(wanted)]], wanted, after)
            for row in new[:len(wanted)]:
                self.assertEqual(row[2], self.expected(row), self.said(part, row[1]) + after)
            for step in part.steps:
                if self.expected((part.name, step.name)) == "passed":
                    self.assertTrue((self.out / part.output(step)).stat().st_size, step.name)
        self.assertEqual(after.count("| part |"), 1)  # One card, one commit: one table.
        self.assertIn("commit 1234; ", after)
        self.check_tables(every)

    def expected(self, row):
        return "skipped" if row[0] == "E" and row[1] != "all of it" else "passed"

    def said(self, part, check):
        """The end of what a step has printed."""
        for step in part.steps:
            path = self.out / part.output(step)
            if step.name == check and path.exists():
                return path.read_text(errors="replace")[-3000:]
        return ""

    def check_tables(self, every):
        """The programs have left ceilings, tables of kernels, turns of whole models and plans."""
        texts = {f"{part.name}{i + 1}": (self.out / part.output(step)).read_text(errors="replace")
                 for part in every if part.name != "E" for i, step in enumerate(part.steps)}
        self.assertRegex(texts["A1"], r"^copy\tn=10000\t.*\nproduct\tn=32 c=32 o=32\t")
        self.assertIn("All tests passed", texts["A2"])
        self.assertIn("resnet20 bf16, batch 2 of 8x8x3: Capstan: ", texts["B2"])
        self.assertRegex(texts["B1"], r"\| resnet20 bf16, batch 2 of 8x8x3 \| [0-9.]+ \|")
        self.assertIn("| conv_forward | n=1 h=14 c=3 o=16 k=7 s=2 p=3 |", texts["C2"])
        self.assertIn("The longest:", texts["C2"])
        self.assertRegex(texts["C3"], r"one server, SSP\(1\) \| [0-9.]+ \|")
        self.assertIn("bits of shards on the card: passed", texts["F1"])
        plans = list((self.out / "plans").iterdir())
        self.assertTrue(plans)
        self.assertTrue(any("engine " in path.read_text() for path in plans))


if __name__ == "__main__":
    unittest.main()
