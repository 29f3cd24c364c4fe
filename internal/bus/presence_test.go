package bus

import (
	"context"
	"testing"
	"time"
)

func untilPresence(t *testing.T, events <-chan Presence, name string, change EventKind) Presence {
	t.Helper()
	for {
		if p := next(t, events); p.Name == name && p.Change == change {
			return p
		}
	}
}

func TestPresenceComesAndGoes(t *testing.T) {
	ctx, site := testContext(t), newSite(t, "a")
	watcher, agent := site.controller(), site.connect(KindForwarder, "f1")
	events := must(watcher.WatchPresence(ctx, "forwarder"))(t)
	expect(t, "first", next(t, events).Change, Synchronised)
	r := must(agent.Register(ctx, "forwarder", "f1", []byte("10.0.0.1")))(t)
	p := untilPresence(t, events, "f1", Put)
	expect(t, "info", string(p.Info), "10.0.0.1")
	r.Update([]byte("10.0.0.2"))
	expect(t, "new info", string(untilPresence(t, events, "f1", Put).Info), "10.0.0.2")
	r.Close()
	untilPresence(t, events, "f1", Delete)
}

func TestDeadAgentIsNoticedWithinASecond(t *testing.T) {
	ctx, site := testContext(t), newSite(t, "a")
	watcher, agent := site.controller(), site.connect(KindService, "fw")
	events := must(watcher.WatchPresence(ctx, "vnf"))(t)
	must(agent.Register(ctx, "vnf", "fw", nil))(t)
	for attempt := 1; ; attempt++ { // a busy machine may make one of them late
		untilPresence(t, events, "fw", Put)
		agent.nc.Close() // as if killed: nothing is said
		died := time.Now()
		untilPresence(t, events, "fw", Delete)
		took := time.Since(died)
		agent = site.connect(KindService, "fw")
		must(agent.Register(ctx, "vnf", "fw", nil))(t)
		if took >= 300*time.Millisecond && took <= 1300*time.Millisecond {
			break
		}
		if attempt == 5 {
			t.Fatalf("noticed after %v, want about the lease of 0.9 s", took)
		}
	}
	untilPresence(t, events, "fw", Put)
}

func TestNameIsHeldByOneInstance(t *testing.T) {
	ctx, site := testContext(t), newSite(t, "a")
	one, two := site.controller(), site.controller()
	r := must(one.Register(ctx, "site", "local", nil))(t)
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := two.Register(short, "site", "local", nil)
	wantError(t, err, ErrConflict)
	r.Close()
	must(two.Register(ctx, "site", "local", nil))(t)
}

func TestPresenceDoesNotFlapWhenTheServerRestarts(t *testing.T) {
	t.Parallel() // it mostly waits
	ctx, site := testContext(t), newSite(t, "a")
	agent, watcher := site.connect(KindService, "edge"), site.controller()
	must(agent.Register(ctx, "edge", "e1", nil))(t)
	events := must(watcher.WatchPresence(ctx, ""))(t)
	untilPresence(t, events, "e1", Put)
	site.stop()
	site.start()
	select {
	case p := <-events:
		if p.Change != Synchronised {
			t.Fatalf("told %v of %s", p.Change, p.Name)
		}
	case <-time.After(4 * time.Second):
	}
}
