"""Runs the tests of the Python package with the newest PyTorch and JAX that pip finds, some 3 GB.

    bazel run //tests/integration:newest_torch [-- --environment=FOLDER] [--only=torch_test]

The tests that ./test runs use Debian's PyTorch 1.13, the oldest one that the package supports, and
skip the example with JAX, which Debian does not have. Prints the versions and a line for each test;
exits with 1 if one fails.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import cluster

TESTS = ("torch_test", "torch_cases_test", "examples_test")
PACKAGES = ("torch", "jax", "numpy")


def install(folder):
    """The interpreter of a virtual environment that has the packages; those it has are kept."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return python


def passes(python, name):
    """Runs a test; its scripts run with the same interpreter, as they take sys.executable."""
    test = cluster.runfile(f"tests/integration/{name}.py")
    with tempfile.TemporaryDirectory(prefix="capstan-torch-") as folder:
        environment = {**os.environ, "TEST_TMPDIR": folder}
        code = subprocess.run([python, "-B", test], env=environment, check=False).returncode
    print(f"{name}: {'passed' if code == 0 else f'failed with {code}'}", flush=True)
    return code == 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=pathlib.Path,
                        help="folder of the virtual environment, which is made if it is not there "
                        "(default: a temporary one)")
    parser.add_argument("--only", choices=TESTS, help="one test alone")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="capstan-torch-") as temporary:
        folder = (arguments.environment or pathlib.Path(temporary) / "venv").absolute()
        python = install(folder)
        subprocess.run([python, "-c", "import jax, torch; "
                        "print('PyTorch', torch.__version__, 'JAX', jax.__version__)"], check=True)
        tests = [arguments.only] if arguments.only else TESTS
        return 0 if all([passes(python, name) for name in tests]) else 1


if __name__ == "__main__":
    sys.exit(main())
