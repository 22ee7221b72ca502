"""`capstan run` on clusters that run: what it submits, shows, and says when something is wrong."""

import contextlib
import fcntl
import importlib.util
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

import cluster
import plugin_program
import programs

PROGRAM = str(cluster.runfile("tests/integration/run_program.py"))
PLUGIN_PROGRAM = str(cluster.runfile("tests/integration/plugin_program.py"))
SIGNUM = str(cluster.runfile("server/optimizer/plugin/signum.so"))
COMMAND_LINE = str(cluster.runfile("scheduler/cli/capstan"))


def command(*arguments):
    return [sys.executable, "-m", "capstan", "run", f"--capstan={COMMAND_LINE}",
            *map(str, arguments)]


def environment(**more):
    """The environment of a user, which names no cluster unless `more` does."""
    mine = programs.environment() | more
    return {name: value for name, value in mine.items()
            if name not in ("CAPSTAN_SCHEDULER", "CAPSTAN_TLS_DIR", "XDG_RUNTIME_DIR")
            or name in more}


@contextlib.contextmanager
def address_without_listener():
    """An address that refuses connections, and that nobody else can take."""
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{port.getsockname()[1]}"


class RunCase(programs.ProgramCase):
    def run_script(self, *arguments, code=0, **more):
        """Runs `capstan run` on the test's cluster, unless the variables `more` name another one;
        returns its standard output and error."""
        variables = {"HOME": str(self.cluster.folder), "CAPSTAN_SCHEDULER": self.cluster.scheduler}
        done = subprocess.run(command(*arguments), env=environment(**variables | more), text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False,
                              timeout=cluster.DEADLINE_SECONDS * cluster.SLOWDOWN)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def job_of(self, said):
        return re.search(r"^submitted (\S+)$", said, re.MULTILINE).group(1)


