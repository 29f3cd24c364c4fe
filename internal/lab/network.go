package lab

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/switchboard-project/switchboard/internal/hostnet"
)

// network brings about a plan's namespaces, links and addresses.
type network struct {
	*plan
	open map[string]*hostnet.Namespace
}

// ensureNetwork makes what is missing of a plan's network.
func ensureNetwork(p *plan) error {
	n := &network{plan: p, open: map[string]*hostnet.Namespace{}}
	defer func() {
		for _, namespace := range n.open {
			namespace.Close()
		}
	}()
	for _, name := range p.namespaces() {
		namespace, err := hostnet.EnsureNamespace(name)
		if err != nil {
			return err
		}
		n.open[name] = namespace
	}
	for _, site := range p.SitePlans {
		if err := n.ensureSite(site); err != nil {
			return fmt.Errorf("site %s: %w", site.Name, err)
		}
	}
	for _, segment := range p.Segments {
		if err := n.ensureSegment(segment); err != nil {
			return fmt.Errorf("hosts behind %s of site %s: %w", segment.Interface, segment.Site, err)
		}
	}
	return nil
}

// ensureSite leads a site's interfaces to the underlay.
func (n *network) ensureSite(site sitePlan) error {
	underlay := n.open[n.underlayNamespace()]
	// Both interfaces lead to one Ethernet. Without this the kernel answers on either for the address of the other, and the
	// bus comes to the forwarder's interface.
	if err := n.open[site.Namespace].SetSysctls(map[string]string{"net.ipv4.conf.all.arp_ignore": "1"}); err != nil {
		return err
	}
	for _, f := range site.Forwarders {
		wan := n.frames(site.Namespace, f.Interface, n.MTU)
		if err := ensureVeth(wan, n.frames(underlay.Name, f.Port, n.MTU)); err != nil {
			return err
		}
	}
	control := n.kernel(site.Namespace, ControlInterface, n.MTU, site.Control)
	return ensureVeth(control, n.frames(underlay.Name, site.ControlPort, n.MTU))
}

// ensureSegment joins hosts and a site's interface by a bridge. Hosts' tags pass it as they are.
func (n *network) ensureSegment(segment *segment) error {
	switching := n.switchNamespace()
	if err := hostnet.EnsureBridge(n.frames(switching, segment.Bridge, 0)); err != nil {
		return err
	}
	// A tag takes four bytes that the Linux MTU does not count.
	site := offloading(n.frames(n.Namespace(segment.Site), segment.Interface, 0))
	if err := n.ensurePort(segment, segment.Port, site); err != nil {
		return err
	}
	for _, host := range segment.Hosts {
		end := offloading(n.kernel(host.Namespace, hostInterface, 0, host.Addresses...))
		if err := n.ensurePort(segment, host.Port, end); err != nil {
			return err
		}
		if err := n.ensureHost(host); err != nil {
			return fmt.Errorf("host %s: %w", host.Name, err)
		}
	}
	return nil
}

func (n *network) ensurePort(segment *segment, port string, end hostnet.Interface) error {
	if err := ensureVeth(offloading(n.frames(n.switchNamespace(), port, 0)), end); err != nil {
		return err
	}
	return n.open[n.switchNamespace()].EnsureBridgePort(segment.Bridge, port)
}

// ensureVeth makes a pair anew where half of an old one is left, as after the other half's namespace was deleted.
func ensureVeth(one, other hostnet.Interface) error {
	err := hostnet.EnsureVeth(one, other)
	if !errors.Is(err, hostnet.ErrInterfaceTaken) {
		return err
	}
	if err := errors.Join(one.Namespace.DeleteLink(one.Name), other.Namespace.DeleteLink(other.Name)); err != nil {
		return err
	}
	return hostnet.EnsureVeth(one, other)
}

func (n *network) ensureHost(host segmentHost) error {
	namespace := n.open[host.Namespace]
	if host.VLAN != 0 {
		if err := namespace.EnsureVLANTag(hostInterface, host.VLAN); err != nil {
			return err
		}
	}
	for _, gateway := range host.Gateways {
		everything := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if gateway.Is6() {
			everything = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		if err := namespace.EnsureRoute(hostnet.Route{Destination: everything, Via: gateway, Interface: hostInterface}); err != nil {
			return err
		}
	}
	return nil
}

// frames is an interface that programs or bridges drive, kernel one that the kernel's IP uses.
func (n *network) frames(namespace, name string, mtu int) hostnet.Interface {
	return hostnet.Interface{Namespace: n.open[namespace], Name: name, MAC: macFor(namespace, name), MTU: mtu}
}

// offloading leaves an interface as Linux makes it: hosts send large segments without checksums, which forwarders cut and
// fill in as they do at a customer's. The underlay's delay line reads plain frames, so its interfaces have none.
func offloading(i hostnet.Interface) hostnet.Interface {
	i.Offloads = true
	return i
}

func (n *network) kernel(namespace, name string, mtu int, addresses ...netip.Prefix) hostnet.Interface {
	wanted := n.frames(namespace, name, mtu)
	wanted.Kernel, wanted.Addresses = true, addresses
	return wanted
}
