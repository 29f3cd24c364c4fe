package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchboard-project/switchboard/internal/hostnet"
)

// Constants of the pcap file format (draft-ietf-opsawg-pcap): nanosecond timestamps, Ethernet frames.
const (
	pcapMagicNanoseconds = 0xa1b23c4d
	pcapVersionMajor     = 2
	pcapVersionMinor     = 4
	pcapLinkEthernet     = 1
	pcapSnapLength       = 65_535
)

// Capture writes what a site sends and receives on the wide area to out, in pcap format, each packet at once, until ctx
// ends or limit packets are written (0: no limit). It listens where the underlay meets the site, where frames of
// kernel-bypass ports are seen too.
func Capture(ctx context.Context, root, name, site string, limit int, out io.Writer) error {
	name, err := FindName(root, name)
	if err != nil {
		return err
	}
	laboratory, err := ReadFile(stateOf(root, name).file())
	if err != nil {
		return err
	}
	p := newPlan(laboratory)
	plan := p.site(site)
	if plan == nil {
		return fmt.Errorf("laboratory %s has no site %q: use one of %v", name, site, laboratory.Sites)
	}
	socket, err := openCapture(p.underlayNamespace(), plan.WANPort)
	if err != nil {
		return fmt.Errorf("capture at %s: %w", site, err)
	}
	defer unix.Close(socket)
	return copyFrames(ctx, socket, limit, out)
}

func openCapture(namespaceName, port string) (socket int, err error) {
	namespace, err := hostnet.OpenNamespace(namespaceName)
	if err != nil {
		return 0, err
	}
	defer namespace.Close()
	err = namespace.Do(func() error {
		everything := int(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL)))
		device, err := net.InterfaceByName(port)
		if err != nil {
			return err
		}
		if socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		timeout := unix.NsecToTimeval((100 * time.Millisecond).Nanoseconds())
		err = errors.Join(
			unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20),
			unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
			unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: uint16(everything), Ifindex: device.Index}))
		if err != nil {
			unix.Close(socket)
		}
		return err
	})
	return socket, err
}

func copyFrames(ctx context.Context, socket, limit int, out io.Writer) error {
	header := binary.LittleEndian.AppendUint32(nil, pcapMagicNanoseconds)
	header = binary.LittleEndian.AppendUint16(header, pcapVersionMajor)
	header = binary.LittleEndian.AppendUint16(header, pcapVersionMinor)
	header = binary.LittleEndian.AppendUint64(header, 0)
	header = binary.LittleEndian.AppendUint32(header, pcapSnapLength)
	header = binary.LittleEndian.AppendUint32(header, pcapLinkEthernet)
	if _, err := out.Write(header); err != nil {
		return err
	}
	frame := make([]byte, pcapSnapLength)
	for written := 0; ctx.Err() == nil && (limit == 0 || written < limit); {
		length, _, err := unix.Recvfrom(socket, frame, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if err := writeRecord(out, time.Now(), frame[:length]); err != nil {
			return err
		}
		written++
	}
	return nil
}

func writeRecord(out io.Writer, at time.Time, frame []byte) error {
	record := binary.LittleEndian.AppendUint32(make([]byte, 0, 16+len(frame)), uint32(at.Unix()))
	record = binary.LittleEndian.AppendUint32(record, uint32(at.Nanosecond()))
	record = binary.LittleEndian.AppendUint32(record, uint32(len(frame)))
	record = binary.LittleEndian.AppendUint32(record, uint32(len(frame)))
	_, err := out.Write(append(record, frame...))
	return err
}
