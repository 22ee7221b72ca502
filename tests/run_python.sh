#!/bin/sh
# Runs a Python test with Debian's interpreter, which has the standard library and nothing else.
#
# Programs that were built with a sanitizer leave their reports in files, so that no report is lost,
# whoever started the program and however it ended; a report fails the test.
tests="$PWD/tests"
export PYTHONPATH="$tests/integration:$tests/gpu:$tests/chaos:$tests/security:$PWD/worker/python"
[ -n "$TEST_TMPDIR" ] || exec /usr/bin/python3 -B "$@"

reports="$TEST_TMPDIR/sanitizer-report"
export ASAN_OPTIONS="log_path=$reports:$ASAN_OPTIONS"
export TSAN_OPTIONS="log_path=$reports:$TSAN_OPTIONS"
export UBSAN_OPTIONS="log_path=$reports:$UBSAN_OPTIONS"

/usr/bin/python3 -B "$@"
code=$?

for report in "$reports".*; do
  [ -e "$report" ] || continue
  cat "$report" >&2
  code=1
done
exit "$code"
