package vnf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/protobuf/proto"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/fault"
	"github.com/switchboard-project/switchboard/internal/participant"
)

// Controller is a VNF service's controller: it grants chains a share of the service's capacity at each site, and
// publishes what it granted. It is a process of its own, at any site.
type Controller struct {
	name       string
	globalSite string
	connection *bus.Connection
	log        *slog.Logger

	mu       sync.Mutex
	capacity map[string]capacity // by deployment
}

type capacity struct {
	site string
	load float64
}

// NewController makes the controller of the VNF with a name, whose deployments the Global Switchboard at globalSite
// publishes.
func NewController(connection *bus.Connection, name, globalSite string, log *slog.Logger) *Controller {
	if log == nil {
		log = slog.Default()
	}
	return &Controller{name: name, globalSite: globalSite, connection: connection, log: log.With("vnf", name),
		capacity: map[string]capacity{}}
}

// Service is the name under which a VNF's controller takes part in two-phase commit.
func Service(vnf string) string { return bus.Key("vnf", vnf) }

// Run serves until ctx ends. It calls ready once the controller takes requests.
func (c *Controller) Run(ctx context.Context, ready func()) error {
	deployments, err := c.connection.Subscribe(ctx, c.globalSite, "directory.deployment")
	if err != nil {
		return err
	}
	defer deployments.Close()
	if err := c.followUntilKnown(ctx, deployments); err != nil {
		return err
	}
	p, err := participant.Open(ctx, participant.Config{
		Name: Service(c.name), Store: c.connection.Local("vnf_" + c.name), Logger: c.log,
		Admit: c.admit, Apply: c.publish, Ask: participant.AskOver(c.connection), Fault: fault.Point,
	})
	if err != nil {
		return err
	}
	go c.follow(deployments)
	ctx, cancel := context.WithCancel(ctx)
	registered := make(chan error, 1)
	go func() { registered <- c.register(ctx) }()
	ready()
	err = p.Serve(ctx, c.connection, Service(c.name))
	cancel()
	return errors.Join(err, <-registered)
}

// register keeps the controller present until ctx ends. Where a killed process still counts as present, its name takes a moment
// to become free; requests do not wait for it.
func (c *Controller) register(ctx context.Context) error {
	registration, err := c.connection.Register(ctx, "vnf", c.name, nil)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	<-ctx.Done()
	registration.Close()
	return nil
}

func (c *Controller) followUntilKnown(ctx context.Context, s *bus.Subscription) error {
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the deployments that site %s publishes: %w", c.globalSite, ctx.Err())
		case e, open := <-s.Events():
			if !open {
				return bus.ErrClosed
			}
			if e.Kind == bus.Synchronised {
				return nil
			}
			c.learn(e)
		}
	}
}

func (c *Controller) follow(s *bus.Subscription) {
	for e := range s.Events() {
		c.learn(e)
	}
}

func (c *Controller) learn(e bus.Event) {
	if e.Kind == bus.Synchronised {
		return
	}
	record := &control.DeploymentRecord{}
	if err := proto.Unmarshal(e.Value, record); err != nil {
		c.log.Warn("deployment record cannot be read", "key", e.Key, "error", err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.capacity, e.Key)
	if e.Kind == bus.Put && record.GetSpec().GetVnf() == c.name {
		c.capacity[e.Key] = capacity{record.Spec.Site, record.Spec.Capacity}
	}
}

// tolerance forgives rounding where a chain asks for exactly what is left.
const tolerance = 1e-6

// admit checks a chain's request against what the sites offer and others hold.
func (c *Controller) admit(request *control.Prepare, held []*control.Prepare) *control.Rejection {
	if rejection := malformed(request); rejection != nil {
		return rejection
	}
	offered := c.offered()
	others, mine := loads(held, request)
	wanted := loadsOf(request)
	for _, site := range sortedSites(wanted) {
		// While a chain moves to another version it sends its traffic once: the larger of its reservations counts.
		requested := max(wanted[site], mine[site])
		available := max(0, offered[site]-others[site])
		if requested > available+tolerance*max(1, available) {
			return &control.Rejection{Reason: fmt.Sprintf("VNF %s at site %s: %.6g load units requested, %.6g available", c.name, site,
				requested, available), Vnf: c.name, Site: site, Requested: requested, Available: available}
		}
	}
	return nil
}

func malformed(request *control.Prepare) *control.Rejection {
	for i, a := range request.Allocations {
		if a.Position == 0 {
			return &control.Rejection{Reason: fmt.Sprintf("allocations[%d].position: 0; positions count from 1", i)}
		}
		for j, l := range a.Loads {
			if !(l.Load >= 0) || l.Load > 1e18 {
				return &control.Rejection{Reason: fmt.Sprintf("allocations[%d].loads[%d].load: %v is no load", i, j, l.Load)}
			}
		}
	}
	return nil
}

func (c *Controller) offered() map[string]float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := map[string]float64{}
	for _, d := range c.capacity {
		sum[d.site] += d.load
	}
	return sum
}

// loads sums what is held per site: by other chains, and by other versions of the requesting one. Of a chain's versions
// the largest counts.
func loads(held []*control.Prepare, request *control.Prepare) (others, mine map[string]float64) {
	type chainAt struct{ customer, chain, site string }
	largest := map[chainAt]float64{}
	for _, h := range held {
		for site, load := range loadsOf(h) {
			at := chainAt{h.Customer, h.Chain, site}
			largest[at] = max(largest[at], load)
		}
	}
	others, mine = map[string]float64{}, map[string]float64{}
	for at, load := range largest {
		if at.customer == request.Customer && at.chain == request.Chain {
			mine[at.site] += load
		} else {
			others[at.site] += load
		}
	}
	return others, mine
}

func loadsOf(p *control.Prepare) map[string]float64 {
	sum := map[string]float64{}
	for _, a := range p.Allocations {
		for _, l := range a.Loads {
			sum[l.Site] += l.Load
		}
	}
	return sum
}

func sortedSites(m map[string]float64) []string {
	sites := make([]string, 0, len(m))
	for s := range m {
		sites = append(sites, s)
	}
	slices.SortFunc(sites, cmp.Compare[string])
	return sites
}

// AllocationKey is where an allocation is published, at the controller's site.
func AllocationKey(a *control.AllocationRecord) string {
	return bus.Key("allocation", a.Vnf, a.Customer, a.Chain, strconv.FormatUint(uint64(a.ChainLabel), 10),
		strconv.FormatUint(uint64(a.Position), 10))
}

// publish makes the published allocations those in force.
func (c *Controller) publish(ctx context.Context, inForce []*control.Prepare) error {
	published := c.connection.Published()
	stale := map[string][]byte{}
	entries, err := published.List(ctx, bus.Key("allocation", c.name))
	if err != nil {
		return err
	}
	for _, e := range entries {
		stale[e.Key] = e.Value
	}
	for _, p := range inForce {
		for _, a := range p.Allocations {
			record := &control.AllocationRecord{Vnf: c.name, Customer: p.Customer, Chain: p.Chain, ChainLabel: p.ChainLabel,
				Position: a.Position, Options: a.Options, Loads: a.Loads}
			key := AllocationKey(record)
			value, err := proto.MarshalOptions{Deterministic: true}.Marshal(record)
			if err != nil {
				return err
			}
			old, known := stale[key]
			delete(stale, key)
			if known && string(old) == string(value) {
				continue
			}
			if _, err := published.Put(ctx, key, value); err != nil {
				return err
			}
		}
	}
	for key := range stale {
		if err := published.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}
