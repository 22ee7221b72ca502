"""`deploy/count_results.py` counts what Bazel says of its tests."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import cluster


def configured(label):
    return {"id": {"targetConfigured": {"label": label}}, "configured": {"testSize": "SMALL"}}


def summary(label, **content):
    return {"id": {"testSummary": {"label": label}}, **content}


class CountResultsTest(unittest.TestCase):
    def counted(self, events, exit_code):
        """Returns what count_results.py prints for these events."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "events.json")
            path.write_text("".join(json.dumps(event) + "\n" for event in events))
            script = str(cluster.runfile("deploy/count_results.py"))
            return subprocess.run([sys.executable, script, str(path), str(exit_code)], check=True,
                                  stdout=subprocess.PIPE, text=True).stdout

    def test_each_test_counts_once(self):
        labels = ["//:passed", "//:failed", "//:never_run", "//:other_platform"]
        events = [configured(label) for label in labels] + [
            summary("//:passed", testSummary={"overallStatus": "PASSED"}),
            summary("//:failed", testSummary={"overallStatus": "FAILED"}),
            {"id": {"targetCompleted": {"label": "//:other_platform"}},
             "aborted": {"reason": "SKIPPED"}}]
        self.assertEqual(self.counted(events, 3), "1 passed, 2 failed, 1 skipped\n")

    def test_an_interrupted_build_has_a_summary_without_content(self):
        events = [configured("//:under_way"),
                  summary("//:under_way", aborted={"reason": "USER_INTERRUPTED"})]
        self.assertEqual(self.counted(events, 8), "0 passed, 1 failed\n")

    def test_a_failure_of_bazel_itself_is_one(self):
        self.assertEqual(self.counted([], 1).splitlines()[-1], "0 passed, 1 failed")


if __name__ == "__main__":
    unittest.main()
