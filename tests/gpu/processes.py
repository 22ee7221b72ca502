"""Programs that a run starts: their output is kept as it comes, and none of them outlives the run.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time

TOOLKIT = "/usr/local/cuda"
_POLL_SECONDS = 0.05
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_OURSELVES = os.getpid()


def tool_path(tool):
    """Where a program is, on the path or in CUDA's toolkit; None if it is not there."""
    there = f"{TOOLKIT}/bin/{tool}"
    return shutil.which(tool) or (there if os.path.exists(there) else None)


def die_with_parent():
    """For preexec_fn: the end of the process that starts this one, however it comes, is its end."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != _OURSELVES:  # It had ended before the call.
        os.kill(os.getpid(), signal.SIGKILL)


def _in_a_group_of_its_own():
    os.setsid()
    die_with_parent()


class Processes:
    """Runs programs. Their output goes to a file by itself, and from there to ours."""

    def __init__(self):
        self.clock = time.monotonic

    def run(self, command, env, given, output, seconds):
        """Its exit code; None if it was killed because it was not done in so many seconds."""
        print(f"-- {' '.join(command)}", flush=True)
        with open(output, "wb") as out, open(output, "rb") as seen:
            process = subprocess.Popen(command, env=env, stdin=given, stdout=out,
                                       stderr=subprocess.STDOUT, preexec_fn=_in_a_group_of_its_own)
            try:
                return self._follow(process, seen, self.clock() + seconds)
            finally:
                self._kill(process)  # Whatever it has started, too.

    def _follow(self, process, seen, end):
        code = None
        while code is None and self.clock() <= end:
            try:
                code = process.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            sys.stdout.write(seen.read().decode(errors="replace"))
            sys.stdout.flush()
        return code

    @staticmethod
    def _kill(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    @staticmethod
    def has(tool):
        return tool_path(tool) is not None
