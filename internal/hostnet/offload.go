package hostnet

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Commands of the ethtool ioctl (linux/ethtool.h) that set one value.
const (
	ethtoolSetReceiveChecksum  = 0x15
	ethtoolSetTransmitChecksum = 0x17
	ethtoolSetScatterGather    = 0x19
	ethtoolSetTSO              = 0x1f
	ethtoolSetGSO              = 0x24
	ethtoolSetFlags            = 0x26
	ethtoolSetGRO              = 0x2c
)

// ethtoolRequest is struct ethtool_value; interfaceRequest is struct ifreq with its pointer member.
type ethtoolRequest struct{ command, data uint32 }

type interfaceRequest struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

// DisableOffloads makes an interface carry each packet as it would be on a wire: checksums computed, no packet larger
// than the MTU, VLAN tags in the frame. Programs that read and write frames depend on it. What the interface does not
// offer, or fixes, is left.
func (n *Namespace) DisableOffloads(name string) error {
	return n.Do(func() error {
		socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("socket: %w", err)
		}
		defer unix.Close(socket)
		for _, command := range []uint32{
			ethtoolSetGRO, ethtoolSetGSO, ethtoolSetTSO, ethtoolSetScatterGather,
			ethtoolSetTransmitChecksum, ethtoolSetReceiveChecksum, ethtoolSetFlags,
		} {
			if err := setEthtool(socket, name, command, 0); err != nil && !fixed(err) {
				return fmt.Errorf("offload %#x of %s in %s: %w", command, name, n.Name, err)
			}
		}
		return nil
	})
}

func fixed(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL)
}

func setEthtool(socket int, name string, command, data uint32) error {
	value := ethtoolRequest{command: command, data: data}
	request := interfaceRequest{data: unsafe.Pointer(&value)}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return errno
	}
	return nil
}
