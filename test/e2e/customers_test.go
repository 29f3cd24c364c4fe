package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchboard-project/switchboard/internal/hostnet"
)

// tenant is a customer of TestCustomersDoNotMix.
type tenant struct {
	name, machine, edge string
	// ports are the clients' ports: nearly the same at both customers, so that each can be told by its set.
	ports []int
	// foreign is what only the other customer's packets bear.
	foreign string
}

func portRange(from, count, last int) []int {
	var ports []int
	for port := from; len(ports) < count-1; port++ {
		ports = append(ports, port)
	}
	return append(ports, last)
}

// TestCustomersDoNotMix: two customers with the same addresses and ports, through the same instances, at once. Every answer
// is the own customer's, each place's connection tracking zone has its customer's connections and no other, and no packet of one
// appears where the other's hosts are.
func TestCustomersDoNotMix(t *testing.T) {
	const port, connections = 5395, 60
	l := useLaboratory(t)
	echoServer(t, l, "www", port)
	tenants := []tenant{
		{"acme", "acme-host", "office-lan", portRange(20000, connections, 20100), "globex"},
		{"globex", "globex-host", "office-vlan", portRange(20000, connections, 20101), "acme"},
	}
	for _, one := range tenants {
		l.activate(t, chainSpec{name: "mixed", customer: one.name, edge: one.edge, vnfs: []string{"west", "nat"},
			match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["%d"]}`, port)})
		l.activate(t, chainSpec{name: "mixed-icmp", customer: one.name, edge: one.edge, vnfs: []string{"west", "nat"},
			match: `{destinationPrefixes: [198.51.100.0/24], protocols: [icmp]}`})
	}
	segments := map[string]*listener{}
	for _, machine := range []string{"acme-host", "acme-host-2", "globex-host"} {
		segments[machine] = l.listen(t, machine)
	}
	clients := make([]*tenantFlows, len(tenants))
	var working sync.WaitGroup
	for index, one := range tenants {
		clients[index] = l.openTenant(t, one, port)
		working.Go(func() {
			// The same identifier at both; ping compares the answer's bytes with what it sent.
			output, err := l.run(one.machine, "ping", "-c", "10", "-i", "0.1", "-W", "10", "-e", "4242",
				"-p", fmt.Sprintf("%x", one.name), www)
			if err != nil || !strings.Contains(output, " 0% packet loss") || strings.Contains(output, "wrong data") {
				t.Errorf("%s: ping: %v\n%s", one.name, err, output)
			}
		})
		for number := range clients[index].connections {
			working.Go(func() {
				if err := clients[index].talk(number, 20); err != nil {
					t.Errorf("%s: connection from port %d: %v", one.name, one.ports[number], err)
				}
			})
		}
	}
	working.Wait()
	l.checkZones(t, "west", port, tenants)
	l.checkZones(t, "nat", port, tenants)
	for _, one := range tenants {
		heard := segments[one.machine].heard(one.name, one.foreign)
		if heard[one.name] == 0 || heard[one.foreign] != 0 {
			t.Errorf("%s heard %v", one.machine, heard)
		}
	}
	if heard := segments["acme-host-2"].heard("globex"); heard["globex"] != 0 {
		t.Errorf("acme's other host heard %v", heard)
	}
	if output, err := l.run("globex-host", "ping", "-c", "1", "-W", "1", "10.1.0.11"); err == nil {
		t.Errorf("globex reaches acme's host:\n%s", output)
	}
}

// tenantFlows are a customer's connections, all open at once.
type tenantFlows struct {
	tenant      tenant
	connections []net.Conn
}

func (l *laboratory) openTenant(t testing.TB, one tenant, port uint16) *tenantFlows {
	t.Helper()
	f := &tenantFlows{tenant: one}
	for _, local := range one.ports {
		l.inside(t, one.machine, func() error {
			dialer := net.Dialer{Timeout: patience, FallbackDelay: -1, LocalAddr: &net.TCPAddr{IP: net.IPv4(10, 1, 0, 10), Port: local}}
			connection, err := dialer.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr(www), port).String())
			if err == nil {
				// A reset connection leaves its port free for the next run.
				_ = connection.(*net.TCPConn).SetLinger(0)
				t.Cleanup(func() { connection.Close() })
				f.connections = append(f.connections, connection)
			}
			return err
		})
	}
	return f
}

// talk exchanges lines that name customer and connection.
func (f *tenantFlows) talk(number, lines int) error {
	connection := f.connections[number]
	answers := bufio.NewReader(connection)
	for line := range lines {
		want := fmt.Sprintf("%s port %d line %d\n", f.tenant.name, f.tenant.ports[number], line)
		_ = connection.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(connection, want); err != nil {
			return err
		}
		if answer, err := answers.ReadString('\n'); err != nil || answer != want {
			return fmt.Errorf("answer %q, %v; want %q", answer, err, want)
		}
	}
	return nil
}

var zonePattern = regexp.MustCompile(`sport=(\d+) .*zone=(\d+)`)

// checkZones makes sure that each instance of a VNF has a connection tracking zone for each of two customers, and that the zones
// of a customer together hold exactly its connections. Which zone is whose the ports tell: no two sets are alike.
func (l *laboratory) checkZones(t testing.TB, vnf string, port uint16, tenants []tenant) {
	t.Helper()
	var instances [][][]int // ports by instance and zone
	for instance, machine := range l.instances(t, vnf) {
		zones := map[string][]int{}
		table := l.mustRun(t, machine, "conntrack", "-L", "-p", "tcp", "--orig-port-dst", strconv.Itoa(int(port)))
		for _, found := range zonePattern.FindAllStringSubmatch(table, -1) {
			local, _ := strconv.Atoi(found[1])
			zones[found[2]] = append(zones[found[2]], local)
		}
		if len(zones) != 2 {
			t.Fatalf("%s has connections in zones %v, want one zone for each customer", instance, zones)
		}
		instances = append(instances, slices.Collect(maps.Values(zones)))
	}
	for choice := range 1 << len(instances) {
		var first, second []int
		for index, zones := range instances {
			mine := choice >> index & 1
			first, second = append(first, zones[mine]...), append(second, zones[1-mine]...)
		}
		slices.Sort(first)
		slices.Sort(second)
		if slices.Equal(first, tenants[0].ports) && slices.Equal(second, tenants[1].ports) {
			return
		}
	}
	t.Errorf("%s: no way to give each zone to a customer leaves each with its connections: %v", vnf, instances)
}

// listener keeps what passes a machine's interfaces.
type listener struct {
	mutex  sync.Mutex
	frames bytes.Buffer
	ends   []int // of each frame in frames
}

// listen begins to hear everything that comes to a machine or leaves it.
func (l *laboratory) listen(t testing.TB, machine string) *listener {
	t.Helper()
	namespace, err := hostnet.OpenNamespace(l.name + "." + machine)
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	heard, socket := &listener{}, -1
	if err := namespace.Do(func() (err error) {
		const everything = 0x0300 // ETH_P_ALL in network byte order
		if socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, everything); err == nil {
			err = unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50000})
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-done })
	go func() {
		defer close(done)
		defer unix.Close(socket)
		for frame := make([]byte, 1<<16); ; {
			select {
			case <-stop:
				return
			default:
			}
			if length, err := unix.Read(socket, frame); err == nil {
				heard.mutex.Lock()
				heard.frames.Write(frame[:length])
				heard.ends = append(heard.ends, heard.frames.Len())
				heard.mutex.Unlock()
			}
		}
	}()
	return heard
}

// heard counts words in all that was heard.
func (h *listener) heard(words ...string) map[string]int {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	counts := map[string]int{}
	for _, word := range words {
		counts[word] = bytes.Count(h.frames.Bytes(), []byte(word))
	}
	return counts
}
