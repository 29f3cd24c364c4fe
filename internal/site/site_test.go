package site

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/hostnet"
)

const (
	preparing = control.VersionState_VERSION_STATE_PREPARING
	active    = control.VersionState_VERSION_STATE_ACTIVE
)

// grant takes the web chain through two-phase commit with the firewall's and the office's controllers.
func (w *world) grant(transaction string, label uint32) {
	w.t.Helper()
	deadline := time.Now().Add(time.Minute).UnixMilli()
	w.reserve(transaction, "cloud", "vnf.firewall", &control.Prepare{Customer: "acme", Chain: "web", ChainLabel: label,
		CoordinatorSite: globalSite, DeadlineUnixMs: deadline,
		Allocations: []*control.Allocation{{Position: 1, Loads: []*control.SiteLoad{{Site: "cloud", Load: 60}}}}})
	w.reserve(transaction, "office", "edge", &control.Prepare{Customer: "acme", Chain: "web", ChainLabel: label,
		CoordinatorSite: globalSite, DeadlineUnixMs: deadline, Edges: []*control.EdgeBinding{{Edge: "lan", EdgeCustomer: "acme", Ingress: true}}})
}

func (w *world) appliedEverywhere(revision uint64) {
	w.t.Helper()
	w.eventually("both sites apply the revision", func() bool {
		return w.sites["office"].progress().AppliedRevision == revision && w.sites["cloud"].progress().AppliedRevision == revision
	})
}

// activeWorld is two sites with the web chain active over two instances.
func activeWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, "office", "cloud")
	w.tellDirectory()
	w.sites["cloud"].startController("firewall")
	w.grant("t1", 16)
	began := time.Now()
	w.tell("chain.acme.web", webChain(1, preparing))
	w.appliedEverywhere(1)
	t.Logf("prepared in %v", time.Since(began))
	if n := len(w.sites["office"].forwarder.current().Edges[0].Classifiers); n != 0 {
		t.Errorf("%d classifiers while the version is being prepared", n)
	}
	began = time.Now()
	w.tell("chain.acme.web", webChain(2, active))
	w.appliedEverywhere(2)
	t.Logf("activated in %v", time.Since(began))
	return w
}

func TestTwoSitesFollowAChain(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	w := activeWorld(t)
	if n := len(w.sites["office"].forwarder.current().Edges[0].Classifiers); n != 1 {
		t.Errorf("%d classifiers, want 1", n)
	}
	if n := len(w.sites["cloud"].forwarder.current().Attachments); n != 2 {
		t.Errorf("%d attachments, want one of each instance", n)
	}
	record := &control.InstanceRecord{}
	w.eventually("instances are published with their chains", func() bool {
		return w.sites["cloud"].published("instance.firewall.fw-1", record) && len(record.Observed.Chains) == 1
	})
	if record.Observed.Chains[0] != "acme/web" || record.Observed.State != api.VnfInstanceState_VNF_INSTANCE_STATE_HEALTHY {
		t.Errorf("instance: %v", record)
	}

	if err := w.sites[globalSite].connection.Published().Delete(w.ctx, "chain.acme.web"); err != nil {
		t.Fatal(err)
	}
	w.eventually("nothing is left of a deleted chain", func() bool {
		set := w.sites["cloud"].forwarder.current()
		names, err := hostnet.NamespaceNames(w.prefix)
		return len(set.Paths)+len(set.Attachments)+len(set.Peers) == 0 && err == nil && len(names) == 2 &&
			!w.sites["cloud"].published("progress.acme.web", &control.ChainProgress{}) && w.sites["cloud"].records() == 0
	})
}

// records counts the places that the VNF agent keeps.
func (s *testSite) records() int {
	entries, err := s.connection.Local(instancesBucket).List(s.world.ctx, "")
	if err != nil {
		s.world.t.Fatal(err)
	}
	count := 0
	for _, e := range entries {
		if tokens, err := bus.SplitKey(e.Key); err == nil && len(tokens) > 1 {
			count++
		}
	}
	return count
}

