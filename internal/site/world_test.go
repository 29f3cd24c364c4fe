package site

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/hostnet"
	"github.com/switchboard-project/switchboard/internal/needs"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// inOwnNetwork runs the test in a process of its own with a network of its own, and is true there.
func inOwnNetwork(t *testing.T) bool {
	t.Helper()
	const mark = "SWITCHBOARD_TEST_NETWORK"
	if os.Getenv(mark) == t.Name() {
		host, err := hostnet.CurrentNamespace()
		if err != nil {
			t.Fatal(err)
		}
		defer host.Close()
		if err := host.SetUp("lo"); err != nil {
			t.Fatal(err)
		}
		return true
	}
	needs.Root(t)
	command := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=120s")
	command.Env = append(os.Environ(), mark+"="+t.Name())
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("in its own network: %v\n%s", err, output)
	}
	t.Logf("%s", output)
	return false
}

// world is several sites in one process, with forwarders that only say what they would.
type world struct {
	t         *testing.T
	ctx       context.Context
	directory string
	authority *bus.Authority
	sites     map[string]*testSite
	prefix    string
}

type testSite struct {
	world      *world
	config     *Config
	server     *bus.Server
	connection *bus.Connection // of the test itself
	stop       func()          // of the Local Switchboard
	forwarder  *fakeForwarder
}

const globalSite = "office"

func newWorld(t *testing.T, names ...string) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &world{t: t, ctx: ctx, directory: t.TempDir(), sites: map[string]*testSite{}, prefix: fmt.Sprintf("sbs%d-", os.Getpid())}
	t.Cleanup(func() {
		cancel()
		w.close()
	})
	var err error
	if w.authority, err = bus.NewAuthority(filepath.Join(w.directory, "authority")); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		w.addSite(i, name, names)
	}
	return w
}

func (w *world) close() {
	for _, s := range w.sites {
		s.stop()
		s.connection.Close()
		s.server.Close()
	}
	names, err := hostnet.NamespaceNames(w.prefix)
	for _, name := range names {
		err = errors.Join(err, hostnet.DeleteNamespace(name))
	}
	if err != nil {
		w.t.Error(err)
	}
}

func (w *world) addSite(number int, name string, all []string) {
	w.t.Helper()
	directory := filepath.Join(w.directory, name)
	if _, err := w.authority.EnrolSite(name, filepath.Join(directory, "identity")); err != nil {
		w.t.Fatal(err)
	}
	identity, err := bus.LoadIdentity(filepath.Join(directory, "identity"))
	if err != nil {
		w.t.Fatal(err)
	}
	config := bus.ServerConfig{Site: name, StoreDirectory: directory, Listen: listenAt(number), LocalListen: "127.0.0.1:0",
		Identity: identity, Logger: quiet}
	for other, peer := range all {
		if peer != name {
			config.Peers = append(config.Peers, bus.Peer{Site: peer, Address: listenAt(other)})
		}
	}
	server, err := bus.StartServer(w.ctx, config)
	if err != nil {
		w.t.Fatal(err)
	}
	s := &testSite{world: w, server: server, stop: func() {}}
	w.sites[name] = s
	s.connection = s.connect("test", bus.KindController)
	s.config = &Config{Site: name, GlobalSite: globalSite,
		Forwarders: []Forwarder{{Name: "f1", TunnelAddress: fmt.Sprintf("192.0.2.%d/24", number+1), Interface: "wan0", MTU: 1600,
			Driver: DriverAFPacket, Devices: map[string]string{"card0": "0000:03:00.0"}}},
		EdgeInterfaces: []EdgeInterface{{Name: "lo", Forwarder: "f1"}, {Name: "card0", Forwarder: "f1"}, {Name: "wan0", Forwarder: "f1"}},
		VNF:            VNFSettings{NamespacePrefix: w.prefix + name + "-"}}
	s.startForwarder()
	s.start()
}

func listenAt(number int) string { return fmt.Sprintf("127.0.0.1:%d", 7400+number) }

var quiet = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

func (s *testSite) connect(agent string, kind bus.Kind) *bus.Connection {
	s.world.t.Helper()
	c, err := bus.Connect(s.world.ctx, bus.ConnectConfig{Agent: agent, URL: s.server.LocalURL(),
		CredentialsFile: s.server.CredentialsFile(kind, "default"), Logger: quiet})
	if err != nil {
		s.world.t.Fatal(err)
	}
	return c
}

// start starts the Local Switchboard.
func (s *testSite) start() {
	s.world.t.Helper()
	c := s.connect("local-switchboard", bus.KindController)
	ctx, cancel := context.WithCancel(s.world.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := New(s.config, c, quiet, func() {}).Run(ctx); err != nil {
			s.world.t.Errorf("site %s: %v", s.config.Site, err)
		}
	}()
	s.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
		c.Close()
	})
}

// startController starts a VNF controller at the site.
func (s *testSite) startController(name string) {
	s.world.t.Helper()
	c := s.connect("vnf-"+name, bus.KindService)
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(s.world.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := vnf.NewController(c, name, globalSite, quiet).Run(ctx, func() { close(ready) }); err != nil {
			s.world.t.Errorf("controller of %s: %v", name, err)
		}
	}()
	select {
	case <-ready:
	case <-time.After(30 * time.Second):
		s.world.t.Fatalf("controller of %s is not ready", name)
	}
	s.world.t.Cleanup(func() { cancel(); <-ended; c.Close() })
}

// fakeForwarder applies every rule set at once and reports it.
type fakeForwarder struct {
	mu           sync.Mutex
	rules        *rules.RuleSet
	status       *rules.Status
	frozen       bool // takes rules and does not apply them
	store        *bus.Store
	registration *bus.Registration
}

