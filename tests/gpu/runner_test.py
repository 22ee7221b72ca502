"""The runner's minutes, rows and processes: without a GPU."""

import contextlib
import io
import os
import select
import signal
import subprocess
import sys
import tempfile
import unittest

import parts
import processes
import results
import run_gpu

_DEADLINE_SECONDS = 60
_NAMES = [part.name for part in parts.all_parts()]


def rows_if_all_takes_long(*arguments):
    """Rows of a dry run: (part, check, outcome, second it ends at, seconds)."""
    with contextlib.redirect_stdout(io.StringIO()):
        return run_gpu.dry_run(run_gpu.parse(["--dry-run", *arguments]))


class MinutesTest(unittest.TestCase):
    def test_limits_of_a_part_stay_below_its_minutes(self):
        for part in parts.all_parts():
            self.assertLess(part.seconds, 60 * part.minutes, part.name)
            self.assertLess(part.minutes, 10, part.name)

    def test_a_part_whose_programs_all_hang_ends_within_its_minutes(self):
        for part in parts.all_parts():
            rows = rows_if_all_takes_long(f"--parts={part.name}")
            self.assertEqual(len(rows), len(part.steps) + 1)
            self.assertLessEqual(rows[-1][3], 60 * part.minutes)
            self.assertEqual([row[2] for row in rows], ["failed"] * len(part.steps) + ["passed"])

    def test_all_end_within_the_minutes_of_the_run(self):
        for minutes in (0.1, 1, 5, 8, 10, 30, 60):
            rows = rows_if_all_takes_long(f"--minutes={minutes}")
            self.assertLessEqual(rows[-1][3], 60 * minutes)
            self.assertEqual({row[0] for row in rows}, set(_NAMES))

    def test_a_to_e_are_half_an_hour(self):
        rows = rows_if_all_takes_long("--minutes=30", "--parts=A,B,C,D,E")
        self.assertNotIn("skipped", [row[2] for row in rows])

    def test_parts_run_in_their_order_whatever_the_order_of_asking(self):
        rows = rows_if_all_takes_long("--parts=C,A")
        self.assertEqual(list(dict.fromkeys(row[0] for row in rows)), ["A", "C"])

    def test_outputs_have_names_of_their_own(self):
        names = [part.output(step) for part in parts.all_parts() for step in part.steps]
        self.assertEqual(len(set(names)), len(names))
        self.assertIn("B2-resnet18-bf16-batch-128-beside-pytorch.txt", names)

    def test_a_part_that_is_none_is_refused(self):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            with self.assertRaises(SystemExit):
                run_gpu.parse(["--parts=A,X"])
        self.assertIn("got X, expected some of A,B,C,D,E,F", said.getvalue())


class ResultsTest(unittest.TestCase):
    def add(self, folder, title, *rows):
        with contextlib.redirect_stdout(io.StringIO()):
            found = results.Results(folder, title)
            for row in rows:
                found.add(*row)
        return found

    def test_a_row_is_in_the_file_once_it_is_known(self):
        with tempfile.TemporaryDirectory() as folder:
            found = self.add(folder, "commit 1; a card", ("A", "ceilings", "passed", 2.04))
            self.assertEqual(found.report().splitlines()[-1], "| A | ceilings | passed | 2.0 |  |")
            self.assertFalse(found.failed)

    def test_runs_of_one_title_share_a_table_and_keep_what_was_there(self):
        with tempfile.TemporaryDirectory() as folder:
            first = self.add(folder, "commit 1; a card", ("A", "x", "passed")).report()
            second = self.add(folder, "commit 1; a card", ("B", "y", "failed", 1, "why"))
            self.assertEqual(second.report(), first + "| B | y | failed | 1.0 | why |\n")
            self.assertTrue(second.failed)
            third = self.add(folder, "commit 2; a card").report()
            self.assertTrue(third.startswith(second.report()))
            self.assertEqual(third.count("| part |"), 2)

    def test_plans_come_back_and_newer_ones_stay(self):
        with tempfile.TemporaryDirectory() as folder:
            pack, out = os.path.join(folder, "pack"), os.path.join(folder, "out")
            for where, name, text in ((pack, "a", "old"), (pack, "b", "old"), (out, "b", "new")):
                os.makedirs(os.path.join(where, "plans"), exist_ok=True)
                with open(os.path.join(where, "plans", name), "w", encoding="utf-8") as file:
                    file.write(text)
            there = run_gpu.take_plans(pack, out)
            texts = {}
            for name in os.listdir(there):
                with open(os.path.join(there, name), encoding="utf-8") as file:
                    texts[name] = file.read()
            self.assertEqual(texts, {"a": "old", "b": "new"})


