package site

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// A forwarder refuses a set of rules as a whole. So one bad record must not get into it: the chain, edge or peer that it
// speaks of is left out, and the reason is told where its owner looks.

const (
	firstLabel   = 16 // RFC 3032 section 2.1 reserves those below
	lastLabel    = 1<<20 - 1
	mostVnfs     = 250 // the service index counts down from 255
	lastVLAN     = 4094
	leastEdgeMTU = 576
)

// malformed says what is wrong with a chain's record, "" where nothing is.
func malformed(record *control.ChainRecord) string {
	for _, v := range record.Versions {
		if problem := malformedVersion(v); problem != "" {
			return fmt.Sprintf("chain record, version with label %d: %s", v.ChainLabel, problem)
		}
	}
	return ""
}

func malformedVersion(v *control.ChainVersion) string {
	switch {
	case v.ChainLabel%2 != 0 || v.ChainLabel < firstLabel || v.ChainLabel > lastLabel:
		return fmt.Sprintf("chain_label: not an even number from %d to %d", firstLabel, lastLabel)
	case len(v.Vnfs) > mostVnfs:
		return fmt.Sprintf("vnfs: %d, at most %d can be counted", len(v.Vnfs), mostVnfs)
	}
	for _, r := range slices.Concat(v.Routes, v.NextRoutes) {
		switch {
		case len(r.Sites) != len(v.Vnfs):
			return fmt.Sprintf("routes: %d sites for %d VNFs", len(r.Sites), len(v.Vnfs))
		case r.EgressLabel < firstLabel || r.EgressLabel > lastLabel:
			return fmt.Sprintf("routes: egress_label %d is not from %d to %d", r.EgressLabel, firstLabel, lastLabel)
		case !(r.Fraction >= 0 && r.Fraction <= 1+1e-6):
			return fmt.Sprintf("routes: fraction %v is not from 0 to 1", r.Fraction)
		}
	}
	for _, e := range slices.Concat(v.Ingress, v.Egress) {
		if problem := badPrefixes(e.Prefixes); problem != "" {
			return fmt.Sprintf("edge %s: %s", e.Edge, problem)
		}
	}
	return ""
}

func badPrefixes(texts []string) string {
	for i, text := range texts {
		if _, err := netip.ParsePrefix(text); err != nil {
			return fmt.Sprintf("prefixes[%d]: %q is no prefix", i, text)
		}
	}
	return ""
}

// malformedEdge says what keeps forwarders from taking an edge, "" where nothing does.
func malformedEdge(spec *api.EdgeSpec) string {
	switch {
	case spec.Vlan > lastVLAN:
		return fmt.Sprintf("vlan: %d is not from 0 to %d", spec.Vlan, lastVLAN)
	case spec.Mtu != 0 && (spec.Mtu < leastEdgeMTU || spec.Mtu > largestMTU):
		return fmt.Sprintf("mtu: %d is not from %d to %d", spec.Mtu, leastEdgeMTU, largestMTU)
	}
	for i, vlan := range spec.Vlans {
		if vlan < 1 || vlan > lastVLAN || slices.Contains(spec.Vlans[:i], vlan) {
			return fmt.Sprintf("vlans[%d]: %d is not from 1 to %d, or twice in the list", i, vlan, lastVLAN)
		}
	}
	own := map[netip.Addr]bool{}
	for i, text := range spec.GatewayAddresses {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			return fmt.Sprintf("gateway_addresses[%d]: %q is no address with prefix length", i, text)
		case !chain.IsHost(p.Addr()):
			return fmt.Sprintf("gateway_addresses[%d]: %q is no host's address", i, text)
		}
		own[p.Addr()] = true
	}
	for i, text := range spec.NextHops {
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil:
			return fmt.Sprintf("next_hops[%d]: %q is no address", i, text)
		case !chain.IsHost(a) || own[a]:
			return fmt.Sprintf("next_hops[%d]: %q is no other host's address", i, text)
		}
	}
	return badPrefixes(spec.Prefixes)
}

// sound leaves out chains whose records are malformed or whose labels another chain has, and says why; it
// sorts the others.
func sound(records []*control.ChainRecord) (kept []*control.ChainRecord, problems map[ChainKey]string) {
	problems = map[ChainKey]string{}
	records = slices.Clone(records)
	slices.SortFunc(records, func(a, b *control.ChainRecord) int {
		return cmp.Or(cmp.Compare(a.Customer, b.Customer), cmp.Compare(a.Chain, b.Chain))
	})
	owner := map[uint32]ChainKey{}
	for _, record := range records {
		key := ChainKey{record.Customer, record.Chain}
		problem := malformed(record)
		for _, v := range record.Versions {
			if other, taken := owner[v.ChainLabel]; taken && problem == "" {
				problem = fmt.Sprintf("chain record: label %d is that of chain %s/%s", v.ChainLabel, other.Customer, other.Chain)
			}
		}
		if problem != "" {
			problems[key] = problem
			continue
		}
		for _, v := range record.Versions {
			owner[v.ChainLabel] = key
		}
		kept = append(kept, record)
	}
	return kept, problems
}

// reachable leaves out forwarders that tunnels cannot lead to: of another address family than the site's, without an
// address, or with one that another has.
func reachable(remote []*control.ForwarderRecord, own []Forwarder) []*control.ForwarderRecord {
	taken := map[netip.Addr]bool{}
	families := map[bool]bool{}
	for _, f := range own {
		if address, err := netip.ParseAddr(hostAddress(f.TunnelAddress)); err == nil {
			taken[address] = true
			families[address.Is4()] = true
		}
	}
	sorted := slices.Clone(remote)
	slices.SortFunc(sorted, func(a, b *control.ForwarderRecord) int { return cmp.Compare(peerID(a), peerID(b)) })
	return slices.DeleteFunc(sorted, func(f *control.ForwarderRecord) bool {
		address, err := netip.ParseAddr(f.Address)
		if err != nil || !families[address.Is4()] || taken[address] {
			return true
		}
		taken[address] = true
		return false
	})
}

// prune removes targets whose peer is not in the rules.
func prune(set *rules.RuleSet) {
	known := map[string]bool{}
	for _, p := range set.Peers {
		known[p.Id] = true
	}
	set.Moved = slices.DeleteFunc(set.Moved, func(m *rules.MovedHop) bool { return !known[m.To] })
	for _, p := range set.Paths {
		for _, s := range p.Stages {
			for _, end := range []*rules.StageEnd{s.Downstream, s.Upstream} {
				end.Remote = slices.DeleteFunc(end.Remote, func(r *rules.RemoteTarget) bool { return !known[r.Peer] })
			}
		}
	}
}
