"""`capstan run`: a training script as a job, on the workers of a cluster.

    the script, up to its first batch ──► job.json, initial.safetensors
        ├─ a cluster is named, or runs here ──► capstan job submit
        └─ else ──► capstan cluster run, which starts one and takes it down
"""

import argparse
import json
import os
import pathlib
import re
import socket
import sys
import tempfile
from dataclasses import dataclass
from typing import Any, Optional

from capstan import _job, _programs
from capstan._client import Error

_COMMAND_LINE = "capstan"
# Variables of the caller's that programs get, too. MASTER_*: torch.distributed's.
_PASSED_ON = ("PYTHONPATH", "CAPSTAN_CLIENT_LIBRARY", "VIRTUAL_ENV", "MASTER_ADDR", "MASTER_PORT")
_OF_TORCHRUN = re.compile(r"((LOCAL|GROUP|ROLE)_)?(RANK|WORLD_SIZE)|ROLE_NAME|"
                          r"MASTER_(ADDR|PORT)|TORCHELASTIC_\w+")
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_COUNT_MAX = 4096  # Workers and servers of a job.

_EPILOG = """\
Examples:
  capstan run --workers=4 train.py --data=FOLDER
  capstan run --workers=4 --set durability=LOG --set checkpoints.every_iterations=500 train.py
  capstan run --scheduler=head:7070 --tls-dir=ann --workers=16 --job=big.textproto train.py
  capstan run --local --rule-plugin=signum.so train.py
The scheduler is that of --scheduler, else CAPSTAN_SCHEDULER, the configuration file or the cluster
of `capstan cluster up`; `capstan config show` says which. If none of these names one, a cluster is
started here for the job, and taken down afterwards. The workers need the script, its data and this
Python at the same paths; initial weights are sent. What the tasks print is shown after "[rank N]".
A field of the job has the value that --set gives it, else the script's, else that of --job.
Exit codes: 0 the job succeeded, 1 it failed or was stopped, 2 the script or an argument is wrong,
75 the scheduler cannot be reached, 130 and 143 interrupted: the job goes on, unless
--stop-on-interrupt is given or its cluster was started for it.
"""


@dataclass(frozen=True)
class _Cluster:
    """A running cluster: the options that name it, and the scheduler's HOST:PORT."""

    options: list[str]
    scheduler: str

    @property
    def is_here(self) -> bool:
        """Whether all of its workers are on this machine: others could not reach its scheduler."""
        return self.scheduler.rpartition(":")[0] in _LOOPBACK


def _count(text: str) -> int:
    """A number of workers or servers."""
    if text.isdecimal() and 1 <= int(text) <= _COUNT_MAX:
        return int(text)
    raise argparse.ArgumentTypeError(f"got {text}, expected 1 to {_COUNT_MAX}")


