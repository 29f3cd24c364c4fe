package global

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/needs"
	"github.com/switchboard-project/switchboard/internal/participant"
	"github.com/switchboard-project/switchboard/internal/resource"
)

// patience bounds every wait of a test; nothing waits that long unless something is wrong.
const patience = 30 * time.Second

// platform is a few sites with real buses between them, participants that keep reservations as real ones do, and Local
// Switchboards that follow every record at once.
type platform struct {
	t     testing.TB
	log   *slog.Logger
	sites map[string]*fakeSite
	hq    *fakeSite
	g     *Global
	stop  func()
	// config is changed before start.
	config Config
}

// fakeSite is a site's bus and its agents.
type fakeSite struct {
	p          *platform
	name       string
	server     *bus.Server
	connection *bus.Connection

	mu sync.Mutex
	// flows are the connections that the site reports for a chain label; deaf stops it from following records.
	flows map[uint32]uint64
	deaf  bool
	edges map[string]bool
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// newPlatform starts linked sites; the first runs the Global Switchboard.
func newPlatform(t testing.TB, names ...string) *platform {
	t.Helper()
	if parallel, ok := t.(*testing.T); ok {
		parallel.Parallel() // they wait more than they work
	}
	p := &platform{t: t, log: quiet(), sites: map[string]*fakeSite{}}
	if os.Getenv("SWITCHBOARD_TEST_LOG") != "" {
		p.log = slog.Default()
	}
	authority, err := bus.NewAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	addresses := map[string]string{}
	for _, name := range names {
		addresses[name] = needs.FreeAddress(t)
	}
	for i, name := range names {
		config := bus.ServerConfig{Site: name, StoreDirectory: t.TempDir(), Listen: addresses[name], LocalListen: "127.0.0.1:0", Logger: quiet()}
		if config.Identity, err = authority.EnrolSite(name, t.TempDir()); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			config.Peers = []bus.Peer{{Site: names[0], Address: addresses[names[0]], Dial: bus.DialAlways}}
		}
		p.sites[name] = p.startSite(name, config)
	}
	p.hq = p.sites[names[0]]
	p.awaitLinks()
	p.config = Config{Engineering: EngineeringConfig{Workers: WorkersConfig{Program: optimiserProgram(t), Count: 1,
		Credentials: p.hq.server.CredentialsFile(bus.KindOptimiser, "default")}}, Patience: 300 * time.Millisecond, PrepareTimeout: 2 * time.Second,
		DeleteDrainLimit: 500 * time.Millisecond, DrainLimit: time.Second, Logger: p.log}
	return p
}

// awaitLinks waits until every site can be reached from the first.
func (p *platform) awaitLinks() {
	p.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		links, err := p.hq.connection.Links(testContext(p.t))
		up := 0
		for _, l := range links {
			if l.Up {
				up++
			}
		}
		if err == nil && up == len(p.sites)-1 {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("links: %v, %v", links, err)
		}
	}
}

func (p *platform) startSite(name string, config bus.ServerConfig) *fakeSite {
	p.t.Helper()
	ctx := testContext(p.t)
	server, err := bus.StartServer(ctx, config)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(server.Close)
	s := &fakeSite{p: p, name: name, server: server, flows: map[uint32]uint64{}, edges: map[string]bool{}}
	s.connection = s.connect("controller")
	return s
}

func (s *fakeSite) connect(name string) *bus.Connection {
	s.p.t.Helper()
	path, err := s.server.WriteCredentials(bus.KindController, name)
	if err != nil {
		s.p.t.Fatal(err)
	}
	c, err := bus.Connect(testContext(s.p.t), bus.ConnectConfig{Agent: name, CredentialsFile: path, Logger: quiet()})
	if err != nil {
		s.p.t.Fatal(err)
	}
	s.p.t.Cleanup(c.Close)
	return c
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	t.Cleanup(cancel)
	return ctx
}

// optimiserProgram is the program switchboard-te; needs.Missing where it was not built.
func optimiserProgram(t testing.TB) string {
	t.Helper()
	for _, build := range []string{"release", "debug"} {
		for _, target := range []string{os.Getenv("CARGO_TARGET_DIR"), "../../target"} {
			if path, err := filepath.Abs(filepath.Join(target, build, "switchboard-te")); err == nil && target != "" {
				if _, err := os.Stat(path); err == nil {
					return path
				}
			}
		}
	}
	needs.Missing(t, "switchboard-te: make build")
	return ""
}

