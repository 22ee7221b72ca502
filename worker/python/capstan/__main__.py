"""The command `capstan`, also python3 -m capstan.

`capstan run` runs a training script on workers of a cluster on this machine. All other commands are
those of the C++ command line, which has no `run`.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any, NoReturn, Optional

from capstan import _job
from capstan._client import Error

_COMMAND_LINE = "capstan"
_EXIT_OF_SIGNAL = 128  # And its number, as shells have it.
_PASSED_ON = ("PYTHONPATH", "CAPSTAN_CLIENT_LIBRARY", "VIRTUAL_ENV")


def _find(name: str) -> str:
    """The path of a program: that of the wheel, else (in a source tree) one on PATH."""
    bundled = pathlib.Path(__file__).parent / "bin" / name
    found = str(bundled) if bundled.exists() else shutil.which(name)
    if found is None:
        raise Error(f"there is no program {name} on PATH, and none in the package")
    return found


def _become(name: str, arguments: list[str]) -> NoReturn:
    """Replaces this process by a program, which keeps its process id, signals and exit code."""
    program = _find(name)
    sys.stdout.flush()
    os.execv(program, [name, *arguments])


def become_daemon() -> NoReturn:
    """Becomes the daemon after which this process's script is called, such as capstan-server."""
    _become(pathlib.Path(sys.argv[0]).name, sys.argv[1:])


def _declare(script: list[str], folder: pathlib.Path, workers: int) -> dict[str, Any]:
    """Runs the script up to its first batch; returns the job that it describes."""
    command = [sys.executable, *script]
    environment = {**os.environ, _job.DECLARE: str(folder), _job.WORKERS: str(workers)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    job = folder / _job.JOB_FILE
    if ended.returncode == 0 and job.exists():
        return dict(json.loads(job.read_text()))
    sys.stderr.write(ended.stdout + ended.stderr)
    raise Error(f"{' '.join(script)} ended with {ended.returncode} before its first batch; "
                "expected a loop over capstan.batches or capstan.torch.batches")


def _complete(job: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Adds what the script cannot know: how it is started, where, and by how many."""
    job["name"] = options.name or pathlib.Path(options.script[0]).stem[:64]
    job["program"] |= {
        "command": [sys.executable, *options.script],
        "directory": os.getcwd(),
        "environment": {name: os.environ[name] for name in _PASSED_ON if name in os.environ},
    }
    job["resources"] = {"workers": options.workers, "servers": options.servers}
    if options.output:
        job["output"] = {"directory": os.path.abspath(options.output)}
    return job


def _run(options: argparse.Namespace) -> int:
    capstan = options.capstan or _find(_COMMAND_LINE)
    with tempfile.TemporaryDirectory(prefix="capstan-") as name:
        folder = pathlib.Path(name)
        job = _complete(_declare(options.script, folder, options.workers), options)
        _job.write_job(folder, job)
        return _run_to_its_end([
            capstan, "cluster", "run", str(folder / _job.JOB_FILE),
            f"--workers={options.workers}", f"--servers={options.servers}",
            *(["--replace"] if options.replace else []),
        ])


def _run_to_its_end(command: list[str]) -> int:
    """Runs a program that ends in order when it is told to; returns its exit code.

    Ctrl-C reaches the program by itself, and SIGTERM is passed on: either makes `cluster run` take
    its daemons down, which this process waits for.
    """
    def pass_on(number: int, _frame: Any) -> None:
        if number == signal.SIGTERM and process is not None:
            process.terminate()

    process: Optional[subprocess.Popen[bytes]] = None
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    with subprocess.Popen(command) as process:
        code = process.wait()
    return code if code >= 0 else _EXIT_OF_SIGNAL - code


def _parser() -> argparse.ArgumentParser:
    run = argparse.ArgumentParser(
        prog="capstan run", description="Start a cluster here, train by a script, and stop it.",
        epilog="Example: capstan run --workers=4 train.py --data=FOLDER")
    run.add_argument("--workers", type=int, default=1, help="workers (default 1)")
    run.add_argument("--servers", type=int, default=1, help="servers (default 1)")
    run.add_argument("--name", help="the job's name (default: the script's)")
    run.add_argument("--output", help="folder for the model (default: the cluster's)")
    run.add_argument("--replace", action="store_true", help="replace the model in that folder")
    run.add_argument("--capstan", help="the command line's program (default: the package's own, "
                     "else on PATH)")
    run.add_argument("script", nargs=argparse.REMAINDER, help="the script and its arguments")
    return run


def main() -> int:
    """Runs `capstan run`, or becomes the C++ command line, which has all other commands.

    Returns the exit code: that of the job, or 2 if the script declares none.
    """
    arguments = sys.argv[1:]
    try:
        if arguments[:1] == ["run"]:
            parser = _parser()
            options = parser.parse_args(arguments[1:])
            if not options.script:
                parser.error("no script is named")
            return _run(options)
        if not arguments or arguments[0] in ("-h", "--help"):
            print("capstan run SCRIPT trains by a Python script: capstan run --help\n")
        _become(_COMMAND_LINE, arguments)
    except Error as error:
        print(f"capstan: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
