package bus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"
)

func readFile(path string) ([]byte, error) { return os.ReadFile(path) }

func echo(_ context.Context, r Request) ([]byte, error) {
	return []byte(fmt.Sprintf("%s/%s/%s:%s", r.Site, r.Agent, r.Service, r.Payload)), nil
}

func TestRequestReachesServiceOfOwnSite(t *testing.T) {
	ctx, site := testContext(t), newSite(t, "a")
	server, client := site.connect(KindService, "fw"), site.controller()
	if err := server.Serve("vnf.fw.prepare", echo); err != nil {
		t.Fatal(err)
	}
	reply := must(client.Request(ctx, "a", "vnf.fw.prepare", []byte("x")))(t)
	expect(t, "reply", string(reply), "a/controller/vnf.fw.prepare:x")
	wantError(t, server.Serve("vnf.fw.prepare", echo), ErrConflict)
	server.Unserve("vnf.fw.prepare")
	_, err := client.Request(ctx, "a", "vnf.fw.prepare", nil)
	wantError(t, err, ErrNoSuchService)
}

func TestRefusalsKeepTheirCode(t *testing.T) {
	ctx, c := testContext(t), newSite(t, "a").controller()
	outcomes := map[string]func(context.Context, Request) ([]byte, error){
		"coded": func(context.Context, Request) ([]byte, error) {
			return nil, fmt.Errorf("wrapped: %w", &Error{"no_capacity", "12 Mbit/s left"})
		},
		"plain": func(context.Context, Request) ([]byte, error) { return nil, errors.New("oops") },
		"panic": func(context.Context, Request) ([]byte, error) { panic("boom") },
	}
	for name, f := range outcomes {
		if err := c.Serve(name, f); err != nil {
			t.Fatal(err)
		}
	}
	for name, code := range map[string]Code{"coded": "no_capacity", "plain": CodeInternal, "panic": CodePanic} {
		_, err := c.Request(ctx, "a", name, nil)
		var remote *RemoteError
		if !errors.As(err, &remote) || remote.Code != code || remote.Message == "" {
			t.Fatalf("%s: %v, want code %s", name, err, code)
		}
	}
}

func TestRequestTimesOutAndHandlerKnows(t *testing.T) {
	c := newSite(t, "a").controller()
	ended := make(chan error, 1)
	err := c.Serve("slow", func(ctx context.Context, _ Request) ([]byte, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err = c.Request(ctx, "a", "slow", nil)
	wantError(t, err, ErrTimeout)
	wantError(t, next(t, ended), context.DeadlineExceeded)
}

func TestServiceComesBackAfterRestart(t *testing.T) {
	ctx, site := testContext(t), newSite(t, "a")
	c := site.controller()
	if err := c.Serve("echo", echo); err != nil {
		t.Fatal(err)
	}
	site.stop()
	site.start()
	must(c.Request(ctx, "a", "echo", nil))(t)
}
