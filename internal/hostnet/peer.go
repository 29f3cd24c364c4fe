package hostnet

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// VethPeer is the name, in another namespace, of the other half of a pair; "" where there is no such pair between the two.
func (n *Namespace) VethPeer(name string, other *Namespace) (string, error) {
	link, err := n.find(name)
	if err != nil || link == nil {
		return "", err
	}
	peer, err := other.links.LinkByIndex(link.Attrs().ParentIndex)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("other half of %s in %s: %w", name, n.Name, err)
	}
	// Indexes are of each namespace: only halves that name each other belong together.
	if _, isVeth := peer.(*netlink.Veth); !isVeth || peer.Attrs().ParentIndex != link.Attrs().Index {
		return "", nil
	}
	return peer.Attrs().Name, nil
}
