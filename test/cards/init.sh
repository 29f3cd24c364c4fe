#!/bin/busybox sh
# The first process of the virtual machine of run.sh: gives the cards to VFIO, starts the forwarder and tells what it counts.
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t sysfs none /sys
/bin/busybox mount -t devtmpfs none /dev
/bin/busybox mkdir -p /dev/hugepages
/bin/busybox mount -t hugetlbfs none /dev/hugepages
echo 128 >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
for module in irqbypass vfio vfio_virqfd vfio_iommu_type1 vfio-pci-core vfio-pci; do
  [ ! -e /modules/$module.ko ] || /bin/busybox insmod /modules/$module.ko
done
for card in 0000:00:03.0 0000:00:04.0 0000:00:05.0; do
  echo vfio-pci >/sys/bus/pci/devices/$card/driver_override
  echo $card >/sys/bus/pci/drivers_probe
done
/bin/busybox ip link set lo up
while /bin/busybox sleep 1; do
  /bin/busybox wget -q -O - http://127.0.0.1:9470/metrics | /bin/busybox grep -E '"handed_over"|latency_seconds_count|received_packets_total'
  echo "counted"
done 2>/dev/null &
/bin/forwarder --site card --name f1 --rules /rules.binpb --status /tmp/status --huge-pages --buffers 8192 --flow-memory-mb 16 --workers 2
echo "the forwarder has ended: $?"
/bin/busybox poweroff -f
