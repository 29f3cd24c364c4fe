package instance

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/hostnet"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// Store keeps what cannot be read back from the kernel; *bus.Store is one.
type Store interface {
	Put(ctx context.Context, key string, value []byte) (uint64, error)
	Delete(ctx context.Context, key string) error
	List(ctx context.Context, prefix string) ([]bus.Entry, error)
}

// Deployment is a VNF offered at the site.
type Deployment struct {
	Name, VNF, Driver string
	Instances         int
	// Weights of the instances in order; 100 where not given.
	Weights []uint32
	// Pool are the addresses that a NAT may use.
	Pool []string
	// Options are those that the VNF declares.
	Options []*api.VnfOption
	// Attachment is what the VNF's catalogue entry says, for drivers with several.
	Attachment api.Attachment
}

// Placement is a place that the site's instances of a VNF must serve, and how.
type Placement struct {
	vnf.Place
	Customer, Chain string
	Options         *structpb.Struct
	// Vnfs is how many VNFs the path has, Paths are its service path identifiers (RFC 8300), forward and reverse; 0 for none.
	Vnfs  uint32
	Paths [2]uint32
}

// Wanted is what the agent shall bring about.
type Wanted struct {
	Deployments []Deployment
	Placements  []Placement
	// Drained names attachments that are wanted no more and that no connection uses.
	Drained map[string]bool
}

// Status is an instance as the agent sees it.
type Status struct {
	Name, VNF, Deployment, Namespace string
	// Forwarder is the one that its link leads to.
	Forwarder string
	// Ports are the site's ends of its links; none where they are gone.
	Ports  []string
	Weight uint32
	State  api.VnfInstanceState
	Reason string
	Since  time.Time
	// Chains are "<customer>/<chain>" of those that it serves, Failed those of which a place is out of use though the instance works.
	Chains, Failed []string
}

// Observed is what there is.
type Observed struct {
	Instances   []Status
	Attachments []vnf.Attachment
	// Problems say why a place is not served, by chain label.
	Problems map[uint32]string
	// Sequence is of the Want that this follows.
	Sequence uint64
}

// Config says where an agent works.
type Config struct {
	Site string
	// Prefix begins the names of the instances' namespaces.
	Prefix string
	// Forwarders are the site's, in order; instances are spread over them.
	Forwarders []string
	Store      Store
	// Programs are what instances of the driver "program" run, by VNF: a path and arguments. Directory is where they find their
	// places, and write.
	Programs  map[string][]string
	Directory string
	// DrainLimit is how long an instance that is to go keeps connections that do not end; an hour where 0.
	DrainLimit time.Duration
	// Changed is called, from the agent's goroutine, when what there is has changed.
	Changed func(Observed)
	Logger  *slog.Logger
}

// Agent makes, configures and watches a site's instances.
type Agent struct {
	config Config
	log    *slog.Logger
	wake   chan struct{}

	mu       sync.Mutex
	wanted   *Wanted // nil until it is first known
	sequence uint64

	// Of the agent's goroutine alone.
	site      *hostnet.Namespace // where the forwarders are
	records   *records
	instances map[string]*instance
	last      Observed
}

const probeInterval = 250 * time.Millisecond

// NewAgent makes an agent; Run starts it.
func NewAgent(config Config) *Agent {
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.DrainLimit == 0 {
		config.DrainLimit = drainLimit
	}
	return &Agent{config: config, log: config.Logger, wake: make(chan struct{}, 1), instances: map[string]*instance{}}
}

// Want replaces what the agent shall bring about. It does not wait; the number it returns is in Observed when the agent
// has done what it could.
func (a *Agent) Want(w Wanted) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wanted = &w
	a.sequence++
	select {
	case a.wake <- struct{}{}:
	default:
	}
	return a.sequence
}

// Run works until ctx ends; instances go on without it.
func (a *Agent) Run(ctx context.Context) error {
	var err error
	if a.records, err = openRecords(ctx, a.config.Site, a.config.Store); err != nil {
		return err
	}
	if a.site, err = hostnet.CurrentNamespace(); err != nil {
		return err
	}
	defer a.site.Close()
	defer func() {
		for _, in := range a.instances {
			in.release()
		}
	}()
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		case <-tick.C:
		}
		a.mu.Lock()
		wanted, sequence := a.wanted, a.sequence
		a.mu.Unlock()
		if wanted != nil {
			a.reconcile(ctx, wanted, sequence)
		}
	}
}

