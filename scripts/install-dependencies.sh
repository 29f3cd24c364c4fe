#!/usr/bin/env bash
# Installs the Debian packages that Switchboard builds, runs and is tested with.
# Does nothing where all are present. Needs root (or sudo) only when something is missing.
set -euo pipefail

packages=(
  build-essential ccache cmake pkg-config clang libclang-dev
  dpdk dpdk-dev libdpdk-dev libnuma-dev libpcap-dev libelf-dev
  iproute2 nftables ethtool conntrack procps
  iperf3 curl iputils-ping tcpdump tshark jq
)
case "${1:-}" in
# What only benchmarks need: peers to measure against.
bench) packages+=(openvswitch-switch-dpdk) ;;
# What only the test of network cards needs: a virtual machine to put them into.
cards) packages+=(qemu-system-x86 busybox-static cpio) ;;
esac

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "missing packages: ${missing[*]}; run this as root: apt-get install ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "installing: ${missing[*]}"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
