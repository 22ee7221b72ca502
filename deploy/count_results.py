#!/usr/bin/python3
"""Counts the tests in a build event file of Bazel and prints "N passed, N failed[, N skipped]".

Usage: count_results.py EVENTS_JSON BAZEL_EXIT_CODE

A test that could not be built or was not run counts as failed; one that does not fit this platform
(target_compatible_with) as skipped. If Bazel failed and no test is to blame, that is one failure.
"""

import json
import sys


def label_of(event, kind):
    return event.get("id", {}).get(kind, {}).get("label")


def read_results(lines):
    """Maps each test's label to "passed", "failed" or "skipped"."""
    results = {}
    for line in lines:
        event = json.loads(line)
        configured = label_of(event, "targetConfigured")
        if configured and "testSize" in event.get("configured", {}):
            results.setdefault(configured, "failed")  # Until its summary says otherwise.
        completed = label_of(event, "targetCompleted")
        if completed and event.get("aborted", {}).get("reason") == "SKIPPED":
            results[completed] = "skipped"
        summary = label_of(event, "testSummary")
        if summary:
            # A build that was interrupted has none.
            status = event.get("testSummary", {}).get("overallStatus")
            results[summary] = "passed" if status in ("PASSED", "FLAKY") else "failed"
    return results


def main(path, exit_code):
    try:
        with open(path, encoding="utf-8") as events:
            results = list(read_results(events).values())
    except OSError:
        results = []
    passed, failed, skipped = (results.count(kind) for kind in ("passed", "failed", "skipped"))
    if exit_code != 0 and failed == 0:
        print(f"bazel itself failed (exit code {exit_code}); its messages stand above")
        failed = 1
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
