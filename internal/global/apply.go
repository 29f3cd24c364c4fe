package global

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/resource"
)

// Invalid reports mistakes in what was given. Its findings name resources by their index.
type Invalid struct{ Findings []chain.Finding }

// Error is the first mistake and how many there are.
func (e *Invalid) Error() string {
	if len(e.Findings) == 1 {
		return e.Findings[0].String()
	}
	return fmt.Sprintf("%s (and %d more mistakes)", e.Findings[0], len(e.Findings)-1)
}

// Reason classifies a refusal that is not about the input's form.
type Reason string

// The reasons of Refused.
const (
	// NotFound: there is no such resource.
	NotFound Reason = "not_found"
	// InUse: other resources refer to it.
	InUse Reason = "in_use"
	// Ending: the resource is being deleted.
	Ending Reason = "ending"
	// Observed: the kind is not applied and so not deleted.
	Observed Reason = "observed"
	// Unavailable: a part of the platform that is needed does not answer.
	Unavailable Reason = "unavailable"
)

// Refused reports a request that the present state does not allow.
type Refused struct {
	Reason  Reason
	Message string
}

// Error is the message.
func (e *Refused) Error() string { return e.Message }

// Apply creates or changes resources, all or none, and says what it did with each. With dryRun it only says so.
func (g *Global) Apply(ctx context.Context, messages []*api.Resource, dryRun bool) ([]*api.ApplyOutcome, error) {
	g.applying.Lock()
	defer g.applying.Unlock()
	parsed, findings := g.check(messages)
	if len(findings) > 0 {
		return nil, &Invalid{findings}
	}
	outcomes := make([]*api.ApplyOutcome, len(messages))
	var changed []*api.Resource
	for i, message := range messages {
		key := parsed[i].Key
		g.mu.Lock()
		old, ending := g.messages[key], g.states[key].GetDeleting()
		g.mu.Unlock()
		if ending {
			return nil, &Refused{Ending, fmt.Sprintf("%s is being deleted; wait until it is gone", key)}
		}
		next := g.next(old, message)
		result := api.ApplyResult_APPLY_RESULT_CONFIGURED
		switch {
		case old == nil:
			result = api.ApplyResult_APPLY_RESULT_CREATED
		case proto.Equal(old, next):
			result = api.ApplyResult_APPLY_RESULT_UNCHANGED
		}
		outcomes[i] = &api.ApplyOutcome{Kind: string(key.Kind), Metadata: next.Metadata, Result: result}
		if result != api.ApplyResult_APPLY_RESULT_UNCHANGED {
			changed = append(changed, next)
		}
	}
	if dryRun || len(changed) == 0 {
		return outcomes, nil
	}
	if err := g.storeAll(ctx, changed); err != nil {
		return nil, err
	}
	return outcomes, g.applied(ctx, changed, outcomes)
}

// next is a resource as it will be stored: what was given, and what the system keeps of it.
func (g *Global) next(old, given *api.Resource) *api.Resource {
	next := withoutStatus(given)
	next.Metadata.Created, next.Metadata.Uid, next.Metadata.Generation = timestamppb.New(g.config.Now()), newUID(), 1
	if old != nil {
		next.Metadata.Created, next.Metadata.Uid, next.Metadata.Generation = old.Metadata.Created, old.Metadata.Uid, old.Metadata.Generation
		if !proto.Equal(resource.Spec(old), resource.Spec(next)) {
			next.Metadata.Generation++
		}
	}
	return next
}

// withoutStatus is a copy that holds only what customers and operators say.
func withoutStatus(given *api.Resource) *api.Resource {
	next := proto.CloneOf(given)
	m := next.ProtoReflect()
	if set := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind")); set != nil {
		body := m.Mutable(set).Message()
		if status := body.Descriptor().Fields().ByName("status"); status != nil {
			body.Clear(status)
		}
	}
	if next.Metadata == nil {
		next.Metadata = &api.Metadata{}
	}
	return next
}

func newUID() string {
	var raw [8]byte
	rand.Read(raw[:])
	return hex.EncodeToString(raw[:])
}