def _parser() -> argparse.ArgumentParser:
    run = argparse.ArgumentParser(
        prog="capstan run", description="Train by a script on the workers of a cluster.",
        epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = run.add_argument
    add("--workers", type=_count, metavar="N",
        help="tasks that run the script (default 1; with --job: what that says)")
    add("--servers", type=_count, metavar="N",
        help="servers that hold its parameters (default: all; of a cluster that is started: 1)")
    add("--name", help="the job's name (default: the script's; with --job: what that says)")
    add("--job", metavar="FILE", help="a job file, for fields that the script does not describe")
    add("--set", dest="overrides", action="append", default=[], metavar="FIELD=VALUE",
        help="override a field of the job; may be repeated")
    add("--output", metavar="FOLDER",
        help="folder for the model, on the scheduler's host (default: the cluster's)")
    add("--replace", action="store_true", help="replace the model in that folder")
    add("--scheduler", metavar="HOST:PORT", help="address of the scheduler (default: see below)")
    add("--tls-dir", metavar="FOLDER", help="folder of the certificates to call it with")
    add("--local", action="store_true", help="start a cluster here, whatever names another one")
    add("--rule-plugin", dest="rule_plugins", action="append", default=[], metavar="FILE",
        help="shared library with update rules for the servers of the cluster that is started "
        "(capstan_rule.h); may be repeated")
    add("--no-wait", action="store_true", help="print the job's id and return")
    add("--stop-on-interrupt", action="store_true", help="Ctrl-C stops the job, too")
    add("--capstan", metavar="PROGRAM", help="the command line's program (default: the package's "
        "own, else on PATH)")
    add("script", nargs=argparse.REMAINDER, help="the script and its arguments")
    return run


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.script:
        parser.error("no script is named")
    if not os.path.isfile(options.script[0]):
        parser.error(f"{options.script[0]}: no such file, expected a Python script")
    for file in options.rule_plugins:
        if not os.path.isfile(file):
            parser.error(f"--rule-plugin={file}: no such file, expected a shared library")
    for override in options.overrides:
        if re.match(r"resources\.workers\s*=", override):
            parser.error(f"--set {override}: expected --workers=N, of which the script is told")
    if options.local and (options.scheduler or options.no_wait):
        parser.error("--local: expected neither --scheduler nor --no-wait with it")
    return options


# ---------------------------------------------------------------- the cluster

def _find_cluster(capstan: str, options: argparse.Namespace,
                  children: _programs.Children) -> Optional[_Cluster]:
    """The cluster that is named or runs here, which answers; None: there is none.

    Raises Failed with the command line's words if the settings are wrong or nothing answers.
    """
    if options.local:
        return None
    named = [f"--{name}={value}" for name, value in
             (("scheduler", options.scheduler), ("tls-dir", options.tls_dir)) if value]

    def ask(*command: str) -> str:
        code, said, wrong = children.read([capstan, *command, "-o", "json", *named])
        if code != 0:
            raise _programs.Failed(code, wrong)
        return said

    found, = (setting for setting in json.loads(ask("config", "show"))["settings"]
              if setting["name"] == "scheduler")
    if found["origin"] == "default":
        if options.tls_dir or options.no_wait:
            raise Error(f"{'--tls-dir' if options.tls_dir else '--no-wait'}: no cluster is named, "
                        "and none runs here: expected --scheduler=HOST:PORT, too")
        return None
    if options.rule_plugins:
        raise Error(f"--rule-plugin: the servers of the cluster at {found['value']} run already, "
                    "with the rules of their operator (capstan-server --rule-plugin): expected "
                    "none, or --local for a cluster of the job's own")
    ask("node", "list")  # Before the script is run in vain.
    return _Cluster(named, found["value"])


def _free_port() -> int:
    """A port of 127.0.0.1 that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _meeting_point() -> dict[str, str]:
    """Where processes of this machine that use torch.distributed find each other."""
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}


# ---------------------------------------------------------------- the job

def _declare(options: argparse.Namespace, folder: pathlib.Path, workers: Optional[int],
             children: _programs.Children) -> dict[str, Any]:
    """Runs the script up to its first batch; returns the job that it describes."""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
             "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", **_meeting_point()}
    environment = {**os.environ, **alone, _job.DECLARE: str(folder)}
    if workers is not None:
        environment[_job.WORKERS] = str(workers)
    code, said, wrong = children.read([sys.executable, *options.script], env=environment)
    job = folder / _job.JOB_FILE
    if code == 0 and job.exists():
        return dict(json.loads(job.read_text()))
    sys.stderr.write(said + wrong)
    raise Error(f"{' '.join(options.script)} ended with {code} before its first batch; "
                "expected a loop over capstan.batches or capstan.torch.batches")


def _name_of(script: str) -> str:
    """A job's name, which has letters, digits, '-' and '_' alone."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", pathlib.Path(script).stem)[:64]


def _complete(job: dict[str, Any], options: argparse.Namespace, workers: Optional[int],
              is_here: bool) -> dict[str, Any]:
    """Adds what the script cannot know: how it is started, where, and by how many."""
    name = options.name or (None if options.job else _name_of(options.script[0]))
    if name:
        job["name"] = name
    environment = {"PYTHONUNBUFFERED": "1", **(_meeting_point() if is_here else {})}
    environment |= {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    job["program"] |= {
        "command": [sys.executable, *options.script],
        "directory": os.getcwd(),
        "environment": job["program"].get("environment", {}) | environment,
    }
    counts = {"workers": workers, "servers": options.servers}
    job["resources"] = {name: count for name, count in counts.items() if count is not None}
    if options.output:
        job["output"] = {"directory": os.path.abspath(options.output)}
    return job


def _command(options: argparse.Namespace, cluster: Optional[_Cluster], job: pathlib.Path,
             workers: Optional[int]) -> list[str]:
    """The arguments of the command line that run the job."""
    common = [str(job), "--logs", *(["--base", options.job] if options.job else []),
              *(["--replace"] if options.replace else [])]
    for override in options.overrides:
        common += ["--set", override]
    if cluster is not None:
        return ["job", "submit", *common, "--upload-weights", *cluster.options,
                *(["--no-wait"] if options.no_wait else []),
                *(["--stop-on-interrupt"] if options.stop_on_interrupt else [])]
    sizes = [f"--workers={workers}"] if workers is not None else []
    plugins = [f"--rule-plugin={file}" for file in options.rule_plugins]
    return ["cluster", "run", *common, *sizes, f"--servers={options.servers or 1}", *plugins]


def main(arguments: list[str]) -> int:
    """Runs `capstan run` with its arguments; returns the exit code.

    Raises Error if the script describes no job.
    """
    options = _parse(arguments)
    capstan = options.capstan or _programs.find(_COMMAND_LINE)
    workers = options.workers if options.workers or options.job else 1
    children = _programs.Children()
    try:
        cluster = _find_cluster(capstan, options, children)
        with tempfile.TemporaryDirectory(prefix="capstan-") as name:
            folder = pathlib.Path(name)
            job = _complete(_declare(options, folder, workers, children), options, workers,
                            cluster is None or cluster.is_here)
            _job.write_job(folder, job)
            return children.run([capstan, *_command(options, cluster, folder / _job.JOB_FILE,
                                                    workers)])
    except _programs.Interrupted as interrupted:
        return interrupted.code
    except _programs.Failed as failed:
        sys.stderr.write(str(failed))
        return failed.code


# ---------------------------------------------------------------- without `capstan run`

def _workers_of_torchrun() -> Optional[str]:
    """How many processes torchrun has started, of which this is the first; None: it did not.

    Ends the others, whose place the tasks of the job take. Raises Error if another launcher has
    started this process, or torchrun has others on other machines.
    """
    if not {"RANK", "WORLD_SIZE"} <= os.environ.keys():
        return None
    processes, machines = os.environ["WORLD_SIZE"], os.environ.get("GROUP_WORLD_SIZE", "1")
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        raise Error("RANK and WORLD_SIZE are set, and no job has started this process: expected "
                    f"`capstan run {' '.join(sys.argv)}`, which sets them")
    if machines != "1":
        raise Error(f"torchrun has started this process on one of {machines} machines: expected "
                    f"`capstan run --scheduler=HOST:PORT --workers={processes} "
                    f"{' '.join(sys.argv)}`")
    if os.environ["RANK"] != "0":
        raise SystemExit(0)
    return processes


def unless_in_a_job() -> None:
    """Becomes `capstan run` with this process's script, unless a job has started it.

    Does nothing in a process without a script, such as a notebook's. Raises Error as
    _workers_of_torchrun() does, and ends processes as that does.
    """
    main_module = sys.modules["__main__"]
    script = getattr(main_module, "__file__", None)
    if "CAPSTAN_TASK_SPEC" in os.environ or script is None or main_module.__spec__ is not None:
        return
    command = ["capstan", "run", f"--workers={_workers_of_torchrun() or 1}", script, *sys.argv[1:]]
    environment = {name: value for name, value in os.environ.items()
                   if not _OF_TORCHRUN.fullmatch(name)}
    print(f"no job has started this process: it goes on as `{' '.join(command)}`",
          file=sys.stderr, flush=True)
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", *command], environment)
