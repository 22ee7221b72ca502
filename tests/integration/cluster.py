"""A cluster of real daemons on loopback, for tests: started, watched, hurt and taken down.

    with Cluster(servers=2, workers=2) as cluster:
        job = cluster.submit(JOB_TEXT)
        cluster.kill_task(0)
        status = cluster.wait(job)

Everything lives in one temporary folder; nothing uses a fixed port; every wait has a deadline.

Deadlines and leases are written for an ordinary build. CAPSTAN_TEST_SLOWDOWN in the environment, 1
by default, says how many times slower this one may be, and stretches them all (.bazelrc sets it for
the sanitizers).
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time

SLOWDOWN = float(os.environ.get("CAPSTAN_TEST_SLOWDOWN", "1"))
LEASE_SECONDS = 2 * SLOWDOWN
DEADLINE_SECONDS = 120  # Times SLOWDOWN, as every number of seconds below.
POLL_SECONDS = 0.02
CLI_POLL_SECONDS = 0.1  # Each poll starts the CLI: more often would disturb what is watched.
before_daemon = None  # Called in each daemon's process before its program is.
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
# --allow-path of all daemons, also of those that the command line starts: where tests have files.
os.environ.setdefault("CAPSTAN_ALLOW_PATH", ",".join(filter(None, [
    tempfile.gettempdir(), os.environ.get("TEST_TMPDIR"), os.environ.get("CAPSTAN_TEST_DATA"),
    os.getcwd(), "/usr/share/datasets"])))


def runfile(path):
    """Path of a file that the Bazel target names in `data`."""
    for root in (os.environ.get("RUNFILES_DIR", ""), os.environ.get("TEST_SRCDIR", "")):
        candidate = pathlib.Path(root, "capstan", path)
        if root and candidate.exists():
            return candidate
    candidate = pathlib.Path(path)
    if candidate.exists():
        return candidate.resolve()
    raise FileNotFoundError(f"{path}: not among this target's data")


def until(what, condition, seconds=DEADLINE_SECONDS, poll_seconds=POLL_SECONDS):
    """Waits until condition() is true and returns its value; fails with `what` at the deadline."""
    deadline = time.monotonic() + seconds * SLOWDOWN
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds * SLOWDOWN} s until {what}")
        time.sleep(poll_seconds)


def children(pid):
    """Process ids of the direct children of `pid`."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        if int(stat.rpartition(")")[2].split()[1]) == pid:
            found.append(int(entry.name))
    return found


def command_line(pid):
    try:
        return pathlib.Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


class Daemon:
    """One daemon process with its own log."""

    def __init__(self, name, binary, arguments, folder, host="127.0.0.1", prefix=()):
        self.name = name
        self.port_file = folder / f"{name}.port"
        self.log = folder / f"{name}.log"
        self.command = [*prefix, str(runfile(binary)), f"--listen={host}:0"]
        self.command += [f"--port-file={self.port_file}", *arguments]
        encrypted = any(argument.startswith("--tls-dir") for argument in arguments)
        if not host.startswith("127.") and not encrypted:
            self.command.append("--insecure")
        self.start()

    def start(self):
        self.port_file.unlink(missing_ok=True)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=before_daemon
            )

    def until_alive(self, what, condition):
        """Waits until condition() is true and returns its value; fails if the process ends."""
        def checked():
            if self.process.poll() is not None:
                code, log = self.process.returncode, self.log.read_text()
                raise RuntimeError(f"{self.name} ended with {code}:\n{log}")
            return condition()

        return until(f"{self.name} {what}", checked)

    def address(self):
        return self.until_alive(
            "listens", lambda: self.port_file.exists() and self.port_file.read_text().strip())

    def registrations(self):
        """How often the scheduler has taken in a process of this daemon, by its log."""
        return self.log.read_text(errors="replace").count("registered as")

    def wait_for_registration(self, earlier=0):
        self.until_alive("registers", lambda: self.registrations() > earlier)

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=20 * SLOWDOWN)
            except subprocess.TimeoutExpired:
                self.kill()


