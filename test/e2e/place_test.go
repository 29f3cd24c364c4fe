package e2e

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
)

// TestOnePlaceThatFailsIsRoutedAround: chains share an instance, and one of them is let through no more. That chain alone is led
// around the instance, its connections too; another's connections and route stay, and the instance works for it.
func TestOnePlaceThatFailsIsRoutedAround(t *testing.T) {
	const port = 5375
	l := useLaboratory(t)
	at := map[string]map[string]chainSpec{} // by site and name
	site := ""
	for index := range 3 { // over two sites: two of them share one
		echoServer(t, l, "www", uint16(port+index))
		datagramEcho(t, l, "www", uint16(port+index))
		c := chainSpec{name: fmt.Sprintf("shares-%d", index), customer: "acme", edge: "office-lan", vnfs: []string{"split"},
			match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [tcp, udp], destinationPorts: ["%d"]}`, port+index)}
		l.activate(t, c)
		over := l.routes(t, c)[0].Sites[0]
		if at[over] == nil {
			at[over] = map[string]chainSpec{}
		}
		if at[over]["acme/"+c.name] = c; len(at[over]) == 2 {
			site = over
		}
	}
	chains := at[site]
	machine := "split-" + strings.TrimPrefix(site, "edge-") + "-1"
	t.Cleanup(func() {
		l.mendPlaces(t, machine)
		for _, c := range chains {
			eventually(t, activation, func() error { return l.settled(t, c) })
		}
	})
	serverOf := func(name string) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(www), port+uint16(name[len(name)-1]-'0'))
	}
	old := map[string]*datagrams{}
	for name := range chains {
		old[name] = startDatagrams(t, l, "acme-host", serverOf(name), 20)
		eventually(t, activation, old[name].allAnswered)
	}
	failed := l.breakPlace(t, machine, chains)
	sound := slices.DeleteFunc(slices.Sorted(maps.Keys(chains)), func(name string) bool { return name == failed })[0]
	f := startFlows(t, l, "acme-host", serverOf(sound), 10)
	eventually(t, activation, func() error {
		if err := l.active(t, chains[failed]); err != nil {
			return err
		}
		if routes := l.routes(t, chains[failed]); routes[0].Sites[0] == site {
			return fmt.Errorf("chain %s is still over %s", failed, site)
		}
		_, err := l.connectOnce("acme-host", serverOf(failed))
		return err
	})
	if routes := l.routes(t, chains[sound]); len(routes) != 1 || routes[0].Sites[0] != site {
		t.Errorf("chain %s, whose place is sound, is over %v", sound, routes)
	}
	for _, name := range []string{failed, sound} {
		eventually(t, activation, old[name].allAnswered)
	}
	before := f.answers()
	eventually(t, activation, func() error { return f.goOn(before, 5) })
	if err := f.end(); err != nil {
		t.Error(err)
	}
}

// TestConnectionsLeaveAPlaceThatIsOutOfUse: a chain runs over two sites, and one of its instances, which another chain keeps at work, lets
// it through no more. Connections that it had there go on over the other site.
func TestConnectionsLeaveAPlaceThatIsOutOfUse(t *testing.T) {
	const port = 5378
	l := useLaboratory(t)
	wide := chainSpec{name: "wide", customer: "acme", edge: "office-lan", vnfs: []string{"split"}, times: 2,
		match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [tcp, udp], destinationPorts: ["%d"]}`, port)}
	beside := chainSpec{name: "beside", customer: "acme", edge: "office-lan", vnfs: []string{"split"},
		match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["%d"]}`, port+1)}
	l.activate(t, wide)
	l.activate(t, beside)
	if routes := l.routes(t, wide); len(routes) != 2 {
		t.Fatalf("routes %v, want one over each edge cloud", routes)
	}
	machine := "split-" + strings.TrimPrefix(l.routes(t, beside)[0].Sites[0], "edge-") + "-1"
	server := netip.AddrPortFrom(netip.MustParseAddr(www), port)
	datagramEcho(t, l, "www", port)
	d := startDatagrams(t, l, "acme-host", server, 100)
	eventually(t, activation, d.allAnswered)
	t.Cleanup(func() {
		l.mendPlaces(t, machine)
		eventually(t, activation, func() error { return l.settled(t, wide) })
	})
	l.breakPlace(t, machine, map[string]chainSpec{"acme/wide": wide})
	eventually(t, 20*time.Second, d.allAnswered)
	there, longest := d.waits(200 * time.Millisecond) // the probes take longer to find the place, and an answer ten times less
	t.Logf("%d of %d flows had the place; none waited longer than %v", there, len(d.all), longest.Round(time.Millisecond))
	if there == 0 {
		t.Error("no connection had the place that was taken out of use")
	}
}

var ingressInterfaces = regexp.MustCompile(`(?m)^i\d+`)

// breakPlace has an instance drop what one of some chains sends; it returns which.
func (l *laboratory) breakPlace(t testing.TB, machine string, chains map[string]chainSpec) string {
	t.Helper()
	for _, name := range ingressInterfaces.FindAllString(l.mustRun(t, machine, "ip", "-brief", "link"), -1) {
		l.mustRun(t, machine, "nft", "add table ip foreign; add chain ip foreign f { type filter hook forward priority -5; }; "+
			"add rule ip foreign f iifname "+name+" drop")
		failed := l.awaitFailed(t, machine, 1)[0]
		if _, ours := chains[failed]; ours {
			if output := l.must(t, "get", "instances", machine); !strings.Contains(output, "out of use for chain "+failed+": ") {
				t.Errorf("no reason in\n%s", output)
			}
			return failed
		}
		l.mendPlaces(t, machine) // it was of a chain that is just ending
	}
	t.Fatalf("no interface of %s is of %v", machine, chains)
	return ""
}

// mendPlaces takes back what breakPlace did, and waits until every place is used again.
func (l *laboratory) mendPlaces(t testing.TB, machine string) {
	t.Helper()
	l.mustRun(t, machine, "nft", "add table ip foreign; delete table ip foreign")
	l.awaitFailed(t, machine, 0)
}

// awaitFailed waits until an instance that works fails so many chains, and returns them.
func (l *laboratory) awaitFailed(t testing.TB, machine string, count int) (names []string) {
	t.Helper()
	eventually(t, activation, func() error {
		for _, resource := range l.list(t, "vnfinstance", "", machine) {
			names = resource.GetVnfInstance().GetFailedChains()
			if state := resource.GetVnfInstance().GetState(); state != api.VnfInstanceState_VNF_INSTANCE_STATE_HEALTHY || len(names) != count {
				return fmt.Errorf("%s is %s and fails %v, want %d", machine, state, names, count)
			}
		}
		return nil
	})
	return names
}
