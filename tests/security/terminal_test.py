"""Text that others wrote does not control the terminal of its reader."""

import os
import pty
import subprocess
import unittest

import cluster
import synthetic

ATTACK = b"before \x1b]0;owned\x07\x1b[2J \xc2\x9b31m \x9b31m \xe2\x80\xae after\r\n"
SHOWN = (rb"before \u001b]0;owned\u0007\u001b[2J \u009b31m \x9b31m \u202e after\r")


class TerminalTest(unittest.TestCase):
    def on_terminal(self, running, *arguments):
        """The output of the command line on a terminal, with "\\n" as line ends again."""
        ours, theirs = pty.openpty()
        settings = {"CAPSTAN_SCHEDULER": running.scheduler, "HOME": str(running.folder)}
        with subprocess.Popen(
                [str(cluster.runfile("scheduler/cli/capstan")), *arguments],
                env={**os.environ, **settings, "TERM": "xterm"}, stdin=subprocess.DEVNULL,
                stdout=theirs, stderr=theirs) as command:
            os.close(theirs)
            written = b""
            while True:
                try:
                    part = os.read(ours, 1 << 16)
                except OSError:  # EIO: the other end is closed.
                    break
                if not part:
                    break
                written += part
            os.close(ours)
            command.wait(timeout=cluster.DEADLINE_SECONDS * cluster.SLOWDOWN)
        return written.replace(b"\r\n", b"\n")

    def test_logs_and_notes_are_shown_as_text_on_a_terminal_and_whole_in_a_pipe(self):
        with cluster.Cluster() as running:
            job = running.submit(synthetic.job(running.folder, workers=1))
            self.assertEqual(running.wait(job)["state"], "SUCCEEDED")
            log, = running.folder.glob(f"worker-0/{job}/*/task.log")
            with open(log, "ab") as file:
                file.write(ATTACK)
            shown = self.on_terminal(running, "job", "logs", job)
            self.assertIn(SHOWN, shown)
            for control in (b"\x1b", b"\x07", b"\x9b", b"\r", b"\xe2\x80\xae"):
                self.assertNotIn(control, shown)
            piped = subprocess.run(
                [str(cluster.runfile("scheduler/cli/capstan")), "job", "logs", job],
                env={**os.environ, "CAPSTAN_SCHEDULER": running.scheduler,
                     "HOME": str(running.folder)},
                stdin=subprocess.DEVNULL, capture_output=True, check=True,
                timeout=cluster.DEADLINE_SECONDS * cluster.SLOWDOWN).stdout
            self.assertIn(ATTACK, piped)
            running.run("job", "label", job, "--note", "n\x1b[2J\u009b31m\u202e")
            shown = self.on_terminal(running, "job", "describe", job)
            self.assertIn(rb"n\u001b[2J\u009b31m\u202e", shown)
            self.assertNotIn(b"\x1b", shown)


if __name__ == "__main__":
    unittest.main()
