package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/hostnet"
)

// ownLaboratory brings up a laboratory of the test's own, with so many forwarders at each site that is named, or skips the
// test where this machine cannot run one.
func ownLaboratory(t testing.TB, name, forwarders string) *laboratory {
	t.Helper()
	program := require(t)
	l, err := bringUp(program, fmt.Sprintf("%s-%d", name, os.Getpid()), "  globalSite: dc\n", "  globalSite: dc\n  forwarders: "+forwarders+"\n")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && os.Getenv("SWITCHBOARD_E2E_KEEP") != "" {
			t.Log("laboratory kept: ", l.root)
			return
		}
		if output, err := l.switchboard("lab", "down"); err != nil {
			t.Errorf("lab down: %v\n%s", err, output)
		}
	})
	return l
}

// forwarders are those that a site lists, by their names.
func (l *laboratory) forwarders(t testing.TB, site string) map[string]*api.ForwarderStatus {
	t.Helper()
	found := map[string]*api.ForwarderStatus{}
	for _, resource := range l.list(t, "site", "", site) {
		for _, f := range resource.GetSite().GetStatus().GetForwarders() {
			found[f.Name] = f
		}
	}
	return found
}

// scale brings a site to a number of forwarders and waits until what it has has moved.
func (l *laboratory) scale(t testing.TB, words ...string) {
	t.Helper()
	l.must(t, append([]string{"lab", "forwarders"}, words...)...)
}

// TestASiteGetsAndLosesAForwarder: while connections run whose choices today's weights would not make again, a site gets a second
// forwarder and loses its first, and so does the site with the customer's edge. None of the connections ends, and none moves.
func TestASiteGetsAndLosesAForwarder(t *testing.T) {
	const connections, port = 180, 5360
	l := ownLaboratory(t, "scale", "1")
	echoServer(t, l, "www", port)
	c := chainSpec{name: "scaled", customer: "acme", edge: "office-lan", vnfs: []string{"west", "pair", "nat"},
		match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["%d"]}`, port)}
	l.activate(t, c)
	server := netip.AddrPortFrom(netip.MustParseAddr(www), port)
	f := startFlows(t, l, "acme-host", server, connections)
	l.deploy(t, 2, "[100, 900]")
	before := l.perInstance(t, "pair", port, f.locals())
	for _, step := range [][]string{
		{"edge-west", "2"}, {"edge-west", "1", "--remove", "f1"}, {"office", "2"}, {"office", "1", "--remove", "f1"},
		{"dc", "2"}, {"dc", "1", "--remove", "f1"},
	} {
		f.longest()
		l.scale(t, step...)
		if step[0] == "edge-west" && step[1] == "2" {
			eventually(t, time.Minute, func() error { return l.shares(t, step[0]) })
		}
		l.talks(t, f)
		t.Logf("%s: the longest wait for an answer was %s", strings.Join(step, " "), f.longest())
		if now := l.perInstance(t, "pair", port, f.locals()); fmt.Sprint(now) != fmt.Sprint(before) {
			t.Errorf("%s: connections were on %v and are on %v", strings.Join(step, " "), before, now)
		}
	}
	for site, want := range map[string]string{"edge-west": "f2", "office": "f2", "dc": "f2", "edge-east": "f1"} {
		if found := l.forwarders(t, site); len(found) != 1 || found[want] == nil {
			t.Errorf("site %s lists %v, want %s alone", site, found, want)
		}
	}
	if err := f.end(); err != nil {
		t.Error(err)
	}
	l.openAndClose(t, "acme-host", server, 40)
}

// shares says why not all of a site's forwarders serve connections.
func (l *laboratory) shares(t testing.TB, site string) error {
	t.Helper()
	for name, f := range l.forwarders(t, site) {
		if f.FlowEntries == 0 || f.AppliedGeneration != f.DesiredGeneration {
			return fmt.Errorf("forwarder %s of %s has %d flow entries, and applied %d of %d", name, site, f.FlowEntries, f.AppliedGeneration, f.DesiredGeneration)
		}
	}
	return nil
}

// talks waits until every connection has had answers since the call, and fails the test where one has none.
func (l *laboratory) talks(t testing.TB, f *flows) {
	t.Helper()
	for _, one := range f.silent(time.Minute) {
		t.Errorf("the connection from %s stands still", one.Local)
	}
}

// TestSiblingsLeaveOutAForwarderThatIsAway: of a site's two forwarders, each with an instance of a VNF, one falls silent. Those of
// other sites and its sibling give it no new connections until it is back.
func TestSiblingsLeaveOutAForwarderThatIsAway(t *testing.T) {
	const port = 5361
	c := chainSpec{name: "siblings", customer: "acme", edge: "office-lan", vnfs: []string{"pair", "west"},
		match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["%d"]}`, port)}
	l := ownLaboratory(t, "away", "{edge-west: 2}")
	// Where instances are depends on which forwarder was there first. Those that are made when both are there are one at each.
	eventually(t, activation, func() error {
		for name, f := range l.forwarders(t, "edge-west") {
			if !f.Alive {
				return fmt.Errorf("forwarder %s is not there", name)
			}
		}
		return nil
	})
	l.must(t, "delete", "deployment", "pair-west")
	eventually(t, activation, func() error {
		if hostnet.NamespaceExists(l.name+".pair-west-1") || hostnet.NamespaceExists(l.name+".pair-west-2") {
			return errors.New("the instances are still there")
		}
		return nil
	})
	l.apply(t, pairDeployment(2, "[]"))
	l.activate(t, c)
	away, other := l.awayOf(t, "pair", "west")
	echoServer(t, l, "www", port)
	server := netip.AddrPortFrom(netip.MustParseAddr(www), port)
	eventually(t, time.Minute, func() error {
		ports := l.openAndClose(t, "acme-host", server, 40)
		if used := l.perInstance(t, "pair", port, ports); len(used) != 2 {
			return fmt.Errorf("new connections are on %v, want both instances", used)
		}
		return l.settled(t, c)
	})
	pid := l.record(t, away).PID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	eventually(t, time.Minute, func() error {
		for range 40 {
			if _, err := l.connectWithin("acme-host", server, 2*time.Second); err != nil {
				return err
			}
		}
		return nil
	})
	if used := l.perInstance(t, "pair", port, l.openAndClose(t, "acme-host", server, 40)); len(used) != 1 || used[other] != 40 {
		t.Errorf("new connections are on %v, want %s alone", used, other)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error {
		ports := map[uint16]bool{}
		for range 40 {
			port, err := l.connectWithin("acme-host", server, 2*time.Second)
			if err != nil {
				return err
			}
			ports[port] = true
		}
		if used := l.perInstance(t, "pair", port, ports); len(used) != 2 {
			return fmt.Errorf("the forwarder that is back gets no connections: %v", used)
		}
		return nil
	})
}

