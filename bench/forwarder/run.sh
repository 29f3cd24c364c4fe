#!/usr/bin/env bash
# Runs the forwarder's benchmark in namespaces of its own: whatever it starts, mounts or connects ends with it, also when
# it is interrupted. Only the number of 2 MB pages is the machine's; it is put back.
set -euo pipefail

program=$1
shift
pages=1536
setting=/proc/sys/vm/nr_hugepages
before=$(cat "$setting")

if [ "$(id -u)" -ne 0 ]; then
  echo "bench-forwarder: run it as root: it makes network namespaces and reserves 2 MB pages" >&2
  exit 1
fi
child=
tidy() {
  trap - EXIT
  if [ -n "$child" ]; then
    kill -KILL "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
  fi
  echo "$before" >"$setting"
}
trap tidy EXIT
trap 'exit 130' INT TERM HUP

if [ "$before" -lt "$pages" ]; then
  echo "$pages" >"$setting"
fi
unshare --mount --net --pid --fork --kill-child --mount-proc bash -euo pipefail -c '
  mount -t tmpfs tmpfs /run
  mkdir -p /run/huge
  mount -t hugetlbfs hugetlbfs /run/huge
  ip link set lo up
  exec "$@"' bench-forwarder "$program" "$@" &
child=$!
wait "$child"
