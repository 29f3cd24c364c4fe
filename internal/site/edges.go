package site

import (
	"cmp"
	"net"
	"slices"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/matches"
)

const defaultEdgeMTU = 1500

// edges are the forwarder's edge instances with what enters at them.
func (c *computation) edges(forwarder string) []*rules.Edge {
	var all []*rules.Edge
	for _, record := range c.in.Edges {
		key := EdgeKey{record.Customer, record.Edge}
		role := c.edgeRole(key, forwarder)
		if record.GetSpec().GetSite() != c.in.Site || c.in.UsableEdges[key] != forwarder && role == 0 {
			continue
		}
		spec := record.Spec
		all = append(all, &rules.Edge{
			Id: key.String(), Kind: rules.EdgeKind(spec.Kind), Port: spec.Interface, Vlan: spec.Vlan,
			GatewayAddresses: spec.GatewayAddresses, NextHops: spec.NextHops, Mtu: cmp.Or(spec.Mtu, defaultEdgeMTU),
			Classifiers: c.classifiers(key), Passive: c.in.UsableEdges[key] != forwarder && !role.takes(),
		})
	}
	slices.SortFunc(all, func(a, b *rules.Edge) int { return cmp.Compare(a.Id, b.Id) })
	return all
}

// entry is one classifier with what decides its place in the list.
type entry struct {
	customer string
	match    chain.Match
	rule     *rules.Classifier
}

// classifiers are those of every active version that uses the edge, the more specific first.
func (c *computation) classifiers(key EdgeKey) []*rules.Classifier {
	var forward, reverse []entry
	for _, record := range c.in.Chains {
		for _, version := range record.Versions {
			if version.State != control.VersionState_VERSION_STATE_ACTIVE {
				continue
			}
			served := c.served[version]
			if e, ok := c.forwardEntry(key, record, version, served); ok {
				forward = append(forward, e)
			}
			reverse = append(reverse, c.reverseEntries(key, record, version, served)...)
		}
	}
	all := append(forward, unambiguous(reverse)...)
	slices.SortStableFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.rule.Direction, b.rule.Direction), cmp.Compare(a.rule.ChainLabel, b.rule.ChainLabel))
	})
	var ordered []*rules.Classifier
	for _, e := range chain.MostSpecificFirst(all, func(e entry) chain.Match { return e.match }) {
		ordered = append(ordered, e.rule)
	}
	return ordered
}

// forwardEntry classifies what enters the chain at an ingress edge, planned or joining.
func (c *computation) forwardEntry(key EdgeKey, record *control.ChainRecord, version *control.ChainVersion, served []*path) (entry, bool) {
	for _, p := range served {
		for _, e := range p.ingress {
			if e.EdgeKey != key || e.site != c.in.Site {
				continue
			}
			match, any := e.match(version)
			if !any {
				continue
			}
			// What order the classifiers have is the customer's to say, not the edge's.
			return entry{record.Customer, matches.Of(version.Match), &rules.Classifier{Match: matches.Rule(match), ChainLabel: version.ChainLabel,
				Direction: rules.Direction_DIRECTION_FORWARD, EgressRoutes: c.egressRoutes(served)}}, true
		}
	}
	return entry{}, false
}

// match is what of the version's match comes from behind the edge; false where nothing does.
func (e pathEdge) match(version *control.ChainVersion) (chain.Match, bool) {
	match := matches.Of(version.Match)
	if e.joined {
		return match.FromJoined(e.prefixes), true
	}
	return match.From(e.prefixes)
}

// egressRoutes is the customer's egress route table at this site. Of egress sites with the same destination it takes
// the one with the largest share of this site's traffic, then the nearest, then the lowest label.
func (c *computation) egressRoutes(served []*path) []*rules.EgressRoute {
	type choice struct {
		share, latency float64
		label          uint32
	}
	best := map[string]choice{}
	for _, p := range served {
		for _, e := range p.egress {
			mine := choice{latency: c.in.Latency(c.in.Site, e.site), label: p.egressLabel}
			for _, r := range p.current() {
				if r.IngressSite == c.in.Site {
					mine.share += r.Fraction
				}
			}
			for _, prefix := range e.prefixes {
				other, known := best[prefix]
				if !known || cmp.Or(cmp.Compare(other.share, mine.share), cmp.Compare(mine.latency, other.latency),
					cmp.Compare(mine.label, other.label)) < 0 {
					best[prefix] = mine
				}
			}
		}
	}
	var table []*rules.EgressRoute
	for _, prefix := range sortedKeys(best) {
		table = append(table, &rules.EgressRoute{Destination: prefix, EgressLabel: best[prefix].label})
	}
	return table
}

// reverseEntries classify connections that begin behind an egress edge, towards prefixes behind the ingress.
func (c *computation) reverseEntries(key EdgeKey, record *control.ChainRecord, version *control.ChainVersion, served []*path) []entry {
	var found []entry
	for _, p := range served {
		for _, e := range p.egress {
			if e.EdgeKey != key || e.site != c.in.Site {
				continue
			}
			match, any := behind(p.ingress, version)
			if !any {
				continue
			}
			match = match.Reversed()
			found = append(found, entry{record.Customer, match, &rules.Classifier{Match: matches.Rule(match), ChainLabel: version.ChainLabel,
				Direction:    rules.Direction_DIRECTION_REVERSE,
				EgressRoutes: []*rules.EgressRoute{{Destination: "0.0.0.0/0", EgressLabel: p.egressLabel}, {Destination: "::/0", EgressLabel: p.egressLabel}}}})
		}
	}
	return found
}

// behind is what of the version's match comes from behind any of the ingress edges; false where nothing does. Behind a trunk nothing
// does: its prefixes are those of all its VLANs, and a connection that begins elsewhere says no VLAN.
func behind(ingress []pathEdge, version *control.ChainVersion) (chain.Match, bool) {
	match := matches.Of(version.Match)
	match.Sources = nil
	for _, e := range ingress {
		one, any := e.match(version)
		switch {
		case !any || e.applied() != e.EdgeKey:
		case len(one.Sources) == 0:
			return one, true // an edge of any prefixes
		default:
			match.Sources = append(match.Sources, one.Sources...)
		}
	}
	return match, len(match.Sources) > 0
}

// unambiguous leaves out entries that overlap another customer's: on a shared edge nobody could say whose the
// connection is, and a guess would show one customer's traffic to the other.
func unambiguous(entries []entry) []entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e entry) bool {
		return slices.ContainsFunc(entries, func(other entry) bool {
			return other.customer != e.customer && other.match.Overlaps(e.match)
		})
	})
}

// hostAddress is the address of a CIDR.
func hostAddress(cidr string) string {
	if ip, _, err := net.ParseCIDR(cidr); err == nil {
		return ip.String()
	}
	return cidr
}
