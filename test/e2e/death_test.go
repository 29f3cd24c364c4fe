package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
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
	once(t, func() error {
		resume := l.pause(t, "forwarder-edge-west", "site-edge-west", "vnf-firewall", "vnf-west", "vnf-pair", "vnf-split")
		died := time.Now()
		last := l.lastFailure(t, "acme-host", server, 6*time.Second)
		resume()
		eventually(t, activation, func() error { return l.settled(t, c) })
		eventually(t, activation, func() error {
			ports := l.openAndClose(t, "acme-host", server, 40)
			if used := l.perInstance(t, "split", port, ports)["split-west-1"]; used == 0 {
				return fmt.Errorf("the site that is back gets no connections")
			}
			return nil
		})
		took := last.Sub(died).Round(time.Millisecond)
		if last.IsZero() {
			return fmt.Errorf("no connection failed: the site was not used before")
		} else if took > noticed {
			return fmt.Errorf("a connection begun %v after the site's death failed, want none after %v", took, noticed)
		}
		t.Logf("the last connection that failed was begun %v after the site's death", took)
		return nil
	})
}

// pause stops processes until the returned function is called or the test ends.
func (l *laboratory) pause(t testing.TB, processes ...string) (resume func()) {
	t.Helper()
	var paused []int
	for _, process := range processes {
		paused = append(paused, l.record(t, process).PID)
	}
	resume = sync.OnceFunc(func() {
		for _, pid := range paused {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	})
	t.Cleanup(resume)
	for _, pid := range paused {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	return resume
}

// lastFailure opens connections all the time and returns when the last one that failed was begun, zero where none did.
func (l *laboratory) lastFailure(t testing.TB, machine string, server netip.AddrPort, over time.Duration) time.Time {
	t.Helper()
	const every, limit = 25 * time.Millisecond, 800 * time.Millisecond
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
				dialer := net.Dialer{Timeout: limit, FallbackDelay: -1}
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

// rerouted is how long a chain may take to be led around a deployment without a working instance: they are probed, dead
// for a second, and then the chain is planned and agreed anew.
const rerouted = 3 * time.Second

// splitDeployments are those of the VNF "split" with another number of instances.
func splitDeployments(instances int) string {
	text := ""
	for _, side := range []string{"west", "east"} {
		text += fmt.Sprintf("---\napiVersion: switchboard/v1\nkind: VnfDeployment\nmetadata: {name: split-%s}\n"+
			"spec: {vnf: split, site: edge-%s, capacity: 90, instances: %d}\n", side, side, instances)
	}
	return text
}

// TestDeadDeploymentLosesItsRoutes: both firewalls of one edge cloud die; new connections flow through the other's.
func TestDeadDeploymentLosesItsRoutes(t *testing.T) {
	const port = 5381
	l := useLaboratory(t)
	echoServer(t, l, "www", port)
	l.apply(t, splitDeployments(2))
	t.Cleanup(func() { l.apply(t, splitDeployments(1)) })
	c := chainSpec{name: "around", customer: "acme", edge: "office-lan", vnfs: []string{"split"},
		match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["%d"]}`, port)}
	l.activate(t, c)
	eventually(t, activation, func() error {
		if found := len(l.instances(t, "split")); found != 4 {
			return fmt.Errorf("%d healthy instances", found)
		}
		return l.settled(t, c)
	})
	server := netip.AddrPortFrom(netip.MustParseAddr(www), port)
	once(t, func() error { return l.loseDeployment(t, c, server) })
}

// loseDeployment has both instances die that a chain uses, says where new connections do not flow around them in time, and waits
// until they are made again.
func (l *laboratory) loseDeployment(t testing.TB, c chainSpec, server netip.AddrPort) error {
	t.Helper()
	defer func() {
		eventually(t, activation, func() error {
			if found := len(l.instances(t, "split")); found != 4 {
				return fmt.Errorf("%d healthy instances", found)
			}
			return l.settled(t, c)
		})
	}()
	used := l.routes(t, c)[0].Sites[0]
	for name, machine := range l.instances(t, "split") {
		if strings.HasPrefix(name, "split-"+strings.TrimPrefix(used, "edge-")) {
			if output, err := exec.Command("ip", "netns", "del", l.name+"."+machine).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, output)
			}
		}
	}
	died := time.Now()
	last := l.lastFailure(t, "acme-host", server, 4500*time.Millisecond)
	took := last.Sub(died).Round(time.Millisecond)
	if last.IsZero() {
		return fmt.Errorf("no connection failed: the instances were not used before")
	} else if took > rerouted {
		l.logEvents(t, died)
		return fmt.Errorf("a connection begun %v after the instances' death failed, want none after %v", took, rerouted)
	}
	t.Logf("the last connection that failed was begun %v after the instances' death", took)
	for _, route := range l.routes(t, c) {
		if route.Sites[0] == used {
			return fmt.Errorf("the chain is still routed over %s", used)
		}
	}
	ports := l.openAndClose(t, "acme-host", server, 40)
	for name, n := range l.perInstance(t, "split", server.Port(), ports) {
		if strings.HasPrefix(name, "split-"+strings.TrimPrefix(used, "edge-")) {
			return fmt.Errorf("%s got %d new connections", name, n)
		}
	}
	return nil
}

// logEvents tells what happened since a moment, for the log of a test that took too long.
func (l *laboratory) logEvents(t testing.TB, since time.Time) {
	answer, err := l.client(t).ListEvents(context.Background(), connect.NewRequest(&api.ListEventsRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range slices.Backward(answer.Msg.Events) {
		if at := e.Time.AsTime(); at.After(since) {
			t.Logf("%v: %s %s: %s %s", at.Sub(since).Round(time.Millisecond), e.Kind, e.Name, e.Reason, e.Message)
		}
	}
}
