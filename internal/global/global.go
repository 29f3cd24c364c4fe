// Package global is the Global Switchboard (paper sections 3 and 4): it keeps what customers and operators want, plans
// chains with traffic engineering, agrees each plan with every VNF and edge controller concerned, and publishes it for
// the sites.
//
// # Invariants
//
//   - What Apply acknowledged is durable, whole: a journal is written before the first resource of it.
//   - Desired state is never changed by what is observed; every chain's worker compares the two and takes one step.
//     A step begun and not finished is repeated from durable state alone.
//   - A transaction's record is durable before each of its messages goes out. An outcome, once durable, never changes;
//     a transaction of which nothing is known was aborted.
//   - A chain label is held by one chain version, from before the first message about it until every site and
//     participant has let go of it.
//   - An edge gets classifiers only after every site concerned has applied the rules of the new routes.
//
// # Files
//
//	global desired apply journal     what is wanted, and how it changes
//	directory label seed             what sites are told of it; labels; the secret of their choices
//	worker plan model                one chain's way to its plan
//	engineering board entries        traffic engineering: requests, and the model they are about
//	optimiser                        the processes that answer them
//	transaction participant          two-phase commit and recovery
//	moves                            the optimum, and the way there
//	outage broken                    what failed, and the routes that cannot stay
//	activate drain                   make before break, and the end of old versions
//	observe status event             what sites report, and how it is shown
//	traffic trace measure            live figures
package global

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// Config describes a Global Switchboard. Zero durations take the defaults.
type Config struct {
	// Connection is to the bus of the global site.
	Connection *bus.Connection
	// Engineering says who finds routes.
	Engineering EngineeringConfig
	// Patience is how long a plan that a participant refused is tried again before the chain is rejected: what it refused
	// may be on its way to it. Default 2 s.
	Patience time.Duration
	// PrepareTimeout bounds one participant's answer. Default 5 s.
	PrepareTimeout time.Duration
	// DrainLimit ends a replaced version that still has flows, DeleteDrainLimit one of a chain that is deleted. Defaults
	// 1 h and 30 s.
	DrainLimit, DeleteDrainLimit time.Duration
	// DeleteIdleLimit ends a version of a chain that is deleted, and still has flows, when no packet of it has been seen for
	// so long. Default 3 s.
	DeleteIdleLimit time.Duration
	// RetryInterval is how long a rejected chain waits before it is tried again without a reason to. Default 30 s.
	RetryInterval time.Duration
	// Measure says how measured traffic replaces the customer's estimate.
	Measure MeasurePolicy
	// Moves says how chains come nearer to the optimum.
	Moves MovePolicy
	// Outages says when chains are routed around what failed.
	Outages OutagePolicy
	// NewSelectionSeed replaces the secret by which forwarders choose instances. Established connections stay where they are.
	NewSelectionSeed bool
	Now              func() time.Time
	Logger           *slog.Logger
}

func (c *Config) defaults() {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&c.Patience, 2*time.Second)
	set(&c.PrepareTimeout, 5*time.Second)
	set(&c.DrainLimit, time.Hour)
	set(&c.DeleteDrainLimit, 30*time.Second)
	set(&c.DeleteIdleLimit, 3*time.Second)
	set(&c.RetryInterval, 30*time.Second)
	c.Measure.defaults()
	c.Engineering.defaults()
	c.Outages.defaults()
	c.Moves.defaults()
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

// Global is a Global Switchboard. Safe for concurrent use.
type Global struct {
	config     Config
	log        *slog.Logger
	connection *bus.Connection
	// registration keeps a second Global Switchboard of the site waiting.
	registration *bus.Registration
	store        *bus.Store // durable, of this process alone
	published    *bus.Store
	events       *eventLog
	observed     *observed
	changes      *broadcast
	coordinate   *coordinator
	board        *modelBoard
	engineering  *engineering
	seed         []byte // of the forwarders' choice of instances; set once

	applying sync.Mutex // held while desired resources change
	// changed counts changes of desired resources.
	changed atomic.Uint64

	mu       sync.Mutex
	world    chain.World
	messages map[chain.Key]*api.Resource
	states   map[chain.Key]*control.ChainState
	records  map[chain.Key]*control.ChainRecord
	// planned are loads of plans that are being agreed, by chain.
	planned map[chain.Key]map[chain.Placement]chain.Load
	outages outages
	moves   map[chain.Key]*plannedMove
	labels  labels
	// spares are labels that chains held when the process ended, for their workers.
	spares  map[chain.Key]spareLabel
	workers map[chain.Key]*worker
	measure map[chain.Key]*measured

	run   sync.WaitGroup
	start func(*worker)
}

