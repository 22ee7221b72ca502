"""Runs a script over capstan's tables that waits for the lock of a file before iteration 5.

    gated.py --gate=FILE SCRIPT [ARGUMENT...]

The script is as its user wrote it.
"""

import argparse
import fcntl
import pathlib
import runpy
import sys

import capstan

GATE_AT = 5  # As in programs.py.


def wait_at(gate):
    """Makes the loop over the batches wait."""
    batches = capstan.batches

    def waiting(*arguments, **named):
        for batch in batches(*arguments, **named):
            if batch.iteration == GATE_AT:
                with open(gate, encoding="utf-8") as file:
                    fcntl.flock(file, fcntl.LOCK_SH)
            yield batch

    capstan.batches = waiting


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gate", required=True)
    parser.add_argument("script", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    wait_at(options.gate)
    sys.argv = options.script
    sys.path.insert(0, str(pathlib.Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
