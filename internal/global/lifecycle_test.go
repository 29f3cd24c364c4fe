package global

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
)

const (
	active   = api.ChainPhase_CHAIN_PHASE_ACTIVE
	rejected = api.ChainPhase_CHAIN_PHASE_REJECTED
)

// record is a chain's published record, nil where there is none.
func (p *platform) record(customer, name string) *control.ChainRecord {
	p.t.Helper()
	entry, err := p.hq.connection.Published().Get(testContext(p.t), bus.Key("chain", customer, name))
	if errors.Is(err, bus.ErrNotFound) {
		return nil
	}
	if err != nil {
		p.t.Fatal(err)
	}
	record := &control.ChainRecord{}
	if err := proto.Unmarshal(entry.Value, record); err != nil {
		p.t.Fatal(err)
	}
	return record
}

// keys lists what a prefix of the Global Switchboard's own store holds.
func (p *platform) keys(prefix string) []string {
	p.t.Helper()
	entries, err := p.hq.connection.Local(globalStore).List(testContext(p.t), prefix)
	if err != nil {
		p.t.Fatal(err)
	}
	var keys []string
	for _, e := range entries {
		keys = append(keys, e.Key)
	}
	return keys
}

// setFlows says how many connections a site has on a label, and has it report so.
func (s *fakeSite) setFlows(record *control.ChainRecord, label uint32, count uint64) {
	s.mu.Lock()
	s.flows[label] = count
	s.mu.Unlock()
	s.report(testContext(s.p.t), record)
}

func TestChainBecomesActive(t *testing.T) {
	p := standard(t)
	p.apply(webChain)
	status := p.awaitPhase("acme", "web", active).Status
	if len(status.Routes) != 1 || status.Routes[0].ChainLabel%2 != 0 || status.Routes[0].State != api.RouteState_ROUTE_STATE_ACTIVE {
		t.Fatalf("routes %v, want one active with an even label", status.Routes)
	}
	if status.ActivationMs <= 0 || status.ObservedGeneration != 1 {
		t.Fatalf("activation %v ms, generation %d", status.ActivationMs, status.ObservedGeneration)
	}
	t.Logf("activation %.1f ms", status.ActivationMs)
}

func TestSameApplyTwiceChangesNothing(t *testing.T) {
	p := standard(t)
	p.apply(webChain)
	p.awaitPhase("acme", "web", active)
	before := p.record("acme", "web")
	for _, o := range p.apply(topology + "---" + webChain) {
		if o.Result != api.ApplyResult_APPLY_RESULT_UNCHANGED || o.Metadata.Generation != 1 {
			t.Errorf("%s %s: %v, generation %d", o.Kind, o.Metadata.Name, o.Result, o.Metadata.Generation)
		}
	}
	time.Sleep(300 * time.Millisecond)
	if after := p.record("acme", "web"); !proto.Equal(before, after) {
		t.Fatalf("the record changed from %v to %v", before, after)
	}
}

// Edges may use a route only when every site concerned has applied it.
func TestNoSiteIsLeftBehind(t *testing.T) {
	p := standard(t)
	p.sites["office"].deaf = true
	p.apply(webChain)
	p.await("the record is prepared", func() bool { return p.record("acme", "web") != nil })
	p.await("the chain says whom it waits for", func() bool {
		return strings.Contains(p.chain("acme", "web").Status.Reason, "waiting for site office")
	})
	record := p.record("acme", "web")
	if record.Versions[0].State != control.VersionState_VERSION_STATE_PREPARING {
		t.Fatalf("version %v", record.Versions[0])
	}
	office := p.sites["office"]
	office.mu.Lock()
	office.deaf = false
	office.mu.Unlock()
	office.report(testContext(t), record)
	p.awaitPhase("acme", "web", active)
}

func TestSameVnfsKeepTheLabel(t *testing.T) {
	p := standard(t)
	p.apply(webChain)
	p.awaitPhase("acme", "web", active)
	before := p.record("acme", "web")
	p.apply(strings.NewReplacer("forwardMbps: 50", "forwardMbps: 80", "edges: [office-lan]", "edges: [office-lan], match: {protocols: [tcp]}").Replace(webChain))
	p.await("the new generation is active", func() bool {
		s := p.chain("acme", "web").Status
		return s.Phase == active && s.ObservedGeneration == 2
	})
	after := p.record("acme", "web")
	if len(after.Versions) != 1 || after.Versions[0].ChainLabel != before.Versions[0].ChainLabel || after.Versions[0].Match.Protocols[0] != "tcp" {
		t.Fatalf("versions %v, want the one label %d with the new match", after.Versions, before.Versions[0].ChainLabel)
	}
}