func TestRestartChangesNothing(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	w := activeWorld(t)
	for _, name := range []string{"cloud", "office"} {
		s := w.sites[name]
		before := s.forwarder.current()
		s.stop()
		s.start()
		time.Sleep(time.Second)
		if after := s.forwarder.current(); !proto.Equal(before, after) {
			t.Errorf("site %s: rules changed with a restart:\n%v\n%v", name, before, after)
		}
		if p := s.progress(); p.AppliedRevision != 2 || p.Problem != "" {
			t.Errorf("site %s: progress %v", name, p)
		}
	}
	w.tell("chain.acme.web", webChain(3, active))
	w.appliedEverywhere(3)
}

// TestEdgeIsDownWhileItsForwarderIsAway: it is reported so, and a chain may still be promised to use it.
func TestEdgeIsDownWhileItsForwarderIsAway(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	w := newWorld(t, "office", "cloud")
	w.tellDirectory()
	office, observed := w.sites["office"], &control.EdgeObserved{}
	up := func(want bool) func() bool {
		return func() bool { return office.published("edge.acme.lan", observed) && observed.Up == want }
	}
	w.eventually("the edge is up", up(true))
	office.forwarder.registration.Close()
	w.eventually("the edge is down", up(false))
	if observed.Reason != "forwarder f1 does not run" {
		t.Errorf("the edge is down because %q", observed.Reason)
	}
	w.reserve("t1", "office", "edge", &control.Prepare{Customer: "acme", Chain: "web", ChainLabel: 16, CoordinatorSite: globalSite,
		DeadlineUnixMs: time.Now().Add(time.Minute).UnixMilli(), Edges: []*control.EdgeBinding{{Edge: "lan", EdgeCustomer: "acme", Ingress: true}}})
	var err error
	if office.forwarder.registration, err = office.connection.Register(w.ctx, "forwarder", "f1", nil); err != nil {
		t.Fatal(err)
	}
	w.eventually("the edge is up again", up(true))
}

