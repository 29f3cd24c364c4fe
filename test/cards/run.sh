#!/usr/bin/env bash
# Network cards: a forwarder with two workers drives three emulated ones by VFIO, in a virtual machine without KVM. Intel 82540EM and virtio 1.0 are
# edges of two hosts, which are network namespaces here; virtio 1.0 with two queues and receive side scaling is the underlay, with another
# forwarder behind it. `make test-cards` installs what it needs; half a minute.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=$PWD/.build/bin:$PATH
forwarder=${1:?usage: run.sh FORWARDER}
say() { printf 'cards: %s (%d s)\n' "$*" "$SECONDS"; }
fail() { echo "cards: FAILED: $*" >&2; tail -q -n 40 "$work"/{console,qemu} >&2 2>/dev/null; exit 1; }

work=$(mktemp -d) name=sbcards$$ machine= peer=
finish() {
  local process
  for process in $machine $peer; do
    { kill "$process" 2>/dev/null && wait "$process" 2>/dev/null; } || true
  done
  for namespace in "$name" "$name-left" "$name-right" "$name-peer" "$name-far"; do ip netns delete "$namespace" 2>/dev/null || true; done
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

# The machine's kernel is the distribution's; it is unpacked, not installed.
kernel_files=.build/cards/kernel
if [ ! -d "$kernel_files" ]; then
  say "fetching a kernel"
  package=$(apt-cache depends linux-image-cloud-amd64 | awk '$1 == "Depends:" && $2 ~ /^linux-image-/ {print $2; exit}')
  (cd "$work" && apt-get download -qq "$package" && dpkg-deb -x ./"$package"_*.deb kernel)
  mkdir -p .build/cards
  mv "$work/kernel" "$kernel_files"
fi
kernel=$(echo "$kernel_files"/boot/vmlinuz-*)
modules=$(echo "$kernel_files"/lib/modules/*/kernel)

# The machine's files: busybox, the forwarder, the libraries and drivers of DPDK, and the kernel's VFIO.
files() {
  local root=$work/root plugins=/usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0 library
  mkdir -p "$root"/{bin,proc,sys,dev,tmp,var/run,modules}
  cp /bin/busybox "$root/bin/"
  cp "$forwarder" "$root/bin/forwarder"
  # One file under two names, as on a whole system: DPDK takes two copies for two drivers.
  mkdir -p "$root$plugins"
  for library in $plugins/librte_{bus_pci,bus_vdev,mempool_ring,net_null,net_e1000,net_virtio}.so; do
    install -D "$library" "$root/lib/x86_64-linux-gnu/$(basename "$library").23"
    ln -s "/lib/x86_64-linux-gnu/$(basename "$library").23" "$root$library"
  done
  for library in $(ldd "$forwarder" $plugins/librte_net_{null,e1000,virtio}.so | awk '$2 == "=>" {print $3} $1 ~ /ld-linux/ {print $1}' | sort -u); do
    [ -e "$root$library" ] || install -D "$library" "$root$library"
  done
  for module in virt/lib/irqbypass drivers/vfio/vfio drivers/vfio/vfio_virqfd drivers/vfio/vfio_iommu_type1 \
    drivers/vfio/pci/vfio-pci-core drivers/vfio/pci/vfio-pci; do
    [ ! -e "$modules/$module.ko" ] || cp "$modules/$module.ko" "$root/modules/"
  done
  buf convert proto --type switchboard.forwarder.v1.RuleSet --from test/cards/rules.json --to "$root/rules.binpb"
  install -m 755 test/cards/init.sh "$root/init"
  (cd "$root" && find . | cpio --quiet -o -H newc) >"$work/files"
}

# Two hosts, each on a bridge with one card.
hosts() {
  local side number=1
  ip netns add "$name"
  for side in left right; do
    ip netns add "$name-$side"
    ip -n "$name" link add "v-$side" type veth peer name eth0 netns "$name-$side"
    ip -n "$name" tuntap add "t-$side" mode tap
    ip -n "$name" link add "b-$side" type bridge
    for port in "v-$side" "t-$side"; do ip -n "$name" link set "$port" master "b-$side" up; done
    ip -n "$name" link set "b-$side" up
    ip -n "$name-$side" address add "10.7$number.0.2/24" dev eth0
    ip -n "$name-$side" link set eth0 up
    ip -n "$name-$side" route add default via "10.7$number.0.1"
    number=2
  done
}

# A forwarder that has a tunnel to the third card, and a host behind it.
far() {
  local namespace
  for namespace in peer far; do ip netns add "$name-$namespace"; done
  ip -n "$name" link add v-far mtu 1600 type veth peer name wan mtu 1600 netns "$name-peer"
  ip -n "$name" tuntap add t-far mode tap multi_queue
  ip -n "$name" link set t-far mtu 1600
  ip -n "$name" link add b-far type bridge
  for port in v-far t-far; do ip -n "$name" link set "$port" master b-far up; done
  ip -n "$name" link set b-far up
  ip -n "$name-peer" link set wan up
  ip -n "$name-peer" link add lan type veth peer name eth0 netns "$name-far"
  ip -n "$name-peer" link set lan up
  ip -n "$name-far" address add 10.73.0.2/24 dev eth0
  ip -n "$name-far" link set eth0 up
  ip -n "$name-far" route add default via 10.73.0.1
  buf convert proto --type switchboard.forwarder.v1.RuleSet --from test/cards/far.json --to "$work/far.binpb"
  ip netns exec "$name-peer" "$forwarder" --site far --name f1 --rules "$work/far.binpb" --status "$work/far.status" \
    --flow-memory-mb 16 --metrics off &
  peer=$!
}

# The last value of a counter of the machine's forwarder that has been told whole.
counted() {
  tr -d '\r' <"$work/console" | awk -v name="$1" '/^counted$/ {told = seen} index($0, name) {seen = $2} END {print told + 0}'
}

say "making the machine's files"
files
hosts
far
say "starting the machine ($(basename "$kernel"))"
ip netns exec "$name" qemu-system-x86_64 -machine q35,accel=tcg,kernel-irqchip=split -cpu max -smp 2 -m 1024 -display none -no-reboot \
  -device intel-iommu,intremap=on -kernel "$kernel" -initrd "$work/files" -append "console=ttyS0 intel_iommu=on quiet panic=-1" \
  -serial "file:$work/console" -monitor none \
  -netdev tap,id=left,ifname=t-left,script=no,downscript=no -device e1000,netdev=left,addr=3 \
  -netdev tap,id=right,ifname=t-right,script=no,downscript=no -device virtio-net-pci,netdev=right,addr=4,disable-legacy=on,iommu_platform=on \
  -netdev tap,id=far,ifname=t-far,script=no,downscript=no,queues=2 -device virtio-net-pci,netdev=far,addr=5,disable-legacy=on,iommu_platform=on,mq=on,rss=on,vectors=6 2>"$work/qemu" &
machine=$!
for ((waited = 0; ; waited++)); do
  ip netns exec "$name-left" ping -q -c 1 -W 1 10.71.0.1 >/dev/null && break
  kill -0 "$machine" 2>/dev/null || fail "the machine has ended"
  [ "$waited" -lt 180 ] || fail "the forwarder did not answer at the first card"
done
say "the forwarder answers at the first card"
ip netns exec "$name-right" ping -q -c 3 -i 0.2 -W 5 10.72.0.1 >/dev/null || fail "no answer at the second card"
ip netns exec "$name-left" ping -q -c 20 -i 0.1 -W 5 -s 1400 10.72.0.2 >"$work/ping" || fail "no way from card to card: $(cat "$work/ping")"
say "from card to card: $(tail -2 "$work/ping" | tr '\n' ' ')"
ip netns exec "$name-right" timeout 60 busybox nc -l -p 7 -e cat &
head -c 2000000 /dev/urandom >"$work/sent"
sleep 0.5
ip netns exec "$name-left" timeout 60 busybox nc 10.72.0.2 7 <"$work/sent" >"$work/echo" || fail "no TCP connection from card to card"
cmp "$work/sent" "$work/echo" || fail "TCP from card to card: other bytes came back"
say "two megabytes by TCP from card to card and back"

# How long packets stayed is counted of one round in four: so that this tells who received them, they come one by one.
# One way only, out of tunnels: what comes the other way the cards cannot deal out.
ip netns exec "$name-left" ping -q -c 3 -i 0.2 -W 5 10.73.0.2 >"$work/ping" || fail "no way through the tunnel: $(cat "$work/ping")"
ip -n "$name-left" route add blackhole 10.73.0.0/24
sleep 3
connections=400
handed=$(counted '"handed_over"') received=$(counted 'received_packets_total{port="wan"}')
worked=("$(counted 'latency_seconds_count{worker="0"}')" "$(counted 'latency_seconds_count{worker="1"}')")
ip netns exec "$name-far" bash -c "for ((i = 0; i < $connections; i++)); do echo >/dev/udp/10.71.0.2/9; sleep 0.01; done"
for ((waited = 0; $(counted 'received_packets_total{port="wan"}') < received + connections; waited++)); do
  [ "$waited" -lt 30 ] || fail "of $connections packets the third card received $(($(counted 'received_packets_total{port="wan"}') - received))"
  sleep 1
done
handed=$(($(counted '"handed_over"') - handed))
worked=("$(($(counted 'latency_seconds_count{worker="0"}') - worked[0]))" "$(($(counted 'latency_seconds_count{worker="1"}') - worked[1]))")
[ "$handed" -le $((connections / 20)) ] || fail "$handed of $connections packets out of tunnels did not arrive at the worker that has their connection"
[ "${worked[0]}" -gt 10 ] && [ "${worked[1]}" -gt 10 ] || fail "one worker did all the work: ${worked[*]}"
say "$connections connections through a tunnel: both workers took part (${worked[*]}), $handed packets were handed over; passed"
