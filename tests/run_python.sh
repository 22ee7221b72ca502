#!/bin/sh
# Runs a Python test with Debian's interpreter, which has nothing but the standard library to rely on.
PYTHONPATH="$PWD/tests/integration" exec /usr/bin/python3 -B "$@"
