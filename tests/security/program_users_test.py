"""Programs of users run as users of their own, on workers that are root: what they cannot reach."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import cluster
import tls_cluster

UIDS = range(61184, 65520)
ROTATIONS = 3
# Fields of a job's program beside its command. These programs compute nothing.
SHAPE = """samples: 200
    parameters { name: "weight" shape: 8 } parameters { name: "bias" }
    averages { name: "sample" }"""


def job(command, epochs=1, environment=()):
    words = " ".join(f"command: {json.dumps(str(word))}" for word in command)
    variables = " ".join(
        f"environment {{ key: {json.dumps(name)} value: {json.dumps(str(value))} }}"
        for name, value in environment)
    return f"""
        program {{ {words} {variables} {SHAPE} }}
        training {{ epochs: {epochs} batch_size: 10 slots: 4 }}
        optimizer {{ momentum {{}} learning_rate: 0.1 }}
        resources {{ workers: 1 max_restarts: 0 }}
    """


def shell(script):
    return job(["/bin/sh", "-c", script])


class ProgramCluster(tls_cluster.TlsCluster):
    """Its worker runs programs, in a folder that every user can enter: others cannot enter where
    Bazel has its tests."""

    def __init__(self, *flags, workers=1, capacity=4):
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="capstan-programs-", dir="/tmp"))
        self.base.chmod(0o755)
        with unittest.mock.patch.dict(os.environ, TEST_TMPDIR=str(self.base)):
            super().__init__(workers=workers, worker_flags=(
                "--run-programs", f"--task-capacity={capacity}", *flags))

    def _start(self, servers, workers, lease):
        self.folder.chmod(0o755)
        super()._start(servers, workers, lease)

    def task_folder(self, name):
        """The folder of the job's only task, once it is there."""
        return cluster.until(f"{name} has a task", lambda: next(
            iter(sorted(self.folder.glob(f"worker-*/{name}/0-*/task.log"))), None)).parent

    def said(self, name):
        return (self.task_folder(name) / "task.log").read_text()

    def await_said(self, name, words):
        cluster.until(f"{name} says {words!r}", lambda: words in self.said(name))

    def finished(self, text):
        """The log of a job whose program leaves."""
        name = self.submit(text)
        status = self.wait(name)
        if "exited with code 0" not in json.dumps(status):
            raise RuntimeError(f"{status}\n{self.said(name)}")
        return self.said(name)

    def close(self):
        super().close()
        shutil.rmtree(self.base, ignore_errors=True)


def read_status(pid):
    try:
        return pathlib.Path("/proc", str(pid), "status").read_text()
    except OSError:
        return "State:\tZ (it is gone)"


def runs(pid):
    return "State:\tZ" not in read_status(pid)


WHO = 'echo "user $(id -u) groups $(id -G)" > /dev/stderr; grep NoNewPrivs /proc/self/status; '
# Says "ready", and ends once somebody has written into its folder's pipe.
HELD = 'mkfifo "$HOME/go"; echo ready; cat "$HOME/go"'


HELD_IN_ITERATION_50 = """
import os, sys, linear_program
from capstan import _client

def held(task, take=_client.Task.next):
    work = take(task)
    if work is not None and work.iteration == 50 and not os.path.exists("go"):
        os.mkfifo("go")
        print("ready", flush=True)
        open("go").read()
    return work

_client.Task.next = held
sys.exit(linear_program.main())
"""


def go_on(folder):
    (folder / "program" / "go").write_text("go\n")


