package site

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/edge"
	"github.com/switchboard-project/switchboard/internal/hostnet"
	"github.com/switchboard-project/switchboard/internal/vnf"
	"github.com/switchboard-project/switchboard/internal/vnf/instance"
)

// Buckets of the site that the Local Switchboard uses, besides what it publishes.
const (
	rulesBucket     = "rules"     // a forwarder's rules, by its name
	statusBucket    = "status"    // a forwarder's report, by its name
	instancesBucket = "instances" // what instances were given
)

const (
	// settle is how long changes are gathered before rules are made from them.
	settle = 4 * time.Millisecond
	// startPatience is how long the first rules wait for other sites' state; the rules of before stay in force meanwhile.
	startPatience = 2 * time.Second
	// lookInterval is how often interfaces are looked at and reports that only count are published.
	lookInterval = time.Second
	storeLimit   = 10 * time.Second
	// agentPatience is how long rules wait for the VNF agent to follow.
	agentPatience = 300 * time.Millisecond
)

// Switchboard is a site's Local Switchboard. One goroutine owns its state; all else sends it events.
type Switchboard struct {
	config     *Config
	connection *bus.Connection
	log        *slog.Logger
	agent      *instance.Agent
	events     chan func()
	stopped    chan struct{} // closed when nobody takes events any more
	ready      func()
	host       *hostnet.Namespace // where edges are
	rulesDue   bool               // something has changed that rules are made from

	state   state
	results results
	tasks   sync.WaitGroup // what goes on beside the loop and ends with it

	edgesMu    sync.Mutex
	edges      map[EdgeKey]edge.Status // for the edge controller
	edgesKnown chan struct{}           // closed when edges have been looked at
}

// New makes a Local Switchboard over the connection of an agent of kind controller. ready is called once when the site
// follows the Global Switchboard's state and its edge controller takes requests.
func New(config *Config, connection *bus.Connection, log *slog.Logger, ready func()) *Switchboard {
	s := &Switchboard{config: config, connection: connection, log: log, events: make(chan func(), 256), stopped: make(chan struct{}), ready: ready,
		edges: map[EdgeKey]edge.Status{}, edgesKnown: make(chan struct{})}
	s.state = newState()
	s.results = newResults()
	var names []string
	for _, f := range config.Forwarders {
		names = append(names, f.Name)
	}
	s.agent = instance.NewAgent(instance.Config{Site: config.Site, Prefix: config.VNF.NamespacePrefix, Forwarders: names,
		Store: connection.Local(instancesBucket), Logger: log, Programs: config.VNF.Programs, Directory: filepath.Join(config.Bus.Store, "instances"),
		Changed: func(o instance.Observed) {
			o.Instances, o.Attachments = slices.Clone(o.Instances), slices.Clone(o.Attachments) // homes are filled in
			select {
			case s.events <- func() { s.state.observed, s.rulesDue = &o, true; s.takeHome() }:
			case <-s.stopped:
			}
		}})
	return s
}

// Run works until ctx ends. Forwarders and instances go on without it.
func (s *Switchboard) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer close(s.stopped)
	defer cancel()
	failed := make(chan error, 8)
	start := func(what string, task func() error) {
		tasks.Add(1)
		go func() {
			defer tasks.Done()
			if err := task(); err != nil && ctx.Err() == nil {
				failed <- fmt.Errorf("%s: %w", what, err)
			}
		}()
	}
	host, err := hostnet.CurrentNamespace()
	if err != nil {
		return err
	}
	defer host.Close()
	s.host = host
	if err := s.restore(ctx); err != nil {
		return err
	}
	defer s.tasks.Wait()
	defer cancel()
	if err := s.readForwarders(ctx); err != nil {
		return err
	}
	// Where a killed process still counts as present, its name takes a moment to become free; nothing else waits for it.
	start("presence", func() error {
		registration, err := s.connection.Register(ctx, "site", s.config.Site, nil)
		if err != nil {
			return err
		}
		<-ctx.Done()
		registration.Close()
		return nil
	})
	if err := s.follow(ctx); err != nil {
		return err
	}
	start("VNF agents", func() error { return s.agent.Run(ctx) })
	controller := edge.NewController(s.connection, s.lookUpEdge, s.log)
	start("edge controller", func() error {
		select {
		case <-s.edgesKnown: // before, it would deny edges that exist
			return controller.Run(ctx)
		case <-ctx.Done():
			return nil
		}
	})
	return s.loop(ctx, failed)
}

