// Package matches reads matches, the one way there is: those of chains, of traces and of captures. Its errors name the field and
// say what to write.
package matches

import (
	"fmt"
	"net/netip"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	forwarder "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// Parse reads a match; at is its place, with the dot behind it.
func Parse(at string, m *api.Match, f *chain.Findings) chain.Match {
	match := chain.Match{Sources: prefixes(f, at+"sourcePrefixes", m.GetSourcePrefixes()),
		Destinations: prefixes(f, at+"destinationPrefixes", m.GetDestinationPrefixes())}
	for i, text := range m.GetProtocols() {
		match.Protocols = append(match.Protocols, chain.ParseProtocol(f, fmt.Sprintf("%sprotocols[%d]", at, i), text))
	}
	for i, text := range m.GetSourcePorts() {
		match.SourcePorts = append(match.SourcePorts, chain.ParsePorts(f, fmt.Sprintf("%ssourcePorts[%d]", at, i), text))
	}
	for i, text := range m.GetDestinationPorts() {
		match.DestinationPorts = append(match.DestinationPorts, chain.ParsePorts(f, fmt.Sprintf("%sdestinationPorts[%d]", at, i), text))
	}
	for i, vlan := range m.GetVlans() {
		match.Vlans = append(match.Vlans, chain.ParseVlan(f, fmt.Sprintf("%svlans[%d]", at, i), vlan))
	}
	return match
}

func prefixes(f *chain.Findings, field string, texts []string) []netip.Prefix {
	var all []netip.Prefix
	for i, text := range texts {
		all = append(all, chain.ParsePrefix(f, fmt.Sprintf("%s[%d]", field, i), text))
	}
	return all
}

// Of is Parse for a match that was accepted before; what cannot be read matches nothing.
func Of(m *api.Match) chain.Match {
	f := &chain.Findings{}
	parsed := Parse("", m, f)
	if len(f.All) > 0 {
		return chain.Match{Protocols: []uint8{255}} // reserved by IANA: no packet carries it
	}
	return parsed
}

// Rule is a match as forwarders take it. VLANs are not in it: a packet bears one only as it enters, where the VLAN is what names
// its edge instance.
func Rule(m chain.Match) *forwarder.Match {
	rule := &forwarder.Match{SourcePrefixes: m.SourceStrings(), DestinationPrefixes: m.DestinationStrings(),
		SourcePorts: ranges(m.SourcePorts), DestinationPorts: ranges(m.DestinationPorts)}
	for _, p := range m.Protocols {
		rule.Protocols = append(rule.Protocols, uint32(p))
	}
	return rule
}

func ranges(all []chain.PortRange) (rules []*forwarder.PortRange) {
	for _, r := range all {
		rules = append(rules, &forwarder.PortRange{First: uint32(r.First), Last: uint32(r.Last)})
	}
	return rules
}
