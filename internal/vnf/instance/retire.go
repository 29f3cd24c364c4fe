package instance

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
)

// drainLimit is how long an instance that is to go keeps connections, where Config gives nothing else: as long as the Global
// Switchboard keeps a replaced version of a chain.
const drainLimit = time.Hour

// note is what an instance that has a namespace, or had one, needs to go on after its deployment is gone. Durable.
type note struct {
	Deployment string            `json:"deployment,omitempty"`
	VNF        string            `json:"vnf,omitempty"`
	Driver     string            `json:"driver,omitempty"`
	Attachment api.Attachment    `json:"attachment,omitempty"`
	Options    []json.RawMessage `json:"options,omitempty"`
	// Retired is when it was first wanted no more; zero while it is wanted.
	Retired time.Time `json:"retired,omitzero"`
}

func noteOf(d Deployment) (note, error) {
	n := note{Deployment: d.Name, VNF: d.VNF, Driver: d.Driver, Attachment: d.Attachment}
	for _, option := range d.Options {
		text, err := protojson.Marshal(option)
		if err != nil {
			return note{}, fmt.Errorf("keep options of VNF %s: %w", d.VNF, err)
		}
		n.Options = append(n.Options, text)
	}
	return n, nil
}

// deployment is what is left of the one that the note is of: no instances that anybody wants.
func (n note) deployment() Deployment {
	d := Deployment{Name: n.Deployment, VNF: n.VNF, Driver: n.Driver, Attachment: n.Attachment}
	for _, text := range n.Options {
		option := &api.VnfOption{}
		if protojson.Unmarshal(text, option) == nil { // written by noteOf
			d.Options = append(d.Options, option)
		}
	}
	return d
}

// deployments are those wanted, and those of which there are still instances though they, or that VNF under their name,
// are wanted no more: what comes under the same name waits until they have gone.
func (a *Agent) deployments(wanted *Wanted) []Deployment {
	notes := a.records.notes()
	left := map[string]Deployment{}
	for _, name := range a.records.instances() {
		if n := notes[name]; n.Driver != "" {
			left[n.Deployment] = n.deployment()
		}
	}
	var all []Deployment
	for _, d := range wanted.Deployments {
		if old, exists := left[d.Name]; exists && (old.VNF != d.VNF || old.Driver != d.Driver || driverOf(old) != driverOf(d)) {
			all = append(all, old)
		} else {
			all = append(all, d)
		}
		delete(left, d.Name)
	}
	for _, name := range sortedNames(left) {
		all = append(all, left[name])
	}
	return all
}

func sortedNames(of map[string]Deployment) []string {
	names := make([]string, 0, len(of))
	for name := range of {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// numbers are those of a deployment's instances, with those that are to go and still have connections.
func (a *Agent) numbers(d Deployment) []int {
	var all []int
	for number := 1; number <= d.Instances; number++ {
		all = append(all, number)
	}
	for _, name := range a.records.instances() {
		number, err := strconv.Atoi(strings.TrimPrefix(name, d.Name+"-"))
		if err == nil && number > d.Instances && name == instanceName(d.Name, number) && a.records.has(name) {
			all = append(all, number)
		}
	}
	slices.Sort(all[min(d.Instances, len(all)):])
	return all
}

// retire notes since when an instance is to go, or that it is not.
func (a *Agent) retire(ctx context.Context, in *instance, gone bool) {
	in.retired = gone
	if err := a.records.retire(ctx, in.name, gone); err != nil {
		a.log.Warn("that an instance is to go cannot be noted", "instance", in.name, "error", err)
	}
}

// overdue reports whether an instance that is to go has kept its connections for long enough.
func (a *Agent) overdue(in *instance) bool {
	since := a.records.notes()[in.name].Retired
	return in.retired && !since.IsZero() && time.Since(since) > a.config.DrainLimit
}

// make notes that an instance is about to have a namespace, so that it is found again when nobody wants it any more.
func (r *records) make(ctx context.Context, instance string, d Deployment) error {
	wanted, err := noteOf(d)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known, exists := r.made[instance]
	wanted.Retired = known.Retired
	if exists && equalNotes(known, wanted) {
		return nil
	}
	return r.putNote(ctx, instance, wanted)
}

func (r *records) retire(ctx context.Context, instance string, gone bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, exists := r.made[instance]
	if !exists || gone == !known.Retired.IsZero() {
		return nil
	}
	known.Retired = time.Time{}
	if gone {
		known.Retired = time.Now()
	}
	return r.putNote(ctx, instance, known)
}

// putNote is called with the lock held.
func (r *records) putNote(ctx context.Context, instance string, n note) error {
	value, err := json.Marshal(n)
	if err == nil {
		_, err = r.store.Put(ctx, bus.Key(instance), value)
	}
	if err != nil {
		return fmt.Errorf("keep record: %w", err)
	}
	r.made[instance] = n
	return nil
}

// notes are those of all instances, by name.
func (r *records) notes() map[string]note {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]note, len(r.made))
	for name, n := range r.made {
		all[name] = n
	}
	return all
}

func equalNotes(a, b note) bool {
	return a.Deployment == b.Deployment && a.VNF == b.VNF && a.Driver == b.Driver && a.Attachment == b.Attachment && a.Retired.Equal(b.Retired) &&
		slices.EqualFunc(a.Options, b.Options, func(x, y json.RawMessage) bool { return string(x) == string(y) })
}
