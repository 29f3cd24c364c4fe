#!/usr/bin/env bash
# Runs the forwarder's benchmark in namespaces of its own: whatever it starts, mounts or connects ends with it, also when
# it is interrupted. Only the number of 2 MB pages is the machine's; pages.sh puts it back, and lets one benchmark run at a time,
# by the lock of a file in /run that stays, empty.
set -euo pipefail

if [ "$(id -u)" -ne 0 ]; then
  echo "bench-forwarder: run it as root: it makes network namespaces and reserves 2 MB pages" >&2
  exit 1
fi
exec "$(dirname "$0")/pages.sh" /proc/sys/vm/nr_hugepages /run/switchboard-bench-forwarder.pages 1536 \
  unshare --mount --net --pid --fork --kill-child --mount-proc bash -euo pipefail -c '
  mount -t tmpfs tmpfs /run
  mkdir -p /run/huge
  mount -t hugetlbfs hugetlbfs /run/huge
  ip link set lo up
  exec "$@"' bench-forwarder "$@"
