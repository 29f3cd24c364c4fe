package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestRouteIsAddedThroughAnotherSite: a chain that outgrows one site gets a second route (SB9). Connections that exist
// stay where they are; new ones use both.
func TestRouteIsAddedThroughAnotherSite(t *testing.T) {
	const connections, port = 200, 5350
	l := useLaboratory(t)
	echoServer(t, l, "www", port)
	c := chainSpec{name: "grow", customer: "acme", edge: "office-lan", vnfs: []string{"split"}, times: 1,
		match: `{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["5350"]}`}
	l.activate(t, c)
	if routes := l.routes(t, c); len(routes) != 1 {
		t.Fatalf("%d routes before it grew", len(routes))
	}
	server := netip.AddrPortFrom(netip.MustParseAddr(www), port)
	f := startFlows(t, l, "acme-host", server, connections)
	time.Sleep(500 * time.Millisecond)
	before := l.perInstance(t, "split", port, f.locals())
	f.longest()
	c.times = 2
	l.change(t, c)
	routes := l.routes(t, c)
	if len(routes) != 2 || routes[0].Sites[0] == routes[1].Sites[0] {
		t.Fatalf("routes after it grew: %v", routes)
	}
	time.Sleep(time.Second)
	f.checkStall(t, l)
	if after := l.perInstance(t, "split", port, f.locals()); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("existing connections were on %v and are on %v", before, after)
	}
	eventually(t, activation, func() error { // the ingress edge follows a moment after the chain is active
		const opened = 1000
		shares := l.perInstance(t, "split", port, l.openAndClose(t, "acme-host", server, opened))
		for _, route := range routes {
			machine := "split-" + strings.TrimPrefix(route.Sites[0], "edge-") + "-1"
			if got := float64(shares[machine]) / opened; got < route.Fraction-0.1 || got > route.Fraction+0.1 {
				return fmt.Errorf("%s got %.3f of new connections, the route's share is %.3f", machine, got, route.Fraction)
			}
		}
		return nil
	})
	if err := f.end(); err != nil {
		t.Error(err)
	}
}

// perInstance counts connections from local ports in the tables of a VNF's instances.
func (l *laboratory) perInstance(t testing.TB, vnf string, port uint16, ports map[uint16]bool) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for name, machine := range l.instances(t, vnf) {
		for _, entry := range l.conntrack(t, machine, port) {
			if ports[entry.sourcePort] {
				counts[name]++
			}
		}
	}
	return counts
}

// TestDeadInstanceGetsNoNewConnections: an instance that vanishes is noticed within a second, new connections avoid it,
// and the reason is told; then it is made again.
func TestDeadInstanceGetsNoNewConnections(t *testing.T) {
	const port = 5370
	l := useLaboratory(t)
	echoServer(t, l, "www", port)
	c := chainSpec{name: "dead", customer: "acme", edge: "office-lan", vnfs: []string{"pair"},
		match: `{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["5370"]}`}
	l.activate(t, c)
	server := netip.AddrPortFrom(netip.MustParseAddr(www), port)
	once(t, func() error {
		eventually(t, activation, func() error { return l.settled(t, c) })
		before := l.waiting(noticing...)
		died := time.Now()
		if output, err := exec.Command("ip", "netns", "del", l.name+".pair-west-1").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		reason := l.reasonOf(t, "pair-west-1")
		t.Cleanup(func() { eventually(t, activation, func() error { return l.settled(t, c) }) })
		time.Sleep(time.Until(died.Add(time.Second + l.waiting(noticing...).since(before))))
		ports := l.openAndClose(t, "acme-host", server, 100)
		if got := l.perInstance(t, "pair", port, ports); got["pair-west-1"] != 0 || got["pair-west-2"] != 100 {
			return fmt.Errorf("new connections are on %v", got)
		}
		if want := "namespace " + l.name + ".pair-west-1 is gone"; !strings.Contains(reason(), want) {
			return fmt.Errorf("the instance is dead because %q, want %q", reason(), want)
		}
		return nil
	})
}

// noticing are the processes that must run before a dead instance gets no new connections.
var noticing = []string{"site-edge-west", "forwarder-*"}

