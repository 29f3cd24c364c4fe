package needs

import (
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
)

// Ports that tests listen on lie below those that the kernel gives to clients, so that no connection takes one before its server
// does. Each process of tests has a range of its own, as far as there are enough, and gives none again before it has given all.
const (
	firstPort  = 10000
	portRanges = 44
	portCount  = 500 // of a range
)

var ports struct {
	sync.Mutex
	given int
}

// FreeAddress is an address of this machine that nobody listens on.
func FreeAddress(t testing.TB) string {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	for range portCount {
		port := firstPort + os.Getpid()%portRanges*portCount + ports.given%portCount
		ports.given++
		address := fmt.Sprintf("127.0.0.1:%d", port)
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}