func (s *testSite) startForwarder() {
	s.world.t.Helper()
	f := &fakeForwarder{store: s.connection.Local(statusBucket),
		status: &rules.Status{Site: s.config.Site, Forwarder: "f1", Incarnation: 1, AttachmentFlows: map[string]uint64{}}}
	s.forwarder = f
	var err error
	if f.registration, err = s.connection.Register(s.world.ctx, "forwarder", "f1", nil); err != nil {
		s.world.t.Fatal(err)
	}
	sets, err := s.connection.Local(rulesBucket).Watch(s.world.ctx, "f1")
	if err != nil {
		s.world.t.Fatal(err)
	}
	go func() {
		for e := range sets {
			if e.Kind == bus.Put {
				set := &rules.RuleSet{}
				if err := proto.Unmarshal(e.Value, set); err != nil {
					s.world.t.Error(err)
				}
				f.change(s.world.ctx, func() {
					f.rules = set
					if !f.frozen {
						f.status.AppliedGeneration, f.status.CountedGeneration = set.Generation, set.Generation
					}
				})
			}
		}
	}()
}

// change changes what the forwarder has and reports.
func (f *fakeForwarder) change(ctx context.Context, how func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how()
	f.status.TimeUnixMs = max(time.Now().UnixMilli(), f.status.TimeUnixMs+1)
	value, err := proto.Marshal(f.status)
	if err == nil {
		_, _ = f.store.Put(ctx, "f1", value) // fails only when the world ends
	}
}

func (f *fakeForwarder) current() *rules.RuleSet {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rules
}

// tell publishes a record of the Global Switchboard.
func (w *world) tell(key string, record proto.Message) {
	w.t.Helper()
	value, err := proto.Marshal(record)
	if err == nil {
		_, err = w.sites[globalSite].connection.Published().Put(w.ctx, key, value)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) tellDirectory() {
	w.tell("directory.vnf.firewall", &control.VnfRecord{Vnf: "firewall", Spec: &api.VnfSpec{Driver: "nftables-firewall",
		ControllerSite: "cloud", LoadPerMbps: 1}})
	w.tell("directory.deployment.fw", &control.DeploymentRecord{Deployment: "fw", Spec: &api.VnfDeploymentSpec{Vnf: "firewall",
		Site: "cloud", Capacity: 100, Instances: 2}})
	w.tell("directory.edge.acme.lan", &control.EdgeRecord{Edge: "lan", Customer: "acme", Spec: &api.EdgeSpec{Kind: api.EdgeKind_EDGE_KIND_LAN,
		Site: "office", Interface: "lo", Prefixes: []string{"10.1.0.0/24"}}})
	w.tell("directory.edge.-.internet", &control.EdgeRecord{Edge: "internet", Spec: &api.EdgeSpec{Kind: api.EdgeKind_EDGE_KIND_INTERNET,
		Site: "cloud", Interface: "lo", Prefixes: []string{"0.0.0.0/0"}}})
}

// webChain goes from the office through the firewall at the cloud to the Internet there.
func webChain(revision uint64, state control.VersionState) *control.ChainRecord {
	return &control.ChainRecord{Customer: "acme", Chain: "web", Revision: revision, Versions: []*control.ChainVersion{{
		ChainLabel: 16, State: state, Match: &api.Match{},
		Vnfs:    []*control.PlannedVnf{{Vnf: "firewall"}},
		Ingress: []*control.PlannedEdge{{Site: "office", Edge: "lan", Customer: "acme", Prefixes: []string{"10.1.0.0/24"}}},
		Egress:  []*control.PlannedEdge{{Site: "cloud", Edge: "internet", EgressLabel: 102, Prefixes: []string{"0.0.0.0/0"}}},
		Routes:  []*control.PlannedRoute{{IngressSite: "office", Sites: []string{"cloud"}, EgressSite: "cloud", EgressLabel: 102, Fraction: 1}},
	}}}
}

// ask sends a step of two-phase commit.
func (w *world) ask(site, service string, request *control.ParticipantRequest) *control.ParticipantReply {
	w.t.Helper()
	payload, err := proto.Marshal(request)
	if err != nil {
		w.t.Fatal(err)
	}
	var answer []byte
	w.eventually("service "+service+" answers", func() bool {
		answer, err = w.sites[globalSite].connection.Request(w.ctx, site, service, payload)
		return err == nil
	})
	reply := &control.ParticipantReply{}
	if err := proto.Unmarshal(answer, reply); err != nil {
		w.t.Fatalf("%s answers %q: %v", service, answer, err)
	}
	return reply
}

// reserve takes a transaction through both phases.
func (w *world) reserve(transaction, site, service string, prepare *control.Prepare) {
	w.t.Helper()
	for _, step := range []*control.ParticipantRequest{
		{Transaction: transaction, Step: &control.ParticipantRequest_Prepare{Prepare: prepare}},
		{Transaction: transaction, Step: &control.ParticipantRequest_Commit{Commit: &control.Commit{}}}} {
		if reply := w.ask(site, service, step); !reply.Accepted {
			w.t.Fatalf("%s at %s: %v", service, site, reply.Rejection)
		}
	}
}

func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
	}
	w.t.Fatalf("not within 30 s: %s", what)
}

// published reads a record that a site publishes.
func (s *testSite) published(key string, record proto.Message) bool {
	entry, err := s.connection.Published().Get(s.world.ctx, key)
	return err == nil && proto.Unmarshal(entry.Value, record) == nil
}

func (s *testSite) progress() *control.ChainProgress {
	p := &control.ChainProgress{}
	s.published("progress.acme.web", p)
	return p
}
