#!/bin/sh
# Runs a Python test with Debian's interpreter, which has the standard library and nothing else.
PYTHONPATH="$PWD/tests/integration" exec /usr/bin/python3 -B "$@"
