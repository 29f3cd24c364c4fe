package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestFirewallRulesDecide: of two ports that a chain takes, the firewall's rules let one through and drop the other, in the
// stateful, in the transparent and in the native firewall; their own counters say so.
func TestFirewallRulesDecide(t *testing.T) {
	const allowed, forbidden = 5401, 5402
	l := useLaboratory(t)
	echoServer(t, l, "www", allowed)
	echoServer(t, l, "www", forbidden)
	passes := func(port int) error {
		_, err := l.run("acme-host", "curl", "-sS", "-m", "5", "--connect-timeout", "4", fmt.Sprintf("http://%s:%d/", www, port))
		if err != nil && strings.HasSuffix(err.Error(), "status 28") {
			return err
		}
		return nil // the echo server does not speak HTTP: that curl complains of it shows that it was reached
	}
	counted := func(machine string) func() error {
		return func() error {
			if accepted, dropped := l.ruleCounters(t, machine, allowed); accepted == 0 || dropped == 0 {
				return fmt.Errorf("%s counts %d accepted and %d dropped packets", machine, accepted, dropped)
			}
			return nil
		}
	}
	refused := func() error { return l.refusedByFilter(t, "edge-east") }
	for vnf, isCounted := range map[string]func() error{"west": counted("west-1"), "filter": counted("filter-east-1"), "native": refused} {
		t.Run(vnf, func(t *testing.T) {
			function := func(port int) string {
				return fmt.Sprintf(`{vnf: %s, options: {default: drop, rules: [{protocol: tcp, destinationPorts: ["%d"], verdict: accept}]}}`, vnf, port)
			}
			c := chainSpec{name: "rules-" + vnf, customer: "acme", edge: "office-lan", vnfs: []string{function(allowed)},
				match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["%d-%d"]}`, allowed, forbidden)}
			l.activate(t, c)
			eventually(t, activation, func() error { // counters begin anew where a chain of a test before leaves the instance
				if err := passes(allowed); err != nil {
					return fmt.Errorf("what the rules allow does not pass: %w", err)
				}
				if passes(forbidden) == nil {
					t.Fatal("what the rules drop passes")
				}
				return isCounted()
			})
			// Other rules for the same chain: now the other port is let through.
			c.vnfs = []string{function(forbidden)}
			l.change(t, c)
			eventually(t, activation, func() error { return passes(forbidden) })
			if passes(allowed) == nil {
				t.Error("what the new rules drop passes")
			}
		})
	}
}

var counterPattern = regexp.MustCompile(`counter packets (\d+) bytes \d+ (accept|drop)`)

// ruleCounters are the packets that an instance's chain with a rule for a port has accepted and dropped.
func (l *laboratory) ruleCounters(t testing.TB, machine string, port int) (accepted, dropped int) {
	t.Helper()
	listed := l.mustRun(t, machine, "nft", "list", "ruleset")
	for _, chain := range strings.Split(listed, "chain ") {
		if !strings.Contains(chain, "tcp dport "+strconv.Itoa(port)) {
			continue
		}
		for _, found := range counterPattern.FindAllStringSubmatch(chain, -1) {
			count, _ := strconv.Atoi(found[1])
			if found[2] == "accept" {
				accepted += count
			} else {
				dropped += count
			}
		}
	}
	return accepted, dropped
}

// refusedByFilter is nil once the forwarders of a site have counted packets that a native filter dropped.
func (l *laboratory) refusedByFilter(t testing.TB, site string) error {
	t.Helper()
	text := l.must(t, "get", "site", site, "-o", "json")
	if !regexp.MustCompile(`"filter_refused": *"?[1-9]`).MatchString(text) {
		return fmt.Errorf("no forwarder of %s counts what its filter drops:\n%s", site, text)
	}
	return nil
}

// TestVPNEdgeCarriesTraffic: users behind an edge of kind VPN reach the server through their chain, and answers reach them.
func TestVPNEdgeCarriesTraffic(t *testing.T) {
	const port = 5403
	l := useLaboratory(t)
	echoServer(t, l, "www", port)
	lan, err := os.ReadFile("../../examples/edges/acme-branch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	vpn := strings.NewReplacer("kind: lan", "kind: vpn", "branch-lan", "branch-vpn").Replace(string(lan))
	if !strings.Contains(vpn, "kind: vpn") {
		t.Fatalf("no LAN to make a VPN of:\n%s", lan)
	}
	l.apply(t, vpn)
	c := chainSpec{name: "vpn", customer: "acme", edge: "branch-vpn", vnfs: []string{"east", "nat"},
		match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["%d"]}`, port)}
	t.Cleanup(func() {
		l.must(t, "delete", "chain", c.name, "--customer", "acme", "--ignore-not-found")
		l.must(t, "delete", "edge", "branch-vpn", "--customer", "acme")
	})
	l.change(t, c)
	server := netip.AddrPortFrom(netip.MustParseAddr(www), port)
	ports := l.openAndClose(t, "branch-host", server, 20)
	if used := l.perInstance(t, "east", port, ports); used["east-1"] != 20 {
		t.Errorf("connections are on %v", used)
	}
}

// TestForwardersGoOnWithoutControlPlane: everything but forwarders and the wires between them stands still for 15 s, at every
// site. Connections notice nothing, and new ones are made; afterwards everything is as desired.
func TestForwardersGoOnWithoutControlPlane(t *testing.T) {
	const connections, port = 50, 5404
	const away = 15 * time.Second
	l := useLaboratory(t)
	echoServer(t, l, "www", port)
	c := chainSpec{name: "alone", customer: "acme", edge: "office-lan", vnfs: []string{"pair", "nat"},
		match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["%d"]}`, port)}
	l.activate(t, c)
	server := netip.AddrPortFrom(netip.MustParseAddr(www), port)
	f := startFlows(t, l, "acme-host", server, connections)
	time.Sleep(500 * time.Millisecond)
	f.longest()
	carrying := l.running(onTheWay...)
	resume := l.pause(t, slices.DeleteFunc(l.processes(t), func(process string) bool { _, carries := carrying[process]; return carries })...)
	begun := time.Now()
	before := f.answers()
	for time.Since(begun) < away {
		if _, err := l.connectOnce("acme-host", server); err != nil {
			t.Errorf("a new connection %s into it: %v", time.Since(begun).Round(time.Millisecond), err)
		}
		time.Sleep(500 * time.Millisecond)
	}
	if waited, allowed := f.stall(t); waited > allowed {
		t.Errorf("a connection waited %s for an answer, on this machine %s are allowed", waited, allowed)
	}
	if err := f.goOn(before, 10); err != nil {
		t.Error(err)
	}
	resume()
	eventually(t, activation, func() error { return l.settled(t, c) })
	t.Logf("longest wait while the control plane came back: %s", f.longest())
	if err := f.end(); err != nil {
		t.Error(err)
	}
}
