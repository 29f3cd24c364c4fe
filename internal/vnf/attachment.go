// Package vnf is the platform service side of virtual network functions: the controllers that guard their capacity
// (paper section 3), and the agents that make, configure and watch instances at sites.
package vnf

import (
	"net"
	"strings"

	"github.com/switchboard-project/switchboard/internal/chain"
)

// Kind says how an instance exchanges packets with its forwarder.
type Kind int

const (
	// Gateway instances route: their next hop on both sides is the forwarder.
	Gateway Kind = iota + 1
	// Transparent instances are a bump in the wire.
	Transparent
	// LabelAwareMpls instances read two MPLS labels before each packet.
	LabelAwareMpls
	// LabelAwareNsh instances read a network service header before each packet.
	LabelAwareNsh
	// Native instances are functions in their forwarder's process, a bump between two ports of its memory.
	Native
)

// LabelAware reports whether instances read the steering context themselves.
func (k Kind) LabelAware() bool { return k == LabelAwareMpls || k == LabelAwareNsh }

// State says what flows an attachment may get.
type State int

const (
	// Active attachments get new flows by their weight.
	Active State = iota + 1
	// Draining attachments keep the flows they have.
	Draining
	// Dead attachments serve nothing; their flows choose again.
	Dead
)

// Place is a position of a service path at a site: stage z of the path leads into its z-th VNF.
type Place struct {
	VNF         string
	ChainLabel  uint32
	EgressLabel uint32
	Stage       uint32
}

// Attachment is an instance's pair of interfaces for one place, as a forwarder must know it.
type Attachment struct {
	// ID is unique at the site.
	ID       string
	Instance string
	// Forwarder is the one that the instance's link leads to.
	Forwarder string
	Place
	Kind  Kind
	State State
	// Weight is the instance's; 0 for one that takes no new flows.
	Weight uint32
	// IngressPort and EgressPort are interfaces at the site's end, or native ports; the same for gateways.
	IngressPort, EgressPort string
	// IngressMAC and EgressMAC are the instance's; empty when transparent.
	IngressMAC, EgressMAC   net.HardwareAddr
	IngressVLAN, EgressVLAN uint32
	// MTU is the largest IP packet the instance takes, in bytes.
	MTU uint32
	// Filter is what a native instance does.
	Filter *PacketFilter
}

// PacketFilter passes or drops packets one by one; the first rule that matches decides.
type PacketFilter struct {
	Rules []FilterRule
	// AcceptForward and AcceptReverse say what becomes of packets that no rule speaks of.
	AcceptForward, AcceptReverse bool
}

// FilterRule speaks of packets as they are.
type FilterRule struct {
	Match chain.Match
	// Forward and Reverse are the directions along the chain that it speaks of.
	Forward, Reverse bool
	Accept           bool
}

// nativePort begins the names of native ports; no interface has such a name.
const nativePort = "native:"

// NativePorts are the ports of a native instance.
func NativePorts(instance string) (ingress, egress string) {
	return nativePort + instance + ":in", nativePort + instance + ":out"
}

// IsNativePort reports whether a port is memory of its forwarder.
func IsNativePort(name string) bool { return strings.HasPrefix(name, nativePort) }