// startGlobal starts the Global Switchboard; stop ends it as a crash would as far as the store is concerned.
func (p *platform) startGlobal() {
	p.t.Helper()
	ctx, cancel := context.WithCancel(testContext(p.t))
	config := p.config
	config.Connection = p.hq.connect("global")
	g, err := Open(ctx, config)
	if err != nil {
		p.t.Fatal(err)
	}
	done, ready := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		if err := g.Run(ctx, func() { close(ready) }); err != nil {
			p.t.Error(err)
		}
	}()
	select {
	case <-ready:
	case <-time.After(patience):
		p.t.Fatal("the Global Switchboard is not ready")
	}
	p.g = g
	var once sync.Once
	p.stop = func() { once.Do(func() { cancel(); <-done; config.Connection.Close() }) }
	p.t.Cleanup(p.stop)
}

// followChains makes a site follow records as a Local Switchboard does: every revision is applied at once.
func (s *fakeSite) followChains() {
	ctx := testContext(s.p.t)
	subscription, err := s.connection.Subscribe(ctx, s.p.hq.name, "chain")
	if err != nil {
		s.p.t.Fatal(err)
	}
	go func() {
		for e := range subscription.Events() {
			record := &control.ChainRecord{}
			if e.Kind != bus.Put || proto.Unmarshal(e.Value, record) != nil {
				continue
			}
			s.report(ctx, record)
		}
	}()
}

func (s *fakeSite) report(ctx context.Context, record *control.ChainRecord) {
	s.mu.Lock()
	deaf := s.deaf
	flows := map[uint32]uint64{}
	for label, n := range s.flows {
		flows[label] = n
	}
	s.mu.Unlock()
	if deaf {
		return
	}
	_ = put(ctx, s.connection.Published(), bus.Key("progress", record.Customer, record.Chain), &control.ChainProgress{Site: s.name,
		Customer: record.Customer, Chain: record.Chain, AppliedRevision: record.Revision, Flows: flows})
}

// participate serves a participant with a limit on load per site; nil admits all.
func (s *fakeSite) participate(service string, capacity map[string]float64) *participant.Participant {
	s.p.t.Helper()
	ctx := testContext(s.p.t)
	one, err := participant.Open(ctx, participant.Config{Name: service, Store: s.connection.Local("p_" + bucketName(service)), Logger: quiet(),
		Admit: admitWithin(capacity), Apply: func(context.Context, []*control.Prepare) error { return nil }, Ask: participant.AskOver(s.connection)})
	if err != nil {
		s.p.t.Fatal(err)
	}
	go func() { _ = one.Serve(ctx, s.connection, service) }()
	return one
}