class RunTest(RunCase):
    def test_it_trains_on_a_cluster_that_is_named_and_shows_what_the_tasks_print(self):
        output = self.cluster.folder / "model"
        said, _ = self.run_script(f"--scheduler={self.cluster.scheduler}", "--workers=2",
                                  f"--output={output}", PROGRAM, CAPSTAN_SCHEDULER="127.0.0.1:1")
        self.assertIn("[rank 0] task 0 of 2\n", said)
        self.assertIn("[rank 1] task 1 of 2\n", said)
        self.assertIn("epoch 30/30  train loss 0.0000", said)
        self.assertNotIn("accuracy", said)
        found = programs.tensors(output / "model.safetensors")
        self.assertAlmostEqual(found["slope"][0], 3, delta=1e-3)
        self.assertAlmostEqual(found["offset"][0], -1, delta=1e-3)
        # Weights were sent, and are gone; those of the caller's machine were in its own folder.
        spec = self.cluster.status(self.job_of(said))["spec"]
        self.assertRegex(spec["training"]["initialWeights"], r"^upload:\w+\.safetensors$")
        sent = self.cluster.folder / "scheduler" / "uploads"
        cluster.until("what was sent is gone", lambda: not list(sent.rglob("*.safetensors")))

    def test_accuracy_is_shown_if_the_script_counts(self):
        said, _ = self.run_script(PROGRAM, "--correct=4", "--epochs=2")
        self.assertIn("train accuracy 50.00 %", said)

    def test_fields_of_the_job_come_from_the_script_a_job_file_and_the_command_line(self):
        base = self.cluster.write_job("""
            name: "based" note: "all mine"
            training { epochs: 99 }
            resources { workers: 2 max_restarts: 7 }
            labels { key: "team" value: "ads" }
        """, "base.textproto")
        said, _ = self.run_script(f"--job={base}", "--set", "durability=LOG",
                                  "--set=checkpoints.every_iterations=20", "--no-wait",
                                  PROGRAM, "--epochs=2")
        self.assertIn("submitted based-", said)
        status = self.cluster.wait(self.job_of(said))
        self.assertEqual(status["state"], "SUCCEEDED", status)
        spec = status["spec"]
        self.assertEqual(spec["training"]["epochs"], 2)
        self.assertEqual(spec["resources"]["workers"], 2)
        self.assertEqual(spec["resources"]["maxRestarts"], 7)
        self.assertEqual(spec["durability"], "LOG")
        self.assertEqual(spec["checkpoints"]["everyIterations"], "20")
        self.assertEqual((status["note"], status["labels"]), ("all mine", {"team": "ads"}))

    def test_a_wrong_field_is_named_with_what_was_expected(self):
        _, wrong = self.run_script("--set=training.epoch=3", PROGRAM, code=2)
        self.assertIn('--set training.epoch=3: training.epoch: no such field; did you mean '
                      '"epochs"?', wrong)
        _, wrong = self.run_script("--set=resources.replicas=-1", PROGRAM, code=2)
        self.assertIn("--set resources.replicas=-1: resources.replicas: got -1, expected", wrong)
        base = self.cluster.write_job("resources { workers: 0 }", "wrong.textproto")
        _, wrong = self.run_script(f"--job={base}", PROGRAM, code=2)
        self.assertIn(f"{base}:1:13: resources.workers: got 0, expected 1 to ", wrong)
        base.write_text("resources { wrokers: 1 }")
        _, wrong = self.run_script(f"--job={base}", PROGRAM, code=2)
        self.assertIn(f"{base}:1:13: ", wrong)
        self.assertIn("wrokers", wrong)

    def test_an_interrupt_leaves_the_job_or_stops_it(self):
        for more, end in (((), "SUCCEEDED"), (("--stop-on-interrupt",), "STOPPED")):
            with self.subTest(more=more), open(self.gate, encoding="utf-8") as gate:
                fcntl.flock(gate, fcntl.LOCK_EX)
                process = subprocess.Popen(
                    command(*more, PROGRAM, f"--gate={self.gate}"), stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                    start_new_session=True, env=environment(
                        HOME=str(self.cluster.folder), CAPSTAN_SCHEDULER=self.cluster.scheduler))
                self.addCleanup(process.kill)
                lines = []
                for line in process.stdout:
                    lines.append(line)
                    if "task 0 of 1" in line:
                        break
                job = self.job_of("".join(lines))
                os.killpg(process.pid, signal.SIGINT)
                _, wrong = process.communicate(timeout=60 * cluster.SLOWDOWN)
                self.assertEqual(process.returncode, 130, wrong)
                if not more:
                    self.assertIn(f"{job} goes on. Follow it again: capstan job watch {job}\n"
                                  f"Stop it: capstan job stop {job}\n", wrong)
                fcntl.flock(gate, fcntl.LOCK_UN)
                self.assertEqual(self.cluster.wait(job)["state"], end)

    def test_variables_of_torchs_launcher_are_set(self):
        said, _ = self.run_script(
            "--workers=2", PROGRAM, "--epochs=1",
            "--say=RANK,WORLD_SIZE,LOCAL_RANK,LOCAL_WORLD_SIZE,GROUP_RANK,MASTER_ADDR,MASTER_PORT")
        for rank in (0, 1):
            for name, value in (("RANK", rank), ("WORLD_SIZE", 2), ("LOCAL_RANK", 0),
                                ("LOCAL_WORLD_SIZE", 1), ("GROUP_RANK", rank),
                                ("MASTER_ADDR", "127.0.0.1")):
                self.assertIn(f"[rank {rank}] {name} is {value}\n", said)
        self.assertEqual(len(set(re.findall(r"MASTER_PORT is (\d+)\n", said))), 1)

    def test_what_was_sent_for_a_job_that_is_refused_is_deleted(self):
        output = self.cluster.folder / "taken"
        output.mkdir()
        (output / "model.safetensors").write_text("another model")
        _, wrong = self.run_script(f"--output={output}", PROGRAM, code=1)
        self.assertIn(f"{output} holds the model of ", wrong)
        sent = self.cluster.folder / "scheduler" / "uploads"
        self.assertTrue(sent.exists())
        cluster.until("what was sent is gone", lambda: not list(sent.rglob("*.safetensors")))


# A learning rate that depends on a variable of the environment.
SCALED = """
import array, os, sys
import capstan
capstan.init(slots=2)
rule = capstan.optimizers.SGD(0.25 * int(os.environ[sys.argv[1]]))
w = capstan.table("w", array.array("f", [0]), optimizer=rule)
for batch in capstan.batches(8, 2):
    w.push(array.array("f", [1]))
    batch.finish(0)
"""


# Says its arguments, and which of how many workers it is.
SUMMED = """
import array, os, sys
import capstan
capstan.init(slots=2)
w = capstan.table("w", array.array("f", [0]), optimizer=capstan.optimizers.SGD(1))
print(f"{' '.join(sys.argv[1:])}: {os.environ.get('RANK')} of {os.environ.get('WORLD_SIZE')}")
for batch in capstan.batches(8, 2):
    w.push(array.array("f", [1]))
    batch.finish(0)
"""


