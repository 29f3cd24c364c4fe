package global

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/gen/switchboard/api/v1/apiv1connect"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/participant"
	"github.com/switchboard-project/switchboard/internal/resource"
)

// coordinatorSteps are the fault points that a chain passes on its way from apply to its end.
var coordinatorSteps = []string{
	"apply-before-journal", "apply-after-journal", "apply-between-resources", "apply-before-journal-end",
	"coordinator-before-preparing", "coordinator-after-preparing",
	"coordinator-between-prepares", "coordinator-between-prepares:2", "coordinator-between-prepares:3",
	"coordinator-before-decision", "coordinator-after-decision", "coordinator-after-publish",
	"coordinator-between-outcomes", "coordinator-between-outcomes:2", "coordinator-between-outcomes:3", "coordinator-before-forget",
}

// process is `switchboard global` as a process of its own, built with fault points.
type process struct {
	p       *platform
	program string
	socket  string
	token   string
	command *exec.Cmd
	ended   chan struct{}
}

func buildWithFaults(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "switchboard")
	build := exec.Command("go", "build", "-tags", "faults", "-o", program, "../../cmd/switchboard")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	return program
}

// start runs the process; it dies at the step, "" for never.
func (o *process) start(step string) {
	o.p.t.Helper()
	credentials, err := o.p.hq.server.WriteCredentials(bus.KindController, "default")
	if err != nil {
		o.p.t.Fatal(err)
	}
	directory := filepath.Dir(o.socket)
	ready := filepath.Join(directory, "ready")
	_ = os.Remove(ready)
	o.command = exec.Command(o.program, "global", "--credentials", credentials, "--listen", "unix:"+o.socket, "--te", o.p.config.Engineering.Workers.Program,
		"--token-file", o.token, "--ready-file", ready, "--patience", "300ms", "--delete-drain-limit", "200ms")
	o.command.Env = append(os.Environ(), "SWITCHBOARD_FAULT="+step)
	log, err := os.OpenFile(filepath.Join(directory, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		o.p.t.Fatal(err)
	}
	defer log.Close()
	o.command.Stdout, o.command.Stderr = log, log
	if err := o.command.Start(); err != nil {
		o.p.t.Fatal(err)
	}
	o.ended = make(chan struct{})
	go func() { defer close(o.ended); _ = o.command.Wait() }()
	o.p.await("the process is ready or dead", func() bool {
		_, err := os.Stat(ready)
		return err == nil || o.dead()
	})
}

func (o *process) dead() bool {
	select {
	case <-o.ended:
		return true
	default:
		return false
	}
}

func (o *process) kill() {
	_ = o.command.Process.Kill() // it may have ended
	<-o.ended
}

// killed reports whether the process died by its own fault point.
func (o *process) killed() bool {
	status, ok := o.command.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

func (o *process) client() apiv1connect.SwitchboardServiceClient {
	token, err := os.ReadFile(o.token)
	if err != nil {
		o.p.t.Fatal(err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", o.socket)
	}
	return apiv1connect.NewSwitchboardServiceClient(&http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}},
		"http://switchboard", connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
				r.Header().Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
				return next(ctx, r)
			}
		})))
}

func (o *process) apply(text string) error {
	documents, mistakes := resource.ReadFile("test.yaml", []byte(text))
	if len(mistakes) > 0 {
		o.p.t.Fatal(mistakes)
	}
	request := &api.ApplyRequest{}
	for _, d := range documents {
		request.Resources = append(request.Resources, d.Message)
	}
	_, err := o.client().Apply(testContext(o.p.t), connect.NewRequest(request))
	return err
}

// phase is a chain's phase; unspecified where there is no such chain.
func (o *process) phase(name string) api.ChainPhase {
	answer, err := o.client().List(testContext(o.p.t), connect.NewRequest(&api.ListRequest{Kind: "chain", Customer: "acme", Name: name}))
	if err != nil || len(answer.Msg.Resources) == 0 {
		return api.ChainPhase_CHAIN_PHASE_UNSPECIFIED
	}
	return answer.Msg.Resources[0].GetChain().GetStatus().GetPhase()
}

