package bus

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestWrongCredentialsAreDenied(t *testing.T) {
	site := newSite(t, "a")
	path := must(site.server.WriteCredentials(KindController, "c"))(t)
	c := must(ReadCredentials(path))(t)
	for what, change := range map[string]func(*Credentials){
		"password":   func(c *Credentials) { c.Password += "x" },
		"other name": func(c *Credentials) { c.User = "controller.d" },
		"other kind": func(c *Credentials) { c.User = "site.c" },
	} {
		forged := c
		change(&forged)
		file := t.TempDir() + "/c.json"
		if err := writePrivate(file, indentedJSON(forged)); err != nil {
			t.Fatal(err)
		}
		_, err := Connect(testContext(t), ConnectConfig{Agent: "c", CredentialsFile: file, Logger: quiet()})
		if err == nil {
			t.Errorf("%s was admitted", what)
		} else {
			wantError(t, err, ErrDenied)
		}
	}
	_, err := site.server.WriteCredentials(kindSite+"x", "c")
	wantError(t, err, ErrInvalidKey)
}

// TestForwarderInAnotherLanguage does what a forwarder does, with nothing but an ordinary NATS client and the
// credentials' file, as the package's documentation says.
func TestForwarderInAnotherLanguage(t *testing.T) {
	ctx, site := testContext(t), newSite(t, "a")
	local := site.controller()
	must(local.Local("rules").Put(ctx, "f1", []byte("rules 1")))(t)
	presence := must(local.WatchPresence(ctx, "forwarder"))(t)
	credentials := must(ReadCredentials(must(site.server.WriteCredentials(KindForwarder, "f1"))(t)))(t)
	denied := make(chan error, 16)
	nc := must(nats.Connect(credentials.URL, nats.UserInfo(credentials.User, credentials.Password),
		nats.CustomInboxPrefix(credentials.InboxPrefix),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err })))(t)
	t.Cleanup(nc.Close)
	js := must(jetstream.New(nc))(t)
	rules := must(js.KeyValue(ctx, "rules"))(t)
	watch := must(rules.Watch(ctx, "f1"))(t)
	expect(t, "rules", string(next(t, watch.Updates()).Value()), "rules 1")
	next(t, watch.Updates()) // nil: that is all
	must(local.Local("rules").Put(ctx, "f1", []byte("rules 2")))(t)
	expect(t, "rules", string(next(t, watch.Updates()).Value()), "rules 2")

	must(must(js.KeyValue(ctx, "status"))(t).Put(ctx, "f1", []byte("fine")))(t)
	expect(t, "status", string(must(local.Local("status").Get(ctx, "f1"))(t).Value), "fine")

	beat := nats.NewMsg("presence.forwarder.f1")
	beat.Header.Set("Switchboard-Instance", "one")
	if err := nc.PublishMsg(beat); err != nil {
		t.Fatal(err)
	}
	untilPresence(t, presence, "f1", Put)
	untilPresence(t, presence, "f1", Delete) // silent since

	must(nc.QueueSubscribe("serve.forwarder.f1.trace", "agents", func(m *nats.Msg) {
		reply := nats.NewMsg(m.Reply)
		reply.Header.Set("Switchboard-Code", "invalid_argument")
		reply.Data = []byte("limit is 0; give 1 to 10000")
		_ = m.RespondMsg(reply)
	}))(t)
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	_, err := local.Request(ctx, "a", "forwarder.f1.trace", nil)
	expect(t, "refusal", err.Error(), "bus: forwarder.f1.trace at site a: invalid_argument: limit is 0; give 1 to 10000")

	for _, forbidden := range []string{"$KV.rules.f1", "$KV.status.f2", "$KV.pub.x", "$KV.view.b.x", "presence.forwarder.f2",
		"presence.vnf.f1", "bus.want", "call.b.x", "serve.x", "$JS.API.STREAM.CREATE.X", "$JS.API.STREAM.DELETE.KV_pub",
		"$JS.API.CONSUMER.CREATE.KV_pub", "_INBOX.controller.controller.x"} {
		if err := nc.Publish(forbidden, nil); err != nil {
			t.Fatal(err)
		}
		next(t, denied)
	}
	for _, forbidden := range []string{">", "serve.vnf.fw", "serve.forwarder.f2.trace", "$KV.>", "_INBOX.>", "call.>"} {
		must(nc.Subscribe(forbidden, func(*nats.Msg) {}))(t)
		next(t, denied)
	}
}

func TestServiceCannotWriteRulesNorTheView(t *testing.T) {
	site := newSite(t, "a")
	c := site.connect(KindService, "fw")
	for _, bucket := range []string{rulesBucket, viewBucket} {
		_, err := c.store(bucket).Put(testContext(t), "k", nil)
		wantError(t, err, ErrDenied)
	}
	must(c.Published().Put(testContext(t), "k", nil))(t)
}

func TestWhatIsTooLargeIsRefusedAtOnce(t *testing.T) {
	ctx, c := testContext(t), newSite(t, "a").controller()
	large := make([]byte, MaximumValue+1)
	_, err := c.Published().Put(ctx, "k", large)
	wantError(t, err, ErrTooLarge)
	_, err = c.Request(ctx, "a", "s", large)
	wantError(t, err, ErrTooLarge)
	if err := c.Serve("s", func(context.Context, Request) ([]byte, error) { return large, nil }); err != nil {
		t.Fatal(err)
	}
	_, err = c.Request(ctx, "a", "s", nil)
	wantError(t, err, ErrTooLarge)
}

func TestLargestValueCrossesALink(t *testing.T) {
	ctx := testContext(t)
	a, b, _ := pair(t)
	s := must(a.controller().Subscribe(ctx, "b", "k"))(t)
	collect(t, s.Events())
	must(b.controller().Published().Put(ctx, "k", make([]byte, MaximumValue)))(t)
	expect(t, "bytes", len(next(t, s.Events()).Value), MaximumValue)
}