class WrongTest(RunCase):
    """A mistake is reported in a sentence, and the exit code is not 0."""

    def test_arguments(self):
        for arguments, words in (
            ((), "no script is named"),
            (("none.py",), "none.py: no such file, expected a Python script"),
            (("--workers=0", PROGRAM), "argument --workers: got 0, expected 1 to 4096"),
            (("--set=resources.workers=2", PROGRAM),
             "--set resources.workers=2: expected --workers=N, of which the script is told"),
            (("--servers=x", PROGRAM), "argument --servers: got x, expected 1 to 4096"),
            (("--local", "--no-wait", PROGRAM), "--local: expected neither --scheduler nor"),
            (("--rule-plugin=none.so", PROGRAM), "--rule-plugin=none.so: no such file, expected a "
                                                 "shared library"),
            ((f"--rule-plugin={SIGNUM}", PROGRAM),
             f"--rule-plugin: the servers of the cluster at {self.cluster.scheduler} run already"),
        ):
            with self.subTest(arguments=arguments):
                self.assertIn(words, self.run_script(*arguments, code=2)[1])

    def test_no_scheduler_answers(self):
        with address_without_listener() as address:
            _, wrong = self.run_script(f"--scheduler={address}", PROGRAM, "--fail=declaring",
                                       code=75)
        self.assertIn(f"the scheduler at {address} (from --scheduler) cannot be reached", wrong)
        self.assertNotIn("Traceback", wrong)  # The script was not run in vain.
        _, wrong = self.run_script("--scheduler=here", PROGRAM, code=2)
        self.assertIn("scheduler from --scheduler", wrong)

    def test_no_cluster_is_named(self):
        _, wrong = self.run_script("--no-wait", PROGRAM, code=2, CAPSTAN_SCHEDULER="")
        self.assertIn("--no-wait: no cluster is named, and none runs here: expected "
                      "--scheduler=HOST:PORT, too", wrong)

    def test_a_folder_without_certificates(self):
        _, wrong = self.run_script("--tls-dir=/none", PROGRAM, code=2)
        self.assertIn("tls-dir from --tls-dir: /none", wrong)

    def test_a_script_that_fails_before_its_first_batch(self):
        _, wrong = self.run_script(PROGRAM, "--fail=declaring", code=2)
        self.assertIn("ValueError: told to fail at once", wrong)
        self.assertIn("--fail=declaring ended with 1 before its first batch; expected a loop over ",
                      wrong)

    def test_a_script_without_batches(self):
        script = self.cluster.folder / "nothing.py"
        script.write_text("print('all is done')\n")
        _, wrong = self.run_script(script, code=2)
        self.assertIn("all is done", wrong)
        self.assertIn("nothing.py ended with 0 before its first batch", wrong)

    def test_a_script_that_fails_on_its_worker(self):
        for where, words in (("start", "told to fail at the start"),
                             ("batch", "told to fail in a batch")):
            with self.subTest(where=where):
                said, _ = self.run_script(PROGRAM, f"--fail={where}", code=1)
                self.assertIn("[rank 0] Traceback (most recent call last):\n", said)
                self.assertIn(f"[rank 0] ValueError: {words}\n", said)
                self.assertIn("FAILED", said)

    def test_a_learning_rate_that_was_declared_with_another_world_size(self):
        script = self.cluster.folder / "scaled (1).py"  # No name of a job.
        script.write_text(SCALED)
        said, _ = self.run_script("--workers=2", script, "WORLD_SIZE", code=1)
        self.assertIn("the rule of 'w' is {'sgd': {}, 'learning_rate': 0.5, ", said)
        self.assertIn(" when it declared the job, expected the same: WORLD_SIZE was 1 then", said)
        self.run_script("--workers=2", script, "CAPSTAN_WORKERS")

    def test_a_program_or_a_folder_that_the_worker_does_not_have(self):
        said, _ = self.run_script("--set=program.command=/none/python", PROGRAM, code=1)
        self.assertIn("/none/python", said)
        said, _ = self.run_script("--set=program.directory=/none", PROGRAM, code=1)
        self.assertIn("/usr/bin/env in /none: No such file or directory", said)

    def test_a_process_of_another_launcher(self):
        for more, words in (
            ({}, "RANK and WORLD_SIZE are set, and no job has started this process: expected "
                 f"`capstan run {PLUGIN_PROGRAM}`, which sets them"),
            ({"TORCHELASTIC_RUN_ID": "none", "GROUP_WORLD_SIZE": "2"},
             "torchrun has started this process on one of 2 machines: expected `capstan run "
             f"--scheduler=HOST:PORT --workers=4 {PLUGIN_PROGRAM}`"),
        ):
            done = subprocess.run(
                [sys.executable, PLUGIN_PROGRAM], text=True, capture_output=True, check=False,
                env=environment(RANK="0", WORLD_SIZE="4", **more), timeout=60 * cluster.SLOWDOWN)
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr)


class LocalClusterTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def run_here(self, *words, check=True):
        """Runs a command for a user who has this folder alone; returns its standard output."""
        variables = environment(HOME=str(self.folder), XDG_RUNTIME_DIR=str(self.folder))
        done = subprocess.run(words, env=variables, text=True, stdin=subprocess.DEVNULL,
                              capture_output=True, check=False,
                              timeout=cluster.DEADLINE_SECONDS * cluster.SLOWDOWN)
        self.assertTrue(done.returncode == 0 or not check, done.stdout + done.stderr)
        return done.stdout

    def test_a_cluster_that_is_up_here_is_used(self):
        run = self.run_here
        self.addCleanup(run, COMMAND_LINE, "cluster", "down", check=False)
        run(COMMAND_LINE, "cluster", "up", "--servers=1", "--workers=2")
        said = run(*command("--workers=2", PROGRAM))
        self.assertIn("[rank 1] task 1 of 2\n", said)
        job, = json.loads(run(COMMAND_LINE, "job", "list", "-o", "json"))["jobs"]
        self.assertEqual(job["state"], "SUCCEEDED", job)
        self.assertEqual(len(json.loads(run(COMMAND_LINE, "node", "list", "-o", "json"))["nodes"]),
                         3)
        self.assertIn("SUCCEEDED", run(*command("--local", PROGRAM)))
        self.assertEqual(len(json.loads(run(COMMAND_LINE, "job", "list", "-o", "json"))["jobs"]), 1)

    def test_clusters_that_are_started_for_jobs_share_nothing(self):
        gate = self.folder / "gate"
        gate.touch()
        variables = environment(HOME=str(self.folder), XDG_RUNTIME_DIR=str(self.folder))
        with open(gate, encoding="utf-8") as locked:
            fcntl.flock(locked, fcntl.LOCK_EX)
            first = subprocess.Popen(command(PROGRAM, f"--gate={gate}"), env=variables, text=True,
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            self.addCleanup(first.kill)
            self.assertTrue(any("task 0 of 1" in line for line in first.stdout))
            for more in ([], ["--local"]):
                said = self.run_here(*command(*more, PROGRAM))
                self.assertIn(f"workers in {self.folder}/capstan-run-2\n", said)
                self.assertIn("SUCCEEDED", said)
        said, _ = first.communicate(timeout=cluster.DEADLINE_SECONDS * cluster.SLOWDOWN)
        self.assertEqual(first.returncode, 0, said)

    def without_run(self, launcher, *arguments):
        """The output of a script that Python, or `launcher`, starts instead of `capstan run`."""
        script = self.folder / "summed.py"
        script.write_text(SUMMED)
        path = f"{os.path.dirname(COMMAND_LINE)}:{os.environ['PATH']}"
        return self.run_here("env", f"PATH={path}", sys.executable, *launcher, script, *arguments)

    def test_a_script_that_python_has_started_becomes_a_job(self):
        said = self.without_run([], "--scale=0.5")
        self.assertIn("[rank 0] --scale=0.5: 0 of 1\n", said)
        self.assertIn("SUCCEEDED", said)

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "PyTorch is missing")
    def test_processes_of_torchs_launcher_become_one_job(self):
        # Without --redirects and --tee PyTorch 1.13 fails on Python 3.11.
        said = self.without_run(["-m", "torch.distributed.run", "--standalone",
                                 "--nproc_per_node=2", "--redirects=1", "--tee=1",
                                 f"--log_dir={self.folder}"])
        self.assertIn("[rank 0] : 0 of 2\n", said)
        self.assertIn("[rank 1] : 1 of 2\n", said)
        self.assertEqual(said.count("SUCCEEDED"), 1)

    def train_by_a_plugin(self, *arguments):
        """The folder of a model that a cluster of its own has trained by `signum`."""
        output = self.folder / "model"
        self.run_here(*command("--local", f"--rule-plugin={SIGNUM}", f"--output={output}",
                               PLUGIN_PROGRAM, *arguments))
        return output

    # Each step is a power of two: the sum has no rounding.
    MOVED = tuple(-plugin_program.UPDATES * plugin_program.RATE * ((g > 0) - (g < 0))
                  for g in plugin_program.GRADIENT)

    def test_tables_and_rows_are_trained_by_the_rule_of_a_plugin(self):
        output = self.train_by_a_plugin()
        self.assertEqual(programs.tensors(output / "model.safetensors")["weights"], self.MOVED)
        self.assertEqual(programs.rows(output / "rows-ads.safetensors"),
                         {plugin_program.KEY: self.MOVED})

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "PyTorch is missing")
    def test_a_layer_is_trained_by_the_rule_of_a_plugin(self):
        output = self.train_by_a_plugin("--torch")
        self.assertEqual(programs.tensors(output / "model.safetensors")["weight"], self.MOVED)


@unittest.skipIf(importlib.util.find_spec("torch") is None, "PyTorch is missing")
class CollectiveTest(RunCase):
    def test_a_script_may_have_a_process_group_of_its_own(self):
        said, _ = self.run_script("--workers=2", cluster.runfile(
            "tests/integration/collective_program.py"))
        for rank in (0, 1):
            self.assertIn(f"[rank {rank}] the sum of ranks is 1 of 2\n", said)


if __name__ == "__main__":
    unittest.main()
