package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ProbeMark is the mark of probes on their way through a namespace. No packet from outside bears it: marks end where a
// packet changes its namespace.
const ProbeMark = 0x5b000001

const (
	// enterMark is the mark of probes that a Prober sends, with the interface they shall come in by in the low bits.
	enterMark     = 0x5c000000
	enterShift    = 24
	loopbackIndex = 1
	redirectIn    = 1 // BPF_F_INGRESS
	markOffset    = 8 // of struct __sk_buff
	probeFilter   = "switchboard-probe"
)

// EnsureProbes lets a Prober put packets into a namespace as if an interface had received them, and takes those that come
// out of any of the links given back to it: they never leave the namespace. Those are packets with the ProbeMark, or, where the
// address is not nil, those for that Ethernet address: what a program sends itself bears no mark. Both are traffic-control programs.
func (n *Namespace) EnsureProbes(address net.HardwareAddr, links ...string) error {
	if err := n.SetUp("lo"); err != nil {
		return err
	}
	if err := n.ensureEgressProgram("lo", enterProgram()); err != nil {
		return fmt.Errorf("probes into %s: %w", n.Name, err)
	}
	leave := leaveProgram()
	if address != nil {
		leave = returnProgram(address)
	}
	for _, link := range links {
		if err := n.ensureEgressProgram(link, leave); err != nil {
			return fmt.Errorf("probes out of %s in %s: %w", link, n.Name, err)
		}
	}
	return nil
}

func (n *Namespace) ensureEgressProgram(name string, instructions asm.Instructions) error {
	link, err := n.get(name)
	if err != nil {
		return err
	}
	attributes := netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
	qdisc := &netlink.GenericQdisc{QdiscAttrs: attributes, QdiscType: "clsact"}
	if err := n.links.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("clsact: %w", err)
	}
	return n.ensureProgram(link, netlink.HANDLE_MIN_EGRESS, probeFilter, instructions)
}

// enterProgram hands what bears an enterMark to its interface, as received.
func enterProgram() asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, markOffset, asm.Word),
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.RSh.Imm(asm.R3, enterShift),
		asm.JNE.Imm(asm.R3, enterMark>>enterShift, "other"),
		asm.And.Imm(asm.R2, 1<<enterShift-1),
		asm.Mov.Imm(asm.R3, ProbeMark),
		asm.StoreMem(asm.R1, markOffset, asm.R3, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R2),
		asm.Mov.Imm(asm.R2, redirectIn),
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("other"),
		asm.Return(),
	}
}

// leaveProgram hands what bears the ProbeMark to the loopback interface, where a Prober reads it.
func leaveProgram() asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, markOffset, asm.Word),
		asm.JNE.Imm(asm.R2, ProbeMark, "other"),
		asm.Mov.Imm(asm.R1, loopbackIndex),
		asm.Mov.Imm(asm.R2, redirectIn),
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("other"),
		asm.Return(),
	}
}

// returnProgram hands what is sent to an Ethernet address to the loopback interface, where a Prober reads it.
func returnProgram(address net.HardwareAddr) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1), // where the two loads from the frame expect the packet
		asm.LoadAbs(0, asm.Word),
		asm.JNE.Imm(asm.R0, int32(binary.BigEndian.Uint32(address)), "other"),
		asm.LoadAbs(4, asm.Half),
		asm.JNE.Imm(asm.R0, int32(binary.BigEndian.Uint16(address[4:])), "other"),
		asm.Mov.Imm(asm.R1, loopbackIndex),
		asm.Mov.Imm(asm.R2, redirectIn),
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("other"),
		asm.Return(),
	}
}

// Prober sends packets through a namespace and reads those that came through. Not for concurrent use.
type Prober struct {
	socket int
	buffer [2048]byte
}

// OpenProber opens a Prober; the namespace needs EnsureProbes.
func (n *Namespace) OpenProber() (*Prober, error) {
	p := &Prober{}
	err := n.Do(func() error {
		const everything = 0x0300 // ETH_P_ALL in network byte order
		socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		p.socket = socket
		if err := unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: everything, Ifindex: loopbackIndex}); err != nil {
			unix.Close(socket)
			return err
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("probe socket in %s: %w", n.Name, err)
	}
	return p, nil
}

// Close lets go of the namespace.
func (p *Prober) Close() { unix.Close(p.socket) }

// Send puts an Ethernet frame into the namespace as if the interface of that index had received it.
func (p *Prober) Send(index int, frame []byte) error {
	if index <= loopbackIndex || index >= 1<<enterShift {
		return fmt.Errorf("interface index %d cannot take probes", index)
	}
	if err := unix.SetsockoptInt(p.socket, unix.SOL_SOCKET, unix.SO_MARK, enterMark|index); err != nil {
		return fmt.Errorf("mark probe: %w", err)
	}
	_, err := unix.Write(p.socket, frame)
	return err
}

// Receive returns a frame that came through, without a VLAN tag; nil where there is none within the time given. The frame
// is valid until the next call.
func (p *Prober) Receive(patience time.Duration) []byte {
	deadline := time.Now().Add(patience)
	for {
		length, err := unix.Read(p.socket, p.buffer[:])
		if err == nil {
			return p.buffer[:length]
		}
		left := time.Until(deadline)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) || left <= 0 {
			return nil
		}
		ready := []unix.PollFd{{Fd: int32(p.socket), Events: unix.POLLIN}}
		_, _ = unix.Poll(ready, int(left/time.Millisecond)+1)
	}
}
