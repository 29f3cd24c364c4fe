package chain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"
)

// EdgeSpec is an edge instance at a site.
type EdgeSpec struct {
	// What is "lan", "vlan", "vpn" or "internet".
	What      string
	Site      SiteName
	Interface string
	// Vlan is the one identifier of an edge of kind VLAN, Vlans are those of a trunk.
	Vlan  uint32
	Vlans []uint16
	// Prefixes are behind the edge.
	Prefixes []netip.Prefix
	// Gateways are the forwarder's addresses on the edge's network.
	Gateways []netip.Prefix
	// NextHops are routers for what is not on link.
	NextHops []netip.Addr
	// MTU in bytes; 0: 1500.
	MTU uint32
}

const (
	maximumInterfaceName = 15 // IFNAMSIZ less the closing zero
	minimumMTU           = 576
	maximumMTU           = 9600
	maximumVlans         = 256 // each is an edge instance of its own at the forwarder
)

// Kind is KindEdge.
func (EdgeSpec) Kind() Kind { return KindEdge }

func (e EdgeSpec) check(f *Findings) {
	if e.What == "" {
		f.Add("spec.kind", "is missing", "write lan, vlan, vpn or internet")
	}
	required(f, "spec.site", string(e.Site), "name a site")
	e.checkInterface(f)
	if e.MTU != 0 && (e.MTU < minimumMTU || e.MTU > maximumMTU) {
		f.Add("spec.mtu", fmt.Sprintf("%d bytes", e.MTU), fmt.Sprintf("write %d to %d, or leave it out for 1500", minimumMTU, maximumMTU))
	}
	if len(e.Prefixes) == 0 {
		f.Add("spec.prefixes", "is missing", `list the prefixes behind the edge; an Internet edge has "0.0.0.0/0" and "::/0"`)
	}
	overlaps(f, "spec.prefixes", e.Prefixes)
	for i, p := range e.Prefixes {
		if p.IsValid() && p.Addr().IsMulticast() {
			f.Add(fmt.Sprintf("spec.prefixes[%d]", i), fmt.Sprintf("%s is multicast", p), "write unicast prefixes")
		}
	}
	for i, hop := range e.NextHops {
		if hop.IsValid() && len(e.Gateways) > 0 && !e.onLink(hop) {
			f.Add(fmt.Sprintf("spec.nextHops[%d]", i), fmt.Sprintf("%s is on no network of gatewayAddresses", hop),
				"write a router on the edge's own network")
		}
	}
}

func (e EdgeSpec) checkInterface(f *Findings) {
	switch {
	case e.Interface == "":
		f.Add("spec.interface", "is missing", "name the network interface at the site")
	case len(e.Interface) > maximumInterfaceName:
		f.Add("spec.interface", fmt.Sprintf("%q has %d characters", e.Interface, len(e.Interface)),
			fmt.Sprintf("Linux takes at most %d", maximumInterfaceName))
	case e.Interface == "." || e.Interface == ".." || strings.ContainsFunc(e.Interface, notInInterfaceName):
		f.Add("spec.interface", fmt.Sprintf("%q is no name of an interface", e.Interface), "write one without blanks, slashes and colons, for example lan0")
	}
	switch {
	case e.What == "vlan" && len(e.Vlans) > 0 && e.Vlan != 0:
		f.Add("spec.vlan", "is given beside vlans", "write one of them: vlan for one identifier, vlans for a trunk of several")
	case e.What == "vlan" && len(e.Vlans) == 0 && (e.Vlan < 1 || e.Vlan > lastVlan):
		f.Add("spec.vlan", fmt.Sprintf("%d is no VLAN identifier", e.Vlan), "write 1 to 4094, or vlans for a trunk of several")
	case e.What != "vlan" && e.What != "" && e.Vlan != 0:
		f.Add("spec.vlan", fmt.Sprintf("an edge of kind %s has no VLAN", e.What), "remove the field or write kind: vlan")
	case e.What != "vlan" && e.What != "" && len(e.Vlans) > 0:
		f.Add("spec.vlans", fmt.Sprintf("an edge of kind %s has no VLANs", e.What), "remove the field or write kind: vlan")
	case len(e.Vlans) > maximumVlans:
		f.Add("spec.vlans", fmt.Sprintf("%d VLANs", len(e.Vlans)), fmt.Sprintf("an edge has at most %d; make several edges", maximumVlans))
	}
	twice(f, "spec.vlans", e.Vlans)
}

// Tags are the VLAN identifiers of the edge, none where its frames are untagged.
func (e EdgeSpec) Tags() []uint16 {
	if e.Vlan != 0 {
		return []uint16{uint16(e.Vlan)}
	}
	return e.Vlans
}

// sharedTag finds a VLAN that two edges have, 0 where both are untagged.
func (e EdgeSpec) sharedTag(o EdgeSpec) (tag uint16, shared bool) {
	mine, theirs := e.Tags(), o.Tags()
	if len(mine) == 0 && len(theirs) == 0 {
		return 0, true
	}
	at := slices.IndexFunc(mine, func(v uint16) bool { return slices.Contains(theirs, v) })
	if at < 0 {
		return 0, false
	}
	return mine[at], true
}

// twice refuses VLANs that stand in a list again.
func twice(f *Findings, field string, vlans []uint16) {
	for i, v := range vlans {
		if v != 0 && slices.Contains(vlans[:i], v) {
			f.Add(fmt.Sprintf("%s[%d]", field, i), fmt.Sprintf("%d is already in this list", v), "write each VLAN once")
		}
	}
}

// notInInterfaceName reports the characters that Linux refuses (dev_valid_name).
func notInInterfaceName(c rune) bool { return c == '/' || c == ':' || unicode.IsSpace(c) }

func (e EdgeSpec) onLink(hop netip.Addr) bool {
	if hop.IsLinkLocalUnicast() {
		return true
	}
	for _, g := range e.Gateways {
		if g.IsValid() && g.Masked().Contains(hop) {
			return true
		}
	}
	return false
}

// SamePrefixes reports whether two lists lead to the same destinations, in any order.
func SamePrefixes(a, b []netip.Prefix) bool {
	within := func(a, b []netip.Prefix) bool {
		return !slices.ContainsFunc(a, func(p netip.Prefix) bool { return !slices.Contains(b, p) })
	}
	return within(a, b) && within(b, a)
}

// IsHost reports whether a single host can have an address: a group, everyone and nobody cannot.
func IsHost(a netip.Addr) bool {
	return !a.IsMulticast() && !a.IsUnspecified() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}
