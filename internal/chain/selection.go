package chain

import (
	"cmp"
	"net/netip"
	"slices"
)

// parsedPrefixes reads prefixes as records have them.
func parsedPrefixes(texts []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, err
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

// From narrows the match to packets from behind an edge: from the given prefixes; none stands for everything. It is false
// where the match speaks of other sources only.
func (m Match) From(texts []string) (Match, bool) {
	behind, err := parsedPrefixes(texts)
	if err != nil || len(behind) == 0 {
		return m, err == nil
	}
	if len(m.Sources) == 0 {
		m.Sources = behind
		return m, true
	}
	var both []netip.Prefix
	for _, p := range m.Sources {
		for _, q := range behind {
			switch { // of two that overlap one lies within the other
			case !p.Overlaps(q):
			case p.Bits() > q.Bits():
				both = append(both, p)
			default:
				both = append(both, q)
			}
		}
	}
	m.Sources = both
	return m, len(both) > 0
}

// FromJoined is From for an edge whose users joined: a match that speaks of other sources only speaks of these instead.
func (m Match) FromJoined(texts []string) Match {
	narrowed, any := m.From(texts)
	if !any {
		m.Sources = nil
		narrowed, _ = m.From(texts)
	}
	return narrowed
}

// JoinedBy reports whether packets from behind an edge with the prefixes from can be among those that the match selects,
// on their way to what is behind edges with the prefixes to: there must be a family of addresses that the match, its
// protocols and both ends have, and destinations that the match asks for. Empty lists are everything. The match's sources
// do not count but for their family: they name the users that were planned for, not those who join.
func (m Match) JoinedBy(from, to []string) bool {
	sources, err := parsedPrefixes(from)
	if err != nil {
		return false
	}
	behind, err := parsedPrefixes(to)
	if err != nil {
		return false
	}
	for _, v6 := range []bool{false, true} {
		if hasFamily(m.Sources, v6) && hasFamily(sources, v6) && m.protocolOf(v6) && reaches(m.Destinations, behind, v6) {
			return true
		}
	}
	return false
}

// hasFamily reports whether prefixes of a family are among some; an empty list is everything.
func hasFamily(all []netip.Prefix, v6 bool) bool {
	return len(all) == 0 || slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Addr().Is6() == v6 })
}

// protocolOf reports whether the match has a protocol that a family's packets carry.
func (m Match) protocolOf(v6 bool) bool {
	other := protocolNumbers["icmpv6"]
	if v6 {
		other = protocolNumbers["icmp"]
	}
	return len(m.Protocols) == 0 || slices.ContainsFunc(m.Protocols, func(p uint8) bool { return p != other })
}

// reaches reports whether some address of a family is in both lists.
func reaches(a, b []netip.Prefix, v6 bool) bool {
	if len(a) == 0 || len(b) == 0 {
		return hasFamily(a, v6) && hasFamily(b, v6)
	}
	return slices.ContainsFunc(a, func(p netip.Prefix) bool {
		return p.Addr().Is6() == v6 && slices.ContainsFunc(b, p.Overlaps)
	})
}

// Bears reports whether the match takes packets that bear a VLAN's identifier, 0 for none.
func (m Match) Bears(vlan uint32) bool {
	return len(m.Vlans) == 0 || slices.ContainsFunc(m.Vlans, func(v uint16) bool { return uint32(v) == vlan })
}

// Reversed matches the answers to what m matches, which bear no VLAN's identifier where they enter.
func (m Match) Reversed() Match {
	m.Vlans = nil
	m.Sources, m.Destinations = m.Destinations, m.Sources
	m.SourcePorts, m.DestinationPorts = m.DestinationPorts, m.SourcePorts
	return m
}

// SourceStrings are the sources in CIDR notation.
func (m Match) SourceStrings() []string { return stringsOf(m.Sources) }

// DestinationStrings are the destinations in CIDR notation.
func (m Match) DestinationStrings() []string { return stringsOf(m.Destinations) }

func stringsOf(all []netip.Prefix) []string {
	var texts []string
	for _, p := range all {
		texts = append(texts, p.String())
	}
	return texts
}

// Contains reports whether every packet of other is one of m. It may say no where a union of ranges would be needed to
// see it.
func (m Match) Contains(other Match) bool {
	return covers(m.Sources, other.Sources, prefixContains) && covers(m.Destinations, other.Destinations, prefixContains) &&
		covers(m.Protocols, other.Protocols, equal) &&
		covers(m.SourcePorts, other.SourcePorts, rangeContains) && covers(m.DestinationPorts, other.DestinationPorts, rangeContains) &&
		covers(m.Vlans, other.Vlans, equal)
}

// covers reports whether each of b lies in one of a; an empty list is everything.
func covers[T any](a, b []T, contains func(T, T) bool) bool {
	if len(a) == 0 {
		return true
	}
	if len(b) == 0 {
		return false
	}
	for _, y := range b {
		if !slices.ContainsFunc(a, func(x T) bool { return contains(x, y) }) {
			return false
		}
	}
	return true
}

// Overlaps reports whether some packet is of both.
func (m Match) Overlaps(other Match) bool {
	return meet(m.Sources, other.Sources, netip.Prefix.Overlaps) && meet(m.Destinations, other.Destinations, netip.Prefix.Overlaps) &&
		meet(m.Protocols, other.Protocols, equal) &&
		meet(m.SourcePorts, other.SourcePorts, rangesOverlap) && meet(m.DestinationPorts, other.DestinationPorts, rangesOverlap) &&
		meet(m.Vlans, other.Vlans, equal)
}

func meet[T any](a, b []T, overlap func(T, T) bool) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	return slices.ContainsFunc(a, func(x T) bool {
		return slices.ContainsFunc(b, func(y T) bool { return overlap(x, y) })
	})
}

func equal[T comparable](a, b T) bool   { return a == b }
func rangeContains(a, b PortRange) bool { return a.First <= b.First && b.Last <= a.Last }
func rangesOverlap(a, b PortRange) bool { return a.First <= b.Last && b.First <= a.Last }

// MostSpecificFirst orders items so that one whose match lies within another's comes before it; otherwise the order
// stays.
func MostSpecificFirst[T any](items []T, matchOf func(T) Match) []T {
	// An item within another has fewer items within itself.
	within := make([]int, len(items))
	order := make([]int, len(items))
	for i, item := range items {
		order[i] = i
		m := matchOf(item)
		for _, other := range items {
			if o := matchOf(other); m.Contains(o) && !o.Contains(m) {
				within[i]++
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(within[a], within[b]) })
	ordered := make([]T, len(items))
	for i, at := range order {
		ordered[i] = items[at]
	}
	return ordered
}

func prefixContains(a, b netip.Prefix) bool {
	return a.Addr().Is4() == b.Addr().Is4() && a.Bits() <= b.Bits() && a.Contains(b.Addr())
}
