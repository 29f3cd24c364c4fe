package bus

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/switchboard-project/switchboard/internal/needs"
)

// rogue is an enrolled site called "evil" that speaks raw NATS to another site's server.
type rogue struct {
	t      *testing.T
	nc     *nats.Conn
	denied chan error
}

func newRogue(t *testing.T, w *wide, victim *testSite) *rogue {
	t.Helper()
	id := must(w.authority.EnrolSite("evil", t.TempDir()))(t)
	r := &rogue{t: t, denied: make(chan error, 64)}
	r.nc = must(nats.Connect("tls://"+victim.config.Listen, nats.Secure(id.clientTLS(victim.config.Site)),
		nats.TLSHandshakeFirst(), nats.NoReconnect(),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { r.denied <- err })))(t)
	t.Cleanup(r.nc.Close)
	return r
}

// wantDenied checks that the last operation was refused by the server.
func (r *rogue) wantDenied(what string) {
	r.t.Helper()
	if err := r.nc.Flush(); err != nil {
		r.t.Fatal(err)
	}
	select {
	case err := <-r.denied:
		if !strings.Contains(strings.ToLower(err.Error()), "permissions violation") {
			r.t.Fatalf("%s: %v, want a permissions violation", what, err)
		}
	case <-time.After(patience):
		r.t.Fatalf("%s was not denied", what)
	}
}

func TestRogueCannotHearOthers(t *testing.T) {
	w := newWide(t)
	r := newRogue(t, w, w.site("b"))
	for _, subject := range []string{">", "*.>", "rpc.>", "rpc.a.b.>", "rpc.b.>", "reply.b.>", "reply.a.b.>", "batch.a.b.>",
		"batch.*.b.>", "pull.b.a.>", "$SYS.>", "$JS.>", "$KV.>", "_INBOX.>", "serve.>", "call.>", "hello.b.evil.>"} {
		if _, err := r.nc.Subscribe(subject, func(*nats.Msg) {}); err != nil {
			t.Fatal(err)
		}
		r.wantDenied("subscription to " + subject)
	}
}

func TestRogueCannotSpeakForOthers(t *testing.T) {
	w := newWide(t)
	r := newRogue(t, w, w.site("b"))
	for _, subject := range []string{"rpc.b.a.fw", "hello.b.a.1", "pull.b.a.open", "pull.b.a.credit", "batch.b.a.x", "batch.a.b.x",
		"reply.b.a.1", "reply.a.b.1", "rpc.a.b.fw", "serve.fw", "call.a.fw", "$KV.pub.x", "$KV.view.a.x", "presence.vnf.fw", "bus.want"} {
		if err := r.nc.Publish(subject, []byte("forged")); err != nil {
			t.Fatal(err)
		}
		r.wantDenied("publication to " + subject)
	}
}

func TestRogueCannotReachJetStream(t *testing.T) {
	w := newWide(t)
	b := w.site("b")
	r := newRogue(t, w, b)
	for _, subject := range []string{"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.CREATE.X", "$JS.API.CONSUMER.CREATE.KV_pub",
		"$JS.API.DIRECT.GET.KV_pub.$KV.pub.k", "$JS.b.API.INFO"} {
		if err := r.nc.PublishRequest(subject, "reply.evil.b.1", nil); err != nil {
			t.Fatal(err)
		}
		r.wantDenied("request to " + subject)
	}
	if b.server.links.peers.JetStreamEnabled() {
		t.Fatal("the peers' server has JetStream")
	}
}