// restore reads the rules that were published last.
func (s *Switchboard) restore(ctx context.Context) error {
	entries, err := s.connection.Local(rulesBucket).List(ctx, "")
	if err != nil {
		return err
	}
	for _, e := range entries {
		set := &rules.RuleSet{}
		if err := proto.Unmarshal(e.Value, set); err != nil {
			return fmt.Errorf("rules of forwarder %s in the site's store are damaged: %w; remove the key to begin anew", e.Key, err)
		}
		s.results.rules[e.Key] = set
	}
	s.state.seed.takeFromRules(s.results.rules)
	s.restoreHomes()
	return nil
}

// follow begins to hear of everything whose place is known from the start.
func (s *Switchboard) follow(ctx context.Context) error {
	for _, prefix := range []string{"directory", "chain"} {
		if err := s.subscribe(ctx, Topic{s.config.GlobalSite, prefix}); err != nil {
			return err
		}
	}
	statuses, err := s.connection.Local(statusBucket).Watch(ctx, "")
	if err != nil {
		return err
	}
	go s.forward(ctx, statuses, s.hearStatus)
	present, err := s.connection.WatchPresence(ctx, "forwarder")
	if err != nil {
		return err
	}
	links, err := s.connection.WatchLinks(ctx)
	if err != nil {
		return err
	}
	go func() {
		for link := range links {
			s.send(ctx, func() { s.state.liveness.hearLink(link); s.askPeers(ctx) })
		}
	}()
	go func() {
		for p := range present {
			s.send(ctx, func() { s.state.hearPresence(p); s.rulesDue = true })
		}
	}()
	return nil
}

// subscribe hears part of a site's published state until the topic is no longer needed.
func (s *Switchboard) subscribe(ctx context.Context, topic Topic) error {
	subscription, err := s.connection.Subscribe(ctx, topic.Site, topic.Prefix)
	if err != nil {
		return fmt.Errorf("subscribe to %s of site %s: %w", topic.Prefix, topic.Site, err)
	}
	s.state.topics[topic] = &topicState{close: subscription.Close}
	go s.forward(ctx, subscription.Events(), func(e bus.Event) {
		s.rulesDue = true
		if t := s.state.topics[topic]; t != nil && e.Kind == bus.Synchronised {
			t.synchronised = true
		} else if t != nil {
			s.state.hear(topic, e, s.log)
		}
	})
	return nil
}

func (s *Switchboard) forward(ctx context.Context, events <-chan bus.Event, hear func(bus.Event)) {
	for e := range events {
		s.send(ctx, func() { hear(e) })
	}
}

func (s *Switchboard) send(ctx context.Context, event func()) {
	select {
	case s.events <- event:
	case <-ctx.Done():
	}
}

// loop takes events and, when they settle, makes rules of what is known.
func (s *Switchboard) loop(ctx context.Context, failed <-chan error) error {
	began := time.Now()
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	ask := time.NewTicker(askInterval)
	defer ask.Stop()
	settled := time.NewTimer(0)
	defer settled.Stop()
	pending := true
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case event := <-s.events:
			event()
			if !pending {
				pending = true
				settled.Reset(settle)
			}
			continue
		case <-look.C:
			s.results.countsDue = true
		case <-ask.C:
			if s.askPeers(ctx); !s.rulesDue {
				continue
			}
		case <-settled.C:
			pending = false
		}
		if err := s.turn(ctx, time.Since(began) > startPatience); err != nil {
			s.log.Warn("a turn failed; it is tried again", "error", err)
		}
	}
}

