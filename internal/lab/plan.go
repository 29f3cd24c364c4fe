package lab

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
)

// Interfaces of every site.
const (
	// WANInterface is that of a site's first forwarder: the kernel has no address on it.
	WANInterface = "wan0"
	// ControlInterface is the kernel's, for the message bus.
	ControlInterface = "control0"
	// hostInterface is a host's only one.
	hostInterface = "eth0"
)

// Networks of the wide area; every laboratory has them to itself. RFC 2544 sets the range aside for tests.
var (
	tunnelNetwork  = netip.MustParsePrefix("198.19.0.0/16")
	controlNetwork = netip.MustParsePrefix("198.18.1.0/24")
)

// sitePlan is what the laboratory makes for a site.
type sitePlan struct {
	Name      string
	Namespace string
	// Control is the kernel's address, ControlPort the other end of its interface, in the underlay's namespace.
	Control     netip.Prefix
	ControlPort string
	// Forwarders are those that run, those that leave included.
	Forwarders []forwarderPlan
	// Interfaces says which forwarder drives each interface with hosts behind it.
	Interfaces map[string]string
}

// forwarderPlan is what the laboratory makes for a forwarder.
type forwarderPlan struct {
	Number int
	Name   string
	// Interface is on the underlay, Port its other end, in the underlay's namespace.
	Interface, Port string
	// Tunnel is its address.
	Tunnel netip.Prefix
	// Leaving says that it is no longer in the site's configuration.
	Leaving bool
}

// segment is a network of hosts behind an interface of a site.
type segment struct {
	Site, Interface string
	// Bridge and Port are in the switch's namespace; Port leads to the site.
	Bridge, Port string
	Hosts        []segmentHost
}

type segmentHost struct {
	Host
	Namespace string
	// Port leads to the host.
	Port string
}

// plan is a laboratory with every name and address decided. It depends on the file alone.
type plan struct {
	*Laboratory
	SitePlans []sitePlan
	Segments  []*segment
}

func newPlan(laboratory *Laboratory, all crews) *plan {
	p := &plan{Laboratory: laboratory}
	for index, site := range laboratory.Sites {
		planned := sitePlan{
			Name: site, Namespace: laboratory.Namespace(site),
			Control: nth(controlNetwork, index+1), ControlPort: fmt.Sprintf("c%d", index), Interfaces: map[string]string{},
		}
		for _, number := range all[site].Numbers {
			planned.Forwarders = append(planned.Forwarders, newForwarderPlan(index, number, false))
		}
		for _, number := range all[site].Leaving {
			planned.Forwarders = append(planned.Forwarders, newForwarderPlan(index, number, true))
		}
		for name, number := range all[site].Interfaces {
			planned.Interfaces[name] = forwarderName(number)
		}
		p.SitePlans = append(p.SitePlans, planned)
	}
	bySegment := map[[2]string]*segment{}
	for index, host := range laboratory.machines() {
		key := [2]string{host.Site, host.Interface}
		if bySegment[key] == nil {
			number := len(p.Segments)
			bySegment[key] = &segment{
				Site: host.Site, Interface: host.Interface,
				Bridge: fmt.Sprintf("b%d", number), Port: fmt.Sprintf("s%d", number),
			}
			p.Segments = append(p.Segments, bySegment[key])
		}
		bySegment[key].Hosts = append(bySegment[key].Hosts, segmentHost{host, laboratory.Namespace(host.Name), fmt.Sprintf("h%d", index)})
	}
	return p
}

// newForwarderPlan decides names and address of a site's forwarder. Those of the first are as if it were the only one.
func newForwarderPlan(site, number int, leaving bool) forwarderPlan {
	f := forwarderPlan{Number: number, Name: forwarderName(number), Interface: fmt.Sprintf("wan%d", number-1),
		Port: fmt.Sprintf("w%d", site), Tunnel: nth(tunnelNetwork, (number-1)<<8+site+1), Leaving: leaving}
	if number > 1 {
		f.Port = fmt.Sprintf("w%dx%d", site, number)
	}
	return f
}

// Namespace is the network namespace of a site, a host, or a part of the laboratory.
func (l *Laboratory) Namespace(name string) string { return Prefix(l.Name) + name }

// Prefix begins the name of every namespace of a laboratory. Names have no dot, so that no laboratory's prefix begins
// another's.
func Prefix(laboratory string) string { return laboratory + "." }

func (p *plan) underlayNamespace() string { return p.Namespace("underlay") }
func (p *plan) switchNamespace() string   { return p.Namespace("switch") }

func (p *plan) site(name string) *sitePlan {
	for index := range p.SitePlans {
		if p.SitePlans[index].Name == name {
			return &p.SitePlans[index]
		}
	}
	return nil
}

// namespaces lists those the laboratory makes itself.
func (p *plan) namespaces() []string {
	names := []string{p.underlayNamespace(), p.switchNamespace()}
	for _, site := range p.SitePlans {
		names = append(names, site.Namespace)
	}
	for _, host := range p.machines() {
		names = append(names, p.Namespace(host.Name))
	}
	return names
}

// nth is the n-th address of a network, with the network's length.
func nth(network netip.Prefix, n int) netip.Prefix {
	address := network.Addr()
	for range n {
		address = address.Next()
	}
	return netip.PrefixFrom(address, network.Bits())
}

// macFor is the hardware address of an interface: the same at every start, unlike any other's.
func macFor(namespace, name string) net.HardwareAddr {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return net.HardwareAddr{0x02, sum[0], sum[1], sum[2], sum[3], sum[4]}
}
