package instance

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/switchboard-project/switchboard/internal/hostnet"
)

// Interfaces inside an instance's namespace.
const (
	gatewayLink = "sw0" // the one link of a gateway instance; its places' interfaces are macvlans on it
	ingressLink = "in0" // the two links of a transparent one
	egressLink  = "out0"
	bridgeLink  = "br0"
	labelLink   = "label0" // the one link of a label-aware instance
)

// linkMTU is the largest IP packet between forwarder and instance, in bytes.
const linkMTU = 1500

// contextRoom is what a label-aware instance's link takes beside a packet: two labels, or NSH of MD type 1 (RFC 8300 section 2.4).
const contextRoom = 24

// ensureLink joins the site's namespace to an instance's and returns the name of the site's end. A new link gets a new name, so
// that a forwarder that had the old one open opens the new one. A labelled link carries packets as they are on the wire: a program reads
// them from a packet socket.
func ensureLink(site, namespace *hostnet.Namespace, inside string, labelled bool) (string, error) {
	mtu := linkMTU
	if labelled {
		mtu += contextRoom
	}
	port, err := namespace.VethPeer(inside, site)
	if err != nil {
		return "", err
	}
	if port == "" {
		if err := namespace.DeleteLink(inside); err != nil {
			return "", err
		}
		port = newPortName()
	}
	return port, hostnet.EnsureVeth(hostnet.Interface{Namespace: site, Name: port, MTU: mtu, Offloads: !labelled},
		hostnet.Interface{Namespace: namespace, Name: inside, MTU: mtu, Offloads: !labelled})
}

// newPortName makes a name that nobody else has, of the 15 characters that Linux allows.
func newPortName() string {
	var random [6]byte
	rand.Read(random[:])
	return fmt.Sprintf("sbv%x", random)
}

// A gateway instance has, for each place, two macvlan interfaces on its link: "i<index>" faces the ingress, "e<index>" the
// egress. What enters one leaves by the other: a rule by incoming interface selects a routing table with one default
// route, to the forwarder. Connection tracking has a zone per place, so customers with equal addresses stay apart.
var (
	ownAddress = netip.MustParsePrefix("169.254.0.2/32")
	ways       = []struct {
		every   netip.Prefix
		gateway netip.Addr
		ipv6    bool
	}{
		{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("169.254.0.1"), false},
		{netip.MustParsePrefix("::/0"), netip.MustParseAddr("fe80::1"), true},
	}
)

const (
	tableBase    = 100000 // routing tables 100000 + 2 × index (+ 1) are the agent's
	rulePriority = 100
)

func ingressName(index int) string { return "i" + strconv.Itoa(index) }
func egressName(index int) string  { return "e" + strconv.Itoa(index) }

func ingressTable(index int) int { return tableBase + 2*index }
func egressTable(index int) int  { return tableBase + 2*index + 1 }

// prepareGateway sets what holds for a whole namespace.
func prepareGateway(namespace *hostnet.Namespace) error {
	return namespace.SetSysctls(map[string]string{
		"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1", "net.ipv6.conf.default.forwarding": "1",
		"net.ipv4.conf.all.rp_filter": "0", "net.ipv4.conf.default.rp_filter": "0",
		"net.ipv4.conf.all.send_redirects": "0", "net.ipv4.conf.default.send_redirects": "0",
		"net.ipv6.conf.default.accept_dad": "0", "net.ipv6.conf.default.dad_transmits": "0",
		"net.ipv6.conf.default.router_solicitations": "0",
	})
}

