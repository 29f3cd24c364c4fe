package global

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// startOptimiser runs a worker as an operator would, beside the Global Switchboard.
func (p *platform) startOptimiser(name string) *exec.Cmd {
	p.t.Helper()
	command := exec.Command(optimiserProgram(p.t), "serve", "-q", "--name", name, "--credentials",
		p.hq.server.CredentialsFile(bus.KindOptimiser, "default"))
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	return command
}

// status asks an optimiser how it is, "" where none answers.
func (p *platform) optimiserStatus() (status struct {
	Worker   string
	Chains   int
	Nodes    int
	Revision uint64
	Refused  []struct{ Key, Reason string }
}) {
	ctx, cancel := context.WithTimeout(testContext(p.t), time.Second)
	defer cancel()
	if reply, err := p.hq.connection.Request(ctx, p.hq.name, "te.status", nil); err == nil {
		_ = json.Unmarshal(reply, &status)
	}
	return status
}

// children are the processes that this one has started and that run a program of a name.
func children(t *testing.T, name string) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		stat, _ := os.ReadFile("/proc/" + e.Name() + "/stat")
		_, after, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(after)
		if len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(os.Getpid()) && strings.Contains(string(line), name) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// worker is the process of a platform's own optimiser, 0 while there is none.
func (p *platform) ownOptimiser(t *testing.T) int {
	for _, pid := range children(t, "serve") {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(line), p.config.Engineering.Workers.Credentials) {
			return pid
		}
	}
	return 0
}

func TestAnOptimiserFollowsTheModel(t *testing.T) {
	p := standard(t)
	p.await("the topology is known", func() bool { return p.optimiserStatus().Nodes == 3 })
	p.apply(webChain)
	p.awaitPhase("acme", "web", api.ChainPhase_CHAIN_PHASE_ACTIVE)
	p.await("the chain is known", func() bool { return p.optimiserStatus().Chains == 1 })
	if err := p.g.Delete(testContext(t), chain.Key{Kind: chain.KindChain, Customer: "acme", Name: "web"}); err != nil {
		t.Fatal(err)
	}
	p.await("the chain is forgotten", func() bool { return p.chain("acme", "web") == nil && p.optimiserStatus().Chains == 0 })
}

func TestARejectionNamesTheScarceLink(t *testing.T) {
	p := standard(t)
	p.apply(strings.Replace(topology, "bandwidthMbps: 1000}", "bandwidthMbps: 40}", 3))
	p.apply(strings.Replace(webChain, "forwardMbps: 50, reverseMbps: 50", "forwardMbps: 81, reverseMbps: 1", 1))
	c := p.awaitPhase("acme", "web", api.ChainPhase_CHAIN_PHASE_REJECTED)
	if s := c.Status; s.ReasonFrom != sourceTE || !strings.Contains(s.Reason, "of 82 Mbit/s from office to hq can be carried: link") ||
		!strings.HasSuffix(s.Reason, "full") {
		t.Errorf("rejected by %s: %s", s.ReasonFrom, s.Reason)
	}
}

func TestKillingTheOptimiserLosesNoPlan(t *testing.T) {
	p := standard(t)
	p.await("an optimiser serves", func() bool { return p.optimiserStatus().Nodes == 3 })
	for i := range 8 {
		pid := p.ownOptimiser(t)
		for pid == 0 {
			time.Sleep(5 * time.Millisecond)
			pid = p.ownOptimiser(t)
		}
		name := fmt.Sprintf("web%d", i)
		p.apply(strings.Replace(webChain, "name: web,", "name: "+name+",", 1) + "\n")
		time.Sleep(time.Duration(i) * time.Millisecond) // somewhere in the middle of it
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if i < 4 { // for more there is no capacity
			p.awaitPhase("acme", name, api.ChainPhase_CHAIN_PHASE_ACTIVE)
		} else {
			p.awaitPhase("acme", name, api.ChainPhase_CHAIN_PHASE_REJECTED)
		}
	}
	p.await("events tell of 8 optimisers that were killed", func() bool {
		ended := uint32(0)
		for _, e := range p.g.Events(chain.KindSite, "", "hq", 0) {
			if e.Reason == "OptimiserEnded" && strings.Contains(e.Message, "signal: killed") {
				ended += e.Count
			}
		}
		return ended == 8
	})
}

