package global

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/participant"
)

// refuse makes a site's edge controller refuse a chain, as it does one whose match equals another's.
func (s *fakeSite) refuse(customer, name, reason string) (allow func()) {
	s.p.t.Helper()
	var allowed atomic.Bool
	ctx := testContext(s.p.t)
	one, err := participant.Open(ctx, participant.Config{Name: "edge@" + s.name, Store: s.connection.Local("p_edge"), Logger: quiet(),
		Admit: func(request *control.Prepare, _ []*control.Prepare) *control.Rejection {
			if request.Customer == customer && request.Chain == name && !allowed.Load() {
				return &control.Rejection{Site: s.name, Reason: reason}
			}
			return nil
		},
		Apply: func(context.Context, []*control.Prepare) error { return nil }, Ask: participant.AskOver(s.connection)})
	if err != nil {
		s.p.t.Fatal(err)
	}
	go func() { _ = one.Serve(ctx, s.connection, "edge") }()
	return func() { allowed.Store(true) }
}

// A chain that stays rejected stays Rejected with its reason while it is tried again and again, takes one label in all,
// and makes one event for each thing that is said, which counts.
func TestRejectedChainIsTriedAgainQuietly(t *testing.T) {
	const why = "edges[0]: edge acme/office-lan: the match equals that of chain acme/web"
	p := newPlatform(t, "hq", "office", "west")
	p.config.RetryInterval, p.config.Patience = 100*time.Millisecond, 200*time.Millisecond
	for _, s := range p.sites {
		s.followChains()
	}
	p.hq.participate("edge", nil)
	p.hq.participate("vnf.firewall", nil)
	p.sites["office"].refuse("acme", "twin", why)
	p.startGlobal()
	p.apply(topology)
	p.apply(webChain)
	p.awaitPhase("acme", "web", active)
	p.apply(strings.NewReplacer("name: web", "name: twin").Replace(webChain))
	p.awaitPhase("acme", "twin", rejected)
	labels := p.keys(labelPrefix)
	counted := func(reason string) (count uint32) {
		events := 0
		for _, e := range p.g.Events(chain.KindChain, "acme", "twin", 1000) {
			if e.Reason == reason {
				events, count = events+1, e.Count
				if e.Message != why || e.Source != "edge@office" || e.FirstTime.AsTime().After(e.Time.AsTime()) {
					t.Fatalf("event %v", e)
				}
			}
		}
		if events > 1 {
			t.Fatalf("%d events %s", events, reason)
		}
		return count
	}
	for counted("Rejected") < 6 {
		s := p.chain("acme", "twin").Status
		if s.Phase != rejected || s.Reason != why || s.ReasonFrom != "edge@office" {
			t.Fatalf("while it is tried again: %v, %q from %q", s.Phase, s.Reason, s.ReasonFrom)
		}
		time.Sleep(time.Millisecond)
	}
	if n := counted("ParticipantRejected"); n < 6 {
		t.Errorf("%d refusals counted", n)
	}
	if now := p.keys(labelPrefix); fmt.Sprint(now) != fmt.Sprint(labels) {
		t.Errorf("labels %v became %v", labels, now)
	}
	// What was refused may be had when the user changes it; then the label serves, and nothing is left over.
	held := p.g.heldLabel(chainNamed("twin"))
	p.sites["office"].connection.Unserve("edge")
	p.sites["office"].participate("edge", nil)
	p.awaitPhase("acme", "twin", active)
	if label := p.record("acme", "twin").Versions[0].ChainLabel; chain.Label(label) != held {
		t.Errorf("label %d, the attempts before had %d", label, held)
	}
	p.await("no spare label is left", func() bool { return len(p.keys(labelPrefix)) == len(labels) })
}

