package e2e

import (
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"
)

// longestStall is how long an established connection may wait for an answer while rules change.
const longestStall = 200 * time.Millisecond

// pairDeployment is the deployment of the VNF "pair" with other numbers of instances and weights.
func pairDeployment(instances int, weights string) string {
	return fmt.Sprintf(`apiVersion: switchboard/v1
kind: VnfDeployment
metadata: {name: pair-west}
spec: {vnf: pair, site: edge-west, capacity: 2000, instances: %d, weights: %s}
`, instances, weights)
}

// TestConnectionsOutliveChanges: while connections run, everything about their chain changes; they notice nothing, and
// new connections follow the new rules.
func TestConnectionsOutliveChanges(t *testing.T) {
	const connections, port = 200, 5330
	l := useLaboratory(t)
	echoServer(t, l, "www", port)
	c := chainSpec{name: "live", customer: "acme", edge: "office-lan", match: `{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["5330"]}`, vnfs: []string{"pair", "nat"}}
	l.activate(t, c)
	t.Cleanup(func() { l.apply(t, pairDeployment(2, "[]")) })
	server := netip.AddrPortFrom(netip.MustParseAddr(www), port)
	f := startFlows(t, l, "acme-host", server, connections)
	time.Sleep(time.Second)
	t.Logf("longest wait with nothing changing: %s", f.longest())

	all := []*flows{f}
	steps := []struct {
		name string
		// change makes the change and returns when it is in force.
		change func()
		// shares are what part of new connections each instance gets; nil where it is not about that.
		shares []float64
		// check looks at what else follows from the change; nil: nothing.
		check func(t *testing.T)
	}{
		{"a weight is changed", func() { l.deploy(t, 2, "[100, 300]") }, []float64{0.25, 0.75}, nil},
		{"an instance is added", func() { l.deploy(t, 3, "[100, 100, 100]") }, []float64{1.0 / 3, 1.0 / 3, 1.0 / 3},
			func(*testing.T) { all = append(all, startFlows(t, l, "acme-host", server, 50)) }}, // they outlive the step
		{"an instance is drained", func() { l.deploy(t, 3, "[100, 100, 0]") }, []float64{0.5, 0.5, 0},
			func(t *testing.T) { l.checkStays(t, "pair-west-3", port, all[1]) }},
		{"the drained instance is removed", func() { l.deploy(t, 2, "[100, 100]") }, []float64{0.5, 0.5},
			func(t *testing.T) { l.checkStays(t, "pair-west-3", port, all[1]) }},
		{"a function is inserted", func() { c.vnfs = []string{"pair", "filter", "nat"}; l.change(t, c) }, nil,
			func(t *testing.T) {
				since := time.Now().Add(-10 * time.Second)
				eventually(t, activation, func() error { // a busy machine may fail to answer probes, and have no instance for a moment
					output, err := l.switchboard("trace", "--send", "live", "--customer", "acme", "--from", "office-lan", "--protocol", "tcp",
						"--source", "10.1.0.10", "--destination", www, "--destination-port", strconv.Itoa(port))
					if err != nil {
						l.logEvents(t, since)
						return fmt.Errorf("%w: %s", err, output)
					}
					inOrder(t, output, "vnf:pair/", "vnf:filter/", "vnf:nat/", "reached:")
					return nil
				})
			}},
		{"the site's rules are sent again", func() { l.crash(t, "site-edge-west") }, nil, nil},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			var before []int64
			for _, f := range all {
				f.longest()
				before = append(before, f.answers())
			}
			step.change()
			time.Sleep(time.Second)
			for index, f := range all {
				f.checkStall(t, l)
				eventually(t, activation, func() error { return f.goOn(before[index], 1) })
			}
			if step.shares != nil {
				eventually(t, activation, func() error { return l.sharesAre(t, server, step.shares) })
			}
			if step.check != nil {
				step.check(t)
			}
		})
	}
	for _, f := range all {
		if err := f.end(); err != nil {
			t.Error(err)
		}
	}
}

// checkStays makes sure that an instance that is to go still has connections of those given.
func (l *laboratory) checkStays(t testing.TB, machine string, port uint16, f *flows) {
	t.Helper()
	for _, entry := range l.conntrack(t, machine, port) {
		if f.locals()[entry.sourcePort] {
			return
		}
	}
	t.Errorf("%s tracks none of %d connections that began while it took new ones", machine, len(f.all))
}

// deploy changes the deployment "pair-west" and waits until its instances with a weight are healthy.
func (l *laboratory) deploy(t testing.TB, instances int, weights string) {
	t.Helper()
	l.apply(t, pairDeployment(instances, weights))
	eventually(t, activation, func() error {
		if found := len(l.instances(t, "pair")); found > instances {
			return fmt.Errorf("%d instances of pair", found)
		}
		return nil
	})
}

// sharesAre opens many connections and says where they did not go as they should; rules follow weights a little later.
func (l *laboratory) sharesAre(t testing.TB, server netip.AddrPort, shares []float64) error {
	t.Helper()
	// Four standard deviations of a half of 1 000; who asks asks again where it is missed.
	const attempts, tolerance = 1000, 0.064
	ports := l.openAndClose(t, "acme-host", server, attempts)
	for index, share := range shares {
		machine := "pair-west-" + strconv.Itoa(index+1)
		got := 0
		for _, entry := range l.conntrack(t, machine, server.Port()) {
			if ports[entry.sourcePort] {
				got++
			}
		}
		if share == 0 && got > 0 {
			return fmt.Errorf("%s is drained and got %d new connections", machine, got)
		}
		if part := float64(got) / attempts; part < share-tolerance || part > share+tolerance {
			return fmt.Errorf("%s got %.3f of new connections, want %.3f", machine, part, share)
		}
	}
	return nil
}

// openAndClose makes connections one after another, many at once, and returns their local ports.
func (l *laboratory) openAndClose(t testing.TB, machine string, server netip.AddrPort, count int) map[uint16]bool {
	t.Helper()
	const atOnce = 40
	var mutex sync.Mutex
	var working sync.WaitGroup
	ports := map[uint16]bool{}
	for worker := range atOnce {
		working.Go(func() {
			for number := worker; number < count; number += atOnce {
				port, err := l.connectOnce(machine, server)
				if err != nil {
					t.Errorf("connection %d: %v", number, err)
					return
				}
				mutex.Lock()
				ports[port] = true
				mutex.Unlock()
			}
		})
	}
	working.Wait()
	return ports
}
