package hostnet

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// vlanFilterName is the traffic-control filter's name, by which a repeated call finds it.
const vlanFilterName = "switchboard-vlan"

// tagProtocol is ETH_P_8021Q, 0x8100, in network byte order.
const tagProtocol = 0x0081

// EnsureVLANTag makes everything an interface sends bear an IEEE 802.1Q tag, and takes the tag off everything it
// receives; so its namespace is a station on that VLAN also where the kernel has no VLAN interfaces. identifier is 1 to
// 4094.
func (n *Namespace) EnsureVLANTag(name string, identifier uint16) error {
	if identifier < 1 || identifier > 4094 {
		return fmt.Errorf("VLAN %d of %s in %s: use 1 to 4094", identifier, name, n.Name)
	}
	link, err := n.get(name)
	if err != nil {
		return err
	}
	attributes := netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
	qdisc := &netlink.GenericQdisc{QdiscAttrs: attributes, QdiscType: "clsact"}
	if err := n.links.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("clsact on %s in %s: %w", name, n.Name, err)
	}
	// The program itself names the VLAN, so a filter of another identifier is replaced.
	if err := n.ensureProgram(link, netlink.HANDLE_MIN_EGRESS, vlanFilterName, pushTag(identifier)); err != nil {
		return fmt.Errorf("VLAN %d of %s in %s: %w", identifier, name, n.Name, err)
	}
	if err := n.ensureProgram(link, netlink.HANDLE_MIN_INGRESS, vlanFilterName, popTag()); err != nil {
		return fmt.Errorf("VLAN %d of %s in %s: %w", identifier, name, n.Name, err)
	}
	return nil
}

func (n *Namespace) ensureProgram(link netlink.Link, parent uint32, filter string, instructions asm.Instructions) error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: strings.ReplaceAll(filter, "-", "_"), Type: ebpf.SchedCLS, Instructions: instructions, License: "Apache-2.0",
	})
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	defer program.Close()
	return n.links.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: link.Attrs().Index, Parent: parent, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL,
		},
		Fd: program.FD(), Name: filter, DirectAction: true,
	})
}

// pushTag sends every packet with a tag.
func pushTag(identifier uint16) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R2, tagProtocol),
		asm.Mov.Imm(asm.R3, int32(identifier)),
		asm.FnSkbVlanPush.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}
}

// popTag receives every packet without its tag.
func popTag() asm.Instructions {
	return asm.Instructions{
		asm.FnSkbVlanPop.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}
}
