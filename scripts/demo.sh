#!/usr/bin/env bash
# Brings up the laboratory of examples/lab/four-sites.yaml, activates chains, sends traffic and shows what happened.
# Leaves the laboratory running; `make demo-down` removes it. Can be repeated and interrupted at any moment.
set -euo pipefail
# An interrupt ends the demo whatever runs, also what runs beside it. Repeating it goes on from there.
interrupted() {
  trap - INT TERM
  local running
  running=$(jobs -p)
  [ -z "$running" ] || kill $running 2>/dev/null || true
  printf '\ninterrupted: make demo goes on from here, make demo-down removes what is there\n' >&2
  exit 130
}
trap interrupted INT TERM

cd "$(dirname "$0")/.."
export PATH=$PWD/bin:$PATH
server=198.51.100.80
# Other laboratories may run beside the demo's; a test runs one of its own.
laboratory=${DEMO_LABORATORY:-examples/lab/four-sites.yaml}
state=${DEMO_STATE:-/var/lib/switchboard/lab}
name=$(sed -n 's/^  name: *//p' "$laboratory" | head -n 1)
where=(--lab "$name")
[ -z "${DEMO_STATE:-}" ] || where+=(--state "$state")
export SWITCHBOARD_TOKEN_FILE=$state/$name/token

if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "the demo makes network namespaces: run it as root" >&2; exit 1; }
  exec sudo --preserve-env=PATH "$0" "$@"
fi

if [ "${1:-up}" = down ]; then
  if [ ! -x bin/switchboard ]; then # interrupted before it was built, or cleaned
    [ -e "$state/$name" ] || { echo "demo-down: there is nothing to remove"; exit 0; }
    go build -o bin/ ./cmd/switchboard
  fi
  exec switchboard lab down --state "$state" -f "$laboratory"
fi

heading() { printf '\n\033[1m%s\033[0m\n' "$*"; }
shown() { printf '\033[2m$ %s\033[0m\n' "$*"; "$@"; }
on() { switchboard lab exec "${where[@]}" "$@"; }
average_round_trip() { on "$1" -- ping -q -c 10 -i 0.05 -W 2 "$2" | sed -n 's|.* = [^/]*/\([^/]*\)/.*|\1|p'; }
throughput() { # client machine, server machine, server address
  # One that an interrupted demo left serves as well.
  on "$2" -- iperf3 --server --daemon --port 5201 >/dev/null 2>&1 || true
  on "$1" -- iperf3 --client "$3" --port 5201 --time 3 --json | jq -r '.end.sum_received.bits_per_second / 1e6 | floor'
}

heading "A wide area of four sites"
switchboard lab up --state "$state" -f "$laboratory"
SWITCHBOARD_SERVER=$(<"$state/$name/api")
export SWITCHBOARD_SERVER
shown switchboard get sites

heading "A chain: acme's office → firewall → address translation → Internet"
shown switchboard apply -f examples/chains/web.yaml -f examples/chains/web-ipv6.yaml -f examples/chains/globex-web.yaml
for chain in acme/web acme/web-ipv6 globex/web; do
  switchboard wait chain "${chain#*/}" --customer "${chain%/*}" --for phase=active --timeout 60s
done
shown switchboard get chains -o wide
shown switchboard get routes -o wide

heading "Traffic"
shown switchboard lab exec "${where[@]}" acme-host -- curl -sS -m 10 "http://$server/"
shown switchboard lab exec "${where[@]}" acme-host -- curl -sS -m 10 "http://[2001:db8:ffff::80]/"
shown switchboard lab exec "${where[@]}" globex-host -- curl -sS -m 10 "http://$server/"

heading "One connection, hop by hop: its first packet and the answer"
(sleep 1; on acme-host -- curl -sS -m 10 -o /dev/null "http://$server/") &
shown switchboard trace web --customer acme --duration 3s --destination-port 80 | sed -n 1,12p
wait

heading "What the functions and the forwarders counted"
shown switchboard get instances -o wide
shown switchboard top --once

heading "What the chain costs"
direct_trip=$(average_round_trip office 198.18.1.4)
chain_trip=$(average_round_trip acme-host "$server")
direct_rate=$(throughput office dc 198.18.1.4)
chain_rate=$(throughput acme-host www "$server")
printf '%-34s %12s %16s\n' '' 'round trip' 'TCP throughput'
printf '%-34s %9s ms %9s Mbit/s\n' 'office to data centre, no chain' "$direct_trip" "$direct_rate"
printf '%-34s %9s ms %9s Mbit/s\n' 'host to server, through the chain' "$chain_trip" "$chain_rate"

heading "The laboratory runs on. Try next:"
cat <<END
  export PATH=$PWD/bin:\$PATH
  switchboard apply -f examples/changes/inspected.yaml      # insert a transparent filter into the live chain
  switchboard lab pcap office | tshark -r -                 # see VXLAN, labels and inner packets (interrupt to end)
  switchboard top                                           # live rates of every chain, stage and direction

  make demo-down                                            # remove every trace
END