func TestDeadInstanceGetsNoNewFlows(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	w := activeWorld(t)
	cloud := w.sites["cloud"]
	state := func(id string) (rules.AttachmentState, uint32) {
		set := cloud.forwarder.current()
		for _, a := range set.Attachments {
			if a.Instance == id {
				return a.State, set.Paths[0].Stages[0].Downstream.Local[0].Weight
			}
		}
		return 0, 0
	}
	returns := func() bool {
		s, weight := state("fw-1")
		return s == rules.AttachmentState_ATTACHMENT_STATE_ACTIVE && weight > 0
	}
	for attempt := 1; ; attempt++ { // a busy machine makes it later, never sooner
		if err := hostnet.DeleteNamespace(w.prefix + "cloud-fw-1"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		w.eventually("the dead instance has no weight", func() bool {
			s, _ := state("fw-1") // a vanished one is no target at all
			return s == 0 || s == rules.AttachmentState_ATTACHMENT_STATE_DEAD
		})
		took := time.Since(began)
		if took <= time.Second {
			break
		}
		if attempt == 4 {
			t.Fatalf("noticed after %v", took)
		}
		w.eventually("it returns", returns)
	}
	record := &control.InstanceRecord{}
	w.eventually("the reason is published", func() bool {
		return cloud.published("instance.firewall.fw-1", record) && record.Observed.Reason != ""
	})
	if want := "namespace " + w.prefix + "cloud-fw-1 is gone"; record.Observed.Reason != want {
		t.Errorf("reason %q, want %q", record.Observed.Reason, want)
	}
	forwarder := &control.ForwarderRecord{}
	w.eventually("other sites see half the weight", func() bool {
		return cloud.published("forwarder.f1", forwarder) && forwarder.VnfWeights["firewall"] == 100
	})
	w.eventually("it returns", returns)
}

func TestInstanceDrainsAndGoes(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	w := activeWorld(t)
	cloud := w.sites["cloud"]
	id := ""
	for _, a := range cloud.forwarder.current().Attachments {
		if a.Instance == "fw-2" {
			id = a.Id
		}
	}
	cloud.forwarder.change(w.ctx, func() { cloud.forwarder.status.AttachmentFlows[id] = 3 })
	w.tell("directory.deployment.fw", &control.DeploymentRecord{Deployment: "fw", Spec: &api.VnfDeploymentSpec{Vnf: "firewall",
		Site: "cloud", Capacity: 100, Instances: 1}})
	draining := func() bool {
		for _, a := range cloud.forwarder.current().Attachments {
			if a.Id == id {
				return a.State == rules.AttachmentState_ATTACHMENT_STATE_DRAINING
			}
		}
		return false
	}
	w.eventually("the instance drains", draining)
	for range 5 { // reports with connections left
		cloud.forwarder.change(w.ctx, func() {})
		time.Sleep(100 * time.Millisecond)
	}
	if !draining() || !hostnet.NamespaceExists(w.prefix+"cloud-fw-2") {
		t.Fatal("the instance went while it had connections")
	}
	cloud.forwarder.change(w.ctx, func() { delete(cloud.forwarder.status.AttachmentFlows, id) })
	time.Sleep(20 * time.Millisecond)
	cloud.forwarder.change(w.ctx, func() {})
	w.eventually("the instance goes", func() bool {
		return !hostnet.NamespaceExists(w.prefix+"cloud-fw-2") && len(cloud.forwarder.current().Attachments) == 1
	})
}

func TestForwarderThatRefusesIsNamed(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	w := activeWorld(t)
	f := w.sites["office"].forwarder
	w.tell("directory.edge.acme.second", &control.EdgeRecord{Edge: "second", Customer: "acme", Spec: &api.EdgeSpec{Kind: api.EdgeKind_EDGE_KIND_VLAN,
		Site: "office", Interface: "lo", Vlan: 7, Prefixes: []string{"10.2.0.0/24"}}})
	w.eventually("rules with the edge", func() bool { return len(f.current().Edges) == 2 })
	f.mu.Lock()
	f.frozen = true
	f.mu.Unlock()
	next := webChain(3, active)
	next.Versions[0].Match.DestinationPorts = []string{"80"}
	w.tell("chain.acme.web", next)
	w.eventually("the refusal is reported", func() bool {
		f.change(w.ctx, func() {
			f.status.Refused, f.status.RefusedGeneration = "edges[0]: bad", f.rules.Generation
		})
		p := w.sites["office"].progress()
		return p.Problem == "forwarder f1 refuses its rules: edges[0]: bad" && p.ProblemRevision == 3 && p.AppliedRevision == 2
	})
}

func TestTwoEdgesCannotShareAnInterface(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	w := activeWorld(t)
	w.tell("directory.edge.acme.other", &control.EdgeRecord{Edge: "other", Customer: "acme", Spec: &api.EdgeSpec{Kind: api.EdgeKind_EDGE_KIND_LAN,
		Site: "office", Interface: "lo"}})
	w.tell("directory.edge.acme.bad", &control.EdgeRecord{Edge: "bad", Customer: "acme", Spec: &api.EdgeSpec{Kind: api.EdgeKind_EDGE_KIND_VLAN,
		Site: "office", Interface: "lo", Vlan: 9, GatewayAddresses: []string{"10.9.0.1"}}})
	w.tell("directory.edge.acme.absent", &control.EdgeRecord{Edge: "absent", Customer: "acme", Spec: &api.EdgeSpec{Kind: api.EdgeKind_EDGE_KIND_LAN,
		Site: "office", Interface: "eth9"}})
	w.tell("directory.edge.acme.group", &control.EdgeRecord{Edge: "group", Customer: "acme", Spec: &api.EdgeSpec{Kind: api.EdgeKind_EDGE_KIND_VLAN,
		Site: "office", Interface: "lo", Vlan: 10, GatewayAddresses: []string{"224.0.0.1/24"}}})
	w.tell("directory.edge.acme.self", &control.EdgeRecord{Edge: "self", Customer: "acme", Spec: &api.EdgeSpec{Kind: api.EdgeKind_EDGE_KIND_VLAN,
		Site: "office", Interface: "lo", Vlan: 11, GatewayAddresses: []string{"10.9.0.1/24"}, NextHops: []string{"10.9.0.1"}}})
	w.tell("directory.edge.acme.wan", &control.EdgeRecord{Edge: "wan", Customer: "acme", Spec: &api.EdgeSpec{Kind: api.EdgeKind_EDGE_KIND_LAN,
		Site: "office", Interface: "wan0"}})
	for key, want := range map[string]string{
		"edge.acme.group":  `gateway_addresses[0]: "224.0.0.1/24" is no host's address`,
		"edge.acme.self":   `next_hops[0]: "10.9.0.1" is no other host's address`,
		"edge.acme.wan":    "interface wan0 without a VLAN is forwarder f1's on the underlay; give the edge a VLAN",
		"edge.acme.other":  "interface lo, VLAN 0, is that of edge acme/lan",
		"edge.acme.bad":    `gateway_addresses[0]: "10.9.0.1" is no address with prefix length`,
		"edge.acme.absent": "interface eth9 is not in edgeInterfaces of site office",
	} {
		observed := &control.EdgeObserved{}
		w.eventually(key+" is down", func() bool { return w.sites["office"].published(key, observed) && !observed.Up })
		if observed.Reason != want {
			t.Errorf("%s: %q, want %q", key, observed.Reason, want)
		}
	}
	if n := len(w.sites["office"].forwarder.current().Edges); n != 1 {
		t.Errorf("%d edges in the rules, want the sound one", n)
	}
}

// An edge at a network card needs no interface of the kernel; its forwarder says whether the card has a link.
func TestAnEdgeMayBeAtANetworkCard(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	w := activeWorld(t)
	w.tell("directory.edge.acme.lan", &control.EdgeRecord{Edge: "lan", Customer: "acme", Spec: &api.EdgeSpec{Kind: api.EdgeKind_EDGE_KIND_LAN,
		Site: "office", Interface: "card0"}})
	office := w.sites["office"]
	observed := &control.EdgeObserved{}
	w.eventually("the edge is up", func() bool { return office.published("edge.acme.lan", observed) && observed.Up })
	w.eventually("the card is in the rules", func() bool {
		return slices.ContainsFunc(office.forwarder.current().Ports, func(p *rules.Port) bool {
			return p.Name == "card0" && p.GetDevargs() == "0000:03:00.0"
		})
	})
	office.forwarder.change(w.ctx, func() {
		office.forwarder.status.Ports = []*rules.PortStatus{{Name: "card0", Error: "no carrier"}}
	})
	w.eventually("the edge is down", func() bool { return office.published("edge.acme.lan", observed) && !observed.Up })
	if want := "forwarder f1 cannot use interface card0: no carrier"; observed.Reason != want {
		t.Errorf("%q, want %q", observed.Reason, want)
	}
}

func TestWhatAChainLacksIsNamed(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	w := newWorld(t, "office", "cloud")
	w.tellDirectory()
	w.tell("chain.acme.web", webChain(1, preparing)) // nobody has asked the firewall's controller
	cloud := w.sites["cloud"]
	w.eventually("the site says what it waits for", func() bool { return cloud.progress().Problem != "" })
	const want = "no healthy instance of VNF firewall is attached at site cloud: " +
		"the controller of VNF firewall has published no allocation for it"
	if p := cloud.progress(); p.Problem != want || p.ProblemRevision != 1 || p.AppliedRevision != 0 {
		t.Errorf("progress %v, want problem %q", p, want)
	}
	cloud.startController("firewall")
	w.grant("t1", 16)
	w.appliedEverywhere(1)
	if p := cloud.progress(); p.Problem != "" {
		t.Errorf("the problem stays: %v", p)
	}
}

func TestForwarderThatVanishesIsNotAlive(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	w := activeWorld(t)
	peer := func() *rules.Peer { return w.sites["office"].forwarder.current().Peers[0] }
	if !peer().Alive {
		t.Fatal("the peer is not alive at the start")
	}
	generation := w.sites["cloud"].forwarder.current().Generation
	w.sites["cloud"].forwarder.registration.Close()
	began := time.Now()
	w.eventually("the other site's rules say so", func() bool { return !peer().Alive })
	t.Logf("noticed in %v", time.Since(began))
	if now := w.sites["cloud"].forwarder.current().Generation; now != generation {
		t.Errorf("the vanished forwarder's own rules changed from %d to %d", generation, now)
	}
}