// reconcile brings what there is a step closer to what is wanted, tells of changes, and then tidies up.
func (a *Agent) reconcile(ctx context.Context, wanted *Wanted, sequence uint64) {
	type job struct {
		in         *instance
		placements []Placement
	}
	var jobs []job
	kept := map[string]bool{}
	for _, d := range a.deployments(wanted) {
		for _, number := range a.numbers(d) {
			in := a.instance(d, number)
			a.retire(ctx, in, number > d.Instances)
			kept[in.name] = true
			jobs = append(jobs, job{in, placementsOf(wanted, d.VNF)})
		}
	}
	var steps sync.WaitGroup
	for _, j := range jobs {
		steps.Go(func() { j.in.step(ctx, a.site, a.records, j.placements) })
	}
	steps.Wait()
	observed := Observed{Problems: map[uint32]string{}, Sequence: sequence}
	for _, j := range jobs {
		observed.add(j.in, a.records, j.placements)
	}
	if !observed.equal(a.last) {
		a.last = observed
		a.config.Changed(observed)
	}
	a.tidy(ctx, wanted, kept)
}

// tidy removes what is wanted and used no more, piece by piece: whatever is wanted next goes first.
func (a *Agent) tidy(ctx context.Context, wanted *Wanted, kept map[string]bool) {
	for _, one := range a.records.all() {
		in := a.instances[one.Instance]
		if in == nil || in.placed[one.Place] || !wanted.Drained[one.attachmentID()] && !a.overdue(in) {
			continue
		}
		if err := in.unplace(ctx, a.records, one); err != nil {
			a.log.Warn("an attachment cannot be removed", "attachment", one.attachmentID(), "error", err)
		}
		if a.wokenAgain() {
			return
		}
	}
	for name, in := range a.instances {
		if !kept[name] || in.retired && in.empty(a.records) {
			a.remove(ctx, in)
		}
	}
	a.removeUnknown(ctx, kept)
}

// wokenAgain reports whether something new is wanted; it leaves the call to be taken by Run.
func (a *Agent) wokenAgain() bool { return len(a.wake) > 0 }

func instanceName(deployment string, number int) string {
	return fmt.Sprintf("%s-%d", deployment, number)
}

func (a *Agent) instance(d Deployment, number int) *instance {
	name := instanceName(d.Name, number)
	in := a.instances[name]
	if in == nil {
		in = &instance{name: name, namespace: a.config.Prefix + name, log: a.log.With("instance", name),
			forwarder: a.config.Forwarders[(number-1)%len(a.config.Forwarders)], since: time.Now(), program: a.program(d, name)}
		a.instances[name] = in
	}
	in.deployment = d
	in.weight = 100
	if number <= len(d.Weights) {
		in.weight = d.Weights[number-1]
	}
	return in
}

func placementsOf(w *Wanted, name string) []Placement {
	var mine []Placement
	for _, p := range w.Placements {
		if p.VNF == name {
			mine = append(mine, p)
		}
	}
	return mine
}

func (a *Agent) remove(ctx context.Context, in *instance) {
	if err := in.destroy(); err != nil {
		a.log.Warn("instance cannot be removed", "instance", in.name, "error", err)
		return
	}
	if err := a.records.forget(ctx, in.name); err != nil {
		a.log.Warn("instance's records cannot be removed", "instance", in.name, "error", err)
		return
	}
	delete(a.instances, in.name)
}

// removeUnknown removes instances that nobody wants and that were given nothing, or of which is not known what they were.
func (a *Agent) removeUnknown(ctx context.Context, kept map[string]bool) {
	for _, name := range a.records.instances() {
		if !kept[name] && a.instances[name] == nil {
			a.remove(ctx, &instance{name: name, namespace: a.config.Prefix + name, log: a.log, program: a.program(Deployment{}, name)})
		}
	}
}

func (o *Observed) add(in *instance, r *records, placements []Placement) {
	status := in.status()
	for _, p := range placements {
		if chain := p.Customer + "/" + p.Chain; in.placed[p.Place] && !slices.Contains(status.Chains, chain) {
			status.Chains = append(status.Chains, chain)
		}
		if why := in.problems[p.Place]; why != "" {
			o.Problems[p.ChainLabel] = why
		}
	}
	if in.state != stateDead {
		for _, one := range in.placesIll(r) {
			status.Failed = append(status.Failed, one.Customer+"/"+one.Chain)
		}
	}
	slices.Sort(status.Failed)
	status.Failed = slices.Compact(status.Failed)
	slices.Sort(status.Chains)
	o.Instances = append(o.Instances, status)
	o.Attachments = append(o.Attachments, in.attachments(r)...)
}

// equal compares what others would be told.
func (o *Observed) equal(other Observed) bool {
	return o.Sequence == other.Sequence && reflect.DeepEqual(o.Instances, other.Instances) && reflect.DeepEqual(o.Attachments, other.Attachments) &&
		maps.Equal(o.Problems, other.Problems)
}
