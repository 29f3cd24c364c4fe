package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
)

func TestPingPassesAChainThatApplyMade(t *testing.T) {
	l := useLaboratory(t)
	c := chainSpec{name: "thin", customer: "acme", edge: "office-lan", match: `{destinationPrefixes: ["2001:db8:ffff::/48"], protocols: [icmpv6]}`, vnfs: []string{"west"}}
	l.activate(t, c)
	before := l.losses(t)
	output := l.mustRun(t, "acme-host", "ping", "-c", "3", "-i", "0.2", "-W", "10", wwwIPv6)
	if !strings.Contains(output, " 0% packet loss") {
		time.Sleep(2 * time.Second) // forwarders report once a second
		t.Errorf("%s\nlost meanwhile:\n%s", output, l.losses(t).since(before))
	}
	l.remove(t, c)
	eventually(t, activation, func() error {
		if output, err := l.run("acme-host", "ping", "-c", "1", "-W", "1", wwwIPv6); err == nil {
			return fmt.Errorf("traffic passes without a chain:\n%s", output)
		}
		return nil
	})
}

// TestConformity: every VNF of the chain sees the connection, in the chain's order.
func TestConformity(t *testing.T) {
	l := useLaboratory(t)
	cases := []struct {
		name  string
		port  uint16
		vnfs  []string
		sites string
	}{
		{"one", 5311, []string{"west"}, "edge-west"},
		{"two at one site", 5312, []string{"west", "pair"}, "edge-west edge-west"},
		{"returns to a site", 5313, []string{"west", "east", "pair"}, "edge-west edge-east edge-west"},
		{"with a transparent one and a NAT", 5314, []string{"west", "filter", "nat"}, "edge-west edge-east dc"},
	}
	for index, one := range cases {
		t.Run(one.name, func(t *testing.T) {
			echoServer(t, l, "www", one.port)
			c := chainSpec{name: fmt.Sprintf("conform-%d", index), customer: "acme", edge: "office-lan", match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["%d"]}`, one.port), vnfs: one.vnfs}
			l.activate(t, c)
			if routes := l.routes(t, c); len(routes) != 1 || strings.Join(routes[0].Sites, " ") != one.sites {
				t.Fatalf("routes %v, want one over %s", routes, one.sites)
			}
			f := startFlows(t, l, "acme-host", netip.AddrPortFrom(netip.MustParseAddr(www), one.port), 1)
			eventually(t, activation, func() error {
				if f.answers() < 5 {
					return fmt.Errorf("%d answers", f.answers())
				}
				return nil
			})
			l.checkTrace(t, c, one.vnfs)
			for _, vnf := range one.vnfs {
				if vnf == "filter" {
					continue // a bridge tracks no connections; the trace saw it
				}
				l.checkTracked(t, vnf, one.port, f)
			}
			if err := f.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// checkTracked makes sure that the instances of a VNF together track exactly the flows, each by one, in both directions.
func (l *laboratory) checkTracked(t testing.TB, vnf string, port uint16, f *flows) map[string]int {
	t.Helper()
	left := f.locals()
	counts := map[string]int{}
	for name, machine := range l.instances(t, vnf) {
		for _, entry := range l.conntrack(t, machine, port) {
			if !left[entry.sourcePort] {
				t.Errorf("%s tracks a connection that is not ours or that another instance tracks too: %+v", name, entry)
			}
			if !entry.answered {
				t.Errorf("%s saw one direction only of the connection from port %d", name, entry.sourcePort)
			}
			delete(left, entry.sourcePort)
			counts[name]++
		}
	}
	if len(left) > 0 {
		t.Errorf("no instance of %s tracks %d of %d connections: those from ports %v", vnf, len(left), len(f.all), left)
	}
	return counts
}

// checkTrace follows a packet of a chain and makes sure that it meets the VNFs in order, forward, and in the opposite
// order, reverse.
func (l *laboratory) checkTrace(t testing.TB, c chainSpec, vnfs []string) {
	t.Helper()
	eventually(t, activation, func() error { return l.inOrder(t, c, vnfs) })
}

// inOrder says which VNF a trace of half a second does not show where it should be. A wrong one fails the test, one that is
// missing may not have been asked for in time.
func (l *laboratory) inOrder(t testing.TB, c chainSpec, vnfs []string) error {
	t.Helper()
	answer, err := l.client(t).Trace(context.Background(), connect.NewRequest(&api.TraceRequest{Customer: c.customer, Chain: c.name, DurationMs: 500, Limit: 500}))
	if err != nil {
		return err
	}
	for _, reverse := range []bool{false, true} {
		met := map[uint32]string{}
		for _, hop := range answer.Msg.Hops {
			if name, ok := strings.CutPrefix(hop.To, "vnf:"); ok && hop.Reverse == reverse {
				met[hop.Stage], _, _ = strings.Cut(name, "/")
			}
		}
		for index, vnf := range vnfs {
			// Stage z leads forward into the z-th VNF; reverse, stage z + 1 leads back into it.
			stage := uint32(index + 1)
			if reverse {
				stage++
			}
			switch met[stage] {
			case vnf:
			case "":
				return fmt.Errorf("reverse %v: stage %d was not seen to lead into %q", reverse, stage, vnf)
			default:
				t.Fatalf("reverse %v: stage %d leads into %q, want %q", reverse, stage, met[stage], vnf)
			}
		}
	}
	return nil
}

// TestAffinityAndSymmetricReturn: every connection has one instance of each VNF, which sees both of its directions.
func TestAffinityAndSymmetricReturn(t *testing.T) {
	const connections, port = 200, 5320
	l := useLaboratory(t)
	echoServer(t, l, "www", port)
	c := chainSpec{name: "affinity", customer: "acme", edge: "office-lan", match: `{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["5320"]}`, vnfs: []string{"pair", "nat"}}
	l.activate(t, c)
	f := startFlows(t, l, "acme-host", netip.AddrPortFrom(netip.MustParseAddr(www), port), connections)
	eventually(t, activation, func() error {
		if f.answers() < 5*connections {
			return fmt.Errorf("%d answers", f.answers())
		}
		return nil
	})
	for _, vnf := range []string{"pair", "nat"} {
		counts := l.checkTracked(t, vnf, port, f)
		if len(counts) != 2 {
			t.Errorf("%s: connections are on %v, want two instances", vnf, counts)
		}
		for name, count := range counts {
			// Half of 200 with five standard deviations.
			if count < 64 || count > 136 {
				t.Errorf("%s has %d of %d connections", name, count, connections)
			}
		}
	}
	if err := f.end(); err != nil {
		t.Error(err)
	}
}
