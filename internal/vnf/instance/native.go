package instance

import (
	"context"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/matches"
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
		match := &api.Match{SourcePrefixes: rule.SourcePrefixes, DestinationPrefixes: rule.DestinationPrefixes, DestinationPorts: rule.DestinationPorts}
		if rule.Protocol != "" {
			match.Protocols = []string{rule.Protocol}
		}
		filter.Rules = append(filter.Rules, vnf.FilterRule{Match: matches.Of(match),
			Forward: speaksOf(rule, "forward"), Reverse: speaksOf(rule, "reverse"), Accept: rule.Verdict == "accept"})
	}
	return filter
}
