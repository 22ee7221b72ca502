"""Installs the wheel for interpreters of Python, and trains by it with each.

    try_wheel.py WHEEL SCRIPT PYTHON...

For each PYTHON: a virtual environment without other packages, `pip install` of WHEEL, `capstan run`
of SCRIPT (line_program.py), and a look at the line that it found. Exits with 1 if one fails. Needs
the standard library alone.
"""

import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile

_COMMAND_SECONDS_MAX = 300


def start(command, folder):
    """Starts a command in `folder`, with an environment that knows of no source tree."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TMPDIR": str(folder),
                   "LC_ALL": "C.UTF-8"}
    return subprocess.Popen([str(word) for word in command], cwd=folder, env=environment, text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, start_new_session=True)


def run(command, folder):
    """The output of a command that is started so."""
    with start(command, folder) as process:
        try:
            output, _ = process.communicate(timeout=_COMMAND_SECONDS_MAX)
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)  # A cluster takes its daemons down.
            raise
    if process.returncode != 0:
        words = " ".join(map(str, command))
        raise RuntimeError(f"{words}: exit {process.returncode}\n{output}")
    return output


def install(wheel, python, folder, *options):
    """Makes a virtual environment in `folder`/venv, with the wheel; returns its folder bin."""
    run([python, "-m", "venv", *options, folder / "venv"], folder)
    programs = folder / "venv" / "bin"
    run([programs / "python", "-m", "pip", "install", "--no-index", "--no-deps", wheel], folder)
    return programs


def train(programs, folder, script, *arguments, workers=2):
    """Trains by `capstan run` of the environment whose folder bin is `programs`; {name: floats}.

    The environment is not activated: PATH does not name it.
    """
    output = folder / f"{script.stem}-model"
    run([programs / "capstan", "run", f"--workers={workers}", f"--output={output}", script,
         *arguments], folder)
    return read_tensors(output / "model.safetensors")


def read_tensors(file):
    """The fp32 tensors of a safetensors file by name."""
    data = file.read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    found = {}
    for name, tensor in json.loads(data[8:end]).items():
        if name != "__metadata__":
            first, last = tensor["data_offsets"]
            found[name] = struct.unpack(f"<{(last - first) // 4}f", data[end + first:end + last])
    return found


def main():
    wheel, script, *interpreters = map(os.path.abspath, sys.argv[1:])
    failed = 0
    for python in interpreters:
        with tempfile.TemporaryDirectory(prefix="capstan-wheel-") as name:
            folder = pathlib.Path(name)
            try:
                version = run([python, "--version"], folder).strip()
                found = train(install(wheel, python, folder), folder, pathlib.Path(script))
                right = abs(found["slope"][0] - 3) < 1e-3 and abs(found["offset"][0] + 1) < 1e-3
                print(f"{version}: {'passed' if right else 'FAILED'}: {found}", flush=True)
            except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
                right = False
                print(f"{python}: FAILED: {error}", flush=True)
            failed += not right
    return 1 if failed or not interpreters else 0


if __name__ == "__main__":
    sys.exit(main())
