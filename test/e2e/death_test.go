package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/switchboard-project/switchboard/internal/hostnet"
)

// noticed is how long a site that died as a whole may still be given new connections.
const noticed = 3500 * time.Millisecond

// TestDeadSiteGetsNoNewConnections: a site falls silent all at once, as when its power fails: nothing of it says so. New
// connections then take the routes over other sites. When it is back it is used again.
func TestDeadSiteGetsNoNewConnections(t *testing.T) {
	const port = 5380
	l := useLaboratory(t)
	echoServer(t, l, "www", port)
	c := chainSpec{name: "mortal", customer: "acme", edge: "office-lan", vnfs: []string{"split"}, times: 2,
		match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["%d"]}`, port)}
	l.activate(t, c)
	if routes := l.routes(t, c); len(routes) != 2 {
		t.Fatalf("routes %v, want one over each edge cloud", routes)
	}
	server := netip.AddrPortFrom(netip.MustParseAddr(www), port)
	var paused []int
	signal := func(s syscall.Signal) {
		for _, pid := range paused {
			_ = syscall.Kill(pid, s)
		}
	}
	for _, process := range []string{"forwarder-edge-west", "site-edge-west", "vnf-firewall", "vnf-west", "vnf-pair", "vnf-split"} {
		paused = append(paused, l.record(t, process).PID)
	}
	resume := sync.OnceFunc(func() { signal(syscall.SIGCONT) })
	t.Cleanup(resume)
	signal(syscall.SIGSTOP)
	died := time.Now()
	last := l.lastFailure(t, "acme-host", server, 6*time.Second)
	if last.IsZero() {
		t.Error("no connection failed: the site was not used before")
	} else if took := last.Sub(died); took > noticed {
		t.Errorf("a connection begun %v after the site's death failed, want none after %v", took.Round(time.Millisecond), noticed)
	} else {
		t.Logf("the last connection that failed was begun %v after the site's death", took.Round(time.Millisecond))
	}
	resume()
	eventually(t, activation, func() error { return l.settled(t, c) })
	eventually(t, activation, func() error {
		ports := l.openAndClose(t, "acme-host", server, 40)
		if used := l.perInstance(t, "split", port, ports)["split-west-1"]; used == 0 {
			return fmt.Errorf("the site that is back gets no connections")
		}
		return nil
	})
}

// lastFailure opens connections all the time and returns when the last one that failed was begun, zero where none did.
func (l *laboratory) lastFailure(t *testing.T, machine string, server netip.AddrPort, over time.Duration) time.Time {
	t.Helper()
	const every, patience = 25 * time.Millisecond, 800 * time.Millisecond
	namespace, err := hostnet.OpenNamespace(l.name + "." + machine)
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	var last time.Time
	var mutex sync.Mutex
	var working sync.WaitGroup
	for end := time.Now().Add(over); time.Now().Before(end); time.Sleep(every) {
		working.Go(func() {
			begun := time.Now()
			var connection net.Conn
			err := namespace.Do(func() (err error) {
				dialer := net.Dialer{Timeout: patience, FallbackDelay: -1}
				connection, err = dialer.Dial("tcp", server.String())
				return err
			})
			if err == nil {
				connection.Close()
				return
			}
			mutex.Lock()
			defer mutex.Unlock()
			if begun.After(last) {
				last = begun
			}
		})
	}
	working.Wait()
	return last
}
