package bus

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"testing"
	"time"

	"github.com/switchboard-project/switchboard/internal/bus/emulated"
)

// TestOneCopyPerSite counts the bytes on each path: ten subscribers of a site cost what one does, another site nothing.
func TestOneCopyPerSite(t *testing.T) {
	ctx, w := testContext(t), newWide(t)
	p := w.site("p")
	subscribed, idle := w.path(p), w.path(p)
	a := w.site("a", Peer{Site: "p", Address: subscribed.Address()})
	b := w.site("b", Peer{Site: "p", Address: idle.Address()})
	a.awaitLink("p", true)
	b.awaitLink("p", true)
	var watches []<-chan Event
	for i := range 10 {
		s := must(a.connect(KindService, keyf("s%d", i)).Subscribe(ctx, "p", "big"))(t)
		collect(t, s.Events())
		watches = append(watches, s.Events())
	}
	before, beforeIdle := subscribed.BytesBack.Load(), idle.BytesBack.Load()
	const updates, size = 20, 50_000
	began := time.Now()
	value := make([]byte, size)
	rand.Read(value)
	pub := p.controller()
	for i := range updates {
		binary.BigEndian.PutUint32(value, uint32(i))
		must(pub.Published().Put(ctx, "big.key", value))(t)
		must(pub.Published().Put(ctx, "other.key", value))(t) // nobody's wish
		for _, events := range watches {
			if e := next(t, events); !bytes.Equal(e.Value, value) {
				t.Fatalf("update %d: another value", i)
			}
		}
	}
	crossed := subscribed.BytesBack.Load() - before
	if crossed < updates*size || crossed > updates*size*110/100 {
		t.Fatalf("%d bytes crossed for %d updates of %d bytes; one copy each is expected", crossed, updates, size)
	}
	silence := 1_000 * (time.Since(began).Seconds() + 5) // three times what TestIdleLinkIsNearlySilent allows
	if crossed := idle.BytesBack.Load() - beforeIdle; float64(crossed) > silence {
		t.Fatalf("%d bytes went to a site that did not subscribe", crossed)
	}
}

// TestOverloadConflates publishes three times what the path carries: the subscriber skips values, never falls far
// behind, and ends with the last one soon after the publisher.
func TestOverloadConflates(t *testing.T) {
	const limit = 1500 * time.Millisecond
	for attempt := 1; ; attempt++ { // a busy machine makes it later, never sooner
		worst, converged := overload(t)
		if worst <= limit && converged <= limit {
			return
		}
		if attempt == 4 {
			t.Fatalf("a value was %v old when it came; converged %v after the last change", worst, converged)
		}
	}
}

// overload publishes too much for three seconds, and tells how old the oldest value was that came, and how long after the end the
// last values were there.
func overload(t *testing.T) (worst, converged time.Duration) {
	t.Helper()
	ctx, w := testContext(t), newWide(t)
	p := w.site("p")
	const rate = 4e6 // bit/s
	path := must(emulated.NewPath(p.config.Listen, 10*time.Millisecond, nil, emulated.NewPipe(rate, time.Second)))(t)
	t.Cleanup(path.Close)
	a := w.site("a", Peer{Site: "p", Address: path.Address()})
	s := must(a.controller().Subscribe(ctx, "p", "k"))(t)
	collect(t, s.Events())
	const keys, size, period, duration = 50, 1500, time.Millisecond, 3 * time.Second // 12 Mbit/s
	pub := p.controller().Published()
	ended := make(chan time.Time, 1)
	go func() {
		begin := time.Now()
		for i := 0; time.Since(begin) < duration; i++ {
			time.Sleep(time.Until(begin.Add(time.Duration(i) * period)))
			value := make([]byte, size)
			rand.Read(value)
			binary.BigEndian.PutUint64(value, uint64(time.Now().UnixNano()))
			if _, err := pub.Put(ctx, keyf("k.%d", i%keys), value); err != nil {
				t.Error(err)
			}
		}
		at := time.Now()
		for i := range keys {
			if _, err := pub.Put(ctx, keyf("k.%d", i), []byte("last")); err != nil {
				t.Error(err)
			}
		}
		ended <- at
	}()
	received, last := 0, map[string]bool{}
	for len(last) < keys {
		e := next(t, s.Events())
		received++
		if string(e.Value) == "last" {
			last[e.Key] = true
			continue
		}
		worst = max(worst, time.Since(time.Unix(0, int64(binary.BigEndian.Uint64(e.Value)))))
	}
	converged = time.Since(next(t, ended))
	t.Logf("%d changes received of about %d, oldest %v, converged %v after the end", received, duration/period, worst, converged)
	return worst, converged
}