// turn brings everything in line with what is known now.
func (s *Switchboard) turn(ctx context.Context, patienceOver bool) error {
	limited, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	if !s.state.topicsSynchronised(s.config.GlobalSite) {
		return nil
	}
	s.askForSeed(ctx)
	s.rulesDue = s.settleHomes(ctx) || s.absencesDue(time.Now()) || s.rulesDue
	if s.rulesDue || s.results.countsDue {
		s.rulesDue = s.lookAtEdges() || s.rulesDue
	}
	if s.rulesDue {
		made, err := s.makeRules(ctx, limited, patienceOver)
		if err != nil || !made {
			return err
		}
		s.rulesDue = false
	}
	if err := s.report(limited); err != nil {
		return err
	}
	if s.ready != nil {
		s.ready()
		s.ready = nil
	}
	return nil
}

// makeRules makes and publishes rules; it reports false while something that is on its way would be missing in them.
func (s *Switchboard) makeRules(ctx, limited context.Context, patienceOver bool) (bool, error) {
	in := s.inputs()
	if err := s.meetNeeds(ctx, in); err != nil {
		return false, err
	}
	if w := s.wanted(in); s.results.wantSequence == 0 || !reflect.DeepEqual(w, s.results.wanted) {
		s.results.wanted, s.results.wantSequence, s.results.wantedAt = w, s.agent.Want(w), time.Now()
	}
	// The agent has a moment to follow, so that forwarders get one set of rules and not two.
	if s.state.observed == nil || s.state.observed.Sequence < s.results.wantSequence && time.Since(s.results.wantedAt) < agentPatience {
		return false, nil
	}
	if !s.state.seed.isCurrent() && !patienceOver {
		return false, nil // the choices of new connections would change twice
	}
	// Until other sites' forwarders are known again, rules would lack them: the old ones are better.
	if !s.results.computed && !patienceOver && !s.state.allSynchronised() {
		return false, nil
	}
	in.Waiting = s.waiting()
	in.Attachments, in.Ports = s.state.observed.Attachments, map[string][]string{}
	for _, one := range s.state.observed.Instances {
		in.Ports[one.Forwarder] = append(in.Ports[one.Forwarder], one.Ports...)
		for name := range in.Visitors[Thing{Instance: one.Name}] {
			in.Ports[name] = append(in.Ports[name], one.Ports...)
		}
	}
	return true, s.publishRules(limited, Compute(in))
}

// meetNeeds subscribes to what the chains need, and ends what they need no more.
func (s *Switchboard) meetNeeds(ctx context.Context, in Inputs) error {
	s.state.need = Needs(in, s.controllerSite)
	needed := map[Topic]bool{{s.config.GlobalSite, "directory"}: true, {s.config.GlobalSite, "chain"}: true}
	for _, topic := range s.state.need.Topics {
		needed[topic] = true
		if s.state.topics[topic] == nil {
			if err := s.subscribe(ctx, topic); err != nil {
				return err
			}
		}
	}
	for topic, t := range s.state.topics {
		if !needed[topic] {
			t.close()
			delete(s.state.topics, topic)
			s.state.forget(topic)
		}
	}
	return nil
}

// publishRules stores rules that changed; what a forwarder gets is durable first.
func (s *Switchboard) publishRules(ctx context.Context, result Result) error {
	s.results.computed = true
	s.results.chains = result.Chains
	generations := map[string]uint64{}
	for name, set := range result.Rules {
		generations[name] = set.Generation
		old := s.results.rules[name]
		if old != nil && old.Generation == set.Generation {
			continue
		}
		value, err := proto.MarshalOptions{Deterministic: true}.Marshal(set)
		if err != nil {
			return err
		}
		if _, err := s.connection.Local(rulesBucket).Put(ctx, name, value); err != nil {
			return fmt.Errorf("publish rules of forwarder %s: %w", name, err)
		}
		s.results.rules[name] = set
		s.log.Debug("rules published", "forwarder", name, "generation", set.Generation)
	}
	for name := range s.results.rules {
		if result.Rules[name] == nil { // no longer configured
			if err := s.connection.Local(rulesBucket).Delete(ctx, name); err != nil {
				return err
			}
			delete(s.results.rules, name)
		}
	}
	s.results.progress.remember(generations, result.Chains)
	return nil
}

