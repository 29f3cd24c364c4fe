package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Route is a way to a destination.
type Route struct {
	// Destination is the zero Prefix's opposite: give 0.0.0.0/0 or ::/0 for the default route.
	Destination netip.Prefix
	// Via is the next hop; invalid where the destination is on link.
	Via netip.Addr
	// Interface may be empty where Via says it; required otherwise.
	Interface string
	// OnLink lets Via lie outside the interface's networks.
	OnLink bool
	// Table is the routing table; 0 is the main one.
	Table int
	// Source is the preferred source address; invalid for the kernel's choice.
	Source netip.Addr
}

// Rule sends packets to a routing table.
type Rule struct {
	// Priority orders rules, low first; it must not be 0.
	Priority int
	// Interface is the one the packet came in by; empty: any.
	Interface string
	// Source and Destination are zero where any will do.
	Source, Destination netip.Prefix
	// Table is where to look.
	Table int
	// IPv6 chooses the family where neither prefix does.
	IPv6 bool
}

// EnsureAddresses gives an interface addresses with the length of their networks.
func (n *Namespace) EnsureAddresses(name string, addresses ...netip.Prefix) error {
	if len(addresses) == 0 {
		return nil
	}
	link, err := n.get(name)
	if err != nil {
		return err
	}
	for _, address := range addresses {
		wanted := &netlink.Addr{IPNet: network(address)}
		if address.Addr().Is6() {
			// The laboratory's addresses are unique by construction; waiting for duplicates delays every start.
			wanted.Flags = unix.IFA_F_NODAD
		}
		if err := n.links.AddrReplace(link, wanted); err != nil {
			return fmt.Errorf("address %s of %s in %s: %w", address, name, n.Name, err)
		}
	}
	return nil
}

// EnsureRoute makes or changes the route to a destination.
func (n *Namespace) EnsureRoute(route Route) error {
	wanted, err := n.route(route)
	if err != nil {
		return err
	}
	if err := n.links.RouteReplace(wanted); err != nil {
		return fmt.Errorf("route to %s in %s: %w", route.Destination, n.Name, err)
	}
	return nil
}

// DeleteRoute removes a route.
func (n *Namespace) DeleteRoute(route Route) error {
	wanted, err := n.route(route)
	if err != nil {
		return err
	}
	if err := n.links.RouteDel(wanted); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("delete route to %s in %s: %w", route.Destination, n.Name, err)
	}
	return nil
}

func (n *Namespace) route(route Route) (*netlink.Route, error) {
	wanted := &netlink.Route{Dst: network(route.Destination), Table: route.Table}
	if route.Via.IsValid() {
		wanted.Gw = route.Via.AsSlice()
	}
	if route.Source.IsValid() {
		wanted.Src = route.Source.AsSlice()
	}
	if route.OnLink {
		wanted.Flags = int(netlink.FLAG_ONLINK)
	}
	if route.Interface != "" {
		link, err := n.get(route.Interface)
		if err != nil {
			return nil, err
		}
		wanted.LinkIndex = link.Attrs().Index
	}
	if !route.Via.IsValid() && route.Interface != "" {
		wanted.Scope = netlink.SCOPE_LINK
	}
	return wanted, nil
}

// EnsureRule makes a routing rule.
func (n *Namespace) EnsureRule(rule Rule) error {
	if err := n.links.RuleAdd(rule.netlink()); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("rule %d in %s: %w", rule.Priority, n.Name, err)
	}
	return nil
}

// DeleteRule removes a routing rule.
func (n *Namespace) DeleteRule(rule Rule) error {
	if err := n.links.RuleDel(rule.netlink()); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete rule %d in %s: %w", rule.Priority, n.Name, err)
	}
	return nil
}

func (r Rule) netlink() *netlink.Rule {
	wanted := netlink.NewRule()
	wanted.Family = netlink.FAMILY_V4
	if r.IPv6 || r.Source.Addr().Is6() || r.Destination.Addr().Is6() {
		wanted.Family = netlink.FAMILY_V6
	}
	wanted.Priority = r.Priority
	wanted.Table = r.Table
	wanted.IifName = r.Interface
	if r.Source.IsValid() {
		wanted.Src = network(r.Source)
	}
	if r.Destination.IsValid() {
		wanted.Dst = network(r.Destination)
	}
	return wanted
}

// EnsureNeighbour makes a permanent neighbour entry.
func (n *Namespace) EnsureNeighbour(name string, address netip.Addr, mac net.HardwareAddr) error {
	link, err := n.get(name)
	if err != nil {
		return err
	}
	family := netlink.FAMILY_V4
	if address.Is6() {
		family = netlink.FAMILY_V6
	}
	if err := n.links.NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, Family: family, State: netlink.NUD_PERMANENT,
		IP: address.AsSlice(), HardwareAddr: mac,
	}); err != nil {
		return fmt.Errorf("neighbour %s on %s in %s: %w", address, name, n.Name, err)
	}
	return nil
}

// SetSysctls sets network variables of the namespace, named with dots as sysctl(8) does; an interface's name may
// itself contain dots only in the last place but one, as in net.ipv4.conf.NAME.forwarding.
func (n *Namespace) SetSysctls(values map[string]string) error {
	return n.Do(func() error {
		for name, value := range values {
			path := sysctlPath(name)
			if now, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(now)) == value {
				continue
			}
			// O_WRONLY without O_TRUNC, which /proc would take for a write of nothing.
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return fmt.Errorf("sysctl %s in %s: %w", name, n.Name, err)
			}
			_, err = file.WriteString(value)
			_ = file.Close()
			if err != nil {
				return fmt.Errorf("sysctl %s=%s in %s: %w", name, value, n.Name, err)
			}
		}
		return nil
	})
}

// sysctlPath keeps the dots of an interface's name: what stands between "conf" and the last word.
func sysctlPath(name string) string {
	words := strings.Split(name, ".")
	if len(words) > 5 && words[2] == "conf" {
		last := len(words) - 1
		words = append(append([]string{}, words[:3]...), strings.Join(words[3:last], "."), words[last])
	}
	return "/proc/sys/" + strings.Join(words, "/")
}

func network(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{
		IP:   prefix.Addr().AsSlice(),
		Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen()),
	}
}