// check parses resources and reports every mistake: in each by itself, among them, and in view of what exists.
func (g *Global) check(messages []*api.Resource) ([]chain.Resource, []chain.Finding) {
	f := &chain.Findings{}
	g.mu.Lock()
	world := maps.Clone(g.world)
	g.mu.Unlock()
	parsed := make([]chain.Resource, len(messages))
	given := map[chain.Key]int{}
	for i, message := range messages {
		f.Resource = i
		r, ok := resource.Parse(message, f)
		parsed[i] = r
		if !ok {
			continue
		}
		if first, twice := given[r.Key]; twice {
			f.Add("metadata.name", fmt.Sprintf("%s is given twice, first as resource %d", r.Key, first), "remove one of them, or rename it")
			continue
		}
		given[r.Key] = i
		world[r.Key] = r
	}
	for _, key := range slices.SortedFunc(maps.Keys(given), chain.Key.Compare) {
		f.Resource = given[key]
		world.CheckReferences(key, f)
		g.checkNature(key, world, f)
	}
	g.checkOthers(world, given, f)
	slices.SortStableFunc(f.All, func(a, b chain.Finding) int { return a.Resource - b.Resource })
	return parsed, f.All
}

// checkNature refuses to change what instances in use are.
func (g *Global) checkNature(key chain.Key, world chain.World, f *chain.Findings) {
	now, ok := world[key].Spec.(chain.VnfSpec)
	g.mu.Lock()
	defer g.mu.Unlock()
	was, existed := g.world[key].Spec.(chain.VnfSpec)
	users := g.world.Referrers(key)
	if !ok || !existed || len(users) == 0 {
		return
	}
	const fix = "apply it as a VNF of another name, and move chains and deployments to that"
	if now.Attachment != was.Attachment && now.Attachment != "" {
		f.Add("spec.attachment", fmt.Sprintf("cannot change from %s to %s while %s use it", was.Attachment, now.Attachment, list(users)), fix)
	}
	if now.Driver != was.Driver && now.Driver != "" {
		f.Add("spec.driver", fmt.Sprintf("cannot change from %s to %s while %s use it", was.Driver, now.Driver, list(users)), fix)
	}
}

