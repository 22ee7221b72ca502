"""The results folder of a run: a row for every check in report.md, and each check's output.

A row is in the file as soon as it is known, whole, and is never written again: whoever kills the
run, at whatever moment, loses none. A folder may be given to several runs, of other parts: rows are
added to those that are there.
"""

import os

_HEAD = "| part | check | outcome | seconds | note |\n|---|---|---|---|---|\n"


class Results:
    """Rows of (part, check, outcome, seconds, note); anything but passed and skipped is a failure.

    title: commit, card, driver and libraries; a run with another one begins a table of its own.
    """

    def __init__(self, folder, title):
        os.makedirs(folder, exist_ok=True)
        self.folder, self.failed = folder, False
        self.path = os.path.join(folder, "report.md")
        before = ""
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                before = file.read()
        titles = [line for line in before.splitlines() if line and line[0] != "|"]
        if titles[-1:] != [title]:
            self._append(("\n" if before else "") + f"{title}\n\n{_HEAD}")

    def add(self, part, check, outcome, seconds=0.0, note=""):
        self.failed = self.failed or outcome not in ("passed", "skipped")
        self._append(f"| {part} | {check} | {outcome} | {seconds:.1f} | {note} |\n")
        print(f"-- {part}: {check}: {outcome} {note}".rstrip(), flush=True)

    def output(self, name):
        return os.path.join(self.folder, name)

    def report(self):
        with open(self.path, encoding="utf-8") as file:
            return file.read()

    def _append(self, text):
        # One call of the kernel for it, so that there is all of it or none.
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, text.encode())
            os.fsync(file)
        finally:
            os.close(file)
