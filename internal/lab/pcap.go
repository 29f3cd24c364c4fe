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
	s := stateOf(root, name)
	laboratory, err := ReadFile(s.file())
	if err != nil {
		return err
	}
	all, err := s.readCrews(laboratory)
	if err != nil {
		return err
	}
	p := newPlan(laboratory, all)
	plan := p.site(site)
	if plan == nil {
		return fmt.Errorf("laboratory %s has no site %q: use one of %v", name, site, laboratory.Sites)
	}
	var sockets []unix.PollFd
	defer func() {
		for _, socket := range sockets {
			unix.Close(int(socket.Fd))
		}
	}()
	for _, f := range plan.Forwarders {
		socket, err := openCapture(p.underlayNamespace(), f.Port)
		if err != nil {
			return fmt.Errorf("capture at %s: %w", site, err)
		}
		sockets = append(sockets, unix.PollFd{Fd: int32(socket), Events: unix.POLLIN})
	}
	return copyFrames(ctx, sockets, limit, out)
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
		err = errors.Join(
			unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20),
			unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: uint16(everything), Ifindex: device.Index}))
		if err != nil {
			unix.Close(socket)
		}
		return err
	})
	return socket, err
}

// waitForFrames is how long a capture waits before it looks whether it is to end, in milliseconds.
const waitForFrames = 100

func copyFrames(ctx context.Context, sockets []unix.PollFd, limit int, out io.Writer) error {
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
		if _, err := unix.Poll(sockets, waitForFrames); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		for _, socket := range sockets {
			if socket.Revents == 0 || limit != 0 && written == limit {
				continue
			}
			length, _, err := unix.Recvfrom(int(socket.Fd), frame, unix.MSG_DONTWAIT)
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
