package hostnet

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// AnswersARP asks on an interface who has an IPv4 address (RFC 826), in the name of a source address, and says whether
// somebody answers within the time given. It needs no address on the interface: a forwarder's underlay has none.
func (n *Namespace) AnswersARP(name string, source, target netip.Addr, patience time.Duration) (bool, error) {
	if !source.Is4() || !target.Is4() {
		return false, fmt.Errorf("ARP for %s in the name of %s: both must be IPv4", target, source)
	}
	link, err := n.get(name)
	if err != nil {
		return false, err
	}
	answered := false
	err = n.Do(func() error {
		const arp = unix.ETH_P_ARP<<8&0xff00 | unix.ETH_P_ARP>>8 // in network order
		socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, arp)
		if err != nil {
			return fmt.Errorf("packet socket: %w", err)
		}
		defer unix.Close(socket)
		at := &unix.SockaddrLinklayer{Protocol: arp, Ifindex: link.Attrs().Index}
		if err := unix.Bind(socket, at); err != nil {
			return fmt.Errorf("packet socket on %s: %w", name, err)
		}
		if _, err := unix.Write(socket, arpRequest(link.Attrs().HardwareAddr, source, target)); err != nil {
			return fmt.Errorf("send on %s: %w", name, err)
		}
		answered, err = awaitARP(socket, target, patience)
		return err
	})
	return answered, err
}

func arpRequest(mac net.HardwareAddr, source, target netip.Addr) []byte {
	frame := append(bytes.Repeat([]byte{0xff}, 6), mac...)
	frame = append(frame, 0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1)
	frame = append(append(frame, mac...), source.AsSlice()...)
	return append(append(frame, make([]byte, 6)...), target.AsSlice()...)
}

func awaitARP(socket int, target netip.Addr, patience time.Duration) (bool, error) {
	frame := make([]byte, 128)
	for end := time.Now().Add(patience); ; {
		left := time.Until(end)
		if left <= 0 {
			return false, nil
		}
		timeout := unix.NsecToTimeval(max(left.Nanoseconds(), int64(time.Millisecond)))
		if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
			return false, fmt.Errorf("packet socket: %w", err)
		}
		n, _, err := unix.Recvfrom(socket, frame, 0)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case err != nil:
			return false, fmt.Errorf("receive: %w", err)
		case n >= 42 && frame[21] == 2 && bytes.Equal(frame[28:32], target.AsSlice()):
			return true, nil
		}
	}
}
