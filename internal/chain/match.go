package chain

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Match is a set of packets: the product of its fields, an empty field standing for everything.
type Match struct {
	Sources, Destinations         []netip.Prefix
	Protocols                     []uint8
	SourcePorts, DestinationPorts []PortRange
	// Vlans are the IEEE 802.1Q identifiers that packets bear as they enter.
	Vlans []uint16
}

// PortRange is inclusive.
type PortRange struct{ First, Last uint16 }

var protocolNumbers = map[string]uint8{"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58}

// ParseProtocol reads a protocol's name or number.
func ParseProtocol(f *Findings, field, text string) uint8 {
	if number, known := protocolNumbers[text]; known {
		return number
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		f.Add(field, fmt.Sprintf("%q is no protocol", text), "write tcp, udp, icmp, icmpv6 or a number from 0 to 255")
	}
	return uint8(n)
}

// lastVlan is the highest IEEE 802.1Q identifier that is not reserved.
const lastVlan = 4094

// ParseVlan checks an IEEE 802.1Q identifier.
func ParseVlan(f *Findings, field string, vlan uint32) uint16 {
	if vlan < 1 || vlan > lastVlan {
		f.Add(field, fmt.Sprintf("%d is no VLAN identifier", vlan), "write 1 to 4094")
		return 0
	}
	return uint16(vlan)
}

// ParsePorts reads "80" or "8000-8080".
func ParsePorts(f *Findings, field, text string) PortRange {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err := strconv.ParseUint(from, 10, 16)
	last, err2 := strconv.ParseUint(to, 10, 16)
	switch {
	case err != nil || err2 != nil:
		f.Add(field, fmt.Sprintf("%q is no port or range of ports", text), `write "80" or "8000-8080", from 0 to 65535`)
	case first > last:
		f.Add(field, fmt.Sprintf("the range %q ends before it begins", text), fmt.Sprintf(`write "%d-%d"`, last, first))
	}
	return PortRange{uint16(first), uint16(last)}
}

func (m Match) check(f *Findings, field string) {
	twice(f, field+".vlans", m.Vlans)
	oneFamily := func(a, b []netip.Prefix) bool {
		for _, p := range a {
			for _, q := range b {
				if p.Addr().Is4() == q.Addr().Is4() {
					return true
				}
			}
		}
		return len(a) == 0 || len(b) == 0
	}
	if !oneFamily(m.Sources, m.Destinations) {
		f.Add(field+".destinationPrefixes", "no packet has a source and a destination of different families",
			"write prefixes of the family of sourcePrefixes")
	}
	if len(m.SourcePorts) > 0 || len(m.DestinationPorts) > 0 {
		for i, p := range m.Protocols {
			if p != 6 && p != 17 && p != 132 && p != 33 {
				f.Add(fmt.Sprintf("%s.protocols[%d]", field, i), "this protocol has no ports",
					"leave out the ports or write tcp or udp")
			}
		}
	}
}