// TestAnotherOptimiserTakesOver stops a worker with a request in its hands: it neither answers nor leaves.
func TestAnotherOptimiserTakesOver(t *testing.T) {
	p := newPlatform(t, "hq", "office", "west")
	p.startAgents()
	p.config.Engineering.Workers.Count = 0
	p.config.Engineering.Attempt = 300 * time.Millisecond
	p.startGlobal()
	p.apply(topology)
	first, second := p.startOptimiser("one"), p.startOptimiser("two")
	seen := map[string]bool{}
	p.await("both answer", func() bool { seen[p.optimiserStatus().Worker] = true; return seen["one"] && seen["two"] })
	if err := first.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		name := fmt.Sprintf("web%d", i)
		p.apply(strings.Replace(webChain, "name: web,", "name: "+name+",", 1))
		p.awaitPhase("acme", name, api.ChainPhase_CHAIN_PHASE_ACTIVE)
	}
	if err := second.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := first.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// What the first missed while it stood still counts: there is room for one more, not for two.
	for i, phase := range []api.ChainPhase{api.ChainPhase_CHAIN_PHASE_ACTIVE, api.ChainPhase_CHAIN_PHASE_REJECTED} {
		name := fmt.Sprintf("late%d", i)
		p.apply(strings.Replace(webChain, "name: web,", "name: "+name+",", 1))
		p.awaitPhase("acme", name, phase)
	}
}

func TestWithoutAnOptimiserAPlanFailsAndIsTriedAgain(t *testing.T) {
	p := newPlatform(t, "hq", "office", "west")
	p.startAgents()
	p.config.Engineering.Workers.Count = 0
	p.config.Engineering.TimeLimit = 300 * time.Millisecond
	p.config.RetryInterval = 200 * time.Millisecond
	p.startGlobal()
	p.apply(topology)
	p.apply(webChain)
	c := p.awaitPhase("acme", "web", api.ChainPhase_CHAIN_PHASE_FAILED)
	if !strings.Contains(c.Status.Reason, "no optimiser answered in time") {
		t.Errorf("reason %q", c.Status.Reason)
	}
	p.startOptimiser("late")
	p.awaitPhase("acme", "web", api.ChainPhase_CHAIN_PHASE_ACTIVE)
}

// TestTheModelIsMendedAtTheNextStart changes the bucket behind the Global Switchboard's back.
func TestTheModelIsMendedAtTheNextStart(t *testing.T) {
	p := standard(t)
	p.apply(webChain)
	p.awaitPhase("acme", "web", api.ChainPhase_CHAIN_PHASE_ACTIVE)
	p.await("the chain is known", func() bool { return p.optimiserStatus().Chains == 1 })
	p.stop()
	ctx, store := testContext(t), p.hq.connection.Local(bus.ModelBucket)
	for _, err := range []error{store.Delete(ctx, "chain.acme.web"), store.Delete(ctx, "node.west"), func() error {
		_, err := store.Put(ctx, "chain.acme.ghost", []byte(`{"reserved":[{"vnf":"firewall","site":"west","load":400}]}`))
		return err
	}()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	p.startGlobal()
	p.await("the model is mended", func() bool {
		entries, err := store.List(ctx, "")
		keys := map[string]bool{}
		for _, e := range entries {
			keys[e.Key] = true
		}
		return err == nil && keys["chain.acme.web"] && keys["node.west"] && !keys["chain.acme.ghost"]
	})
}

// TestAnOptimiserMayDoNothingElse tries with an optimiser's credentials what only others may.
func TestAnOptimiserMayDoNothingElse(t *testing.T) {
	p := newPlatform(t, "hq")
	c, err := bus.ReadCredentials(p.hq.server.CredentialsFile(bus.KindOptimiser, "default"))
	if err != nil {
		t.Fatal(err)
	}
	denied := make(chan error, 16)
	nc, err := nats.Connect(c.URL, nats.UserInfo(c.User, c.Password), nats.CustomInboxPrefix(c.InboxPrefix),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, subject := range []string{"$KV.model.node.x", "$KV.pub.chain.acme.web", "$KV.global.x", "serve.te.route", "call.office.edge",
		"presence.site.hq", "$JS.API.STREAM.LIST"} {
		if err := nc.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		expectDenied(t, denied, subject)
	}
	for _, subject := range []string{">", "$KV.pub.>", "serve.edge", "_INBOX.controller.default.>"} {
		if _, err := nc.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		expectDenied(t, denied, subject)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(testContext(t), time.Second)
	defer cancel()
	if _, err := js.KeyValue(ctx, "pub"); err == nil {
		t.Error("it may read what the site publishes")
	}
	if _, err := js.KeyValue(testContext(t), bus.ModelBucket); err != nil {
		t.Errorf("it may not read the model: %v", err)
	}
}

func expectDenied(t *testing.T, denied <-chan error, subject string) {
	t.Helper()
	select {
	case err := <-denied:
		if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), subject) {
			t.Errorf("%s: %v", subject, err)
		}
	case <-time.After(patience):
		t.Errorf("%s is allowed", subject)
	}
}
