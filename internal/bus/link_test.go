package bus

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/switchboard-project/switchboard/internal/bus/emulated"
	"github.com/switchboard-project/switchboard/internal/needs"
)

// wide is several sites of one platform, enrolled with one authority, and a path between each two that are linked.
type wide struct {
	t         testing.TB
	authority *Authority
	sites     map[string]*testSite
}

func newWide(t testing.TB) *wide {
	return &wide{t, must(NewAuthority(t.TempDir()))(t), map[string]*testSite{}}
}

// site starts a site that accepts links and dials the peers given.
func (w *wide) site(name string, peers ...Peer) *testSite {
	w.t.Helper()
	s := newSite(w.t, name, func(c *ServerConfig) {
		c.Identity = must(w.authority.EnrolSite(name, w.t.TempDir()))(w.t)
		c.Listen = needs.FreeAddress(w.t)
		c.Peers = peers
	})
	w.sites[name] = s
	return s
}

// path is a proxied way to a site.
func (w *wide) path(to *testSite) *emulated.Path {
	w.t.Helper()
	p := must(emulated.NewPath(to.config.Listen, 0, nil, nil))(w.t)
	w.t.Cleanup(p.Close)
	return p
}

// pair is a site "b" that accepts and a site "a" that dials it over a path.
func pair(t testing.TB) (a, b *testSite, path *emulated.Path) {
	w := newWide(t)
	b = w.site("b")
	path = w.path(b)
	a = w.site("a", Peer{Site: "b", Address: path.Address()})
	a.awaitLink("b", true)
	b.awaitLink("a", true)
	return a, b, path
}

func (s *testSite) awaitLink(peer string, up bool) {
	s.t.Helper()
	deadline := time.After(patience)
	for {
		l, changed := s.server.links.state(peer)
		if (l != nil) == up {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			s.t.Fatalf("site %s: link to %s: up is not %v", s.config.Site, peer, up)
		}
	}
}

func TestSubscriptionFollowsAnotherSite(t *testing.T) {
	ctx := testContext(t)
	a, b, _ := pair(t)
	for _, direction := range []struct{ from, to *testSite }{{a, b}, {b, a}} {
		pub, sub := direction.from.controller(), direction.to.controller()
		must(pub.Published().Put(ctx, "c1.e3.x", []byte("1")))(t)
		must(pub.Published().Put(ctx, "c2.e3.x", []byte("other")))(t)
		s := must(sub.Subscribe(ctx, pub.Site(), "c1"))(t)
		state := collect(t, s.Events())
		expect(t, "keys", len(state), 1)
		expect(t, "value", state["c1.e3.x"], "1")
		revision := must(pub.Published().Put(ctx, "c1.e3.x", []byte("2")))(t)
		e := until(t, s.Events(), "c1.e3.x", "2")
		expect(t, "site", e.Site, pub.Site())
		expect(t, "revision", e.Revision, revision)
		if err := pub.Published().Delete(ctx, "c1.e3.x"); err != nil {
			t.Fatal(err)
		}
		until(t, s.Events(), "c1.e3.x", "")
		s.Close()
	}
}

func TestRequestsCrossTheLinkBothWays(t *testing.T) {
	ctx := testContext(t)
	a, b, _ := pair(t)
	for _, direction := range []struct{ from, to *testSite }{{a, b}, {b, a}} {
		server, client := direction.to.connect(KindService, "fw"), direction.from.controller()
		if err := server.Serve("vnf.fw", echo); err != nil {
			t.Fatal(err)
		}
		reply := must(client.Request(ctx, server.Site(), "vnf.fw", []byte("x")))(t)
		expect(t, "reply", string(reply), client.Site()+"/controller/vnf.fw:x")
		_, err := client.Request(ctx, server.Site(), "vnf.none", nil)
		wantError(t, err, ErrNoSuchService)
		_, err = client.Request(ctx, "nowhere", "vnf.fw", nil)
		wantError(t, err, ErrSiteUnreachable)
		server.Unserve("vnf.fw")
	}
}