// reservations are what a participant's store holds.
func (s *fakeSite) reservations(service string) []*control.ReservationRecord {
	s.p.t.Helper()
	entries, err := s.connection.Local("p_"+bucketName(service)).List(testContext(s.p.t), "")
	if err != nil {
		s.p.t.Fatal(err)
	}
	var all []*control.ReservationRecord
	for _, e := range entries {
		r := &control.ReservationRecord{}
		if err := proto.Unmarshal(e.Value, r); err != nil {
			s.p.t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// disagreement reports how participants differ from the published records: each must hold exactly the labels there are, and
// nothing in doubt. "" where they agree.
func (p *platform) disagreement() string {
	labels := map[uint32]bool{}
	entries, err := p.hq.connection.Published().List(testContext(p.t), "chain")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, e := range entries {
		record := &control.ChainRecord{}
		if err := proto.Unmarshal(e.Value, record); err != nil {
			p.t.Fatal(err)
		}
		for _, v := range record.Versions {
			labels[v.ChainLabel] = true
		}
	}
	for _, at := range []struct {
		site    *fakeSite
		service string
	}{{p.hq, "vnf.firewall"}, {p.hq, "edge"}, {p.sites["office"], "edge"}} {
		held := map[uint32]bool{}
		for _, r := range at.site.reservations(at.service) {
			content := len(r.GetPrepare().GetAllocations())+len(r.GetPrepare().GetEdges()) > 0
			switch {
			case r.State == control.TransactionState_TRANSACTION_STATE_PREPARING:
				return fmt.Sprintf("%s at %s is in doubt about %s", at.service, at.site.name, r.Transaction)
			case r.State == control.TransactionState_TRANSACTION_STATE_COMMITTED && content:
				held[r.Prepare.ChainLabel] = true
			}
		}
		if fmt.Sprint(held) != fmt.Sprint(labels) {
			return fmt.Sprintf("%s at %s holds %v, the records have %v", at.service, at.site.name, held, labels)
		}
	}
	return ""
}

func bucketName(service string) string {
	name := []byte(service)
	for i := range name {
		if name[i] == '.' {
			name[i] = '_'
		}
	}
	return string(name)
}

// admitWithin refuses what exceeds the capacity of a site. Of a chain's versions the largest counts.
func admitWithin(capacity map[string]float64) func(*control.Prepare, []*control.Prepare) *control.Rejection {
	return func(request *control.Prepare, held []*control.Prepare) *control.Rejection {
		if capacity == nil {
			return nil
		}
		sum := func(p *control.Prepare, site string) (load float64) {
			for _, a := range p.Allocations {
				for _, l := range a.Loads {
					if l.Site == site {
						load += l.Load
					}
				}
			}
			return load
		}
		for site, most := range capacity {
			others := 0.0
			for _, h := range held {
				if h.Customer != request.Customer || h.Chain != request.Chain {
					others += sum(h, site)
				}
			}
			if wanted := sum(request, site); wanted > 0 && others+wanted > most+1e-6 {
				vnf := "firewall"
				return &control.Rejection{Reason: fmt.Sprintf("%s at %s: %g load units requested, %g available", vnf, site, wanted, most-others),
					Vnf: vnf, Site: site, Requested: wanted, Available: max(0, most-others)}
			}
		}
		return nil
	}
}

// apply applies resources given as a file.
func (p *platform) apply(text string) []*api.ApplyOutcome {
	p.t.Helper()
	outcomes, err := p.tryApply(text)
	if err != nil {
		p.t.Fatal(err)
	}
	return outcomes
}

func (p *platform) tryApply(text string) ([]*api.ApplyOutcome, error) {
	p.t.Helper()
	documents, mistakes := resource.ReadFile("test.yaml", []byte(text))
	if len(mistakes) > 0 {
		p.t.Fatal(mistakes)
	}
	var all []*api.Resource
	for _, d := range documents {
		all = append(all, d.Message)
	}
	return p.g.Apply(testContext(p.t), all, false)
}

// chain reads a chain with its status, nil where there is none.
func (p *platform) chain(customer, name string) *api.Chain {
	found := p.g.List(chain.KindChain, customer, name)
	if len(found) == 0 {
		return nil
	}
	return found[0].GetChain()
}

// await waits until a condition holds, and says what was so instead.
func (p *platform) await(what string, holds func() bool) {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			for _, e := range p.g.Events("", "", "", 40) {
				p.t.Log(e.Reason, e.Message, e.Source)
			}
			p.t.Fatalf("%s does not hold; web is %v", what, p.chain("acme", "web"))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (p *platform) awaitPhase(customer, name string, phase api.ChainPhase) *api.Chain {
	p.t.Helper()
	p.await(fmt.Sprintf("%s/%s in phase %v", customer, name, phase), func() bool {
		return p.chain(customer, name).GetStatus().GetPhase() == phase
	})
	return p.chain(customer, name)
}

const topology = `
kind: Site
metadata: {name: hq}
spec: {kind: data-centre, capacity: 1000}
---
kind: Site
metadata: {name: office}
spec: {kind: customer-premises}
---
kind: Site
metadata: {name: west}
spec: {kind: edge-cloud, capacity: 1000}
---
kind: Link
metadata: {name: office-west}
spec: {from: office, to: west, latencyMs: 4, bandwidthMbps: 1000}
---
kind: Link
metadata: {name: west-hq}
spec: {from: west, to: hq, latencyMs: 5, bandwidthMbps: 1000}
---
kind: Link
metadata: {name: office-hq}
spec: {from: office, to: hq, latencyMs: 20, bandwidthMbps: 1000}
---
kind: Vnf
metadata: {name: firewall}
spec:
  loadPerMbps: 1
  driver: nftables-firewall
  attachment: gateway
  controllerSite: hq
  options:
    - {name: rules, type: firewall-rules}
    - {name: default, type: verdict, defaultValue: drop}
---
kind: VnfDeployment
metadata: {name: firewall-west}
spec: {vnf: firewall, site: west, capacity: 400, instances: 1}
---
kind: VnfDeployment
metadata: {name: firewall-hq}
spec: {vnf: firewall, site: hq, capacity: 400, instances: 1}
---
kind: Edge
metadata: {name: office-lan, customer: acme}
spec: {kind: lan, site: office, interface: lan0, prefixes: [10.1.0.0/24], gatewayAddresses: [10.1.0.1/24]}
---
kind: Edge
metadata: {name: internet}
spec: {kind: internet, site: hq, interface: wan0, prefixes: [0.0.0.0/0, "::/0"]}
`

const webChain = `
kind: Chain
metadata: {name: web, customer: acme}
spec:
  ingress: {edges: [office-lan]}
  vnfs: [{vnf: firewall, options: {default: accept}}]
  egress: {edges: [internet]}
  demand: {forwardMbps: 50, reverseMbps: 50}
`

// standard is a platform with the topology applied and every agent running.
func standard(t testing.TB) *platform {
	t.Helper()
	p := newPlatform(t, "hq", "office", "west")
	p.startAgents()
	p.startGlobal()
	p.apply(topology)
	return p
}

func (p *platform) startAgents() {
	for _, s := range p.sites {
		s.followChains()
		s.participate("edge", nil)
	}
	p.hq.participate("vnf.firewall", map[string]float64{"west": 400, "hq": 400})
}
