package e2e

import (
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// linkWith is a link of the example laboratory with another encapsulation.
func linkWith(name, from, to string, latency int, encapsulation string) string {
	return fmt.Sprintf(`apiVersion: switchboard/v1
kind: Link
metadata: {name: %s}
spec: {from: %s, to: %s, latencyMs: %d, bandwidthMbps: 1000, encapsulation: %s}
`, name, from, to, latency, encapsulation)
}

// TestEncapsulationIsTheLinks: one chain crosses NSH on its first link and MPLS in UDP on its second, chosen while connections
// run; they notice nothing, and tshark reads the service path identifiers and labels.
func TestEncapsulationIsTheLinks(t *testing.T) {
	const port = 5350
	l := useLaboratory(t)
	echoServer(t, l, "www", port)
	c := chainSpec{name: "encapsulated", customer: "acme", edge: "office-lan", match: `{destinationPrefixes: [198.51.100.80/32], protocols: [tcp], destinationPorts: ["5350"]}`, vnfs: []string{"west"}}
	l.activate(t, c)
	route := l.routes(t, c)[0]
	first := func(encapsulation string) string {
		return linkWith("office-edge-west", "office", "edge-west", 4, encapsulation)
	}
	second := func(encapsulation string) string {
		return linkWith("edge-west-dc", "edge-west", "dc", 5, encapsulation)
	}
	t.Cleanup(func() { l.apply(t, first("vxlan-mpls")+"---\n"+second("vxlan-mpls")) })
	f := startFlows(t, l, "acme-host", netip.AddrPortFrom(netip.MustParseAddr(www), port), 20)
	time.Sleep(500 * time.Millisecond)
	f.longest()
	l.apply(t, first("vxlan-gpe-nsh")+"---\n"+second("mpls-in-udp"))
	time.Sleep(2 * time.Second)
	f.checkStall(t, l)
	eventually(t, activation, func() error {
		return l.encapsulates(t, "edge-west", []string{
			// One egress site: its number is 1. The firewall takes one off the service index, in either direction.
			fmt.Sprintf("4790 %d 255", route.ChainLabel<<4|1),
			fmt.Sprintf("4790 %d 254", (route.ChainLabel+1)<<4|1),
			fmt.Sprintf("6635 %d,%d", route.ChainLabel, route.EgressLabel),
			fmt.Sprintf("6635 %d,%d", route.ChainLabel+1, route.EgressLabel),
		})
	})
	if err := f.end(); err != nil {
		t.Error(err)
	}
}

// encapsulates captures a site's wide-area side for a second, and says which of the descriptions no packet of the test has, and
// which others there are.
func (l *laboratory) encapsulates(t testing.TB, site string, want []string) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "wan.pcap")
	capture := l.capture(t, site, file)
	time.Sleep(time.Second)
	capture()
	output, err := exec.Command("tshark", "-r", file, "-Y", "tcp.port == 5350", "-T", "fields", "-E", "separator=/s",
		"-e", "udp.dstport", "-e", "nsh.spi", "-e", "nsh.si", "-e", "mpls.label").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(string(output)), "\n") {
		seen[strings.Join(strings.Fields(line), " ")]++
	}
	for _, one := range want {
		if seen[one] == 0 {
			return fmt.Errorf("no packet is %q; all: %v", one, seen)
		}
		delete(seen, one)
	}
	if len(seen) != 0 {
		return fmt.Errorf("other packets: %v", seen)
	}
	return nil
}
