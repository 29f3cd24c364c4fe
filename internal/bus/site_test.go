package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/switchboard-project/switchboard/internal/needs"
)

// patience bounds every wait of a test; nothing waits that long unless something is wrong.
const patience = 30 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

func quiet() *slog.Logger {
	if os.Getenv("BUS_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.DiscardHandler)
}

// testSite is one site's server with an agent's connection; it can be stopped and started again.
type testSite struct {
	t      testing.TB
	config ServerConfig
	server *Server
}

func newSite(t testing.TB, name string, change ...func(*ServerConfig)) *testSite {
	t.Helper()
	s := &testSite{t: t, config: ServerConfig{
		Site: name, StoreDirectory: t.TempDir(), LocalListen: needs.FreeAddress(t), Logger: quiet(),
	}}
	for _, f := range change {
		f(&s.config)
	}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *testSite) start() {
	s.t.Helper()
	server, err := StartServer(testContext(s.t), s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.server = server
}

func (s *testSite) stop() {
	if s.server != nil {
		s.server.Close()
		s.server = nil
	}
}

func (s *testSite) connect(kind Kind, name string) *Connection {
	s.t.Helper()
	path, err := s.server.WriteCredentials(kind, name)
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := Connect(testContext(s.t), ConnectConfig{Agent: name, CredentialsFile: path, Logger: quiet()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

func (s *testSite) controller() *Connection { return s.connect(KindController, "controller") }

// collect reads events until Synchronised and returns the state.
func collect(t testing.TB, events <-chan Event) map[string]string {
	t.Helper()
	state := map[string]string{}
	for {
		switch e := next(t, events); e.Kind {
		case Put:
			state[e.Key] = string(e.Value)
		case Delete:
			delete(state, e.Key)
		case Synchronised:
			return state
		}
	}
}

func next[T any](t testing.TB, events <-chan T) T {
	t.Helper()
	select {
	case e, ok := <-events:
		if !ok {
			t.Fatal("channel closed")
		}
		return e
	case <-time.After(patience):
		t.Fatal("no event")
		panic("unreachable")
	}
}

// until reads events until one tells that the key has the value; "" stands for its deletion.
func until(t testing.TB, events <-chan Event, key, value string) Event {
	t.Helper()
	for {
		e := next(t, events)
		if e.Key == key && (e.Kind == Put && string(e.Value) == value || e.Kind == Delete && value == "") {
			return e
		}
	}
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func wantError(t testing.TB, err, reason error) {
	t.Helper()
	if !errors.Is(err, reason) {
		t.Fatalf("error %v, want %v", err, reason)
	}
}

func expect[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func keyf(format string, v ...any) string { return fmt.Sprintf(format, v...) }
