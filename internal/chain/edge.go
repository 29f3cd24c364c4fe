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
	Vlan      uint32
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
	case e.What == "vlan" && (e.Vlan < 1 || e.Vlan > 4094):
		f.Add("spec.vlan", fmt.Sprintf("%d is no VLAN identifier", e.Vlan), "write 1 to 4094")
	case e.What != "vlan" && e.What != "" && e.Vlan != 0:
		f.Add("spec.vlan", fmt.Sprintf("an edge of kind %s has no VLAN", e.What), "remove the field or write kind: vlan")
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
