package instance

import (
	"context"
	"net/netip"
	"strconv"
	"strings"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// serveNative gives a native instance its places. It has no namespace and no links: its forwarder makes it from its attachments,
// and it lives as long as that one does.
func (in *instance) serveNative(ctx context.Context, r *records, d *driver, placements []Placement) error {
	if err := r.make(ctx, in.name, in.deployment); err != nil {
		return err
	}
	slots, err := in.place(ctx, d, r, placements)
	if err != nil {
		return err
	}
	ingress, egress := vnf.NativePorts(in.name)
	in.ports = map[string]string{ingressLink: ingress, egressLink: egress}
	in.paired, in.filters = map[int]bool{}, map[int]*vnf.PacketFilter{}
	for _, s := range slots {
		in.paired[s.index], in.filters[s.index] = true, nativeFilter(s.filter)
	}
	return nil
}

// nativeFilter is a filter as a forwarder runs it. Without state nobody knows an answer from a new connection: what no reverse rule
// forbids passes in reverse.
func nativeFilter(options filterOptions) *vnf.PacketFilter {
	filter := &vnf.PacketFilter{AcceptForward: options.verdict == "accept", AcceptReverse: true}
	for _, rule := range options.rules {
		filter.Rules = append(filter.Rules, vnf.FilterRule{
			Sources: prefixesOf(rule.SourcePrefixes), Destinations: prefixesOf(rule.DestinationPrefixes),
			Protocols: protocolNumbers[rule.Protocol], DestinationPorts: portRanges(rule),
			Forward: speaksOf(rule, "forward"), Reverse: speaksOf(rule, "reverse"), Accept: rule.Verdict == "accept",
		})
	}
	return filter
}

// protocolNumbers are IANA's, of the protocols that rules name.
var protocolNumbers = map[string][]uint32{"icmp": {1}, "tcp": {6}, "udp": {17}, "icmpv6": {58}}

// prefixesOf and portRanges read what checkRule has checked.
func prefixesOf(texts []string) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			prefixes = append(prefixes, p)
		}
	}
	return prefixes
}

func portRanges(rule *api.FirewallRule) []vnf.PortRange {
	var ranges []vnf.PortRange
	for _, text := range rule.DestinationPorts {
		from, to, isRange := strings.Cut(text, "-")
		if !isRange {
			to = from
		}
		first, errFirst := strconv.ParseUint(from, 10, 16)
		last, errLast := strconv.ParseUint(to, 10, 16)
		if errFirst == nil && errLast == nil {
			ranges = append(ranges, vnf.PortRange{First: uint16(first), Last: uint16(last)})
		}
	}
	return ranges
}