// awayOf finds a forwarder that has an instance of one VNF and none of another: its process, and the instance that the other
// forwarder has of the first.
func (l *laboratory) awayOf(t testing.TB, vnf, without string) (process, other string) {
	t.Helper()
	at := map[string]string{}
	for _, set := range l.ruleSets(t, "edge-west") {
		for _, a := range set.Attachments {
			if !a.Passive {
				at[a.Instance] = set.Forwarder
			}
		}
	}
	avoid := ""
	for name := range l.instances(t, without) {
		avoid = at[name]
	}
	for name := range l.instances(t, vnf) {
		if at[name] == avoid {
			other = name
		} else {
			process = "forwarder-edge-west"
			if at[name] != "f1" {
				process += "." + at[name]
			}
		}
	}
	if process == "" || other == "" {
		t.Fatalf("instances are at %v, want one of %s with %s and one without", at, vnf, without)
	}
	return process, other
}

// ruleSets are those that a site has given its forwarders.
func (l *laboratory) ruleSets(t testing.TB, site string) []*rules.RuleSet {
	t.Helper()
	var connection *bus.Connection
	l.inside(t, site, func() (err error) {
		connection, err = bus.Connect(t.Context(), bus.ConnectConfig{Agent: "e2e",
			CredentialsFile: filepath.Join(l.root, l.name, "sites", site, "store", "credentials", "controller.default.json")})
		return err
	})
	defer connection.Close()
	entries, err := connection.Local("rules").List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var sets []*rules.RuleSet
	for _, e := range entries {
		set := &rules.RuleSet{}
		if err := proto.Unmarshal(e.Value, set); err != nil {
			t.Fatal(err)
		}
		sets = append(sets, set)
	}
	return sets
}
