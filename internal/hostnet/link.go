package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrInterfaceTaken reports that an interface of the name exists and is another than the one wanted.
var ErrInterfaceTaken = errors.New("interface name taken")

// Interface is a network interface as it shall be.
type Interface struct {
	// Namespace is where it lives.
	Namespace *Namespace
	// Name has 1 to 15 bytes.
	Name string
	// MAC is kept as it is where nil.
	MAC net.HardwareAddr
	// MTU in bytes; kept as it is where 0.
	MTU int
	// Addresses with the length of their networks; more on the interface are left alone.
	Addresses []netip.Prefix
	// Offloads that are left on make packets on the interface's way unfit for programs that read frames; see
	// DisableOffloads. False turns them off.
	Offloads bool
	// Kernel says whether the kernel's IP takes part. False: it sends nothing of its own (no neighbour
	// solicitations, no router solicitations), for interfaces that a forwarder or a bridge drives.
	Kernel bool
	// Private keeps a macvlan interface from exchanging packets with others over the same parent.
	Private bool
}

// EnsureVeth makes a pair of virtual Ethernet interfaces, each in its namespace, and brings both up.
// An existing interface of either name that is no veth, or half of another pair, is ErrInterfaceTaken.
func EnsureVeth(one, other Interface) error {
	for _, end := range []Interface{one, other} {
		if err := checkInterfaceName(end.Name); err != nil {
			return err
		}
	}
	paired, err := isPair(one, other)
	if err != nil {
		return err
	}
	if !paired {
		if err := addVeth(one, other); err != nil {
			return fmt.Errorf("veth %s in %s to %s in %s: %w", one.Name, one.Namespace.Name, other.Name, other.Namespace.Name, err)
		}
	}
	for _, end := range []Interface{one, other} {
		if err := end.configure(); err != nil {
			return err
		}
	}
	return nil
}

func addVeth(one, other Interface) error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = one.Name
	attributes.MTU = one.MTU
	attributes.HardwareAddr = one.MAC
	return one.Namespace.links.LinkAdd(&netlink.Veth{
		LinkAttrs:        attributes,
		PeerName:         other.Name,
		PeerHardwareAddr: other.MAC,
		PeerMTU:          uint32(other.MTU),
		PeerNamespace:    netlink.NsFd(int(other.Namespace.handle)),
	})
}

// isPair says whether both exist as halves of one pair; an interface that exists otherwise is an error.
func isPair(one, other Interface) (bool, error) {
	first, err := one.Namespace.find(one.Name)
	if err != nil {
		return false, err
	}
	second, err := other.Namespace.find(other.Name)
	if err != nil {
		return false, err
	}
	switch {
	case first == nil && second == nil:
		return false, nil
	case first == nil:
		return false, fmt.Errorf("%w: %s in %s is not the other half of %s", ErrInterfaceTaken, other.Name, other.Namespace.Name, one.Name)
	case second == nil:
		return false, fmt.Errorf("%w: %s in %s is not the other half of %s", ErrInterfaceTaken, one.Name, one.Namespace.Name, other.Name)
	}
	_, firstIsVeth := first.(*netlink.Veth)
	_, secondIsVeth := second.(*netlink.Veth)
	if firstIsVeth && secondIsVeth && first.Attrs().ParentIndex == second.Attrs().Index && second.Attrs().ParentIndex == first.Attrs().Index {
		return true, nil
	}
	return false, fmt.Errorf("%w: %s in %s and %s in %s are no veth pair", ErrInterfaceTaken, one.Name, one.Namespace.Name, other.Name, other.Namespace.Name)
}

// EnsureMacvlan makes a macvlan interface, in bridge mode unless private, over a parent interface of the same or another namespace, and
// brings it up.
func EnsureMacvlan(wanted Interface, parentNamespace *Namespace, parent string) error {
	if err := checkInterfaceName(wanted.Name); err != nil {
		return err
	}
	existing, err := wanted.Namespace.find(wanted.Name)
	if err != nil {
		return err
	}
	if existing != nil {
		if existing.Type() != "macvlan" {
			return fmt.Errorf("interface %s in %s is a %s, not a macvlan", wanted.Name, wanted.Namespace.Name, existing.Type())
		}
		return wanted.configure()
	}
	below, err := parentNamespace.get(parent)
	if err != nil {
		return err
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = wanted.Name
	attributes.ParentIndex = below.Attrs().Index
	attributes.HardwareAddr = wanted.MAC
	attributes.Namespace = netlink.NsFd(int(wanted.Namespace.handle))
	mode := netlink.MACVLAN_MODE_BRIDGE
	if wanted.Private {
		mode = netlink.MACVLAN_MODE_PRIVATE
	}
	if err := parentNamespace.links.LinkAdd(&netlink.Macvlan{LinkAttrs: attributes, Mode: mode}); err != nil {
		return fmt.Errorf("macvlan %s in %s over %s: %w", wanted.Name, wanted.Namespace.Name, parent, err)
	}
	return wanted.configure()
}

// EnsureBridge makes a bridge without spanning tree and multicast snooping, and brings it up. The namespace's IP packet
// filter is kept out of what its bridges carry: it would put fragments together.
func EnsureBridge(wanted Interface) error {
	if err := checkInterfaceName(wanted.Name); err != nil {
		return err
	}
	existing, err := wanted.Namespace.find(wanted.Name)
	if err != nil {
		return err
	}
	if existing == nil {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = wanted.Name
		attributes.HardwareAddr = wanted.MAC
		if err := wanted.Namespace.links.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}); err != nil {
			return fmt.Errorf("bridge %s in %s: %w", wanted.Name, wanted.Namespace.Name, err)
		}
	} else if existing.Type() != "bridge" {
		return fmt.Errorf("interface %s in %s is a %s, not a bridge", wanted.Name, wanted.Namespace.Name, existing.Type())
	}
	if err := wanted.Namespace.keepFilterOutOfBridges(); err != nil {
		return err
	}
	return wanted.configure()
}

