"""Runs a user's script in this process, as its own interpreter would."""

import pathlib
import runpy
import sys


def run_script(words):
    """words: the script and its arguments."""
    sys.argv = words
    sys.path.insert(0, str(pathlib.Path(words[0]).parent))
    runpy.run_path(words[0], run_name="__main__")
