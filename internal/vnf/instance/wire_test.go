package instance

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/hostnet"
	"github.com/switchboard-project/switchboard/internal/needs"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// privateNamespace moves the test to a network namespace of its own: the site. It ends with the test's thread.
func privateNamespace(t *testing.T) {
	t.Helper()
	needs.Root(t)
	runtime.LockOSThread() // never unlocked: the thread, and with it the namespace, ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		needs.Missing(t, fmt.Sprintf("a kernel that makes network namespaces: %v", err))
	}
}

// memory is a Store that forgets with the test.
type memory struct {
	mu     sync.Mutex
	values map[string][]byte
}

func newMemory() *memory { return &memory{values: map[string][]byte{}} }

func (m *memory) Put(_ context.Context, key string, value []byte) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[key] = value
	return 1, nil
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, key)
	return nil
}

func (m *memory) List(context.Context, string) ([]bus.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []bus.Entry
	for k, v := range m.values {
		all = append(all, bus.Entry{Key: k, Value: v})
	}
	return all, nil
}

// testAgent is an agent whose steps the test takes itself.
func testAgent(t *testing.T, store Store) *Agent {
	t.Helper()
	prefix := fmt.Sprintf("sbt%d-", os.Getpid())
	a := NewAgent(Config{Site: "here", Prefix: prefix, Forwarders: []string{"f1"}, Store: store, Changed: func(Observed) {}})
	var err error
	if a.records, err = openRecords(context.Background(), "here", store); err != nil {
		t.Fatal(err)
	}
	if a.site, err = hostnet.CurrentNamespace(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.site.Close()
		for _, in := range a.instances {
			in.release()
		}
		names, err := hostnet.NamespaceNames(prefix)
		for _, name := range names {
			err = errors.Join(err, hostnet.DeleteNamespace(name))
		}
		if err != nil {
			t.Error(err)
		}
	})
	return a
}

func options(t *testing.T, of map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(of)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func place(name string, chain, stage uint32) vnf.Place {
	return vnf.Place{VNF: name, ChainLabel: chain, EgressLabel: 100, Stage: stage}
}

// wire is the forwarder's end of an instance's link.
type wire struct {
	t      *testing.T
	socket int
	mac    net.HardwareAddr
}

func openWire(t *testing.T, port string) *wire {
	t.Helper()
	link, err := netlink.LinkByName(port)
	if err != nil {
		t.Fatal(err)
	}
	const everything = 0x0300 // ETH_P_ALL in network order
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, everything)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(socket) })
	if err := unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: everything, Ifindex: link.Attrs().Index}); err != nil {
		t.Fatal(err)
	}
	// Auxiliary data would carry the VLAN tag; keeping it in the frame needs none where tags are not stripped.
	if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20000}); err != nil {
		t.Fatal(err)
	}
	return &wire{t, socket, link.Attrs().HardwareAddr}
}

// datagram is a UDP or bare TCP packet in an Ethernet frame.
type datagram struct {
	from, to       net.HardwareAddr
	source, target netip.AddrPort
	protocol       byte
	flags          byte // TCP
	vlan           int
}

func (d datagram) frame() []byte {
	transport := make([]byte, 20)
	binary.BigEndian.PutUint16(transport[0:], d.source.Port())
	binary.BigEndian.PutUint16(transport[2:], d.target.Port())
	if d.protocol == unix.IPPROTO_UDP {
		transport = transport[:12]
		binary.BigEndian.PutUint16(transport[4:], 12) // checksum 0: none
	} else {
		binary.BigEndian.PutUint32(transport[4:], 1000)
		transport[12], transport[13] = 5<<4, d.flags
		binary.BigEndian.PutUint16(transport[14:], 65000)
	}
	ip := make([]byte, 20)
	ip[0], ip[8], ip[9] = 0x45, 64, d.protocol
	binary.BigEndian.PutUint16(ip[2:], uint16(20+len(transport)))
	copy(ip[12:], d.source.Addr().AsSlice())
	copy(ip[16:], d.target.Addr().AsSlice())
	binary.BigEndian.PutUint16(ip[10:], checksum(ip, 0))
	if d.protocol == unix.IPPROTO_TCP {
		pseudo := uint32(d.protocol) + uint32(len(transport))
		for i := 12; i < 20; i += 2 {
			pseudo += uint32(binary.BigEndian.Uint16(ip[i:]))
		}
		binary.BigEndian.PutUint16(transport[16:], checksum(transport, pseudo))
	}
	frame := append(append([]byte{}, d.to...), d.from...)
	if d.vlan > 0 {
		frame = append(frame, 0x81, 0, byte(d.vlan>>8), byte(d.vlan))
	}
	return append(append(append(frame, 8, 0), ip...), transport...)
}

func checksum(b []byte, sum uint32) uint16 {
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func (w *wire) send(d datagram) {
	w.t.Helper()
	if d.from == nil {
		d.from = w.mac
	}
	if _, err := unix.Write(w.socket, d.frame()); err != nil {
		w.t.Fatal(err)
	}
}

// receive waits for the next UDP or TCP packet over IPv4 that the instance sends, answering its ARP as a forwarder does.
func (w *wire) receive(patience time.Duration) (datagram, bool) {
	w.t.Helper()
	buffer := make([]byte, 4096)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		n, from, err := unix.Recvfrom(w.socket, buffer, 0)
		if err != nil {
			continue
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		frame := buffer[:n]
		switch {
		case n >= 42 && frame[12] == 8 && frame[13] == 6 && frame[21] == 1:
			w.answerARP(frame)
		case n >= 38 && frame[12] == 8 && frame[13] == 0 && (frame[23] == unix.IPPROTO_UDP || frame[23] == unix.IPPROTO_TCP):
			source, _ := netip.AddrFromSlice(append([]byte{}, frame[26:30]...))
			target, _ := netip.AddrFromSlice(append([]byte{}, frame[30:34]...))
			return datagram{to: append([]byte{}, frame[0:6]...), from: append([]byte{}, frame[6:12]...), protocol: frame[23],
				source: netip.AddrPortFrom(source, binary.BigEndian.Uint16(frame[34:])),
				target: netip.AddrPortFrom(target, binary.BigEndian.Uint16(frame[36:]))}, true
		}
	}
	return datagram{}, false
}

func (w *wire) answerARP(request []byte) {
	if [4]byte(request[38:42]) != [4]byte{169, 254, 0, 1} {
		return
	}
	reply := append(append(append([]byte{}, request[6:12]...), w.mac...), 8, 6, 0, 1, 8, 0, 6, 4, 0, 2)
	reply = append(append(reply, w.mac...), 169, 254, 0, 1)
	reply = append(append(reply, request[22:28]...), request[28:32]...)
	if _, err := unix.Write(w.socket, reply); err != nil {
		w.t.Fatal(err)
	}
}
