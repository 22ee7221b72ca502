#!/usr/bin/env bash
# What ./quickstart does: packages, build, then `capstan cluster run` in a run folder of its own.
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
readonly ROOT
readonly JOB="$ROOT/deploy/jobs/fashion_lenet_ssp.textproto"
readonly TARGETS=(
  //scheduler:capstan-scheduler //server:capstan-server //worker:capstan-worker
  //scheduler/cli:capstan
)
readonly TRAIN_IMAGES=60000 BATCH=64
readonly EXIT_USAGE=2

mode=ssp
workers=2
servers=2
epochs=5

usage() {
  cat <<'END'
Usage: ./quickstart [--mode=bsp|ssp|asp] [--workers=N] [--servers=N] [--epochs=N] [--help]

On a Debian 12 machine: installs what is missing (deploy/install), builds the programs, starts a
scheduler, servers and workers on free ports, trains LeNet on Fashion-MNIST, prints the test
accuracy and where model, curve and logs lie, and takes everything down, also on Ctrl-C.
All files go to runs/quickstart-<date>-<time> in this folder (and Bazel's cache).

  --mode=MODE   bsp (all wait for all), ssp (at most 2 iterations apart) or asp (no waiting);
                default ssp
  --workers=N   worker processes, 1 to 256; default 2
  --servers=N   server processes, 1 to 256; default 2
  --epochs=N    passes over the training images; default 5
  --help        this text

Examples: ./quickstart
          ./quickstart --mode=bsp --workers=4 --epochs=2

Exit code: 0 the training succeeded, 1 it failed, 2 wrong usage, 130 or 143 interrupted.
END
}

say() { echo "quickstart: $*"; }
wrong() {
  echo "quickstart: $*" >&2
  exit "$EXIT_USAGE"
}

# Checks that $2 is a whole number from 1 to $3; $1 is the option.
check_number() {
  if ! [[ "$2" =~ ^[0-9]{1,6}$ ]] || ((10#$2 < 1 || 10#$2 > $3)); then
    wrong "$1: got \"$2\", expected a whole number from 1 to $3"
  fi
}

parse() {
  local option value
  while (($# > 0)); do
    option="$1"
    shift
    if [[ "$option" == --help || "$option" == -h ]]; then
      usage
      exit 0
    fi
    if [[ "$option" == *=* ]]; then
      value="${option#*=}"
      option="${option%%=*}"
    elif (($# > 0)); then
      value="$1"
      shift
    else
      wrong "$option: expected a value, or no such option; see ./quickstart --help"
    fi
    case "$option" in
      --mode)
        [[ "$value" =~ ^(bsp|ssp|asp)$ ]] ||
          wrong "--mode: got \"$value\", expected bsp, ssp or asp"
        mode="$value"
        ;;
      --workers) check_number "$option" "$value" 256 && workers=$((10#$value)) ;;
      --servers) check_number "$option" "$value" 256 && servers=$((10#$value)) ;;
      --epochs) check_number "$option" "$value" 10000 && epochs=$((10#$value)) ;;
      *) wrong "$option: no such option; see ./quickstart --help" ;;
    esac
  done
}

# True while a Bazel server runs for this folder.
server_runs() {
  grep -zqsxF -- "--workspace_directory=$ROOT" /proc/[0-9]*/cmdline
}

bazel=""
build_pid=""
stop_server=no

end_build() {
  if [[ "$stop_server" == yes ]]; then (cd "$ROOT" && "$bazel" shutdown) || true; fi
  stop_server=no
}

interrupted() {
  trap '' INT TERM HUP
  if [[ -n "$build_pid" ]]; then
    kill -INT "$build_pid" 2>/dev/null || true
    wait "$build_pid" || true
  fi
  exit "$1"  # By way of end_build.
}

# Builds quietly; on a terminal Bazel shows its progress. Leaves no Bazel server behind, unless one
# ran before.
build() {
  bazel="$(command -v bazel || command -v bazel-bootstrap || true)"
  if [[ -z "$bazel" ]]; then
    echo "quickstart: found no bazel, expected the one of Debian's bazel-bootstrap" >&2
    return 1
  fi
  local options=("--ui_event_filters=-info,-stdout,-debug")
  [[ -t 2 ]] || options+=(--noshow_progress --color=no)
  server_runs || stop_server=yes
  trap end_build EXIT
  trap 'interrupted 130' INT
  trap 'interrupted 143' TERM HUP
  # In the background, since a trap waits for a program in the foreground to end.
  (cd "$ROOT" && exec "$bazel" build "${options[@]}" "${TARGETS[@]}") &
  build_pid=$!
  wait "$build_pid"
  build_pid=""
  end_build
  trap - EXIT INT TERM HUP
}

# What the job file says otherwise, for the chosen mode and size. A BSP update takes a batch of each
# worker, so that its learning rate may grow with them. Any other update takes one batch, computed
# on weights that more workers make staler: staleness acts as momentum of its own, so that with more
# than two workers the optimizer's is lowered, and with many the rate, too, or training diverges.
# The rate ends at 0 after all updates.
overrides() {
  local batches=$(((TRAIN_IMAGES + BATCH - 1) / BATCH))  # An epoch's updates.
  local rate=20 momentum=0.9                             # The rate in thousandths.
  if [[ "$mode" != bsp ]] && ((workers > 2)); then
    momentum=0.5
    rate=$((workers <= 4 ? 60 : 240 / workers))
  fi
  case "$mode" in
    bsp)
      echo 'consistency.bsp={}'
      batches=$(((TRAIN_IMAGES + BATCH * workers - 1) / (BATCH * workers)))
      rate=$((workers < 4 ? 20 * workers : 80))
      ;;
    ssp) echo 'consistency.ssp.staleness_bound=2' ;;
    asp) echo 'consistency.asp={}' ;;
  esac
  echo "training.epochs=$epochs"
  echo "training.batch_size=$BATCH"
  echo "optimizer.momentum.momentum=$momentum"
  printf 'optimizer.learning_rate=0.%03d\n' "$((rate < 1 ? 1 : rate))"
  echo "optimizer.schedule.cosine.steps=$((batches * epochs))"
  echo "resources.workers=$workers"
  echo "resources.servers=$servers"
}

main() {
  parse "$@"
  "$ROOT/deploy/install"
  say "building (the first time takes minutes)"
  build
  local run assignment arguments=()
  run="$ROOT/runs/quickstart-$(date +%Y%m%d-%H%M%S)"
  while IFS= read -r assignment; do arguments+=(--set "$assignment"); done < <(overrides)
  say "training LeNet on Fashion-MNIST: $mode, $workers workers, $servers servers, $epochs epochs"
  # One process starts, follows and takes down, so that no end of it leaves a daemon behind.
  exec "$ROOT/bazel-bin/scheduler/cli/capstan" cluster run "$JOB" --dir "$run" \
    --workers "$workers" --servers "$servers" --set "output.directory=$run/output" \
    "${arguments[@]}"
}

main "$@"
