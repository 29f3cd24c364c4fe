package instance

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// datagram6 is a UDP packet over IPv6 in an Ethernet frame.
func datagram6(to, from []byte, source, target netip.AddrPort) []byte {
	udp := make([]byte, 12)
	binary.BigEndian.PutUint16(udp[0:], source.Port())
	binary.BigEndian.PutUint16(udp[2:], target.Port())
	binary.BigEndian.PutUint16(udp[4:], 12)
	return append(append(append(append([]byte{}, to...), from...), 0x86, 0xdd), packet6(unix.IPPROTO_UDP, source.Addr(), target.Addr(), udp, 6)...)
}

// packet6 is an IPv6 packet whose transport checksum, at an offset, is filled in.
func packet6(next byte, source, target netip.Addr, transport []byte, at int) []byte {
	ip := make([]byte, 40)
	ip[0], ip[6], ip[7] = 0x60, next, 255
	binary.BigEndian.PutUint16(ip[4:], uint16(len(transport)))
	copy(ip[8:], source.AsSlice())
	copy(ip[24:], target.AsSlice())
	pseudo := uint32(next) + uint32(len(transport))
	for i := 8; i < 40; i += 2 {
		pseudo += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	binary.BigEndian.PutUint16(transport[at:], checksum(transport, pseudo))
	return append(ip, transport...)
}

// receive6 waits for a UDP packet over IPv6, answering neighbour solicitations for fe80::1 as a forwarder does.
func (w *wire) receive6(patience time.Duration) (source, target netip.AddrPort, from []byte, ok bool) {
	buffer := make([]byte, 4096)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		n, sender, err := unix.Recvfrom(w.socket, buffer, 0)
		if err != nil || n < 62 || buffer[12] != 0x86 || buffer[13] != 0xdd {
			continue
		}
		if ll, is := sender.(*unix.SockaddrLinklayer); is && ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		frame := buffer[:n]
		switch {
		case frame[20] == unix.IPPROTO_ICMPV6 && frame[54] == 135:
			w.advertise(frame)
		case frame[20] == unix.IPPROTO_UDP:
			a, _ := netip.AddrFromSlice(append([]byte{}, frame[22:38]...))
			b, _ := netip.AddrFromSlice(append([]byte{}, frame[38:54]...))
			return netip.AddrPortFrom(a, binary.BigEndian.Uint16(frame[54:])), netip.AddrPortFrom(b, binary.BigEndian.Uint16(frame[56:])),
				append([]byte{}, frame[6:12]...), true
		}
	}
	return netip.AddrPort{}, netip.AddrPort{}, nil, false
}

// advertise answers a neighbour solicitation (RFC 4861 section 4.4) for fe80::1.
func (w *wire) advertise(solicitation []byte) {
	target, _ := netip.AddrFromSlice(solicitation[62:78])
	forwarder := netip.MustParseAddr("fe80::1")
	asker, _ := netip.AddrFromSlice(append([]byte{}, solicitation[22:38]...))
	if target != forwarder || asker.IsUnspecified() {
		return
	}
	advertisement := append([]byte{136, 0, 0, 0, 0xe0, 0, 0, 0}, forwarder.AsSlice()...)
	advertisement = append(append(advertisement, 2, 1), w.mac...)
	frame := append(append(append([]byte{}, solicitation[6:12]...), w.mac...), 0x86, 0xdd)
	if _, err := unix.Write(w.socket, append(frame, packet6(unix.IPPROTO_ICMPV6, forwarder, asker, advertisement, 2)...)); err != nil {
		w.t.Fatal(err)
	}
}

func TestFirewallCarriesIPv6(t *testing.T) {
	privateNamespace(t)
	a := testAgent(t, newMemory())
	wanted := firewall(t, "80")
	wanted.Placements[0].Options = options(t, map[string]any{"default": "drop", "rules": []any{
		map[string]any{"sourcePrefixes": []any{"2001:db8:1::/64", "10.1.0.0/24"}, "protocol": "udp", "destinationPorts": []any{"53"}, "verdict": "accept"}}})
	at := serve(t, a, wanted)[16]
	w := openWire(t, at.IngressPort)
	client, server := netip.MustParseAddrPort("[2001:db8:1::5]:4000"), netip.MustParseAddrPort("[2001:db8:ff::7]:53")
	send := func(forward bool, source, target netip.AddrPort, patience time.Duration) (ok bool) {
		in, out := at.IngressMAC, at.EgressMAC
		if !forward {
			in, out = out, in
		}
		if _, err := unix.Write(w.socket, datagram6(in, w.mac, source, target)); err != nil {
			t.Fatal(err)
		}
		s, d, from, came := w.receive6(patience)
		return came && s == source && d == target && string(from) == string(out)
	}
	if send(false, server, client, never) {
		t.Error("an answer to nothing came through")
	}
	if !send(true, client, server, soon) {
		t.Fatal("the question did not come through")
	}
	if !send(false, server, client, soon) {
		t.Error("the answer did not come through")
	}
	if send(true, client, netip.MustParseAddrPort("[2001:db8:ff::7]:54"), never) {
		t.Error("another port came through")
	}
}
