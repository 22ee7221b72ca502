#!/bin/sh
# Runs a fuzz target on its kept inputs: run_target.sh TARGET FOLDER.
#
# A target with libFuzzer goes on from them for ten seconds; a replay passes over the flags. The
# inputs are copied, so that new ones do not come into the tree. An input that is a finding lies in
# the test's outputs.
set -eu
inputs="$TEST_TMPDIR/inputs"
rm -rf "$inputs"
cp -RL "$2" "$inputs"
exec "$1" -max_total_time=10 -seed=1 -max_len=4096 -timeout=10 \
  -artifact_prefix="$TEST_UNDECLARED_OUTPUTS_DIR/" "$inputs"