// A restart takes nothing from a chain that is rejected: its label stays reserved, no other chain gets it, and the attempt that
// succeeds takes it.
func TestRejectedChainKeepsItsLabelOverARestart(t *testing.T) {
	p := newPlatform(t, "hq", "office", "west")
	p.config.RetryInterval = 100 * time.Millisecond
	for _, s := range p.sites {
		s.followChains()
	}
	p.hq.participate("edge", nil)
	p.hq.participate("vnf.firewall", nil)
	allow := p.sites["office"].refuse("acme", "web", "no")
	p.startGlobal()
	p.apply(topology)
	p.apply(webChain)
	p.awaitPhase("acme", "web", rejected)
	held := p.g.heldLabel(chainNamed("web"))
	p.stop()
	p.startGlobal()
	if now := p.g.heldLabel(chainNamed("web")); now != held || held == 0 {
		t.Fatalf("the chain held label %d, and %d after a restart", held, now)
	}
	p.apply(strings.Replace(webChain, "name: web", "name: other", 1))
	p.awaitPhase("acme", "other", active)
	if label := p.record("acme", "other").Versions[0].ChainLabel; chain.Label(label) == held {
		t.Errorf("another chain got label %d", label)
	}
	p.remove("acme", "other") // its match is that of the chain web
	allow()
	p.awaitPhase("acme", "web", active)
	if label := p.record("acme", "web").Versions[0].ChainLabel; chain.Label(label) != held {
		t.Errorf("label %d, the attempts before had %d", label, held)
	}
}

// A label that was released rests over a restart too: packets of its old holder may still be under way.
func TestReleasedLabelRestsOverARestart(t *testing.T) {
	p := standard(t)
	p.apply(webChain)
	p.awaitPhase("acme", "web", active)
	first := p.record("acme", "web").Versions[0].ChainLabel
	p.remove("acme", "web")
	for restart := range uint32(2) {
		p.stop()
		p.startGlobal()
		p.apply(webChain)
		p.awaitPhase("acme", "web", active)
		if label, want := p.record("acme", "web").Versions[0].ChainLabel, first+2*(restart+1); label != want {
			t.Errorf("after a restart the label is %d, want %d: %d was just released", label, want, want-2)
		}
		p.remove("acme", "web")
	}
}

// remove deletes a chain and waits until it is gone.
func (p *platform) remove(customer, name string) {
	p.t.Helper()
	if err := p.g.Delete(testContext(p.t), chainKey(customer, name)); err != nil {
		p.t.Fatal(err)
	}
	p.await("the chain is gone", func() bool { return p.chain(customer, name) == nil })
}

// The apply that made a chain is no reason to try it again when it was rejected.
func TestRejectedChainIsNotTriedTwiceForOneApply(t *testing.T) {
	p := newPlatform(t, "hq", "office", "west")
	for _, s := range p.sites {
		s.followChains()
	}
	p.hq.participate("edge", nil)
	p.hq.participate("vnf.firewall", nil)
	p.sites["office"].refuse("acme", "web", "no")
	p.startGlobal()
	p.apply(topology)
	p.apply(webChain)
	p.awaitPhase("acme", "web", rejected)
	time.Sleep(3 * p.config.Patience)
	reasons, rejections := uint32(1), uint32(0)
	for _, e := range p.g.Events("", "", "", 1000) {
		switch e.Reason {
		case "AgentReturned": // on a busy machine an optimiser may be missed for a moment
			reasons += e.Count
		case "Rejected":
			rejections += e.Count
		}
	}
	if rejections == 0 || rejections > reasons {
		t.Errorf("rejected %d times, for %d reasons to try", rejections, reasons)
	}
}

// heldLabel is the label that a chain holds, 0 where it holds none.
func (g *Global) heldLabel(key chain.Key) chain.Label {
	g.mu.Lock()
	defer g.mu.Unlock()
	for label, holder := range g.labels.holder {
		if holder == key.String() {
			return label
		}
	}
	return 0
}

