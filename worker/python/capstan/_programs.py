"""The programs of the package: finding them, becoming them, and running them in order."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
from typing import Any, NoReturn, Optional

from capstan._client import Error

_EXIT_OF_SIGNAL = 128  # Plus the signal's number, as in shells.


def find(name: str) -> str:
    """The path of a program: that of the wheel, else (in a source tree) one on PATH."""
    bundled = pathlib.Path(__file__).parent / "bin" / name
    found = str(bundled) if bundled.exists() else shutil.which(name)
    if found is None:
        raise Error(f"there is no program {name} on PATH, and none in the package")
    return found


def become(name: str, arguments: list[str]) -> NoReturn:
    """Replaces this process by a program, which keeps its process id, signals and exit code."""
    program = find(name)
    sys.stdout.flush()
    os.execv(program, [name, *arguments])


class Interrupted(Exception):
    """A signal has come; `code` is the exit code for it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.code = _EXIT_OF_SIGNAL + number


class Failed(Exception):
    """A program has ended with the exit code `code`; the exception's text is what it wrote."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(said)
        self.code = code


class Children:
    """Runs programs one after the other. The process has one object of this class.

    Ctrl-C reaches a program by itself, and SIGTERM is passed on. The program then ends in order,
    and this process waits for that; it starts no other program.
    """

    def __init__(self) -> None:
        self._running: Optional[subprocess.Popen[Any]] = None
        self._signal = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._pass_on)

    def _pass_on(self, number: int, _frame: Any) -> None:
        self._signal = self._signal or number
        if number == signal.SIGTERM and self._running is not None:
            self._running.terminate()

    def read(self, command: list[str], **how: Any) -> tuple[int, str, str]:
        """Runs a program. Returns its exit code, standard output and standard error.

        how: arguments of subprocess.Popen. Raises Interrupted if a signal comes.
        """
        with self._start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         **how) as process:
            said, wrong = process.communicate()
        self._running = None
        if self._signal:
            raise Interrupted(self._signal)
        return process.returncode, said, wrong

    def run(self, command: list[str]) -> int:
        """Runs a program to its end; returns its exit code, also after a signal."""
        with self._start(command) as process:
            code = int(process.wait())
        self._running = None
        return code if code >= 0 else _EXIT_OF_SIGNAL - code

    def _start(self, command: list[str], **how: Any) -> "subprocess.Popen[Any]":
        if self._signal:
            raise Interrupted(self._signal)
        sys.stdout.flush()
        self._running = process = subprocess.Popen(command, **how)
        if self._signal == signal.SIGTERM:  # It came while the program was being started.
            process.terminate()
        return process