func (p *platform) process(t *testing.T) *process {
	directory, err := os.MkdirTemp("", "swg") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	o := &process{p: p, program: buildWithFaults(t), socket: filepath.Join(directory, "api"), token: filepath.Join(directory, "token")}
	t.Cleanup(func() {
		if o.command != nil {
			o.kill()
		}
		if t.Failed() {
			if log, err := os.ReadFile(filepath.Join(directory, "log")); err == nil {
				t.Logf("%s", log)
			}
		}
		_ = os.RemoveAll(directory)
	})
	return o
}

// The coordinator is killed at every step of an apply and of two-phase commit. After its return the apply is there whole
// or not at all, and the chain is committed everywhere.
func TestCoordinatorKilledAtEveryStep(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by go test -short, not by make test: it builds a program and kills it 16 times")
	}
	p := newPlatform(t, "hq", "office", "west")
	p.startAgents()
	o := p.process(t)
	o.start("")
	if err := o.apply(topology); err != nil {
		t.Fatal(err)
	}
	for i, step := range coordinatorSteps {
		o.kill()
		o.start(step)
		name := fmt.Sprintf("c%d", i)
		port := fmt.Sprintf(`{edges: [office-lan], match: {destinationPorts: ["%d"], protocols: [tcp]}}`, 1000+i)
		text := strings.NewReplacer("name: web", "name: "+name, "{edges: [office-lan]}", port, "forwardMbps: 50, reverseMbps: 50",
			"forwardMbps: 1, reverseMbps: 1").Replace(webChain)
		link := fmt.Sprintf("\n---\nkind: Link\nmetadata: {name: extra-%d}\nspec: {from: west, to: hq, latencyMs: 50, bandwidthMbps: 1}\n", i)
		_ = o.apply(text + link) // it may die before it answers
		select {
		case <-o.ended:
		case <-time.After(patience):
			t.Fatalf("%s: the process did not die", step)
		}
		if !o.killed() {
			t.Fatalf("%s: the process ended otherwise: %v", step, o.command.ProcessState)
		}
		o.start("")
		applied := o.phase(name) != api.ChainPhase_CHAIN_PHASE_UNSPECIFIED
		answer, err := o.client().List(testContext(t), connect.NewRequest(&api.ListRequest{Kind: "link", Name: fmt.Sprintf("extra-%d", i)}))
		if err != nil {
			t.Fatal(err)
		}
		if both := len(answer.Msg.Resources) == 1; applied != both {
			t.Fatalf("%s: half an apply: chain %v, link %v", step, applied, both)
		}
		if want := step != "apply-before-journal"; applied != want {
			t.Fatalf("%s: applied %v, want %v", step, applied, want)
		}
		if applied {
			p.await(step+": the chain is active", func() bool { return o.phase(name) == active })
		}
		p.await(step+": everybody agrees", func() bool { return p.disagreement() == "" && len(p.keys(transactionPrefix)) == 0 })
	}
	deleteAtEveryStep(t, p, o)
}

// deleteAtEveryStep kills the coordinator while it releases chains.
func deleteAtEveryStep(t *testing.T, p *platform, o *process) {
	for i, step := range []string{"release-before-record", "release-after-record", "coordinator-after-publish", "coordinator-between-outcomes:2",
		"coordinator-before-forget"} {
		o.kill()
		o.start(step)
		name := fmt.Sprintf("c%d", i+1)
		_, _ = o.client().Delete(testContext(t), connect.NewRequest(&api.DeleteRequest{Kind: "chain", Customer: "acme", Name: name}))
		select {
		case <-o.ended:
		case <-time.After(patience):
			t.Fatalf("delete, %s: the process did not die", step)
		}
		o.start("")
		p.await("delete, "+step+": the chain is gone", func() bool { return o.phase(name) == api.ChainPhase_CHAIN_PHASE_UNSPECIFIED })
		p.await("delete, "+step+": everybody agrees", func() bool { return p.disagreement() == "" })
	}
}