// ensurePair makes a place's two interfaces and the ways between them.
func ensurePair(namespace *hostnet.Namespace, index int, ingressMAC, egressMAC net.HardwareAddr) error {
	for name, mac := range map[string]net.HardwareAddr{ingressName(index): ingressMAC, egressName(index): egressMAC} {
		wanted := hostnet.Interface{Namespace: namespace, Name: name, MAC: mac, Addresses: []netip.Prefix{ownAddress}, Kernel: true, Private: true, Offloads: true}
		if err := hostnet.EnsureMacvlan(wanted, namespace, gatewayLink); err != nil {
			return err
		}
		if err := namespace.SetSysctls(map[string]string{"net.ipv4.conf." + name + ".forwarding": "1",
			"net.ipv6.conf." + name + ".forwarding": "1"}); err != nil {
			return err
		}
		for _, flight := range probeFlights {
			if err := namespace.EnsureNeighbour(name, flight.target, probeMAC); err != nil {
				return err
			}
		}
	}
	return ensureWays(namespace, index)
}

// ensureWays makes rules and routes between a place's two interfaces.
func ensureWays(namespace *hostnet.Namespace, index int) error {
	// Packets that came in by one side take the table of the other.
	if err := ensureWay(namespace, ingressName(index), egressName(index), egressTable(index)); err != nil {
		return err
	}
	return ensureWay(namespace, egressName(index), ingressName(index), ingressTable(index))
}

// ensureWay sends what comes in by one interface out of another, to the forwarder.
func ensureWay(namespace *hostnet.Namespace, in, out string, table int) error {
	for _, way := range ways {
		route := hostnet.Route{Destination: way.every, Via: way.gateway, Interface: out, OnLink: true, Table: table}
		if err := namespace.EnsureRoute(route); err != nil {
			return err
		}
		target := probeFlights[way.ipv6].target
		probes := hostnet.Route{Destination: netip.PrefixFrom(target, target.BitLen()), Interface: out, Table: table}
		if err := namespace.EnsureRoute(probes); err != nil {
			return err
		}
		if err := namespace.EnsureRule(hostnet.Rule{Priority: rulePriority, Interface: in, Table: table, IPv6: way.ipv6}); err != nil {
			return err
		}
	}
	return nil
}

// removePair removes a place's interfaces and rules; routes go with their interfaces.
func removePair(namespace *hostnet.Namespace, index int) error {
	for name, table := range map[string]int{ingressName(index): egressTable(index), egressName(index): ingressTable(index)} {
		for _, way := range ways {
			if err := namespace.DeleteRule(hostnet.Rule{Priority: rulePriority, Interface: name, Table: table, IPv6: way.ipv6}); err != nil {
				return err
			}
		}
		if err := namespace.DeleteLink(name); err != nil {
			return err
		}
	}
	return nil
}

// prepareLabelAware finds the Ethernet address of a label-aware instance's link.
func prepareLabelAware(namespace *hostnet.Namespace) (net.HardwareAddr, error) {
	states, err := namespace.Links()
	if err == nil && len(states[labelLink].MAC) == 0 {
		err = fmt.Errorf("interface %s in namespace %s is gone", labelLink, namespace.Name)
	}
	return states[labelLink].MAC, err
}

// A transparent instance is a Linux bridge between two links. Frames carry a VLAN tag per place, which the bridge passes
// on untouched. It does not learn: what comes in by one side always leaves by the other, whatever its addresses.

// firstVLAN is the tag of index 1; tag 1 means other things to too many devices.
const firstVLAN = 2

// largestTransparentIndex keeps tags within IEEE 802.1Q.
const largestTransparentIndex = 4094 - firstVLAN + 1

func vlanOf(index int) int { return firstVLAN + index - 1 }

// prepareTransparent makes the bridge.
func prepareTransparent(namespace *hostnet.Namespace) error {
	if err := hostnet.EnsureBridge(hostnet.Interface{Namespace: namespace, Name: bridgeLink}); err != nil {
		return err
	}
	for _, name := range []string{ingressLink, egressLink} {
		if err := namespace.EnsureBridgePort(bridgeLink, name); err != nil {
			return err
		}
		if err := namespace.DisableLearning(name); err != nil {
			return err
		}
	}
	return nil
}
