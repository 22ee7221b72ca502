"""Runs a script over capstan's tables that waits for the lock of a file before an iteration.

    gated.py --gate=FILE --at=ITERATION SCRIPT [ARGUMENT...]

The script is as its user wrote it.
"""

import argparse
import fcntl

import capstan
from run_script import run_script


def wait_at(iteration, gate):
    """Makes the loop over the batches wait."""
    batches = capstan.batches

    def waiting(*arguments, **named):
        for batch in batches(*arguments, **named):
            if batch.iteration == iteration:
                with open(gate, encoding="utf-8") as file:
                    fcntl.flock(file, fcntl.LOCK_SH)
            yield batch

    capstan.batches = waiting


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gate", required=True)
    parser.add_argument("--at", type=int, required=True)
    parser.add_argument("script", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    wait_at(options.at, options.gate)
    run_script(options.script)


if __name__ == "__main__":
    main()
