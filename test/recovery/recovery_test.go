// Package recovery kills processes of a site with SIGKILL at every step of two-phase commit, and shows that after their
// return nothing is lost and nothing half done.
package recovery

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/hostnet"

	// The program under test is made of these: a cached result does not outlive a change of them.
	_ "github.com/switchboard-project/switchboard/internal/site"
	_ "github.com/switchboard-project/switchboard/internal/vnf"
)

const mark = "SWITCHBOARD_TEST_NETWORK"

// TestMain runs the tests in a network of their own.
func TestMain(m *testing.M) {
	if os.Getenv(mark) != "" {
		host, err := hostnet.CurrentNamespace()
		if err == nil {
			err = host.SetUp("lo")
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	if os.Geteuid() != 0 {
		fmt.Println("skipped: needs root to make network namespaces")
		os.Exit(0)
	}
	command := exec.Command("/proc/self/exe", os.Args[1:]...)
	command.Env = append(os.Environ(), mark+"=1")
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := command.Run(); err != nil {
		os.Exit(1)
	}
}

// site is the processes of one site, which is also the global one.
type site struct {
	t          *testing.T
	ctx        context.Context
	directory  string
	program    string
	connection *bus.Connection
	processes  map[string]process
	prefix     string // of the namespaces
}

// process is one that runs, or ran: ended is closed when it has been waited for.
type process struct {
	command *exec.Cmd
	ended   chan struct{}
}

func newSite(t *testing.T) *site {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &site{t: t, ctx: ctx, directory: t.TempDir(), processes: map[string]process{},
		prefix: fmt.Sprintf("sbr%d-", os.Getpid())}
	t.Cleanup(func() {
		if s.connection != nil {
			s.connection.Close()
		}
		cancel()
		for name := range s.processes {
			s.kill(name)
		}
		names, err := hostnet.NamespaceNames(s.prefix)
		for _, name := range names {
			if err == nil {
				err = hostnet.DeleteNamespace(name)
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
	s.program = filepath.Join(s.directory, "switchboard")
	build := exec.Command("go", "build", "-tags", "faults", "-o", s.program, "../../cmd/switchboard")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	s.write("site.yaml", fmt.Sprintf(`site: core
globalSite: core
bus: {agents: "127.0.0.1:4222", store: %s}
forwarders: [{name: f1, tunnelAddress: 192.0.2.1/24, interface: wan0}]
edgeInterfaces: [{name: lo}]
vnf: {namespacePrefix: %s}
`, filepath.Join(s.directory, "store"), s.prefix))
	s.write("vnf.yaml", fmt.Sprintf("globalSite: core\ncredentials: %s\n",
		filepath.Join(s.directory, "store", "credentials", "service.default.json")))
	return s
}

func (s *site) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.directory, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// start starts a process and waits until it is ready.
func (s *site) start(name, fault string, arguments ...string) {
	s.t.Helper()
	ready := filepath.Join(s.directory, name+".ready")
	_ = os.Remove(ready)
	command := exec.Command(s.program, append(arguments, "--ready-file", ready, "--log-level", "error")...)
	command.Env = append(os.Environ(), "SWITCHBOARD_FAULT="+fault)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = command.Wait() }()
	s.processes[name] = process{command, ended}
	s.eventually(name+" is ready", func() bool { _, err := os.Stat(ready); return err == nil })
}

func (s *site) startSite(fault string) {
	s.start("site", fault, "site", "--config", filepath.Join(s.directory, "site.yaml"))
}

func (s *site) startVnf(fault string) {
	s.start("vnf", fault, "vnf", "firewall", "--config", filepath.Join(s.directory, "vnf.yaml"))
}

func (s *site) connect() {
	s.t.Helper()
	var err error
	s.connection, err = bus.Connect(s.ctx, bus.ConnectConfig{Agent: "test",
		CredentialsFile: filepath.Join(s.directory, "store", "credentials", "controller.default.json")})
	if err != nil {
		s.t.Fatal(err)
	}
}

// kill ends a process at once, if it has not ended itself, and waits for it.
func (s *site) kill(name string) {
	if one, runs := s.processes[name]; runs {
		_ = one.command.Process.Kill()
		<-one.ended
		delete(s.processes, name)
	}
}

// ended is whether a process has ended by itself.
func (s *site) ended(name string) bool {
	select {
	case <-s.processes[name].ended:
		return true
	default:
		return false
	}
}

func (s *site) eventually(what string, holds func() bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if holds() {
			return
		}
	}
	s.t.Fatalf("not within a minute: %s", what)
}

func (s *site) tell(key string, record proto.Message) {
	s.t.Helper()
	value, err := proto.Marshal(record)
	if err == nil {
		_, err = s.connection.Published().Put(s.ctx, key, value)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) tellDirectory() {
	s.tell("directory.vnf.firewall", &control.VnfRecord{Vnf: "firewall", Spec: &api.VnfSpec{Driver: "nftables-firewall", ControllerSite: "core"}})
	s.tell("directory.deployment.fw", &control.DeploymentRecord{Deployment: "fw", Spec: &api.VnfDeploymentSpec{Vnf: "firewall",
		Site: "core", Capacity: 100, Instances: 1}})
	s.tell("directory.edge.acme.lan", &control.EdgeRecord{Edge: "lan", Customer: "acme", Spec: &api.EdgeSpec{Kind: api.EdgeKind_EDGE_KIND_LAN,
		Site: "core", Interface: "lo", Prefixes: []string{"10.1.0.0/24"}}})
}

// send sends a step once; nil where no answer came.
func (s *site) send(service, transaction string, step any) *control.ParticipantReply {
	s.t.Helper()
	request := &control.ParticipantRequest{Transaction: transaction}
	switch step := step.(type) {
	case *control.Prepare:
		request.Step = &control.ParticipantRequest_Prepare{Prepare: step}
	case *control.Commit:
		request.Step = &control.ParticipantRequest_Commit{Commit: step}
	case *control.Abort:
		request.Step = &control.ParticipantRequest_Abort{Abort: step}
	}
	payload, err := proto.Marshal(request)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.ctx, 500*time.Millisecond)
	defer cancel()
	answer, err := s.connection.Request(ctx, "core", service, payload)
	if err != nil {
		return nil
	}
	reply := &control.ParticipantReply{}
	if err := proto.Unmarshal(answer, reply); err != nil {
		s.t.Fatal(err)
	}
	return reply
}

// insist sends a step until it is answered, as a coordinator does.
func (s *site) insist(service, transaction string, step any) *control.ParticipantReply {
	s.t.Helper()
	var reply *control.ParticipantReply
	s.eventually(fmt.Sprintf("%s answers %T", service, step), func() bool {
		reply = s.send(service, transaction, step)
		return reply != nil
	})
	return reply
}

func ask(chain string, load float64) *control.Prepare {
	return &control.Prepare{Customer: "acme", Chain: chain, ChainLabel: 16, CoordinatorSite: "core",
		DeadlineUnixMs: time.Now().Add(time.Hour).UnixMilli(),
		Allocations:    []*control.Allocation{{Position: 1, Loads: []*control.SiteLoad{{Site: "core", Load: load}}}}}
}

func bind(chain string) *control.Prepare {
	p := ask(chain, 0)
	p.Allocations = nil
	p.Edges = []*control.EdgeBinding{{Edge: "lan", EdgeCustomer: "acme", Ingress: true}}
	return p
}

var steps = []string{"prepare-before-store", "prepare-after-store", "commit-before-store", "commit-after-store", "commit-after-apply",
	"abort-before-store", "abort-after-store"}

// killed takes a transaction to its end while the participant dies once at a step.
func (s *site) killed(step, service, process, transaction string, prepare *control.Prepare, restart func(string)) {
	s.t.Helper()
	outcome := any(&control.Commit{})
	if step[:5] == "abort" {
		outcome = &control.Abort{}
	}
	s.kill(process)
	restart(step)
	died := false
	for _, message := range []any{prepare, outcome} {
		var reply *control.ParticipantReply
		s.eventually(fmt.Sprintf("%s answers %T", service, message), func() bool {
			reply = s.send(service, transaction, message)
			if reply == nil && s.ended(process) { // otherwise it is only slow
				died = true
				restart("")
			}
			return reply != nil
		})
		if !reply.Accepted {
			s.t.Fatalf("%T refused: %v", message, reply.Rejection)
		}
	}
	if !died {
		s.t.Fatal("the participant outlived its fault point")
	}
}

func TestVnfControllerKilledAtEveryStep(t *testing.T) {
	s := newSite(t)
	s.startSite("")
	s.connect()
	s.tellDirectory()
	s.startVnf("")
	for i, step := range steps {
		chain, transaction := fmt.Sprintf("c%d", i), fmt.Sprintf("t%d", i)
		s.killed(step, "vnf.firewall", "vnf", transaction, ask(chain, 60), s.startVnf)
		committed := step[:5] != "abort"
		entries, err := s.connection.Published().List(s.ctx, bus.Key("allocation", "firewall", "acme", chain))
		if err != nil || (len(entries) == 1) != committed {
			t.Fatalf("%s: %d allocations published, committed %v, %v", step, len(entries), committed, err)
		}
		if reply := s.insist("vnf.firewall", transaction+"x", ask("other", 50)); reply.Accepted == committed {
			t.Fatalf("%s: another chain accepted %v although committed %v", step, reply.Accepted, committed)
		} else if committed && (reply.Rejection.Available != 40 || reply.Rejection.Requested != 50 || reply.Rejection.Site != "core") {
			t.Fatalf("%s: rejection %v", step, reply.Rejection)
		}
		s.insist("vnf.firewall", transaction+"x", &control.Abort{})
		release := ask(chain, 0)
		release.Allocations = nil
		s.insist("vnf.firewall", transaction+"r", release)
		s.insist("vnf.firewall", transaction+"r", &control.Commit{})
	}
}

func TestSiteKilledAtEveryStepOfItsEdgeController(t *testing.T) {
	s := newSite(t)
	s.startSite("")
	s.connect()
	s.tellDirectory()
	for i, step := range steps {
		chain, transaction := fmt.Sprintf("c%d", i), fmt.Sprintf("t%d", i)
		s.killed(step, "edge", "site", transaction, bind(chain), s.startSite)
		committed := step[:5] != "abort"
		if reply := s.insist("edge", transaction+"x", bind("other")); reply.Accepted == committed {
			t.Fatalf("%s: the same match of another chain accepted %v although committed %v: %v", step, reply.Accepted, committed, reply)
		}
		s.insist("edge", transaction+"x", &control.Abort{})
		release := bind(chain)
		release.Edges = nil
		s.insist("edge", transaction+"r", release)
		s.insist("edge", transaction+"r", &control.Commit{})
	}
}

func TestKilledSiteComesBackToTheSameRules(t *testing.T) {
	s := newSite(t)
	s.startSite("")
	s.connect()
	s.tellDirectory()
	s.startVnf("")
	s.insist("vnf.firewall", "t1", ask("web", 60))
	s.insist("vnf.firewall", "t1", &control.Commit{})
	s.tell("chain.acme.web", &control.ChainRecord{Customer: "acme", Chain: "web", Revision: 1, Versions: []*control.ChainVersion{{
		ChainLabel: 16, State: control.VersionState_VERSION_STATE_ACTIVE, Vnfs: []*control.PlannedVnf{{Vnf: "firewall"}},
		Ingress: []*control.PlannedEdge{{Site: "core", Edge: "lan", Customer: "acme", Prefixes: []string{"10.1.0.0/24"}}},
		Egress:  []*control.PlannedEdge{{Site: "core", Edge: "lan", Customer: "acme", EgressLabel: 100, Prefixes: []string{"10.1.0.0/24"}}},
		Routes:  []*control.PlannedRoute{{IngressSite: "core", Sites: []string{"core"}, EgressSite: "core", EgressLabel: 100, Fraction: 1}},
	}}})
	set := func() *rules.RuleSet {
		found := &rules.RuleSet{}
		entry, err := s.connection.Local("rules").Get(s.ctx, "f1")
		if err == nil {
			err = proto.Unmarshal(entry.Value, found)
		}
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	s.eventually("rules with the firewall's instance", func() bool { return len(set().Attachments) == 1 })
	before := set()
	for range 3 {
		s.kill("site")
		if !hostnet.NamespaceExists(s.prefix + "fw-1") {
			t.Fatal("the instance went with the site's process")
		}
		s.startSite("")
		time.Sleep(time.Second)
		if after := set(); !proto.Equal(before, after) {
			t.Fatalf("rules changed with the site's death:\n%v\n%v", before, after)
		}
	}
	// The controller, which lived through it, serves again.
	if reply := s.insist("vnf.firewall", "t2", ask("mail", 41)); reply.Accepted || reply.Rejection.Available != 40 {
		t.Errorf("after the site's return: %v", reply)
	}
}
