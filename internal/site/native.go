package site

import (
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/matches"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// filterRule is a native instance's filter as forwarders read it.
func filterRule(filter *vnf.PacketFilter) *rules.PacketFilter {
	all := &rules.PacketFilter{AcceptForward: filter.AcceptForward, AcceptReverse: filter.AcceptReverse}
	for _, one := range filter.Rules {
		rule := &rules.FilterRule{Accept: one.Accept, Match: matches.Rule(one.Match)}
		switch {
		case one.Forward && !one.Reverse:
			rule.Direction = rules.Direction_DIRECTION_FORWARD
		case one.Reverse && !one.Forward:
			rule.Direction = rules.Direction_DIRECTION_REVERSE
		}
		all.Rules = append(all.Rules, rule)
	}
	return all
}
