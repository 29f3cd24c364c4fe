package bus

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestStoreReadsBackWhatWasWritten(t *testing.T) {
	ctx, c := testContext(t), newSite(t, "a").controller()
	s := c.Local("global")
	first := must(s.Put(ctx, "chain.c1", []byte("one")))(t)
	e := must(s.Get(ctx, "chain.c1"))(t)
	expect(t, "value", string(e.Value), "one")
	expect(t, "revision", e.Revision, first)
	if time.Since(e.Time) > time.Minute || time.Until(e.Time) > time.Minute {
		t.Fatalf("time %v is not now", e.Time)
	}
	if err := s.Delete(ctx, "chain.c1"); err != nil {
		t.Fatal(err)
	}
	_, err := s.Get(ctx, "chain.c1")
	wantError(t, err, ErrNotFound)
	if err := s.Delete(ctx, "chain.c1"); err != nil {
		t.Fatalf("second deletion: %v", err)
	}
	_, err = s.Get(ctx, "chain.never")
	wantError(t, err, ErrNotFound)
}

func TestCompareAndSetAdmitsOneWriter(t *testing.T) {
	ctx, c := testContext(t), newSite(t, "a").controller()
	s := c.Local("reservations")
	r1 := must(s.Create(ctx, "k", []byte("1")))(t)
	_, err := s.Create(ctx, "k", []byte("2"))
	wantError(t, err, ErrConflict)
	r2 := must(s.Update(ctx, "k", []byte("3"), r1))(t)
	_, err = s.Update(ctx, "k", []byte("4"), r1)
	wantError(t, err, ErrConflict)
	wantError(t, s.DeleteRevision(ctx, "k", r1), ErrConflict)
	if err := s.DeleteRevision(ctx, "k", r2); err != nil {
		t.Fatal(err)
	}
	must(s.Create(ctx, "k", []byte("5")))(t)
	expect(t, "value", string(must(s.Get(ctx, "k"))(t).Value), "5")
}

func TestCompareAndSetCountsEveryIncrementOfManyWriters(t *testing.T) {
	ctx, c := testContext(t), newSite(t, "a").controller()
	s := c.Local("counter")
	must(s.Put(ctx, "n", []byte{0}))(t)
	const writers, each = 8, 10
	failures := make(chan error, writers)
	for range writers {
		go func() {
			for i := 0; i < each; {
				e, err := s.Get(ctx, "n")
				if err == nil {
					_, err = s.Update(ctx, "n", []byte{e.Value[0] + 1}, e.Revision)
				}
				if err == nil {
					i++
				} else if !errors.Is(err, ErrConflict) {
					failures <- err
					return
				}
			}
			failures <- nil
		}()
	}
	for range writers {
		if err := next(t, failures); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, "count", int(must(s.Get(ctx, "n"))(t).Value[0]), writers*each)
}

func TestListTakesWholeTokens(t *testing.T) {
	ctx, c := testContext(t), newSite(t, "a").controller()
	s := c.Local("list")
	for _, k := range []string{"a.b", "a.b.c", "a.bc", "a", "b"} {
		must(s.Put(ctx, k, []byte(k)))(t)
	}
	must(s.Put(ctx, "a.b.gone", nil))(t)
	if err := s.Delete(ctx, "a.b.gone"); err != nil {
		t.Fatal(err)
	}
	for prefix, want := range map[string]int{"": 5, "a": 4, "a.b": 2, "a.b.c": 1, "none": 0} {
		expect(t, "keys under "+prefix, len(must(s.List(ctx, prefix))(t)), want)
	}
}

func TestStoreRejectsWhatIsNoKey(t *testing.T) {
	ctx, c := testContext(t), newSite(t, "a").controller()
	for _, key := range []string{"", ".", "a.", ".a", "a..b", "a b", "a.*", "a.>", "ключ", Key("a", "")} {
		_, err := c.Local("x").Put(ctx, key, nil)
		wantError(t, err, ErrInvalidKey)
	}
	for _, bucket := range []string{"", "pub", "view", "a.b", "a b", ">"} {
		_, err := c.Local(bucket).Put(ctx, "a", nil)
		wantError(t, err, ErrInvalidKey)
	}
}

