"""The command `capstan`, also python3 -m capstan.

`capstan run` runs a training script as a job (_run.py). All other commands are those of the C++
command line, which has no `run`.
"""

import pathlib
import sys
from typing import NoReturn

from capstan import _programs, _run
from capstan._client import Error


def become_daemon() -> NoReturn:
    """Becomes the daemon after which this process's script is called, such as capstan-server."""
    _programs.become(pathlib.Path(sys.argv[0]).name, sys.argv[1:])


def main() -> int:
    """Runs `capstan run`, or becomes the C++ command line, which has all other commands.

    Returns the exit code: that of the job, or 2 if the script declares none.
    """
    arguments = sys.argv[1:]
    try:
        if arguments[:1] == ["run"]:
            return _run.main(arguments[1:])
        if not arguments or arguments[0] in ("-h", "--help"):
            print("capstan run SCRIPT trains by a Python script: capstan run --help\n")
        _programs.become("capstan", arguments)
    except Error as error:
        print(f"capstan: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