// globalStore is the bucket of the Global Switchboard.
const globalStore = "global"

// Open reads what the Global Switchboard knew when it last ran, and finishes an apply that was cut short. It waits for
// another Global Switchboard at the site to end.
func Open(ctx context.Context, config Config) (*Global, error) {
	config.defaults()
	g := &Global{
		config: config, log: config.Logger, connection: config.Connection,
		store: config.Connection.Local(globalStore), published: config.Connection.Published(),
		changes: newBroadcast(), outages: newOutages(),
		world: chain.World{}, messages: map[chain.Key]*api.Resource{}, states: map[chain.Key]*control.ChainState{},
		records: map[chain.Key]*control.ChainRecord{}, planned: map[chain.Key]map[chain.Placement]chain.Load{},
		labels: newLabels(), spares: map[chain.Key]spareLabel{}, workers: map[chain.Key]*worker{}, measure: map[chain.Key]*measured{},
	}
	g.start = func(*worker) {}
	g.observed = newObserved(g)
	g.coordinate = newCoordinator(g)
	g.board = newModelBoard(g, config.Connection.Local(bus.ModelBucket))
	g.engineering = newEngineering(config.Engineering, config.Connection, g.board)
	// Nothing is read, let alone mended, while another one works.
	var err error
	if g.registration, err = g.connection.Register(ctx, "global", "switchboard", nil); err != nil {
		return nil, fmt.Errorf("global switchboard: %w", err)
	}
	if err := g.read(ctx); err != nil {
		g.registration.Close()
		return nil, fmt.Errorf("global switchboard: %w", err)
	}
	return g, nil
}

// read reads everything durable, in order, and mends what was cut short.
func (g *Global) read(ctx context.Context) (err error) {
	if g.events, err = openEventLog(ctx, g.connection.Local(eventStore), g.config.Now, g.changes.tell); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{g.readResources, g.finishJournal, g.readChains, g.readLabels,
		g.coordinate.read, g.readSeed, g.publishDirectory, g.releaseStrayLabels} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Run reconciles chains until ctx ends. ready is called when requests of participants and sites are served.
func (g *Global) Run(ctx context.Context, ready func()) error {
	defer g.registration.Close()
	if err := g.connection.Serve(transactionService, g.coordinate.outcome); err != nil {
		return err
	}
	defer g.connection.Unserve(transactionService)
	if err := g.connection.Serve(seedService, g.giveSeed); err != nil {
		return err
	}
	defer g.connection.Unserve(seedService)
	ctx, cancel := context.WithCancel(ctx)
	defer g.run.Wait()
	defer cancel()
	g.mu.Lock()
	g.start = func(w *worker) {
		g.run.Add(1)
		go func() { defer g.run.Done(); w.run(ctx) }()
	}
	for key := range g.states {
		g.worker(key)
	}
	sites := g.world.Keys(chain.KindSite)
	g.mu.Unlock()
	g.background(ctx)
	g.observed.begin(ctx)
	for _, site := range sites {
		g.observed.follow(chain.SiteName(site.Name))
	}
	g.coordinate.recover(ctx)
	ready()
	g.log.Info("global switchboard runs", "site", g.connection.Site(), "resources", len(g.messages))
	<-ctx.Done()
	return nil
}

// background starts what runs beside the chains' workers.
func (g *Global) background(ctx context.Context) {
	tasks := []func(context.Context){g.board.keep, g.keepWorkers, g.watchOutages, g.keepMoves}
	for _, task := range tasks {
		g.run.Add(1)
		go func() { defer g.run.Done(); task(ctx) }()
	}
}

// worker is the chain's worker, started where it is new. g.mu is held.
func (g *Global) worker(key chain.Key) *worker {
	w := g.workers[key]
	if w == nil {
		w = newWorker(g, key)
		g.workers[key] = w
		g.start(w)
	}
	return w
}

// kick makes a chain's worker look again.
func (g *Global) kick(key chain.Key) {
	g.mu.Lock()
	w := g.workers[key]
	g.mu.Unlock()
	if w != nil {
		w.kick()
	}
}

// kickAll makes every worker look again; rejected chains try again, except those that were asked before.
func (g *Global) kickAll(asked map[chain.Key]bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, w := range g.workers {
		if !asked[key] {
			w.retry.Store(true)
		}
		w.kick()
	}
}