func (s *Switchboard) inputs() Inputs {
	in := Inputs{Site: s.config.Site, Forwarders: s.ownForwarders(), Visitors: s.state.homes.visitorsOf(),
		TookOver: s.tookOver(), UsableEdges: s.state.usableEdges,
		Latency: s.state.latency(), Encapsulations: s.state.encapsulations(s.config.Site), Previous: s.results.rules, Seed: s.state.seed.value}
	for _, e := range s.state.directory.edges {
		in.Edges = append(in.Edges, e)
	}
	for _, c := range s.state.chains {
		in.Chains = append(in.Chains, c)
	}
	s.noteAbsences(&in, time.Now())
	s.results.waitsFor = in.Away
	return in
}

// wanted is what the VNF agent shall bring about.
func (s *Switchboard) wanted(in Inputs) instance.Wanted {
	w := instance.Wanted{Drained: s.results.drained}
	for _, name := range sortedKeys(s.state.directory.deployments) {
		d := s.state.directory.deployments[name]
		spec := d.GetSpec()
		v := s.state.directory.vnfs[spec.GetVnf()]
		if spec.GetSite() != in.Site || v == nil {
			continue
		}
		pool := spec.AddressPool
		if len(pool) == 0 {
			pool = s.config.VNF.AddressPool
		}
		w.Deployments = append(w.Deployments, instance.Deployment{Name: d.Deployment, VNF: spec.Vnf, Driver: v.GetSpec().GetDriver(),
			Attachment: v.GetSpec().GetAttachment(), Instances: int(spec.Instances), Weights: spec.Weights, Pool: pool, Options: v.GetSpec().GetOptions()})
	}
	for _, place := range s.state.need.Places {
		options := place.Planned.Options
		if allotted := s.state.allocations[allocationOf(place)]; allotted != nil {
			options = allotted.Options
		} else if !s.results.servedBefore(place) {
			continue // the VNF's controller has not agreed yet: see waiting
		}
		w.Placements = append(w.Placements, instance.Placement{Place: place.Place, Customer: place.Record.Customer,
			Chain: place.Record.Chain, Options: options, Vnfs: place.Vnfs, Paths: place.Paths})
	}
	return w
}

// waiting says of places that are not served yet why.
func (s *Switchboard) waiting() map[vnf.Place]string {
	why := map[vnf.Place]string{}
	for _, place := range s.state.need.Places {
		if s.state.allocations[allocationOf(place)] == nil && !s.results.servedBefore(place) {
			why[place.Place] = fmt.Sprintf("the controller of VNF %s has published no allocation for it", place.VNF)
		}
	}
	return why
}

func allocationOf(p NeededPlace) allocationKey {
	return allocationKey{p.VNF, p.Record.Customer, p.Record.Chain, p.ChainLabel, p.Position}
}

// controllerSite is where a VNF's controller publishes: the global site where its catalogue entry names none.
func (s *Switchboard) controllerSite(vnf string) string {
	v := s.state.directory.vnfs[vnf]
	if v == nil {
		return ""
	}
	return cmp.Or(v.GetSpec().GetControllerSite(), s.config.GlobalSite)
}

// lookUpEdge answers the edge controller.
func (s *Switchboard) lookUpEdge(customer, name string) (edge.Status, bool) {
	s.edgesMu.Lock()
	defer s.edgesMu.Unlock()
	status, exists := s.edges[EdgeKey{customer, name}]
	return status, exists
}

type allocationKey struct {
	vnf, customer, chain string
	label, position      uint32
}

func keyOfAllocation(a *control.AllocationRecord) allocationKey {
	return allocationKey{a.Vnf, a.Customer, a.Chain, a.ChainLabel, a.Position}
}