func TestWatchTellsStateThenMarkerThenChanges(t *testing.T) {
	ctx, c := testContext(t), newSite(t, "a").controller()
	s := c.Local("w")
	must(s.Put(ctx, "p.1", []byte("one")))(t)
	must(s.Put(ctx, "p.2", []byte("two")))(t)
	must(s.Put(ctx, "q.1", []byte("other")))(t)
	must(s.Put(ctx, "p.gone", nil))(t)
	if err := s.Delete(ctx, "p.gone"); err != nil {
		t.Fatal(err)
	}
	watch, cancel := context.WithCancel(ctx)
	events := must(s.Watch(watch, "p"))(t)
	state := collect(t, events)
	expect(t, "keys", len(state), 2)
	expect(t, "p.2", state["p.2"], "two")
	must(s.Put(ctx, "q.1", []byte("not mine")))(t)
	must(s.Put(ctx, "p.1", []byte("new")))(t)
	e := next(t, events)
	expect(t, "change", e.Key+"="+string(e.Value), "p.1=new")
	if err := s.Delete(ctx, "p.2"); err != nil {
		t.Fatal(err)
	}
	expect(t, "deletion", next(t, events).Kind, Delete)
	cancel()
	if _, open := <-events; open {
		t.Fatal("an event after the end")
	}
}

func TestWatchOfNothingIsSynchronised(t *testing.T) {
	ctx, c := testContext(t), newSite(t, "a").controller()
	expect(t, "keys", len(collect(t, must(c.Local("empty").Watch(ctx, "x"))(t))), 0)
}

func TestSlowWatcherGetsLastValues(t *testing.T) {
	ctx, c := testContext(t), newSite(t, "a").controller()
	s := c.Local("slow")
	events := must(s.Watch(ctx, ""))(t)
	collect(t, events)
	for i := range 50 {
		must(s.Put(ctx, "k", []byte(keyf("%d", i))))(t)
	}
	must(s.Put(ctx, "end", nil))(t)
	time.Sleep(time.Second) // the watcher sleeps; the queue must not grow
	count := 0
	for e := next(t, events); e.Key != "end"; e = next(t, events) {
		count++
		if count > 3 {
			t.Fatalf("event %d is %s; only the last value should have waited", count, e.Value)
		}
	}
}

func TestWatchSurvivesRestart(t *testing.T) {
	ctx, site := testContext(t), newSite(t, "a")
	c := site.controller()
	s := c.Local("w")
	must(s.Put(ctx, "kept", []byte("0")))(t)
	must(s.Put(ctx, "deleted", []byte("0")))(t)
	events := must(s.Watch(ctx, ""))(t)
	collect(t, events)
	for round := range 3 {
		value := keyf("%d", round+1)
		site.stop()
		done := make(chan error, 1)
		go func() { // waits for the server
			_, err := s.Put(ctx, "kept", []byte(value))
			done <- err
		}()
		time.Sleep(50 * time.Millisecond)
		site.start()
		if err := next(t, done); err != nil {
			t.Fatal(err)
		}
		e := next(t, events)
		expect(t, "event", e.Key+"="+string(e.Value), "kept="+value)
	}
	if err := s.Delete(ctx, "deleted"); err != nil {
		t.Fatal(err)
	}
	until(t, events, "deleted", "")
}

func TestWatchNoticesThatTheStoreWasLost(t *testing.T) {
	ctx, site := testContext(t), newSite(t, "a")
	c := site.controller()
	s := c.Local("w")
	must(s.Put(ctx, "lost", []byte("0")))(t)
	events := must(s.Watch(ctx, ""))(t)
	collect(t, events)
	site.stop()
	secret := must(readFile(site.config.StoreDirectory + "/agents.secret"))(t)
	site.config.StoreDirectory = t.TempDir()
	if err := writePrivate(site.config.StoreDirectory+"/agents.secret", secret); err != nil {
		t.Fatal(err)
	}
	site.start()
	must(s.Put(ctx, "new", []byte("1")))(t)
	seen := map[string]EventKind{}
	for len(seen) < 2 {
		e := next(t, events)
		seen[e.Key] = e.Kind
	}
	expect(t, "lost key", seen["lost"], Delete)
	expect(t, "new key", seen["new"], Put)
}

func TestWritesFailWithoutServer(t *testing.T) {
	site := newSite(t, "a")
	c := site.controller()
	site.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err := c.Published().Put(ctx, "k", nil)
	wantError(t, err, ErrUnavailable)
	wantError(t, err, context.DeadlineExceeded)
}