func TestChangedVnfsGetANewLabelAndTheOldDrains(t *testing.T) {
	p := standard(t)
	p.config.DrainLimit = time.Hour
	p.stop()
	p.startGlobal()
	p.apply(webChain)
	p.awaitPhase("acme", "web", active)
	old := p.record("acme", "web").Versions[0].ChainLabel
	p.sites["office"].setFlows(p.record("acme", "web"), old, 3)
	p.apply(strings.Replace(webChain, "default: accept", "default: drop", 1))
	p.await("the new version is active", func() bool {
		r := p.record("acme", "web")
		return len(r.Versions) == 2 && r.Versions[0].State == control.VersionState_VERSION_STATE_ACTIVE
	})
	record := p.record("acme", "web")
	if record.Versions[0].ChainLabel == old || record.Versions[1].ChainLabel != old || record.Versions[1].State != draining {
		t.Fatalf("versions %v, want a new label before the draining %d", record.Versions, old)
	}
	time.Sleep(200 * time.Millisecond)
	if n := len(p.record("acme", "web").Versions); n != 2 {
		t.Fatalf("%d versions while connections are left", n)
	}
	p.sites["office"].setFlows(p.record("acme", "web"), old, 0)
	p.await("the old version is gone", func() bool { return len(p.record("acme", "web").Versions) == 1 })
	p.await("the old label is free", func() bool { return len(p.keys(labelPrefix)) == 3+1 })
}