// mortal serves a participant that dies once at a step, losing all it holds in memory, and returns.
func (s *fakeSite) mortal(service, step string, capacity map[string]float64) (died chan struct{}) {
	s.p.t.Helper()
	died = make(chan struct{})
	var run func(first bool)
	run = func(first bool) {
		mortal := first
		ctx, cancel := context.WithCancel(testContext(s.p.t))
		fault := func(at string) {
			if mortal && at == step {
				mortal = false
				close(died)
				cancel()
				panic("killed at " + step)
			}
		}
		one, err := participant.Open(ctx, participant.Config{Name: service, Store: s.connection.Local("p_" + bucketName(service)), Logger: quiet(),
			Admit: admitWithin(capacity), Apply: func(context.Context, []*control.Prepare) error { return nil },
			Ask: participant.AskOver(s.connection), Fault: fault})
		if err != nil {
			s.p.t.Error(err)
			return
		}
		go func() {
			_ = one.Serve(ctx, s.connection, service)
			select {
			case <-died:
				if first {
					time.Sleep(50 * time.Millisecond)
					run(false)
				}
			default: // the test has ended
			}
		}()
	}
	run(true)
	return died
}

// Each participant is killed at every step it takes. Everything ends committed everywhere.
func TestParticipantKilledAtEveryStep(t *testing.T) {
	for _, at := range []struct{ site, service string }{{"hq", "vnf.firewall"}, {"office", "edge"}, {"hq", "edge"}} {
		for _, step := range []string{"prepare-before-store", "prepare-after-store", "commit-before-store", "commit-after-store", "commit-after-apply"} {
			t.Run(at.service+"@"+at.site+" "+step, func(t *testing.T) {
				p := newPlatform(t, "hq", "office", "west")
				for _, s := range p.sites {
					s.followChains()
					if at.service != "edge" || at.site != s.name {
						s.participate("edge", nil)
					}
				}
				if at.service != "vnf.firewall" {
					p.hq.participate("vnf.firewall", nil)
				}
				died := p.sites[at.site].mortal(at.service, step, nil)
				p.config.PrepareTimeout = 500 * time.Millisecond
				p.startGlobal()
				p.apply(topology)
				p.apply(webChain)
				p.awaitPhase("acme", "web", active)
				select {
				case <-died:
				default:
					t.Fatal("the participant never came to the step")
				}
				p.await("everybody agrees", func() bool { return p.disagreement() == "" && len(p.keys(transactionPrefix)) == 0 })
			})
		}
	}
}

// A participant that refuses makes the others abort, and one of those is killed while it aborts. Nothing stays held.
func TestParticipantKilledWhileItAborts(t *testing.T) {
	for _, step := range []string{"abort-before-store", "abort-after-store"} {
		t.Run(step, func(t *testing.T) {
			p := newPlatform(t, "hq", "office", "west")
			for _, s := range p.sites {
				s.followChains()
			}
			p.hq.participate("edge", nil)
			p.hq.participate("vnf.firewall", map[string]float64{"hq": 0, "west": 0})
			died := p.sites["office"].mortal("edge", step, nil)
			p.startGlobal()
			p.apply(topology)
			p.apply(webChain)
			p.awaitPhase("acme", "web", rejected)
			<-died
			p.await("nobody holds anything", func() bool { return p.disagreement() == "" && len(p.keys(transactionPrefix)) == 0 })
		})
	}
}

func TestParticipantThatIsAwayIsNamed(t *testing.T) {
	p := newPlatform(t, "hq", "office", "west")
	for _, s := range p.sites {
		s.followChains()
		s.participate("edge", nil)
	}
	p.startGlobal()
	p.apply(topology)
	p.apply(webChain)
	status := p.awaitPhase("acme", "web", api.ChainPhase_CHAIN_PHASE_FAILED).Status
	if want := "vnf.firewall at site hq: it does not run"; status.Reason != want {
		t.Fatalf("reason %q, want %q", status.Reason, want)
	}
	p.hq.participate("vnf.firewall", nil)
	p.awaitPhase("acme", "web", active)
}
