#!/usr/bin/env bash
# Installs the wheel on a fresh Debian 12 that has Python and no compiler, and trains by it there.
#
#   bazel run --run_under=sudo //worker/python:clean_root
#
# debootstrap downloads some 100 MB of packages, and makes the system in a temporary folder. All of
# its processes end with the namespace of processes that they are in.
set -euo pipefail

fail() { echo "clean_root: $*" >&2; exit 1; }

main() {
  local wheel="$1" program="$2" trial="$3" root
  [[ "$(id -u)" -eq 0 ]] || fail "not root, which debootstrap and chroot ask for"
  command -v debootstrap >/dev/null || fail "found no debootstrap: deploy/install --tests"
  root="$(mktemp -d -p /var/tmp capstan-root-XXXXXX)"
  # shellcheck disable=SC2064  # Expanded now: `root` is local.
  trap "rm -rf --one-file-system '$root'" EXIT
  debootstrap --variant=minbase --include=python3,python3-venv bookworm "$root" >"$root.log" ||
    fail "debootstrap failed; its output is in $root.log"
  rm "$root.log"
  cp -L "$wheel" "$program" "$trial" "$root/root/"
  # shellcheck disable=SC2016  # Expanded in the new root.
  unshare --mount --pid --fork --mount-proc="$root/proc" chroot "$root" /usr/bin/env -i \
    PATH=/usr/bin:/bin:/usr/sbin:/sbin sh -c '
      . /etc/os-release && echo "$PRETTY_NAME: $(ldd --version | head -1)"
      for tool in cc gcc g++ ld git bazel; do ! command -v $tool || exit 1; done
      cd /root && python3 try_wheel.py *.whl line_program.py /usr/bin/python3'
}

main "$@"