func TestRefusalOfAnotherSiteKeepsItsCode(t *testing.T) {
	ctx := testContext(t)
	a, b, _ := pair(t)
	err := b.controller().Serve("full", func(context.Context, Request) ([]byte, error) {
		return nil, &Error{"no_capacity", "12 Mbit/s left"}
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.controller().Request(ctx, "b", "full", nil)
	var remote *RemoteError
	if !errors.As(err, &remote) || *remote != (RemoteError{"b", "full", "no_capacity", "12 Mbit/s left"}) {
		t.Fatalf("error %#v", err)
	}
}

func TestRequestInHandFailsWhenTheLinkBreaks(t *testing.T) {
	ctx := testContext(t)
	a, b, path := pair(t)
	arrived := make(chan struct{})
	err := b.controller().Serve("slow", func(ctx context.Context, _ Request) ([]byte, error) {
		close(arrived)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := a.controller().Request(ctx, "b", "slow", nil)
		failed <- err
	}()
	next(t, arrived2(arrived))
	path.Cut()
	wantError(t, next(t, failed), ErrSiteUnreachable)
}

func arrived2(c chan struct{}) <-chan struct{} {
	out := make(chan struct{}, 1)
	go func() { <-c; out <- struct{}{} }()
	return out
}

func TestCutSiteReadsItsCopyAndCatchesUp(t *testing.T) {
	ctx := testContext(t)
	a, b, path := pair(t)
	pub, sub := b.controller(), a.controller()
	must(pub.Published().Put(ctx, "k.changed", []byte("1")))(t)
	must(pub.Published().Put(ctx, "k.deleted", []byte("1")))(t)
	s := must(sub.Subscribe(ctx, "b", "k"))(t)
	collect(t, s.Events())
	path.Cut()
	a.awaitLink("b", false)
	b.awaitLink("a", false)
	// A new agent of the site cut off reads the copy.
	state := collect(t, must(a.controller().Subscribe(ctx, "b", "k"))(t).Events())
	expect(t, "value while cut", state["k.changed"], "1")
	for i := range 100 {
		must(pub.Published().Put(ctx, "k.changed", []byte(keyf("%d", i))))(t)
	}
	if err := pub.Published().Delete(ctx, "k.deleted"); err != nil {
		t.Fatal(err)
	}
	path.Heal()
	first := next(t, s.Events())
	expect(t, "first event", first.Key+"="+string(first.Value), "k.changed=99")
	until(t, s.Events(), "k.deleted", "")
}

func TestSubscriptionSurvivesRestartsOfBothSites(t *testing.T) {
	ctx := testContext(t)
	a, b, _ := pair(t)
	pub, sub := b.controller(), a.controller()
	must(pub.Published().Put(ctx, "k", []byte("0")))(t)
	must(pub.Published().Put(ctx, "gone", []byte("0")))(t)
	s := must(sub.Subscribe(ctx, "b", ""))(t)
	collect(t, s.Events())
	b.stop()
	b.start()
	must(pub.Published().Put(ctx, "k", []byte("1")))(t)
	until(t, s.Events(), "k", "1")
	a.stop()
	must(pub.Published().Put(ctx, "k", []byte("2")))(t)
	if err := pub.Published().Delete(ctx, "gone"); err != nil {
		t.Fatal(err)
	}
	a.start()
	until(t, s.Events(), "gone", "")
	must(pub.Published().Put(ctx, "k", []byte("3")))(t)
	until(t, s.Events(), "k", "3")
}

func TestCopyIsRightAfterThePublisherLostItsStore(t *testing.T) {
	ctx := testContext(t)
	a, b, _ := pair(t)
	pub, sub := b.controller(), a.controller()
	must(pub.Published().Put(ctx, "lost", []byte("0")))(t)
	must(pub.Published().Put(ctx, "kept", []byte("0")))(t)
	s := must(sub.Subscribe(ctx, "b", ""))(t)
	collect(t, s.Events())
	pub.Close()
	b.stop()
	b.config.StoreDirectory = t.TempDir()
	b.start()
	must(b.controller().Published().Put(ctx, "kept", []byte("1")))(t)
	state := map[string]string{"lost": "0"}
	for state["lost"] != "" || state["kept"] != "1" {
		e := next(t, s.Events())
		state[e.Key] = string(e.Value)
	}
}

func TestLinksAreTold(t *testing.T) {
	ctx := testContext(t)
	a, _, path := pair(t)
	links := must(a.controller().WatchLinks(ctx))(t)
	for l := next(t, links); l.Peer != "b" || !l.Up; l = next(t, links) {
	}
	path.Cut()
	for l := next(t, links); l.Peer != "b" || l.Up; l = next(t, links) {
	}
}
