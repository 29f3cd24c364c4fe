#!/usr/bin/env bash
# pages.sh SETTING STATE PAGES COMMAND...: runs a command while at least PAGES huge pages are reserved, and puts their number back when it
# ends, also when it is interrupted. SETTING is the kernel's file of that number. One such command runs at a time: others wait for the lock of the
# file STATE, which holds the number to put back, so that it is known even if this script was killed.
set -euo pipefail
setting=$1
state=$2
pages=$3
shift 3

exec 9>>"$state"
if ! flock --nonblock 9; then
  echo "${0##*/}: waits for another one to end" >&2
  flock 9
fi
# What one that was killed has left stands for what the machine had.
[ -s "$state" ] || cat "$setting" >"$state"
before=$(cat "$state")

child=
tidy() {
  trap - EXIT
  if [ -n "$child" ]; then
    kill -KILL "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
  fi
  echo "$before" >"$setting"
  : >"$state"
}
trap tidy EXIT
trap 'exit 130' INT TERM HUP

if [ "$before" -lt "$pages" ]; then
  echo "$pages" >"$setting"
fi
# Whatever outlives the command does not keep the lock.
"$@" 9>&- &
child=$!
wait "$child"