class ProcessesTest(unittest.TestCase):
    def run_program(self, program, hangs=False):
        """Its code and output. If it `hangs`, its time is over once it has printed something."""
        with tempfile.TemporaryDirectory() as folder, \
                contextlib.redirect_stdout(io.StringIO()) as to:
            output = os.path.join(folder, "output")
            runner = processes.Processes()
            runner.clock = lambda: int(hangs and os.path.getsize(output) > 0)
            with open(os.devnull, "rb") as given:
                code = runner.run([sys.executable, "-c", program], dict(os.environ), given, output,
                                  seconds=0.5)
            with open(output, encoding="utf-8") as file:
                written = file.read()
            self.assertIn(written, to.getvalue())
            return code, written

    def test_what_a_program_prints_is_kept_and_its_code_told(self):
        code, written = self.run_program("print('a row'); raise SystemExit(4)")
        self.assertEqual((code, written), (4, "a row\n"))

    def test_one_that_hangs_is_killed_with_what_it_has_started_and_its_rows_are_kept(self):
        code, written = self.run_program(
            "import signal, subprocess\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "print(subprocess.Popen(['sleep', '600']).pid, flush=True)\n"
            "signal.pause()", hangs=True)
        self.assertIsNone(code)
        with contextlib.suppress(ProcessLookupError):
            self.assert_ends(os.pidfd_open(int(written)))

    def test_what_runs_ends_with_the_runner_however_that_ends(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            with tempfile.TemporaryDirectory() as folder:
                output = os.path.join(folder, "output")
                with subprocess.Popen(
                        [sys.executable, "-c",
                         "import os, signal, sys, processes\n"
                         "signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))\n"
                         "processes.Processes().run(['sh', '-c', 'echo $$; exec sleep 600'],"
                         f" dict(os.environ), open(os.devnull), {output!r}, 600)"],
                        cwd=os.path.dirname(os.path.realpath(processes.__file__)), text=True,
                        stdout=subprocess.PIPE) as runner:
                    runner.stdout.readline()  # The command.
                    pid = int(runner.stdout.readline())
                    with contextlib.suppress(ProcessLookupError):
                        found = os.pidfd_open(pid)
                        runner.send_signal(number)
                        self.assert_ends(found)

    def test_one_whose_parent_ends_before_it_has_asked_to_die_with_it_does_not_begin(self):
        done = subprocess.run(
            [sys.executable, "-c",
             "import os, processes\n"
             "parent = os.getpid()\n"
             "if os.fork():\n"
             "    os._exit(0)\n"
             "while os.getppid() == parent:\n"
             "    os.sched_yield()\n"
             "processes.die_with_parent()\n"
             "print('begins', flush=True)"],
            cwd=os.path.dirname(os.path.realpath(processes.__file__)), check=True, text=True,
            stdout=subprocess.PIPE)
        self.assertEqual(done.stdout, "")

    def assert_ends(self, process):
        """process: a file descriptor of it, which is readable once the process has ended."""
        with open(process, "rb"):
            self.assertTrue(select.select([process], [], [], _DEADLINE_SECONDS)[0])


if __name__ == "__main__":
    unittest.main()
