"""Pushes at a script's own pace, without a cluster: who waits for them, and who hears of errors."""

import array
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

from capstan import _arrays, _client
from capstan._own_pace import Run

DEADLINE_SECONDS = 60
PULLS_IN_A_THREAD = """
import array, threading
import capstan
capstan.init(own_pace=True)
w = capstan.table("w", array.array("f", [0]))
threading.Thread(target=w.pull).start()
threading.Event().wait()
"""


class FakeTask:
    """Answers operations once they are allowed to end: with success, or with `error`."""

    def __init__(self):
        self.tables = [_client.Table("w", _client.PARAMETERS, 0, ())]
        self.may_end = threading.Event()
        self.error = None
        self.expect_own_process = mock.Mock()
        self._last = 0

    def push(self, *_):
        self._last += 1
        return self._last

    def wait(self, _operation, seconds):
        if not self.may_end.wait(seconds):
            raise TimeoutError("waits for the server s-1")
        if self.error is not None:
            raise self.error


class OperationsTest(unittest.TestCase):
    def setUp(self):
        self.task = FakeTask()
        self.run_ = Run(self.task, {"w": (1,)})
        self.addCleanup(self.run_.finish)
        self.addCleanup(self.task.may_end.set)

    def push(self):
        return self.run_.push("w", _arrays.memory_of(array.array("f", [1]), "it"), None)

    def until_none_is_pending(self):
        """All operations have ended: the package's thread has waited for them."""
        done = threading.Event()
        self.push().add_done_callback(lambda _: done.set())
        self.assertTrue(done.wait(DEADLINE_SECONDS))

    def test_a_callback_comes_also_after_a_wait_was_too_short(self):
        # The caller claims the operation before the package's thread looks.
        interval = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, interval)
        sys.setswitchinterval(DEADLINE_SECONDS)
        push = self.push()
        with self.assertRaisesRegex(concurrent.futures.TimeoutError, "waits for the server s-1"):
            push.result(timeout=0.2)
        self.task.may_end.set()
        called = threading.Event()
        push.add_done_callback(lambda _: called.set())
        self.assertTrue(called.wait(DEADLINE_SECONDS))

    def test_an_error_that_nobody_has_asked_for_is_told_at_the_end(self):
        self.task.error = _client.Failed("the update is lost")
        self.task.may_end.set()
        self.push()
        self.until_none_is_pending()
        self.assertIn("the update is lost", str(self.run_.finish()))

    def test_an_error_that_the_script_has_seen_is_not_told_again(self):
        self.task.error = _client.Failed("the update is lost")
        self.task.may_end.set()
        with self.assertRaises(_client.Failed):
            self.push().result()
        self.assertIsInstance(self.push().exception(), _client.Failed)
        self.assertIsNone(self.run_.finish())

    def test_a_forked_process_does_not_wait_for_what_its_parent_waits_for(self):
        push = self.push()
        push.is_awaited = True
        self.task.expect_own_process.side_effect = _client.Error("was forked")
        with self.assertRaisesRegex(_client.Error, "was forked"):
            push.result()
        push.is_awaited, self.task.expect_own_process.side_effect = False, None


class DeclareTest(unittest.TestCase):
    def test_a_script_whose_thread_pulls_first_declares_its_job(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-c", PULLS_IN_A_THREAD], check=True,
                           timeout=DEADLINE_SECONDS,
                           env={**os.environ, "CAPSTAN_DECLARE": folder})
            self.assertTrue(pathlib.Path(folder, "job.json").exists())


if __name__ == "__main__":
    unittest.main()