// memoryLog is a log that is not stored.
func memoryLog(now func() time.Time) *eventLog {
	l := &eventLog{now: now, told: func() {}, unstored: map[uint64]bool{}, wake: make(chan struct{}, 1)}
	for slot := range uint64(keptEvents) {
		l.free = append(l.free, slot)
	}
	return l
}

func chainNamed(name string) chain.Key { return chainKey("acme", name) }

func TestEventsCountUntilSomethingElseHappens(t *testing.T) {
	at := time.Unix(1000, 0)
	l := memoryLog(func() time.Time { at = at.Add(time.Second); return at })
	for range 3 { // two parts complain in turn; another chain does not matter
		l.add(chainNamed("a"), warning, "ParticipantRejected", "no", "edge@x")
		l.add(chainNamed("b"), normal, "Active", "", sourceGlobal)
		l.add(chainNamed("a"), warning, "ParticipantRejected", "no", "edge@y")
	}
	l.add(chainNamed("a"), normal, "Active", "", sourceGlobal)
	l.add(chainNamed("a"), warning, "ParticipantRejected", "no", "edge@x")
	var got []string
	for _, e := range l.find("chain", "acme", "a", 100) {
		got = append(got, fmt.Sprintf("%s %s x%d %d-%d", e.Reason, e.Source, e.Count, e.FirstTime.Seconds, e.Time.Seconds))
	}
	want := "ParticipantRejected edge@x x1 1011-1011, Active global-switchboard x1 1010-1010, " +
		"ParticipantRejected edge@y x3 1003-1009, ParticipantRejected edge@x x3 1001-1007"
	if strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
}

// However much happens to one resource, what happened to others stays.
func TestRestlessResourceDoesNotPushOutOthers(t *testing.T) {
	l := memoryLog(time.Now)
	for i := range 100 {
		l.add(chainNamed(fmt.Sprint("calm-", i)), normal, "Active", "", sourceGlobal)
	}
	for i := range 2 * keptEvents {
		l.add(chainNamed("restless"), warning, "Rejected", fmt.Sprint(i), sourceTE)
	}
	if n := len(l.find("chain", "", "restless", 1e6)); n != keptEvents-100 {
		t.Errorf("%d of the restless", n)
	}
	for i := range 100 {
		if len(l.find("chain", "", fmt.Sprint("calm-", i), 10)) != 1 {
			t.Fatalf("what happened to calm-%d is gone", i)
		}
	}
	slots := map[uint64]bool{}
	for _, e := range l.all {
		slots[e.slot] = true
	}
	if len(slots) != keptEvents {
		t.Errorf("%d slots for %d events", len(slots), keptEvents)
	}
}

// What is stored comes back in order, counted, and is counted on.
func TestEventsSurviveARestart(t *testing.T) {
	p := newPlatform(t, "hq")
	ctx := testContext(t)
	store := p.hq.connection.Local(eventStore)
	open := func() *eventLog {
		l, err := openEventLog(ctx, store, time.Now, func() {})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := open()
	keeping, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); l.keep(keeping) }()
	l.add(chainNamed("a"), warning, "Rejected", "no", sourceTE)
	l.add(chainNamed("b"), normal, "Active", "", sourceGlobal)
	l.add(chainNamed("a"), warning, "Rejected", "no", sourceTE)
	stored := func() bool {
		entries, err := store.List(ctx, "")
		if err != nil || len(entries) != 2 {
			return false
		}
		for _, e := range open().all {
			if e.Name == "a" && e.Count == 2 {
				return true
			}
		}
		return false
	}
	for deadline := time.Now().Add(patience); !stored(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the events are not stored")
		}
	}
	stop()
	<-ended
	l = open()
	l.add(chainNamed("a"), warning, "Rejected", "no", sourceTE)
	all := l.find("", "", "", 10)
	if len(all) != 2 || all[0].Name != "a" || all[0].Count != 3 || all[1].Name != "b" {
		t.Errorf("events %v", all)
	}
}