func TestDeletedChainLeavesNothing(t *testing.T) {
	p := standard(t)
	firewall := p.hq
	p.apply(webChain)
	p.awaitPhase("acme", "web", active)
	key := chain.Key{Kind: chain.KindChain, Customer: "acme", Name: "web"}
	if err := p.g.Delete(testContext(t), key); err != nil {
		t.Fatal(err)
	}
	p.await("the chain is gone", func() bool { return p.chain("acme", "web") == nil })
	if r := p.record("acme", "web"); r != nil {
		t.Errorf("record %v is left", r)
	}
	for _, prefix := range []string{statePrefix, transactionPrefix, bus.Key(resourcePrefix, "chain")} {
		if keys := p.keys(prefix); len(keys) > 0 {
			t.Errorf("%v are left", keys)
		}
	}
	if keys := p.keys(labelPrefix); len(keys) != 3 {
		t.Errorf("labels %v, want those of three sites", keys)
	}
	held, err := firewall.connection.Local("p_vnf_firewall").List(testContext(t), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range held {
		reservation := &control.ReservationRecord{}
		if err := proto.Unmarshal(e.Value, reservation); err != nil || len(reservation.GetPrepare().GetAllocations()) > 0 {
			t.Errorf("reservation %v is left", reservation)
		}
	}
	p.apply(webChain) // and it can come again
	p.awaitPhase("acme", "web", active)
}

// TestDeletedChainEndsWhenNothingPasses: connections that say nothing hold a deleted chain for a moment only; those that
// do hold it until the limit.
func TestDeletedChainEndsWhenNothingPasses(t *testing.T) {
	p := standard(t)
	p.stop()
	p.config.DeleteDrainLimit, p.config.DeleteIdleLimit = time.Hour, 3*time.Second
	p.startGlobal()
	p.apply(webChain)
	label := p.awaitPhase("acme", "web", active).Status.Routes[0].ChainLabel
	office := p.sites["office"]
	office.setFlows(p.record("acme", "web"), label, 2)
	ctx := testContext(t)
	pass := func(packets uint64) {
		t.Helper()
		err := put(ctx, office.connection.Published(), bus.Key("measurement", "acme", "web"), &control.Measurement{Site: "office",
			Customer: "acme", Chain: "web", Stages: []*control.StageMeasurement{{ChainLabel: label, Stage: 1, Packets: packets}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	pass(1)
	if err := p.g.Delete(ctx, chainKey("acme", "web")); err != nil {
		t.Fatal(err)
	}
	for packets := range uint64(40) {
		pass(packets + 2)
		time.Sleep(100 * time.Millisecond)
	}
	if record := p.record("acme", "web"); record == nil || len(record.Versions) != 1 {
		t.Fatalf("record %v while packets pass, want the draining version", record)
	}
	quiet := time.Now()
	for p.record("acme", "web") != nil {
		if time.Since(quiet) > patience {
			t.Fatal("the chain is still there")
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("ended %v after the last packet", time.Since(quiet))
}

func TestResourcesInUseAreNotDeleted(t *testing.T) {
	p := standard(t)
	p.apply(webChain)
	p.awaitPhase("acme", "web", active)
	for _, c := range []struct {
		key  chain.Key
		want string
	}{
		{chain.Key{Kind: chain.KindSite, Name: "office"}, "site office is used by edge acme/office-lan, link office-hq, link office-west"},
		{chain.Key{Kind: chain.KindVnf, Name: "firewall"}, "vnf firewall is used by chain acme/web, vnfdeployment firewall-hq"},
		{chain.Key{Kind: chain.KindEdge, Name: "internet"}, "edge internet is used by chain acme/web"},
		{chain.Key{Kind: chain.KindEdge, Name: "nowhere"}, "there is no edge nowhere"},
		{chain.Key{Kind: chain.KindRoute, Name: "web-1"}, "a Route is observed"},
	} {
		err := p.g.Delete(testContext(t), c.key)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("delete %s: %v, want %q", c.key, err, c.want)
		}
	}
	used := p.chain("acme", "web").Status.Routes[0].Sites[0]
	err := p.g.Delete(testContext(t), chain.Key{Kind: chain.KindDeployment, Name: "firewall-" + used})
	if err == nil || !strings.Contains(err.Error(), "serves chain acme/web") {
		t.Errorf("delete the deployment in use: %v", err)
	}
}

// A participant that has less than the Global Switchboard believes is believed: the route goes elsewhere, or the chain
// is rejected with who, what and how much.
func TestRejectionMovesTheRouteThenRejectsTheChain(t *testing.T) {
	p := newPlatform(t, "hq", "office", "west")
	for _, s := range p.sites {
		s.followChains()
		s.participate("edge", nil)
	}
	p.hq.participate("vnf.firewall", map[string]float64{"west": 10, "hq": 250})
	p.startGlobal()
	p.apply(topology)
	p.apply(webChain) // 200 load units
	status := p.awaitPhase("acme", "web", active).Status
	share := 0.0
	for _, r := range status.Routes {
		if r.Sites[0] == "hq" {
			share += r.Fraction
		}
	}
	if share < 0.94 {
		t.Fatalf("routes %v, want at most 10 of 200 load units at west", status.Routes)
	}
	p.apply(strings.NewReplacer("name: web", "name: more").Replace(webChain))
	more := p.awaitPhase("acme", "more", rejected).Status
	if !strings.Contains(more.Reason, "firewall needs 200 load units") || !strings.Contains(more.Reason, "are free") {
		t.Fatalf("reason %q from %q", more.Reason, more.ReasonFrom)
	}
	rejections := p.g.Events(chain.KindChain, "acme", "more", 100)
	if !containsEvent(rejections, "ParticipantRejected", "available") {
		t.Fatalf("no event names what the participant has left: %v", rejections)
	}
	// Room appears when the first chain ends.
	if err := p.g.Delete(testContext(t), chain.Key{Kind: chain.KindChain, Customer: "acme", Name: "web"}); err != nil {
		t.Fatal(err)
	}
	p.awaitPhase("acme", "more", active)
}

func containsEvent(events []*api.Event, reason, text string) bool {
	for _, e := range events {
		if e.Reason == reason && strings.Contains(e.Message, text) {
			return true
		}
	}
	return false
}

func TestNewEdgeIsPublishedAtOnce(t *testing.T) {
	p := standard(t)
	p.apply(`
kind: Edge
metadata: {name: branch, customer: acme}
spec: {kind: lan, site: west, interface: lan0, prefixes: [10.1.7.0/24], gatewayAddresses: [10.1.7.1/24]}
`)
	entry, err := p.hq.connection.Published().Get(testContext(t), "directory.edge.acme.branch")
	if err != nil {
		t.Fatal(err)
	}
	record := &control.EdgeRecord{}
	if err := proto.Unmarshal(entry.Value, record); err != nil || record.Spec.Site != "west" || record.Customer != "acme" {
		t.Fatalf("record %v, %v", record, err)
	}
}

func TestDeploymentThatShrinksLosesTheLowerPriority(t *testing.T) {
	p := standard(t)
	p.apply(strings.Replace(webChain, "demand:", "priority: 5\n  demand:", 1))
	p.apply(strings.NewReplacer("name: web", "name: low").Replace(webChain))
	p.awaitPhase("acme", "web", active)
	p.awaitPhase("acme", "low", active)
	used := p.chain("acme", "web").Status.Routes[0].Sites[0]
	other := map[string]string{"hq": "west", "west": "hq"}[used]
	p.apply(strings.NewReplacer("{vnf: firewall, site: "+used+", capacity: 400", "{vnf: firewall, site: "+used+", capacity: 200").Replace(topology))
	p.await("the chain of low priority has moved", func() bool {
		s := p.chain("acme", "low").Status
		return s.Phase == active && len(s.Routes) == 1 && s.Routes[0].Sites[0] == other
	})
	if s := p.chain("acme", "web").Status; s.Routes[0].Sites[0] != used {
		t.Fatalf("the chain of high priority moved: %v", s.Routes)
	}
}

// Two Global Switchboards at one site would undo each other's work; the second waits for the first to end.
func TestStateSurvivesARestart(t *testing.T) {
	p := standard(t)
	p.apply(webChain)
	before := p.awaitPhase("acme", "web", active)
	record := p.record("acme", "web")
	events := len(p.g.Events("", "", "", 1000))
	p.await("the events are stored", func() bool {
		entries, err := p.hq.connection.Local(eventStore).List(testContext(t), "")
		return err == nil && len(entries) >= events
	})
	p.stop()
	p.startGlobal()
	after := p.awaitPhase("acme", "web", active)
	if !proto.Equal(before.Spec, after.Spec) || !proto.Equal(before.Status.ActiveSince, after.Status.ActiveSince) {
		t.Errorf("before %v, after %v", before, after)
	}
	time.Sleep(300 * time.Millisecond)
	if now := p.record("acme", "web"); !proto.Equal(record, now) {
		t.Errorf("the restart changed the record to %v", now)
	}
	if n := len(p.g.Events("", "", "", 1000)); n < events {
		t.Errorf("%d events of %d survived", n, events)
	}
}

// A change that no plan depends on is followed without one.
func TestChangedPriorityNeedsNoPlan(t *testing.T) {
	p := standard(t)
	p.apply(webChain)
	p.awaitPhase("acme", "web", active)
	before := p.record("acme", "web")
	p.apply(strings.Replace(webChain, "demand:", "priority: 5\n  demand:", 1))
	p.await("the new generation is observed", func() bool { return p.chain("acme", "web").Status.ObservedGeneration == 2 })
	if after := p.record("acme", "web"); !proto.Equal(before, after) || p.chain("acme", "web").Status.Phase != active {
		t.Fatalf("the record changed from %v to %v", before, after)
	}
}

// Chains that are planned at the same moment never hold more than there is, and as many as fit become active.
func TestChainsPlannedAtOnceShareWhatThereIs(t *testing.T) {
	p := newPlatform(t, "hq", "office", "west")
	p.startAgents()
	p.config.RetryInterval = time.Second
	p.startGlobal()
	p.apply(topology)
	var text []string
	for i := range 8 { // 200 load units each, 800 there are
		text = append(text, strings.NewReplacer("name: web", fmt.Sprintf("name: c%d", i), "{edges: [office-lan]}",
			fmt.Sprintf(`{edges: [office-lan], match: {destinationPorts: ["%d"], protocols: [tcp]}}`, 1000+i)).Replace(webChain))
	}
	p.apply(strings.Join(text, "---"))
	count := func(phase api.ChainPhase) int {
		n := 0
		for _, c := range p.g.List(chain.KindChain, "acme", "") {
			if c.GetChain().GetStatus().GetPhase() == phase {
				n++
			}
		}
		return n
	}
	p.await("four chains are active and four rejected", func() bool { return count(active) == 4 && count(rejected) == 4 })
	p.await("everybody agrees", func() bool { return p.disagreement() == "" && len(p.keys(transactionPrefix)) == 0 })
	held := 0.0
	for _, r := range p.hq.reservations("vnf.firewall") {
		for _, a := range r.GetPrepare().GetAllocations() {
			for _, l := range a.Loads {
				held += l.Load
			}
		}
	}
	if held < 799.9 || held > 800.1 {
		t.Fatalf("%v load units are held, want 800", held)
	}
}
