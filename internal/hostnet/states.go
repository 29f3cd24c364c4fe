package hostnet

import (
	"fmt"
	"net"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// LinkState is what is known of an interface.
type LinkState struct {
	Index int
	MAC   net.HardwareAddr
	// Up says that it is up and has a carrier, as Namespace.Up does.
	Up bool
}

// Links lists every interface by name, by one request to the kernel.
func (n *Namespace) Links() (map[string]LinkState, error) {
	links, err := n.links.LinkList()
	if err != nil {
		return nil, fmt.Errorf("interfaces of %s: %w", n.Name, err)
	}
	states := make(map[string]LinkState, len(links))
	for _, link := range links {
		states[link.Attrs().Name] = LinkState{Index: link.Attrs().Index, MAC: link.Attrs().HardwareAddr, Up: isUp(link.Attrs())}
	}
	return states, nil
}

// LinkStates says of every interface whether it is up.
func (n *Namespace) LinkStates() (map[string]bool, error) {
	links, err := n.Links()
	if err != nil {
		return nil, err
	}
	states := make(map[string]bool, len(links))
	for name, link := range links {
		states[name] = link.Up
	}
	return states, nil
}

func isUp(attributes *netlink.LinkAttrs) bool {
	unknown := attributes.OperState == netlink.OperUnknown && attributes.Flags&net.FlagUp != 0
	return unknown || attributes.OperState == netlink.OperUp
}

// Current says whether the namespace's name still stands for it: not once somebody has removed it, or made another.
func (n *Namespace) Current() bool {
	var named, held unix.Stat_t
	if unix.Stat(filepath.Join(namespaceDirectory, n.Name), &named) != nil || unix.Fstat(int(n.handle), &held) != nil {
		return false
	}
	return named.Dev == held.Dev && named.Ino == held.Ino
}