// keepFilterOutOfBridges switches br_netfilter off, where the kernel has it.
func (n *Namespace) keepFilterOutOfBridges() error {
	for _, name := range []string{"iptables", "ip6tables", "arptables"} {
		err := n.SetSysctls(map[string]string{"net.bridge.bridge-nf-call-" + name: "0"})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// EnsureBridgePort puts an interface into a bridge of the same namespace.
func (n *Namespace) EnsureBridgePort(bridge, port string) error {
	master, err := n.get(bridge)
	if err != nil {
		return err
	}
	link, err := n.get(port)
	if err != nil {
		return err
	}
	if link.Attrs().MasterIndex == master.Attrs().Index {
		return nil
	}
	if err := n.links.LinkSetMaster(link, master); err != nil {
		return fmt.Errorf("put %s into bridge %s in %s: %w", port, bridge, n.Name, err)
	}
	return nil
}

// Configure gives an interface that exists its MAC, MTU and addresses, and brings it up.
func (i Interface) Configure() error { return i.configure() }

func (i Interface) configure() error {
	link, err := i.Namespace.get(i.Name)
	if err != nil {
		return err
	}
	links := i.Namespace.links
	if len(i.MAC) > 0 && link.Attrs().HardwareAddr.String() != i.MAC.String() {
		if err := links.LinkSetHardwareAddr(link, i.MAC); err != nil {
			return fmt.Errorf("MAC %s of %s in %s: %w", i.MAC, i.Name, i.Namespace.Name, err)
		}
	}
	if i.MTU > 0 && link.Attrs().MTU != i.MTU {
		if err := links.LinkSetMTU(link, i.MTU); err != nil {
			return fmt.Errorf("MTU %d of %s in %s: %w", i.MTU, i.Name, i.Namespace.Name, err)
		}
	}
	if err := i.configureKernel(); err != nil {
		return err
	}
	if !i.Offloads {
		if err := i.Namespace.DisableOffloads(i.Name); err != nil {
			return err
		}
	}
	if err := i.Namespace.SetUp(i.Name); err != nil {
		return err
	}
	return i.Namespace.EnsureAddresses(i.Name, i.Addresses...)
}

// configureKernel lets the kernel's IP take part, without waiting for duplicate addresses, or keeps it out.
func (i Interface) configureKernel() error {
	if i.Kernel {
		return i.Namespace.SetSysctls(map[string]string{"net.ipv6.conf." + i.Name + ".accept_dad": "0"})
	}
	return i.Namespace.SetSysctls(map[string]string{"net.ipv6.conf." + i.Name + ".disable_ipv6": "1"})
}

// SetUp brings an interface up.
func (n *Namespace) SetUp(name string) error {
	link, err := n.get(name)
	if err != nil {
		return err
	}
	if link.Attrs().Flags&net.FlagUp != 0 {
		return nil
	}
	if err := n.links.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up %s in %s: %w", name, n.Name, err)
	}
	return nil
}

// DeleteLink removes an interface, and with half of a pair the other half.
func (n *Namespace) DeleteLink(name string) error {
	link, err := n.find(name)
	if err != nil || link == nil {
		return err
	}
	if err := n.links.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete %s in %s: %w", name, n.Name, err)
	}
	return nil
}

// LinkExists says whether there is an interface of that name.
func (n *Namespace) LinkExists(name string) (bool, error) {
	link, err := n.find(name)
	return link != nil, err
}

// LinkNames lists the interfaces.
func (n *Namespace) LinkNames() ([]string, error) {
	links, err := n.links.LinkList()
	if err != nil {
		return nil, fmt.Errorf("interfaces of %s: %w", n.Name, err)
	}
	names := make([]string, 0, len(links))
	for _, link := range links {
		names = append(names, link.Attrs().Name)
	}
	return names, nil
}

// MAC is an interface's hardware address.
func (n *Namespace) MAC(name string) (net.HardwareAddr, error) {
	link, err := n.get(name)
	if err != nil {
		return nil, err
	}
	return link.Attrs().HardwareAddr, nil
}

// Up says whether an interface is up and has a carrier, as far as its driver tells: tunnels and loopback do not.
func (n *Namespace) Up(name string) (bool, error) {
	link, err := n.get(name)
	if err != nil {
		return false, err
	}
	return isUp(link.Attrs()), nil
}

// find returns nil where there is no such interface.
func (n *Namespace) find(name string) (netlink.Link, error) {
	link, err := n.links.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("interface %s in %s: %w", name, n.Name, err)
	}
	return link, nil
}

func (n *Namespace) get(name string) (netlink.Link, error) {
	link, err := n.links.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s in %s: %w", name, n.Name, err)
	}
	return link, nil
}

func checkInterfaceName(name string) error {
	if len(name) == 0 || len(name) >= unix.IFNAMSIZ {
		return fmt.Errorf("interface name %q: use 1 to %d bytes", name, unix.IFNAMSIZ-1)
	}
	return nil
}
