package site

import (
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// filterRule is a native instance's filter as forwarders read it.
func filterRule(filter *vnf.PacketFilter) *rules.PacketFilter {
	all := &rules.PacketFilter{AcceptForward: filter.AcceptForward, AcceptReverse: filter.AcceptReverse}
	for _, one := range filter.Rules {
		rule := &rules.FilterRule{Accept: one.Accept, Match: &rules.Match{Protocols: one.Protocols}}
		switch {
		case one.Forward && !one.Reverse:
			rule.Direction = rules.Direction_DIRECTION_FORWARD
		case one.Reverse && !one.Forward:
			rule.Direction = rules.Direction_DIRECTION_REVERSE
		}
		for _, p := range one.Sources {
			rule.Match.SourcePrefixes = append(rule.Match.SourcePrefixes, p.String())
		}
		for _, p := range one.Destinations {
			rule.Match.DestinationPrefixes = append(rule.Match.DestinationPrefixes, p.String())
		}
		for _, r := range one.DestinationPorts {
			rule.Match.DestinationPorts = append(rule.Match.DestinationPorts, &rules.PortRange{First: uint32(r.First), Last: uint32(r.Last)})
		}
		all.Rules = append(all.Rules, rule)
	}
	return all
}
