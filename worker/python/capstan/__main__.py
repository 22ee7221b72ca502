"""python3 -m capstan run: runs a training script on workers of a cluster on this machine."""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any

from capstan import _job
from capstan._client import Error

_PASSED_ON = ("PYTHONPATH", "CAPSTAN_CLIENT_LIBRARY", "VIRTUAL_ENV")


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
                "expected a loop over capstan.torch.batches")


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
    capstan = options.capstan or shutil.which("capstan")
    if capstan is None:
        raise Error("there is no program capstan on PATH: name it with --capstan=FILE")
    with tempfile.TemporaryDirectory(prefix="capstan-") as name:
        folder = pathlib.Path(name)
        job = _complete(_declare(options.script, folder, options.workers), options)
        _job.write_job(folder, job)
        return subprocess.run([
            capstan, "cluster", "run", str(folder / _job.JOB_FILE),
            f"--workers={options.workers}", f"--servers={options.servers}",
            *(["--replace"] if options.replace else []),
        ], check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m capstan", description=__doc__)
    run = parser.add_subparsers(required=True).add_parser(
        "run", help="start a cluster here, train, and stop it",
        epilog="Example: python3 -m capstan run --workers=4 train.py --data=FOLDER")
    run.add_argument("--workers", type=int, default=1, help="workers (default 1)")
    run.add_argument("--servers", type=int, default=1, help="servers (default 1)")
    run.add_argument("--name", help="the job's name (default: the script's)")
    run.add_argument("--output", help="folder for the model (default: the cluster's)")
    run.add_argument("--replace", action="store_true", help="replace the model in that folder")
    run.add_argument("--capstan", help="the command line's program (default: on PATH)")
    run.add_argument("script", nargs=argparse.REMAINDER, help="the script and its arguments")
    run.set_defaults(call=_run)
    options = parser.parse_args()
    if not options.script:
        parser.error("run: no script is named")
    try:
        return int(options.call(options))
    except Error as error:
        print(f"capstan: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