class Cluster:
    """One scheduler, servers and workers; `lease` is the daemons' and tasks' lease.

    `grace` is how long a server that is told to stop may go on: by default it goes at once, so that
    no test ends with a wait for shards that nobody can take.
    """

    cli_prefix = ()  # Words before the command line, for example a namespace to run it in.

    def __init__(self, servers=1, workers=1, lease=f"{LEASE_SECONDS}s", grace="0s",
                 server_flags=(), worker_flags=()):
        self.grace = grace
        self.server_flags = server_flags
        self.worker_flags = worker_flags
        scratch = os.environ.get("TEST_TMPDIR")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="capstan-", dir=scratch))
        self.daemons = {}
        try:
            self._start(servers, workers, lease)
        except BaseException:
            self.close()
            raise

    def _start(self, servers, workers, lease):
        self._add("scheduler", "scheduler",
                  [f"--data-dir={self.folder / 'scheduler'}", f"--lease={lease}"])
        self.scheduler = self.daemons["scheduler"].address()
        for number in range(servers):
            self.add("server", number)
        for number in range(workers):
            self.add("worker", number)
        for name, daemon in self.daemons.items():
            if name != "scheduler":
                daemon.wait_for_registration()

    def add(self, role, number):
        name = f"{role}-{number}"
        arguments = [f"--scheduler={self.scheduler}", f"--name={name}"]
        folder_flag = "--work-dir" if role == "worker" else "--data-dir"
        arguments.append(f"{folder_flag}={self.folder / name}")
        if role == "server":
            arguments += [f"--grace={self.grace}", *self.server_flags]
        else:
            arguments += self.worker_flags
        self._add(role, name, arguments)

    def _add(self, role, name, arguments):
        where = self.place(name)
        self.daemons[name] = Daemon(name, f"{role}/capstan-{role}", arguments, self.folder, **where)

    def start_again(self):
        """Starts the daemons that have ended, the scheduler at its old address."""
        scheduler = self.daemons["scheduler"]
        scheduler.command = [f"--listen={self.scheduler}" if word.startswith("--listen") else word
                             for word in scheduler.command]
        for daemon in self.daemons.values():
            if daemon.process.poll() is not None:
                daemon.start()

    def place(self, _name):
        """Where a daemon runs: arguments `host` and `prefix` of Daemon."""
        return {}

    def wait_for_nodes(self, count):
        def alive():
            nodes = self.json("node", "list").get("nodes", [])
            return sum(1 for node in nodes if node.get("alive")) >= count

        until(f"{count} nodes are alive", alive, poll_seconds=CLI_POLL_SECONDS)

    def _cli(self, *arguments):
        """The CLI's command line and its environment on this cluster."""
        mine = {"CAPSTAN_SCHEDULER": self.scheduler, "HOME": str(self.folder)}
        command = [*self.cli_prefix, str(runfile("scheduler/cli/capstan")), *arguments]
        return command, {**os.environ, **mine}

    def run(self, *arguments, timeout=DEADLINE_SECONDS, check=True, env=None):
        """The CLI on this cluster; returns the finished process with text output."""
        command, environment = self._cli(*arguments)
        done = subprocess.run(
            command,
            env={**environment, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout * SLOWDOWN,
        )
        if check and done.returncode != 0:
            said = done.stdout + done.stderr
            raise RuntimeError(f"capstan {' '.join(arguments)}: exit {done.returncode}\n{said}")
        return done

    def json(self, *arguments):
        return json.loads(self.run(*arguments, "-o", "json").stdout)

    def write_job(self, text, name="job.textproto"):
        path = self.folder / name
        path.write_text(text)
        return path

    def submit(self, text, name="job.textproto"):
        """Submits a job without following it; returns its id."""
        path = self.write_job(text, name)
        out = self.run("job", "submit", str(path), "--no-wait", "-o", "json").stdout
        return json.loads(out)["jobId"]

    def status(self, job):
        return self.json("job", "status", job)

    def wait(self, job, seconds=DEADLINE_SECONDS):
        """The job's status once it has ended."""
        try:
            watched = self.run("job", "watch", job, "-o", "json", timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            described = self.run("job", "describe", job, check=False).stdout
            waited = f"waited {seconds * SLOWDOWN} s until {job} ends"
            raise TimeoutError(f"{waited}\n{described}") from None
        if not watched.stdout:
            raise RuntimeError(f"watching {job} ended with {watched.returncode}: {watched.stderr}")
        return json.loads(watched.stdout)

    def until_status(self, job, what, condition, seconds=DEADLINE_SECONDS):
        """Waits until condition(status) of a job is true and returns its value; fails with `what`
        once the job has ended, and at the deadline."""
        command, environment = self._cli("job", "watch", job, "--changes", "-o", "json")
        status = "nothing is known of it"
        with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, text=True) as watching:
            late = threading.Timer(seconds * SLOWDOWN, watching.kill)
            late.start()
            try:
                for line in watching.stdout:
                    status = json.loads(line)
                    value = condition(status)
                    if value:
                        return value
                code = watching.wait()
            finally:
                late.cancel()
                watching.kill()
        if code == -signal.SIGKILL:
            raise TimeoutError(f"waited {seconds * SLOWDOWN} s until {what}: {status}")
        raise RuntimeError(f"watching {job} until {what} ended with {code}: {status}")

    def wait_iteration(self, job, iteration):
        """Waits until the job has passed an iteration (or has ended, which fails)."""

        def passed(status):
            return status["state"] not in ENDED and int(status.get("iteration", 0)) >= iteration

        self.until_status(job, f"{job} passes iteration {iteration}", passed)

    def task_pids(self, job):
        """rank -> pid of the job's live task processes, over all worker daemons."""
        found = {}
        for name, daemon in self.daemons.items():
            if not name.startswith("worker") or daemon.process.poll() is not None:
                continue
            for pid in children(daemon.process.pid):
                line = b" ".join(command_line(pid)).decode()
                if "--task" in line and f"/{job}/" in line:
                    rank = line.split(f"/{job}/")[1].split("-")[0]
                    found[int(rank)] = pid
        return found

    def kill_task(self, job, rank):
        pid = until(f"task {rank} of {job} runs", lambda: self.task_pids(job).get(rank))
        os.kill(pid, signal.SIGKILL)

    def processor_seconds(self, role=""):
        """The seconds so far of daemons whose names begin with `role`, and of their ended tasks."""
        ticks = 0
        for name, daemon in self.daemons.items():
            if not name.startswith(role):
                continue
            stat = pathlib.Path(f"/proc/{daemon.process.pid}/stat").read_text()
            ticks += sum(int(field) for field in stat.rpartition(")")[2].split()[11:15])
        return ticks / os.sysconf("SC_CLK_TCK")

    def output(self, job):
        return pathlib.Path(self.status(job)["outputDirectory"])

    def logs(self):
        daemons = self.daemons.values()
        return "\n".join(f"--- {d.name}\n{d.log.read_text()[-4000:]}" for d in daemons)

    def close(self):
        """Stops every daemon and checks that none of their tasks is left."""
        tasks = []
        for name, daemon in self.daemons.items():
            if name.startswith("worker") and daemon.process.poll() is None:
                tasks += children(daemon.process.pid)
        for name in sorted(self.daemons, key=lambda n: n == "scheduler"):
            self.daemons[name].stop()

        def gone():
            return not any(b"--task" in command_line(pid) for pid in tasks)

        until("no task process is left", gone, 10)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is not None:
            print(self.logs())
        self.close()
        if error is None:
            shutil.rmtree(self.folder, ignore_errors=True)