// checkOthers reports what the change would break in resources that are not part of it.
func (g *Global) checkOthers(world chain.World, given map[chain.Key]int, f *chain.Findings) {
	affected := map[chain.Key]int{}
	for _, key := range world.Keys("") {
		if _, part := given[key]; part {
			continue
		}
		for _, reference := range world.References(key) {
			if i, changed := given[reference]; changed {
				affected[key] = i
			}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(affected), chain.Key.Compare) {
		broken := &chain.Findings{}
		world.CheckReferences(key, broken)
		f.Resource = affected[key]
		for _, b := range broken.All {
			f.Add("spec", fmt.Sprintf("%s would become wrong: %s: %s", key, b.Field, b.Description), "change "+key.String()+" in the same apply")
		}
	}
}

// applied takes stored resources into memory and sets their consequences going.
func (g *Global) applied(ctx context.Context, changed []*api.Resource, outcomes []*api.ApplyOutcome) error {
	asked := map[chain.Key]bool{}
	g.mu.Lock()
	for _, message := range changed {
		key := resource.KeyOf(message)
		asked[key] = true
		if w := g.workers[key]; w != nil {
			w.retry.Store(true) // with the change: whoever plans by it has tried again
		}
		before := g.messages[key].GetChain().GetSpec().GetDemand()
		if m := g.measure[key]; m != nil && !proto.Equal(before, message.GetChain().GetSpec().GetDemand()) {
			m.renew(g.config.Now())
		}
		g.remember(message)
	}
	g.mu.Unlock()
	g.changed.Add(1)
	g.board.changedAll()
	for _, outcome := range outcomes {
		if outcome.Result == api.ApplyResult_APPLY_RESULT_UNCHANGED {
			continue
		}
		key := chain.Key{Kind: chain.Kind(outcome.Kind), Customer: chain.CustomerName(outcome.Metadata.Customer), Name: outcome.Metadata.Name}
		g.events.add(key, normal, outcomeReason(outcome.Result), fmt.Sprintf("generation %d", outcome.Metadata.Generation), sourceAPI)
	}
	if err := g.publishDirectory(ctx); err != nil {
		return fmt.Errorf("the resources are stored, but the sites are not told yet: %w", err)
	}
	for _, message := range changed {
		g.changedResource(ctx, resource.KeyOf(message))
	}
	g.kickAll(asked)
	g.changes.tell()
	return nil
}

func outcomeReason(result api.ApplyResult) string {
	if result == api.ApplyResult_APPLY_RESULT_CREATED {
		return "Created"
	}
	return "Configured"
}

// changedResource begins to observe a site, or gives a chain a worker.
func (g *Global) changedResource(ctx context.Context, key chain.Key) {
	switch key.Kind {
	case chain.KindSite:
		g.observed.follow(chain.SiteName(key.Name))
	case chain.KindChain:
		g.mu.Lock()
		state := g.states[key]
		if state == nil {
			state = g.newState(key)
			g.states[key] = state
		}
		state.RequestedUnixMs = g.config.Now().UnixMilli()
		g.worker(key)
		g.mu.Unlock()
	}
}

// noSuch is the refusal for a resource that does not exist. One of a customer that was asked for without the customer is named in full.
func (g *Global) noSuch(key chain.Key) *Refused {
	message := "there is no " + key.String()
	if key.Customer != "" {
		return &Refused{NotFound, message}
	}
	var owned []string
	g.mu.Lock()
	for one := range g.messages {
		if one.Kind == key.Kind && one.Name == key.Name {
			owned = append(owned, string(one.Customer)+"/"+one.Name)
		}
	}
	g.mu.Unlock()
	if len(owned) > 0 {
		slices.Sort(owned)
		message += "; name the customer: " + strings.Join(owned, " or ")
	}
	return &Refused{NotFound, message}
}

// Delete ends a resource. A chain is gone when its last connections are; others at once, unless something refers to
// them.
func (g *Global) Delete(ctx context.Context, key chain.Key) error {
	g.applying.Lock()
	defer g.applying.Unlock()
	if !slices.Contains(chain.AppliedKinds, key.Kind) {
		return &Refused{Observed, fmt.Sprintf("a %s is observed, not applied; delete what it comes from", resource.FileKind(key.Kind))}
	}
	g.mu.Lock()
	_, exists := g.messages[key]
	referrers := g.world.Referrers(key)
	using := g.chainsAt(key)
	g.mu.Unlock()
	switch {
	case !exists:
		return g.noSuch(key)
	case len(referrers) > 0:
		return &Refused{InUse, fmt.Sprintf("%s is used by %s; delete or change that first", key, list(referrers))}
	case len(using) > 0:
		return &Refused{InUse, fmt.Sprintf("%s serves %s; set its capacity to 0 and wait until their routes have moved", key, list(using))}
	case key.Kind == chain.KindChain:
		return g.deleteChain(ctx, key)
	}
	if err := g.store.Delete(ctx, resourceKey(key)); err != nil {
		return err
	}
	g.mu.Lock()
	delete(g.world, key)
	delete(g.messages, key)
	g.mu.Unlock()
	g.changed.Add(1)
	g.board.changedAll()
	g.events.add(key, normal, "Deleted", "", sourceAPI)
	if key.Kind == chain.KindSite {
		g.observed.leave(chain.SiteName(key.Name))
	}
	g.changes.tell()
	return g.publishDirectory(ctx)
}

func list(keys []chain.Key) string {
	text := ""
	for i, k := range keys {
		switch {
		case i == 3:
			return fmt.Sprintf("%s and %d more", text, len(keys)-3)
		case i > 0:
			text += ", "
		}
		text += k.String()
	}
	return text
}

// chainsAt lists the chains with routes through a deployment. g.mu is held.
func (g *Global) chainsAt(key chain.Key) []chain.Key {
	d, ok := g.world[key].Spec.(chain.DeploymentSpec)
	if !ok {
		return nil
	}
	var using []chain.Key
	for k := range g.records {
		if g.reserved(k)[chain.Placement{Vnf: d.Vnf, Site: d.Site}] > 0 {
			using = append(using, k)
		}
	}
	slices.SortFunc(using, chain.Key.Compare)
	return using
}

func (g *Global) deleteChain(ctx context.Context, key chain.Key) error {
	g.mu.Lock()
	state := proto.CloneOf(g.states[key])
	g.mu.Unlock()
	if state.Deleting {
		return nil
	}
	state.Deleting = true
	state.Status.Phase = api.ChainPhase_CHAIN_PHASE_DELETING
	if err := g.setState(ctx, key, state); err != nil {
		return err
	}
	g.events.add(key, normal, "Deleting", "edges stop classifying; connections end", sourceAPI)
	g.kick(key)
	return nil
}