@unittest.skipUnless(os.geteuid() == 0, "only root can run programs as other users")
class ProgramUsersTest(unittest.TestCase):
    def test_each_job_has_a_user_of_its_own_who_reaches_nothing_of_others(self):
        with ProgramCluster() as running:
            key = running.folder / "tls-worker-0" / "key.pem"
            left = 'setsid sh -c \'echo $$ > "$HOME/left.new"; mv "$HOME/left.new" "$HOME/left"; ' \
                   'exec sleep 1000\' & until [ -e "$HOME/left" ]; do :; done; '
            first = running.submit(shell(left + WHO + 'echo "group $$"; ' + HELD))
            running.await_said(first, "ready")
            folder = running.task_folder(first)
            first_user = int(re.search(r"user (\d+) groups \1\n", running.said(first)).group(1))
            self.assertIn(first_user, UIDS)
            self.assertIn("NoNewPrivs:\t1", running.said(first))
            leader = re.search(r"group (\d+)", running.said(first)).group(1)
            grandchild = int((folder / "program" / "left").read_text())
            self.assertTrue(runs(grandchild))

            tries = [f"cat {key}", f"ls {folder}", f"cat {folder}/task.textproto",
                     f"ls {folder}/program", f"cat {folder}/program/task.textproto",
                     f"cat {folder}/tls/key.pem", f"ls {folder.parent}",
                     f"ls {running.folder / 'worker-0'}", f"kill -9 {leader}",
                     f"cat /proc/{leader}/environ"]
            own = 'cat "$CAPSTAN_TASK_SPEC" "$CAPSTAN_TLS_DIR/key.pem" > "$TMPDIR/copy" && ' \
                  'echo "own $(stat -c %a:%u "$CAPSTAN_TLS_DIR/key.pem" "$CAPSTAN_TASK_SPEC")"; '
            said = running.finished(shell(
                WHO + "".join(f"{each} && echo REACHED; " for each in tries) + own + "exit 0"))
            user = int(re.search(r"user (\d+) groups \1\n", said).group(1))
            self.assertIn(user, UIDS)
            self.assertNotEqual(user, first_user)
            self.assertNotIn("REACHED", said)
            denied = re.findall(r"Permission denied|Operation not permitted|not permitted", said)
            self.assertEqual(len(denied), len(tries), said)
            self.assertRegex(said, rf"own 600:{user}\n600:{user}\n")
            self.assertEqual((key.stat().st_uid, key.stat().st_mode & 0o777), (0, 0o600))

            self.assertTrue(runs(grandchild))
            go_on(folder)
            running.wait(first)
            self.assertFalse(runs(grandchild))
            self.assertEqual(sorted(each.name for each in folder.iterdir()),
                             ["task.log", "task.textproto"])
            self.assertEqual(folder.stat().st_mode & 0o777, 0o700)

    def test_what_changes_its_process_id_all_the_time_is_gone_as_well(self):
        with ProgramCluster() as running:
            hopper = "import os; os.setsid(); open('begun', 'w').close(); " \
                     "[os.fork() and os._exit(0) for _ in range(10**6)]"
            said = running.finished(shell(
                f'{WHO} mkfifo begun; {sys.executable} -c "{hopper}" & cat "$HOME/begun"; exit 0'))
            user = re.search(r"user (\d+)", said).group(1)
            self.assertEqual([each for each in pathlib.Path("/proc").glob("[0-9]*")
                              if runs(each.name) and f"Uid:\t{user}" in read_status(each.name)], [])

    def test_tasks_of_a_job_have_one_user(self):
        with ProgramCluster() as running:
            name = running.submit(shell(WHO + HELD).replace("workers: 1", "workers: 2"))
            folder = running.folder / "worker-0" / name
            logs = cluster.until("both tasks are ready", lambda: [
                log for log in map(pathlib.Path.read_text, sorted(folder.glob("*/task.log")))
                if "ready" in log] if len(list(folder.glob("*/program/go"))) == 2 else None)
            users = {re.search(r"user (\d+)", log).group(1) for log in logs}
            self.assertEqual(len(users), 1, logs)
            running.run("job", "stop", name)

    def test_what_a_killed_worker_has_left_is_gone_once_it_is_back(self):
        with ProgramCluster() as running:
            left = 'setsid sh -c \'echo left $$; exec sleep 1000\' & '
            name = running.submit(shell(left + HELD))
            running.await_said(name, "ready")
            running.await_said(name, "left ")
            grandchild = int(re.search(r"left (\d+)", running.said(name)).group(1))
            folder = running.task_folder(name)
            worker = running.daemons["worker-0"]
            worker.kill()
            self.assertTrue(runs(grandchild))
            worker.start()
            worker.address()
            self.assertFalse(runs(grandchild))
            self.assertFalse((folder / "program").exists())

    def test_a_job_ends_well_while_certificates_are_replaced(self):
        with ProgramCluster() as running:
            # Where its user can read them.
            for path in ("worker/program/libcapstan_client.so",
                         "tests/integration/linear_program.py"):
                shutil.copy(cluster.runfile(path), running.folder)
            package = cluster.runfile("worker/python/capstan/__init__.py").parent
            shutil.copytree(package, running.folder / "capstan")
            subprocess.run(["chmod", "-R", "a+rX", running.folder / "capstan",
                            running.folder / "linear_program.py",
                            running.folder / "libcapstan_client.so"], check=True)
            name = running.submit(job(
                [sys.executable, "-B", "-c", HELD_IN_ITERATION_50], epochs=20,
                environment={"PYTHONPATH": running.folder, "CAPSTAN_CLIENT_LIBRARY":
                             running.folder / "libcapstan_client.so"}.items()))
            running.await_said(name, "ready")
            link = running.folder / "tls-worker-0"
            for _ in range(ROTATIONS):
                for daemon in running.daemons:
                    running.make_certificate(daemon.split("-")[0], daemon)
                copy = running.task_folder(name) / "tls"
                cluster.until("the program has the new certificate", lambda: (
                    (copy / "cert.pem").read_bytes() == (link / "cert.pem").read_bytes()))
                self.assertEqual((copy / "key.pem").read_bytes(), (link / "key.pem").read_bytes())
            go_on(running.task_folder(name))
            status = running.wait(name)
            self.assertEqual(status["state"], "SUCCEEDED", f"{status}\n{running.said(name)}")

    def test_off_is_as_the_worker_but_without_new_privileges(self):
        with ProgramCluster("--program-uids=off") as running:
            said = running.finished(shell(WHO + "exit 0"))
            self.assertIn("user 0 ", said)
            self.assertIn("NoNewPrivs:\t1", said)

    def test_a_job_that_finds_no_user_on_the_host_fails_and_says_why(self):
        user = 40000 + os.getpid() % 20000  # The host's only one of that number.
        with ProgramCluster(f"--program-uids={user}-{user}", workers=2, capacity=1) as running:
            first = running.submit(shell(WHO + HELD))
            running.await_said(first, "ready")
            self.assertIn(f"user {user} ", running.said(first))
            status = running.wait(running.submit(shell("exit 0")))
            self.assertIn(f"all users from {user} to {user}", json.dumps(status))
            go_on(running.task_folder(first))
            running.wait(first)
            self.assertIn(f"user {user} ", running.finished(shell(WHO + "exit 0")))


class FlagsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="capstan-programs-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.folder.chmod(0o755)

    def refused(self, *flags, **more):
        worker = shutil.copy(cluster.runfile("worker/capstan-worker"), self.folder)
        os.chmod(worker, 0o755)
        done = subprocess.run([worker, "--scheduler=127.0.0.1:1", "--run-programs", *flags],
                              cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=cluster.DEADLINE_SECONDS, check=False, **more)
        self.assertNotEqual(done.returncode, 0)
        return done.stdout + done.stderr

    def test_a_range_must_be_one(self):
        for text in ("0-5", "9-5", "on", "7"):
            self.assertIn("expected FIRST-LAST", self.refused(f"--program-uids={text}"))

    @unittest.skipUnless(os.geteuid() == 0, "only root can run programs as other users")
    def test_a_folder_that_others_cannot_enter_is_refused(self):
        (self.folder / "closed").mkdir(mode=0o700)
        said = self.refused(f"--work-dir={self.folder / 'closed' / 'work'}")
        self.assertIn(f"cannot enter {self.folder / 'closed'}: name another folder", said)

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
    def test_others_than_root_can_give_no_users(self):
        (self.folder / "work").mkdir()
        os.chown(self.folder / "work", 61001, 61001)
        said = self.refused("--work-dir=work", "--program-uids=61002-61003", user=61001,
                            group=61001, extra_groups=[])
        self.assertIn("only root can run programs as other users", said)


if __name__ == "__main__":
    unittest.main()
