package global

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// markLength is that of the mark that ends a probe.
const markLength = 16

// firstProbePort is the first that a probe may draw as its source: of the dynamic ports of RFC 6335 those above what Linux gives
// to connections (net.ipv4.ip_local_port_range ends at 60999). A probe with the port of a connection that ended a moment ago
// would follow that one's flow entries.
const firstProbePort = 61000

// IP protocol numbers.
const (
	protocolICMP   = 1
	protocolTCP    = 6
	protocolUDP    = 17
	protocolICMPv6 = 58
)

// probePacket is the packet of a probe, but for its mark.
type probePacket struct {
	protocol                    uint8
	source, destination         netip.Addr
	sourcePort, destinationPort uint16
}

// CheckProbe finds what is wrong with a probe; its fields are named as in a TraceRequest.
func CheckProbe(p *api.Probe) []chain.Finding {
	f := &chain.Findings{}
	parseProbe(p, f)
	return f.All
}

// parseProbe checks a probe's fields.
func parseProbe(p *api.Probe, f *chain.Findings) probePacket {
	packet := probePacket{source: parseAddress(f, "probe.source", p.Source), destination: parseAddress(f, "probe.destination", p.Destination)}
	if p.Edge == "" {
		f.Add("probe.edge", "is missing", "name the edge where the packet enters")
	}
	if packet.source.IsValid() && packet.destination.IsValid() && packet.source.Is4() != packet.destination.Is4() {
		f.Add("probe.destination", "of another family than the source", "write two IPv4 or two IPv6 addresses")
	}
	v6 := packet.source.Is6()
	switch p.Protocol {
	case "tcp":
		packet.protocol = protocolTCP
	case "udp":
		packet.protocol = protocolUDP
	case "icmp", "icmpv6":
		packet.protocol = protocolICMP
		if v6 {
			packet.protocol = protocolICMPv6
		}
		if (p.Protocol == "icmpv6") != v6 {
			f.Add("probe.protocol", fmt.Sprintf("%s does not go with the source's family", p.Protocol), "write icmp with IPv4, icmpv6 with IPv6")
		}
	case "":
		f.Add("probe.protocol", "is missing", "write tcp, udp, icmp or icmpv6")
	default:
		f.Add("probe.protocol", fmt.Sprintf("%q cannot be sent", p.Protocol), "write tcp, udp, icmp or icmpv6")
	}
	hasPorts := packet.protocol != protocolICMP && packet.protocol != protocolICMPv6
	for _, port := range []struct {
		field string
		value uint32
		need  bool
		into  *uint16
	}{{"probe.sourcePort", p.SourcePort, false, &packet.sourcePort}, {"probe.destinationPort", p.DestinationPort, true, &packet.destinationPort}} {
		switch {
		case port.value > math.MaxUint16:
			f.Add(port.field, fmt.Sprintf("%d is no port", port.value), "write 1 to 65535")
		case !hasPorts && port.value != 0:
			f.Add(port.field, "there are no ports in ICMP", "leave it out")
		case hasPorts && port.need && port.value == 0:
			f.Add(port.field, "is missing", "write 1 to 65535")
		}
		*port.into = uint16(port.value)
	}
	if packet.sourcePort == 0 { // or ICMP's identifier
		packet.sourcePort = uint16(firstProbePort + rand.IntN(math.MaxUint16-firstProbePort+1))
	}
	return packet
}

func parseAddress(f *chain.Findings, field, text string) netip.Addr {
	if text == "" {
		f.Add(field, "is missing", "write for example 10.1.0.10 or 2001:db8::10")
		return netip.Addr{}
	}
	address, err := netip.ParseAddr(text)
	if err != nil || address.Zone() != "" {
		f.Add(field, fmt.Sprintf("%q is no address", text), "write for example 10.1.0.10 or 2001:db8::10")
		return netip.Addr{}
	}
	return address.Unmap()
}

// bytes is the packet with its mark, which is the transport's payload.
func (p probePacket) bytes(mark []byte) []byte {
	transport := p.transport(mark)
	source, destination := p.source.AsSlice(), p.destination.AsSlice()
	const hops = 64
	if p.source.Is6() {
		header := make([]byte, 8, 40+len(transport))
		header[0], header[6], header[7] = 6<<4, p.protocol, hops
		binary.BigEndian.PutUint16(header[4:], uint16(len(transport)))
		return append(append(append(header, source...), destination...), transport...)
	}
	const dontFragment = 0x4000
	header := make([]byte, 12, 20+len(transport))
	header[0], header[8], header[9] = 4<<4|5, hops, p.protocol
	binary.BigEndian.PutUint16(header[2:], uint16(20+len(transport)))
	binary.BigEndian.PutUint16(header[6:], dontFragment)
	header = append(append(header, source...), destination...)
	binary.BigEndian.PutUint16(header[10:], ^sum(0, header))
	return append(header, transport...)
}

// transport is a TCP SYN, a UDP datagram or an echo request with the mark as payload.
func (p probePacket) transport(mark []byte) []byte {
	var header []byte
	var checksumAt int
	switch p.protocol {
	case protocolTCP:
		header, checksumAt = make([]byte, 20), 16
		binary.BigEndian.PutUint32(header[4:], rand.Uint32())
		header[12], header[13] = 5<<4, 1<<1 // no options; SYN
		binary.BigEndian.PutUint16(header[14:], math.MaxUint16)
	case protocolUDP:
		header, checksumAt = make([]byte, 8), 6
		binary.BigEndian.PutUint16(header[4:], uint16(8+len(mark)))
	default:
		header, checksumAt = make([]byte, 8), 2
		header[0] = 8 // RFC 792
		if p.protocol == protocolICMPv6 {
			header[0] = 128 // RFC 4443
		}
		binary.BigEndian.PutUint16(header[4:], p.sourcePort)
		binary.BigEndian.PutUint16(header[6:], 1)
	}
	if p.protocol == protocolTCP || p.protocol == protocolUDP {
		binary.BigEndian.PutUint16(header[0:], p.sourcePort)
		binary.BigEndian.PutUint16(header[2:], p.destinationPort)
	}
	all := append(header, mark...)
	var pseudo uint16
	if p.protocol != protocolICMP {
		pseudo = p.pseudoHeader(len(all))
	}
	checksum := ^sum(pseudo, all)
	if checksum == 0 && p.protocol == protocolUDP {
		checksum = math.MaxUint16 // zero would mean none (RFC 768)
	}
	binary.BigEndian.PutUint16(all[checksumAt:], checksum)
	return all
}

// pseudoHeader is the sum of addresses, length and protocol, the same for both families.
func (p probePacket) pseudoHeader(length int) uint16 {
	fields := append(p.source.AsSlice(), p.destination.AsSlice()...)
	fields = binary.BigEndian.AppendUint32(fields, uint32(length))
	return sum(0, append(fields, 0, 0, 0, p.protocol))
}

// sum is the Internet's ones' complement sum (RFC 1071) of an even or odd number of bytes.
func sum(before uint16, bytes []byte) uint16 {
	total := uint32(before)
	for i := 0; i+1 < len(bytes); i += 2 {
		total += uint32(binary.BigEndian.Uint16(bytes[i:]))
	}
	if len(bytes)%2 == 1 {
		total += uint32(bytes[len(bytes)-1]) << 8
	}
	for total > math.MaxUint16 {
		total = total>>16 + total&math.MaxUint16
	}
	return uint16(total)
}