func TestRogueCannotRedirectAnswers(t *testing.T) {
	w := newWide(t)
	b := w.site("b")
	calls := make(chan string, 16)
	err := b.controller().Serve("fw", func(_ context.Context, r Request) ([]byte, error) {
		calls <- string(r.Payload)
		return echo(context.Background(), r)
	})
	if err != nil {
		t.Fatal(err)
	}
	r := newRogue(t, w, b)
	for _, reply := range []string{"batch.a.b.session", "reply.a.b.1", "rpc.a.b.fw", "reply.evil.b.*", "reply.evil.b.>", "$KV.pub.x"} {
		m := &nats.Msg{Subject: "rpc.b.evil.fw", Reply: reply, Data: []byte(reply), Header: nats.Header{siteHeader: {"a"}}}
		if err := r.nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	// The honest request comes after the forged ones, and only it is answered, under the name in the certificate.
	answers := make(chan *nats.Msg, 1)
	must(r.nc.ChanSubscribe("reply.evil.b.>", answers))(t)
	m := &nats.Msg{Subject: "rpc.b.evil.fw", Reply: "reply.evil.b.1", Data: []byte("honest"), Header: nats.Header{siteHeader: {"a"}}}
	if err := r.nc.PublishMsg(m); err != nil {
		t.Fatal(err)
	}
	expect(t, "answer", string(next(t, answers).Data), "evil//fw:honest")
	expect(t, "call", next(t, calls), "honest")
	expect(t, "calls waiting", len(calls), 0)
}

// publish plays a publisher: it opens the session that b asks for and sends it the changes given.
func (r *rogue) publish(prefix string, changes ...batchChange) {
	r.t.Helper()
	must(r.nc.Subscribe("pull.evil.b.open", func(m *nats.Msg) {
		request := must(decodeOpenRequest(m.Data))(r.t)
		reply := openReply{epoch: 7}
		for range request.prefixes {
			reply.prefixes = append(reply.prefixes, prefixStatus{status: prefixWhole})
		}
		_ = m.Respond(reply.encode())
		b := batch{number: 1, complete: true, revision: 9, asOf: uint64(time.Now().UnixNano()), changes: changes}
		_ = r.nc.Publish("batch.b.evil."+request.session, b.encode())
	}))(r.t)
	must(r.nc.Subscribe("reply.evil.b.>", func(*nats.Msg) {}))(r.t)
	if err := r.nc.PublishRequest("hello.b.evil.1", "reply.evil.b.hello", nil); err != nil {
		r.t.Fatal(err)
	}
}

func TestRogueStateIsFiledUnderItsOwnName(t *testing.T) {
	ctx, w := testContext(t), newWide(t)
	b := w.site("b")
	c := b.controller()
	r := newRogue(t, w, b)
	r.publish("", batchChange{key: "a.forged", revision: 5, value: []byte("x")})
	s := must(c.Subscribe(ctx, "evil", ""))(t)
	e := until(t, s.Events(), "a.forged", "x")
	expect(t, "site", e.Site, "evil")
	view := must(c.store(viewBucket).List(ctx, "a"))(t)
	expect(t, "keys filed under a", len(view), 0)
}

func TestRogueCannotFileWhatWasNotAsked(t *testing.T) {
	for _, key := range []string{"other.key", "", "x..y", "x.*", "x.>", "x y"} {
		t.Run(key, func(t *testing.T) {
			ctx, w := testContext(t), newWide(t)
			b := w.site("b")
			c := b.controller()
			r := newRogue(t, w, b)
			closed := make(chan struct{}, 16)
			r.publish("x", batchChange{key: key, revision: 5, value: []byte("v")})
			must(r.nc.Subscribe("pull.evil.b.open", func(*nats.Msg) { closed <- struct{}{} }))(t)
			must(c.Subscribe(ctx, "evil", "x"))(t)
			next(t, closed)
			next(t, closed) // b gave the session up and asks again
			expect(t, "keys filed", len(must(c.store(viewBucket).List(ctx, "evil"))(t)), 0)
		})
	}
}

func TestRogueCannotSpeakIntoAnothersSession(t *testing.T) {
	ctx, w := testContext(t), newWide(t)
	b := w.site("b")
	a := w.site("a", Peer{Site: "b", Address: b.config.Listen})
	must(a.controller().Published().Put(ctx, "k", []byte("true")))(t)
	c := b.controller()
	s := must(c.Subscribe(ctx, "a", ""))(t)
	collect(t, s.Events())
	ms := b.server.mirrors
	ms.mu.Lock()
	var session string
	for name := range ms.sessions {
		session = name.id
	}
	ms.mu.Unlock()
	r := newRogue(t, w, b)
	forged := batch{number: 2, complete: true, revision: 99, changes: []batchChange{{key: "k", revision: 99, value: []byte("forged")}}}
	if err := r.nc.Publish("batch.b.evil."+session, forged.encode()); err != nil {
		t.Fatal(err)
	}
	if err := r.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	must(a.controller().Published().Put(ctx, "k", []byte("true again")))(t)
	expect(t, "value", string(next(t, s.Events()).Value), "true again")
}

func TestForeignCertificatesAreRefused(t *testing.T) {
	w, other := newWide(t), newWide(t)
	b := w.site("b")
	foreign := must(other.authority.EnrolSite("a", t.TempDir()))(t)
	foreign.Authorities = must(w.authority.EnrolSite("c", t.TempDir()))(t).Authorities
	own := must(w.authority.EnrolSite("b", t.TempDir()))(t)
	withoutCertificate := own.clientTLS("b")
	withoutCertificate.Certificates = nil
	for what, options := range map[string][]nats.Option{
		"another authority's certificate": {nats.Secure(foreign.clientTLS("b")), nats.TLSHandshakeFirst()},
		"the site's own certificate":      {nats.Secure(own.clientTLS("b")), nats.TLSHandshakeFirst()},
		"no certificate":                  {nats.Secure(withoutCertificate), nats.TLSHandshakeFirst()},
	} {
		nc, err := nats.Connect("tls://"+b.config.Listen, append(options, nats.NoReconnect())...)
		if err == nil {
			nc.Close()
			t.Errorf("%s was admitted", what)
		}
	}
	if nc, err := nats.Connect("nats://"+b.config.Listen, nats.NoReconnect(), nats.Timeout(time.Second)); err == nil {
		nc.Close()
		t.Error("a connection without TLS was admitted")
	}
}

func TestDiallerRefusesAServerThatIsNotThePeer(t *testing.T) {
	w := newWide(t)
	evil := w.site("evil")
	a := w.site("a", Peer{Site: "b", Address: evil.config.Listen})
	time.Sleep(500 * time.Millisecond)
	if l, _ := a.server.links.state("b"); l != nil {
		t.Fatal("a took evil for b")
	}
	a2 := w.site("a2", Peer{Site: "evil", Address: evil.config.Listen})
	a2.awaitLink("evil", true)
}

func TestPeerThatMayNotReadOrCallIsTold(t *testing.T) {
	ctx, w := testContext(t), newWide(t)
	b := newSite(t, "b", func(c *ServerConfig) {
		c.Identity = must(w.authority.EnrolSite("b", t.TempDir()))(t)
		c.Listen = needs.FreeAddress(t)
		c.Authorise = func(peer string, access Access) error {
			if access.Service == "secret" || access.Prefix != nil && *access.Prefix == "secret" {
				return &Error{"not_yours", peer + " may not"}
			}
			return nil
		}
	})
	a := w.site("a", Peer{Site: "b", Address: b.config.Listen})
	a.awaitLink("b", true)
	if err := b.controller().Serve("secret", echo); err != nil {
		t.Fatal(err)
	}
	c := a.controller()
	_, err := c.Request(ctx, "b", "secret", nil)
	wantError(t, err, ErrDenied)
	must(b.controller().Published().Put(ctx, "secret.k", []byte("x")))(t)
	refused := must(c.Subscribe(ctx, "b", "secret"))(t)
	e := next(t, refused.Events())
	expect(t, "event", e.Kind, Refused)
	if !strings.Contains(string(e.Value), "may not") {
		t.Fatalf("reason %q", e.Value)
	}
	collect(t, must(c.Subscribe(ctx, "b", "public"))(t).Events())
}
