package e2e

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

// trunk is an edge with two VLANs of the office's trunk, on which other customers have others.
const trunk = `apiVersion: switchboard/v1
kind: Edge
metadata: {name: office-trunk, customer: acme}
spec: {kind: vlan, site: office, interface: trunk0, vlans: [31, 32], prefixes: [10.1.5.0/24], gatewayAddresses: [10.1.5.1/24]}
`

// TestChainsOfOneEdgeDifferByVLAN: two chains of one edge whose matches differ by VLAN only. Hosts of one network on both VLANs each
// take the chain of theirs, and answers come back with the right tag; a third chain takes what is left of both.
func TestChainsOfOneEdgeDifferByVLAN(t *testing.T) {
	const port, rest, attempts = 5410, 5411, 20
	l := useLaboratory(t)
	echoServer(t, l, "www", port)
	echoServer(t, l, "www", rest)
	chainOf := func(vnf, vlans string, port int) chainSpec {
		return chainSpec{name: "trunk-" + vnf, customer: "acme", edge: "office-trunk", vnfs: []string{vnf},
			match: fmt.Sprintf(`{%s destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["%d"]}`, vlans, port)}
	}
	chains := []chainSpec{chainOf("west", "vlans: [31],", port), chainOf("east", "vlans: [32],", port), chainOf("pair", "", rest)}
	t.Cleanup(func() {
		for _, c := range chains {
			l.must(t, "delete", "chain", c.name, "--customer", "acme", "--ignore-not-found")
		}
		l.must(t, "delete", "edge", "office-trunk", "--customer", "acme", "--ignore-not-found")
	})
	l.apply(t, trunk)
	for _, c := range chains {
		l.change(t, c)
	}
	server := func(port int) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(www), uint16(port)) }
	for vlan, vnf := range map[int]string{31: "west", 32: "east"} {
		host := "trunk-host-" + strconv.Itoa(vlan)
		ports := l.openAndClose(t, host, server(port), attempts)
		for _, of := range []string{"west", "east"} {
			saw := 0
			for _, machine := range l.instances(t, of) {
				for _, entry := range l.conntrack(t, machine, port) {
					if ports[entry.sourcePort] && strings.HasSuffix(entry.source, "."+strconv.Itoa(vlan)) {
						saw++
					}
				}
			}
			if want := map[bool]int{true: attempts}[of == vnf]; saw != want {
				t.Errorf("of %d connections from VLAN %d %s saw %d, want %d", attempts, vlan, of, saw, want)
			}
		}
		l.openAndClose(t, host, server(rest), attempts)
		inOrder(t, l.traceFromTrunk(t, vlan, port), fmt.Sprintf("edge:acme/office-trunk.%d", vlan), "vnf:"+vnf+"/", "reached:")
		inOrder(t, l.traceFromTrunk(t, vlan, rest), fmt.Sprintf("edge:acme/office-trunk.%d", vlan), "vnf:pair/", "reached:")
	}

	twin := chainOf("west", "vlans: [31],", port)
	twin.name = "trunk-twin"
	chains = append(chains, twin)
	l.apply(t, twin.text())
	eventually(t, activation, func() error {
		if reason := fmt.Sprint(l.active(t, twin)); !strings.Contains(reason, "the match equals that of chain acme/trunk-west") {
			return fmt.Errorf("a second chain for the VLAN: %s", reason)
		}
		return nil
	})
	wrong := chainOf("west", "vlans: [33],", port)
	if output, err := l.tryApply(t, wrong.text()); exit(err) != 1 || !strings.Contains(output, "spec.ingress.edges[0]: edge acme/office-trunk carries none of the VLANs") {
		t.Errorf("a VLAN that the edge has not: exit %d\n%s", exit(err), output)
	}
}

// traceFromTrunk sends a packet in at a VLAN of the trunk, until one comes to the egress.
func (l *laboratory) traceFromTrunk(t testing.TB, vlan, port int) (output string) {
	t.Helper()
	eventually(t, activation, func() (err error) { // a busy machine may have no instance for a moment
		output, err = l.switchboard("trace", "--send", "--customer", "acme", "--from", "office-trunk", "--vlan", strconv.Itoa(vlan), "--protocol", "tcp",
			"--source", fmt.Sprintf("10.1.5.%d", vlan), "--destination", www, "--destination-port", strconv.Itoa(port))
		if err != nil {
			err = fmt.Errorf("%w: %s", err, output)
		}
		return err
	})
	return output
}