func TestIdleLinkIsNearlySilent(t *testing.T) {
	t.Parallel() // it mostly waits
	ctx := testContext(t)
	a, b, path := pair(t)
	must(b.controller().Published().Put(ctx, "k", nil))(t)
	collect(t, must(a.controller().Subscribe(ctx, "b", ""))(t).Events())
	time.Sleep(500 * time.Millisecond)
	before := path.BytesThere.Load() + path.BytesBack.Load()
	time.Sleep(3 * time.Second)
	if crossed := path.BytesThere.Load() + path.BytesBack.Load() - before; crossed > 1000 {
		t.Fatalf("%d bytes in 3 s without a change", crossed)
	}
}

func TestFrozenPathIsNoticedAndBridged(t *testing.T) {
	t.Parallel() // it mostly waits
	ctx := testContext(t)
	a, b, path := pair(t)
	pub := b.controller()
	s := must(a.controller().Subscribe(ctx, "b", ""))(t)
	collect(t, s.Events())
	path.Freeze()
	must(pub.Published().Put(ctx, "k", []byte("1")))(t)
	a.awaitLink("b", false)
	b.awaitLink("a", false)
	path.Thaw()
	until(t, s.Events(), "k", "1")
}

// TestSiteThatShouldBeDialledFallsBack gives only the larger name an address that works.
func TestSiteThatShouldBeDialledFallsBack(t *testing.T) {
	t.Parallel() // it mostly waits
	ctx, w := testContext(t), newWide(t)
	path := must(emulated.NewPath("127.0.0.1:1", 0, nil, nil))(t)
	t.Cleanup(path.Close)
	path.Cut() // a cannot reach z
	a := w.site("a", Peer{Site: "z", Address: path.Address()})
	z := w.site("z", Peer{Site: "a", Address: a.config.Listen})
	began := time.Now()
	a.awaitLink("z", true)
	z.awaitLink("a", true)
	if waited := time.Since(began); waited < fallbackWait/2 {
		t.Fatalf("z dialled after %v; it should have left that to a for %v", waited, fallbackWait)
	}
	must(a.controller().Published().Put(ctx, "k", []byte("1")))(t)
	until(t, must(z.controller().Subscribe(ctx, "a", ""))(t).Events(), "k", "1")
}

func TestCloseOfTheLastSubscriptionEndsTheCopy(t *testing.T) {
	ctx := testContext(t)
	a, b, _ := pair(t)
	must(b.controller().Published().Put(ctx, "x.k", []byte("1")))(t)
	must(b.controller().Published().Put(ctx, "y.k", []byte("1")))(t)
	c := a.controller()
	x, y := must(c.Subscribe(ctx, "b", "x"))(t), must(c.Subscribe(ctx, "b", "y"))(t)
	collect(t, x.Events())
	collect(t, y.Events())
	view := must(c.store(viewBucket).Watch(ctx, "b"))(t)
	expect(t, "keys", len(collect(t, view)), 2)
	x.Close()
	// The copy lingers; hurry it.
	ms := a.server.mirrors
	deadline := time.Now().Add(patience)
	for {
		ms.mu.Lock()
		released := !ms.isHeld(want{"b", "x"})
		if released {
			delete(ms.until, want{"b", "x"})
			ms.apply()
		}
		ms.mu.Unlock()
		if released {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the site process was not told")
		}
		time.Sleep(10 * time.Millisecond)
	}
	until(t, view, "b.x.k", "")
	expect(t, "keys left", len(must(c.store(viewBucket).List(ctx, "b"))(t)), 1)
}
