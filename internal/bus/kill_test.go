package bus

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/switchboard-project/switchboard/internal/needs"
)

// siteProcess is the environment variable that makes the test program a site's process instead: its configuration.
const siteProcess = "BUS_TEST_SITE_PROCESS"

type processConfig struct {
	Config   ServerConfig
	Identity string // directory
}

func TestMain(m *testing.M) {
	text := os.Getenv(siteProcess)
	if text == "" {
		os.Exit(m.Run())
	}
	var p processConfig
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		p.Config.Identity, err = LoadIdentity(p.Identity)
	}
	if err == nil {
		p.Config.Logger = quiet()
		_, err = StartServer(context.Background(), p.Config)
	}
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test ends
}

// process is a site in a process of its own, which can be killed.
type process struct {
	t       *testing.T
	config  processConfig
	command *exec.Cmd
}

func (w *wide) process(name string, peers ...Peer) *process {
	t := w.t.(*testing.T)
	p := &process{t: t, config: processConfig{Identity: t.TempDir(), Config: ServerConfig{Site: name, Peers: peers,
		StoreDirectory: t.TempDir(), LocalListen: needs.FreeAddress(t), Listen: needs.FreeAddress(t)}}}
	must(w.authority.EnrolSite(name, p.config.Identity))(t)
	p.start()
	t.Cleanup(p.kill)
	return p
}

func (p *process) start() {
	p.t.Helper()
	text := must(json.Marshal(p.config))(p.t)
	p.command = exec.Command(os.Args[0], "-test.run=none")
	p.command.Env = append(os.Environ(), siteProcess+"="+string(text))
	p.command.Stderr = os.Stderr
	must(p.command.StdinPipe())(p.t)
	if err := p.command.Start(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) kill() {
	_ = p.command.Process.Kill() // SIGKILL; of a process that has ended, an error
	_ = p.command.Wait()
}

func (p *process) controller() *Connection {
	p.t.Helper()
	path := p.config.Config.StoreDirectory + "/credentials/controller.default.json"
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			break
		}
		if time.Now().After(deadline) {
			p.t.Fatal("the site's process does not start")
		}
	}
	c := must(Connect(testContext(p.t), ConnectConfig{Agent: "controller", CredentialsFile: path, Logger: quiet()}))(p.t)
	p.t.Cleanup(c.Close)
	return c
}

// TestNothingAcknowledgedIsLostWhenProcessesDie kills the publisher's and the subscriber's site process in turn while
// changes flow, and then compares publisher, bucket and copy.
func TestNothingAcknowledgedIsLostWhenProcessesDie(t *testing.T) {
	w := newWide(t)
	b := w.process("b")
	a := w.process("a", Peer{Site: "b", Address: b.config.Config.Listen})
	pub, sub := b.controller(), a.controller()
	ctx := testContext(t)
	s := must(sub.Subscribe(ctx, "b", "k"))(t)
	collect(t, s.Events())
	var stop atomic.Bool
	acknowledged := make(chan map[string]string, 1)
	go func() {
		state := map[string]string{}
		for i := 0; !stop.Load(); i++ {
			key, value := keyf("k.%d", i%20), keyf("%d", i)
			var err error
			if i%7 == 6 {
				err, value = pub.Published().Delete(ctx, key), ""
			} else {
				_, err = pub.Published().Put(ctx, key, []byte(value))
			}
			if err != nil {
				t.Error(err)
				break
			}
			if state[key] = value; value == "" {
				delete(state, key)
			}
		}
		acknowledged <- state
	}()
	for range 3 {
		for _, p := range []*process{b, a} {
			time.Sleep(300 * time.Millisecond)
			p.kill()
			time.Sleep(100 * time.Millisecond)
			p.start()
		}
	}
	stop.Store(true)
	want := next(t, acknowledged)
	must(pub.Published().Put(ctx, "k.end", []byte("end")))(t)
	stored := map[string]string{}
	for _, e := range must(pub.Published().List(ctx, "k"))(t) {
		stored[e.Key] = string(e.Value)
	}
	copied := map[string]string{}
	for copied["k.end"] != "end" {
		if e := next(t, s.Events()); e.Kind == Put {
			copied[e.Key] = string(e.Value)
		}
	}
	// The end may overtake keys that wait from a moment before; a new reading of a whole copy has them all.
	deadline := time.Now().Add(patience)
	for {
		copied = collect(t, must(sub.Subscribe(ctx, "b", "k"))(t).Events())
		if equal(copied, stored) || time.Now().After(deadline) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	want["k.end"] = "end"
	if !equal(stored, want) {
		t.Errorf("bucket %v, acknowledged %v", stored, want)
	}
	if !equal(copied, want) {
		t.Errorf("copy %v, acknowledged %v", copied, want)
	}
}

func equal(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

func TestCompareAndSetIsExactWhenTheServerDies(t *testing.T) {
	w := newWide(t)
	a := w.process("a")
	c := a.controller()
	ctx := testContext(t)
	s := c.Local("counter")
	must(s.Put(ctx, "n", []byte("0")))(t)
	var stop atomic.Bool
	counted := make(chan int, 1)
	go func() {
		n := 0
		defer func() { counted <- n }()
		for !stop.Load() {
			e, err := s.Get(ctx, "n")
			if err == nil {
				_, err = s.Update(ctx, "n", []byte(keyf("%d", n+1)), e.Revision)
			}
			if errors.Is(err, ErrConflict) {
				t.Errorf("the only writer lost at %d: %v", n, err)
			}
			if err != nil {
				t.Error(err)
				return
			}
			n++
		}
	}()
	for range 4 {
		time.Sleep(200 * time.Millisecond)
		a.kill()
		a.start()
	}
	stop.Store(true)
	n := next(t, counted)
	expect(t, "count", string(must(s.Get(ctx, "n"))(t).Value), keyf("%d", n))
}