// TestInstanceThatBlackholesGetsNoNewConnections: an instance whose interfaces are all up and that lets nothing through is
// noticed within a second, and the reason is told.
func TestInstanceThatBlackholesGetsNoNewConnections(t *testing.T) {
	l := useLaboratory(t)
	for index, one := range []struct {
		name         string
		injury, heal []string
		reason       string
	}{
		{"nothing is forwarded", []string{"sysctl", "-w", "net.ipv4.conf.all.forwarding=0"}, nil, "net.ipv4.conf.all.forwarding"},
		{"a foreign table drops", []string{"nft", "add table ip foreign; add chain ip foreign f { type filter hook forward priority -5; policy drop; }"},
			[]string{"nft", "delete table ip foreign"}, "table ip foreign"},
	} {
		t.Run(one.name, func(t *testing.T) {
			port := uint16(5371 + index)
			echoServer(t, l, "www", port)
			c := chainSpec{name: fmt.Sprintf("hole-%d", index), customer: "acme", edge: "office-lan", vnfs: []string{"pair"},
				match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["%d"]}`, port)}
			l.activate(t, c)
			server := netip.AddrPortFrom(netip.MustParseAddr(www), port)
			once(t, func() error {
				eventually(t, activation, func() error { return l.settled(t, c) })
				reason, before := l.reasonOf(t, "pair-west-1"), l.waiting(noticing...)
				l.mustRun(t, "pair-west-1", one.injury...)
				begun := time.Now()
				last := l.lastFailure(t, "acme-host", server, 3*time.Second)
				allowed := time.Second + l.waiting(noticing...).since(before)
				why := reason()
				if one.heal != nil {
					l.mustRun(t, "pair-west-1", one.heal...)
				}
				if took := last.Sub(begun); took > allowed {
					return fmt.Errorf("a connection begun %v after the injury failed, want none after %v", took, allowed)
				}
				t.Logf("the last connection that failed was begun %v after the injury", last.Sub(begun))
				if !strings.Contains(why, one.reason) {
					return fmt.Errorf("the reason is %q, want %q in it", why, one.reason)
				}
				return nil
			})
			eventually(t, activation, func() error { return l.settled(t, c) })
			if used := l.perInstance(t, "pair", port, l.openAndClose(t, "acme-host", server, 40)); used["pair-west-1"] == 0 {
				t.Errorf("the instance that is well again gets no connections: %v", used)
			}
		})
	}
}

// reasonOf watches an instance as a user does, with `get instances --watch`. The function that it returns waits until the instance has
// been dead since, and returns the line that says so.
func (l *laboratory) reasonOf(t testing.TB, name string) (reason func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, l.program, "get", "instances", name, "--watch", "-o", "wide")
	command.Env = append(os.Environ(), "SWITCHBOARD_SERVER="+l.api, "SWITCHBOARD_TOKEN_FILE="+l.tokenFile())
	output, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	shown, dead := make(chan struct{}), make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(output)
		for first := true; lines.Scan(); {
			if strings.Contains(lines.Text(), name) && first {
				first = false
				close(shown)
			}
			if strings.Contains(lines.Text(), "Dead") {
				dead <- lines.Text()
				break
			}
		}
		cancel()
		_ = command.Wait()
	}()
	select {
	case <-shown:
	case <-time.After(patience):
		t.Fatal("the instance is not shown")
	}
	return sync.OnceValue(func() string {
		select {
		case line := <-dead:
			return line
		case <-time.After(patience):
			return "it never was dead"
		}
	})
}

// TestUserAtANewEdgeTakesTheNearestRoute: of a chain's two routes, one over each edge cloud, a user who appears at one of
// them takes the one there; neither a chain nor a route is added for it.
func TestUserAtANewEdgeTakesTheNearestRoute(t *testing.T) {
	const port, attempts = 5361, 40
	l := useLaboratory(t)
	echoServer(t, l, "www", port)
	c := chainSpec{name: "near", customer: "acme", edge: "office-lan", vnfs: []string{"split", "nat"}, times: 2,
		match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["%d"]}`, port)}
	l.activate(t, c)
	routes := l.routes(t, c)
	if len(routes) != 2 {
		t.Fatalf("routes %v, want one over each edge cloud", routes)
	}
	t.Cleanup(func() { l.must(t, "delete", "edge", "branch-lan", "--customer", "acme", "--ignore-not-found") })
	l.must(t, "apply", "-f", "../../examples/edges/acme-branch.yaml")
	server := netip.AddrPortFrom(netip.MustParseAddr(www), port)
	eventually(t, activation, func() error {
		_, err := l.connectOnce("branch-host", server)
		return err
	})
	ports := l.openAndClose(t, "branch-host", server, attempts)
	if used := l.perInstance(t, "split", port, ports); used["split-east-1"] != attempts || used["split-west-1"] != 0 {
		t.Errorf("the branch at edge-east uses %v, want split-east-1 only", used)
	}
	if now := l.routes(t, c); fmt.Sprint(now) != fmt.Sprint(routes) {
		t.Errorf("routes were\n%v\nand are\n%v", routes, now)
	}
	for _, chain := range l.list(t, "chain", "acme", "") {
		if slices.Contains(chain.GetChain().GetSpec().GetIngress().GetEdges(), "branch-lan") {
			t.Errorf("chain %s was made for the branch", chain.GetMetadata().GetName())
		}
	}
}
