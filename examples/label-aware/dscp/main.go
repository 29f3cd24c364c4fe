// Command dscp is a label-aware VNF: it marks the packets of each chain with the differentiated-services code point (RFC 2474) that
// the chain's option "dscp" asks for, and sends them back with their context, the service index less by one. One instance and one
// interface serve every chain: the context before each packet says whose it is. docs/label-aware.md is what it keeps to.
package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// place is a place of a service path, as SWITCHBOARD_PLACES lists it.
type place struct {
	Forward, Reverse visit
	Options          struct{ Dscp *uint8 }
}

// visit is what packets of one direction bear.
type visit struct{ ChainLabel, EgressLabel, ServicePath, ServiceIndex uint32 }

// context is one of the two that a VNF may be given.
type context struct {
	etherType uint16
	length    int
	// key names a packet's place and direction, pass takes one off its service index.
	key  func(header []byte) [3]uint32
	pass func(header []byte) bool
}

const ethernetLength = 14

var contexts = map[string]context{
	"mpls": { // RFC 3032: chain label, egress label, whose TTL is the service index
		etherType: 0x8847, length: 8,
		key: func(h []byte) [3]uint32 {
			return [3]uint32{binary.BigEndian.Uint32(h) >> 12, binary.BigEndian.Uint32(h[4:]) >> 12, uint32(h[7])}
		},
		pass: func(h []byte) bool { h[7]--; return h[7] != 0 },
	},
	"nsh": { // RFC 8300: service path identifier and service index in the second word
		etherType: 0x894f, length: 24,
		key:  func(h []byte) [3]uint32 { return [3]uint32{binary.BigEndian.Uint32(h[4:]) >> 8, 0, uint32(h[7])} },
		pass: func(h []byte) bool { h[7]--; return h[7] != 0 },
	},
}

func main() {
	log.SetFlags(0)
	log.Fatal(run())
}

// run serves until something is wrong.
func run() error {
	name := os.Getenv("SWITCHBOARD_CONTEXT")
	kind, known := contexts[name]
	if !known {
		return fmt.Errorf("SWITCHBOARD_CONTEXT is %q; it must be mpls or nsh", name)
	}
	device, err := net.InterfaceByName(os.Getenv("SWITCHBOARD_INTERFACE"))
	if err != nil {
		return fmt.Errorf("SWITCHBOARD_INTERFACE: %w", err)
	}
	protocol := kind.etherType<<8 | kind.etherType>>8 // in network byte order
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(protocol))
	if err != nil {
		return err
	}
	if err := unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: device.Index}); err != nil {
		return err
	}
	marks := &marks{file: os.Getenv("SWITCHBOARD_PLACES"), context: name}
	for frame := make([]byte, 1<<16); ; {
		length, _, err := unix.Recvfrom(socket, frame, 0)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENETDOWN) {
			continue
		}
		if err != nil {
			return err
		}
		packet := frame[:length]
		if length < ethernetLength+kind.length+20 {
			continue
		}
		header := packet[ethernetLength : ethernetLength+kind.length]
		dscp := marks.of(kind.key(header))
		if !kind.pass(header) {
			continue
		}
		if dscp != nil {
			setDSCP(packet[ethernetLength+kind.length:], *dscp&0x3f)
		}
		for i := range 6 { // back to where it came from
			packet[i], packet[6+i] = packet[6+i], packet[i]
		}
		_, _ = unix.Write(socket, packet) // what cannot be sent is lost, as on any link
	}
}

// marks are the code points by context, nil where none is asked for. The file is replaced as a whole whenever places or options
// change; a place is in it before its first packet comes.
type marks struct {
	file, context string
	read          time.Time
	dscp          map[[3]uint32]*uint8
}

// of is the code point for packets with a context, nil where there is none. A context that is not known may be new.
func (m *marks) of(key [3]uint32) *uint8 {
	dscp, known := m.dscp[key]
	if known {
		return dscp
	}
	if information, err := os.Stat(m.file); err == nil && !information.ModTime().Equal(m.read) {
		if err := m.load(); err != nil {
			log.Print(err)
		} else {
			m.read = information.ModTime()
		}
	}
	return m.dscp[key]
}

func (m *marks) load() error {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return err
	}
	var file struct{ Places []place }
	if err := json.Unmarshal(text, &file); err != nil {
		return fmt.Errorf("%s: %w", m.file, err)
	}
	m.dscp = map[[3]uint32]*uint8{}
	for _, p := range file.Places {
		for _, v := range []visit{p.Forward, p.Reverse} {
			key := [3]uint32{v.ChainLabel, v.EgressLabel, v.ServiceIndex}
			if m.context == "nsh" {
				key = [3]uint32{v.ServicePath, 0, v.ServiceIndex}
			}
			m.dscp[key] = p.Options.Dscp
		}
	}
	return nil
}

// setDSCP writes the six bits into an IPv4 or IPv6 packet.
func setDSCP(packet []byte, dscp uint8) {
	switch packet[0] >> 4 {
	case 4:
		before := binary.BigEndian.Uint16(packet)
		packet[1] = dscp<<2 | packet[1]&3
		// RFC 1624, equation 3.
		sum := uint32(^binary.BigEndian.Uint16(packet[10:])) + uint32(^before) + uint32(binary.BigEndian.Uint16(packet))
		sum = sum&0xffff + sum>>16
		binary.BigEndian.PutUint16(packet[10:], ^uint16(sum&0xffff+sum>>16))
	case 6:
		word := binary.BigEndian.Uint16(packet)
		binary.BigEndian.PutUint16(packet, word&0xf03f|uint16(dscp)<<6)
	}
}
