"""Each planted fault is reported by the sanitizer whose it is; without one, nothing is."""

import subprocess
import sys
import unittest

from cluster import runfile

# sanitizer -> fault -> what the report says.
REPORTS = {
    "--asan": {
        "leak": "LeakSanitizer: detected memory leaks",
        "use_after_free": "AddressSanitizer: heap-use-after-free",
    },
    "--tsan": {"race": "ThreadSanitizer: data race"},
    "--ubsan": {"overflow": "runtime error: signed integer overflow"},
}
SANITIZERS = sys.argv[1:]


def run(fault):
    # Without the options of run_python.sh: the report is read here.
    return subprocess.run(
        [str(runfile("tests/sanitizers/planted_faults")), fault],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )


class PlantedFaultsTest(unittest.TestCase):
    def test_a_fault_is_reported(self):
        self.assertTrue(SANITIZERS, "built with a sanitizer")
        for sanitizer in SANITIZERS:
            for fault, report in REPORTS[sanitizer].items():
                with self.subTest(fault):
                    done = run(fault)
                    self.assertIn(report, done.stderr)
                    self.assertNotEqual(done.returncode, 0)

    def test_what_a_mutex_guards_is_no_fault(self):
        done = run("guarded")
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
