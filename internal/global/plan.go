package global

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// refusal is why a plan could not be made, and who said so.
type refusal struct {
	reason, from string
	// transient: the answer may be another in a moment.
	transient bool
	// failed: something does not work, as opposed to: the answer is no.
	failed bool
}

// firstPause and lastPause are waits between attempts at a plan that was refused and may not be in a moment.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// plan finds routes and has them agreed, or rejects the chain with who, what and how much. why is the reason for planning
// again, "" where the specification changed.
func (w *worker) plan(ctx context.Context, s situation, demand chain.Demand, why string) (time.Duration, error) {
	w.retry.Store(false) // what was to be tried again is; what changes from here on asks anew
	if err := w.begin(ctx, s, why); err != nil {
		return 0, err
	}
	limits := map[chain.Placement]chain.Load{}
	deadline := time.Now().Add(w.g.config.Patience)
	pause := firstPause
	for {
		no, err := w.attempt(ctx, s, demand, limits)
		if err != nil {
			return 0, err
		}
		if no == nil {
			return 0, nil
		}
		if now := w.situation(); !now.wanted || now.inputs != s.inputs {
			return 0, nil // something else is wanted by now
		}
		if no.transient && time.Now().Before(deadline) {
			clear(limits)
			if !sleep(ctx, pause) {
				return 0, ctx.Err()
			}
			pause = min(2*pause, lastPause)
			continue
		}
		return w.reject(ctx, s, no)
	}
}

// begin shows that the chain is being planned. One that is tried again stays rejected, with its reason, until it is not.
func (w *worker) begin(ctx context.Context, s situation, why string) error {
	if refused(s.state) && s.state.PlannedInputs == s.inputs {
		return nil
	}
	phase := api.ChainPhase_CHAIN_PHASE_PLANNING
	if activeVersion(s.record) != nil {
		phase = api.ChainPhase_CHAIN_PHASE_UPDATING
	}
	if why != "" {
		w.g.events.add(w.key, normal, "Replanning", why, sourceGlobal)
	}
	return w.setPhase(ctx, phase, "", "")
}

// maximumRounds bounds how often routes are recomputed with another limit within one attempt.
const maximumRounds = 20

// attempt plans and asks until everybody agrees, or no plan is left within the limits that participants named.
func (w *worker) attempt(ctx context.Context, s situation, demand chain.Demand, limits map[chain.Placement]chain.Load) (*refusal, error) {
	refused := false
	for round := 0; ; round++ {
		p := w.g.problem(w.key, demand, limits)
		routes, no, err := w.solve(ctx, p)
		if no != nil {
			no.transient = refused // what a participant refused may be on its way to it
		}
		if no != nil || err != nil {
			return no, err
		}
		v, err := w.agree(ctx, s, p, routes)
		if err != nil || v.committed {
			return nil, err
		}
		if len(v.unreachable) > 0 {
			return &refusal{reason: strings.Join(v.unreachable, "; "), from: sourceGlobal, transient: true, failed: true}, nil
		}
		refused = true
		limited := false
		for _, r := range v.rejections {
			w.g.events.add(w.key, warning, "ParticipantRejected", r.Reason, r.Participant)
			at := chain.Placement{Vnf: chain.VnfName(r.Vnf), Site: chain.SiteName(r.Site)}
			if r.Vnf == "" || r.Site == "" {
				return &refusal{reason: r.Reason, from: r.Participant, transient: true}, nil
			}
			if limit, known := limits[at]; !known || chain.Load(r.Available) < limit {
				limits[at] = chain.Load(r.Available)
				limited = true
			}
		}
		if !limited || round == maximumRounds {
			r := v.rejections[0]
			return &refusal{reason: r.Reason, from: r.Participant, transient: true}, nil
		}
	}
}

// solve asks traffic engineering for routes.
func (w *worker) solve(ctx context.Context, p *problem) ([]chain.Route, *refusal, error) {
	for _, name := range uniqueVnfs(p.spec.Vnfs) {
		if len(usable(p.world, p.down, name)) == 0 {
			what := p.vnfShortage(name)
			if what == "" {
				what = fmt.Sprintf("VNF %s has no capacity left at any site", name)
			}
			return nil, &refusal{reason: what, from: sourceTE}, nil
		}
	}
	answer, err := w.g.engineering.route(ctx, p.request())
	if err == nil && !answer.Admitted && len(p.resting) > 0 {
		p.resting = nil
		answer, err = w.g.engineering.route(ctx, p.request())
	}
	if err == nil {
		answer, err = w.keepTogether(ctx, p, answer)
	}
	switch {
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case errors.Is(err, ErrInfeasible):
		return nil, &refusal{reason: err.Error(), from: sourceTE}, nil
	case err != nil:
		return nil, &refusal{reason: err.Error(), from: sourceTE, failed: true}, nil
	}
	return w.labelled(ctx, p, answer)
}

// keepTogether asks again for one egress site where an answer splits an ingress site's traffic over several.
func (w *worker) keepTogether(ctx context.Context, p *problem, split *routeAnswer) (*routeAnswer, error) {
	sites := p.oneEgress(split)
	if sites == nil {
		return split, nil
	}
	pairs := p.pairs
	var first *routeAnswer
	for _, site := range sites {
		p.pairs = nil
		for _, old := range pairs {
			p.pairs = append(p.pairs, pair{old.ingress, []chain.SiteName{site}})
		}
		answer, err := w.g.engineering.route(ctx, p.request())
		if err != nil || answer.Admitted {
			return answer, err
		}
		if first == nil {
			first = answer
		}
	}
	for i := range p.pairs {
		p.pairs[i].egresses = sites[:1] // the one that the shortage is about
	}
	return first, nil
}

// labelled makes routes of an answer; their egress sites get labels.
func (w *worker) labelled(ctx context.Context, p *problem, answer *routeAnswer) ([]chain.Route, *refusal, error) {
	for _, r := range answer.Routes {
		if _, err := w.g.siteLabel(ctx, chain.SiteName(r.Egress)); err != nil {
			return nil, nil, err
		}
	}
	routes, shortage := p.routes(answer, func(site chain.SiteName) chain.Label {
		w.g.mu.Lock()
		defer w.g.mu.Unlock()
		return w.g.labels.sites[site]
	})
	if shortage != "" {
		return nil, &refusal{reason: shortage, from: sourceTE}, nil
	}
	return routes, nil, nil
}

// agree makes the next record from routes and runs the transaction for it.
func (w *worker) agree(ctx context.Context, s situation, p *problem, routes []chain.Route) (verdict, error) {
	version, fresh, err := w.version(ctx, s, routes)
	if err != nil {
		return verdict{}, err
	}
	record := w.nextRecord(s, version)
	loads := chain.Loads(routes, vnfNames(version), p.loadPerMbps, p.demand)
	w.g.mu.Lock()
	w.g.planned[w.key] = loads
	w.g.mu.Unlock()
	v, err := w.g.coordinate.commit(ctx, w.key, w.participants(p, s, version, routes), record)
	w.g.mu.Lock()
	delete(w.g.planned, w.key)
	w.g.mu.Unlock()
	if err != nil {
		return v, err
	}
	if !v.committed {
		if fresh {
			w.spare = spareLabel{chain.Label(version.ChainLabel), usesOf(version)}
		}
		return v, nil
	}
	w.spare = spareLabel{}
	return v, w.agreed(ctx, s, p, version)
}

func (w *worker) preparingPhase(s situation) api.ChainPhase {
	if activeVersion(s.record) != nil {
		return api.ChainPhase_CHAIN_PHASE_UPDATING
	}
	return api.ChainPhase_CHAIN_PHASE_PREPARING
}

// agreed notes what the record that was just committed was made from.
func (w *worker) agreed(ctx context.Context, s situation, p *problem, version *control.ChainVersion) error {
	w.g.mu.Lock()
	state := proto.CloneOf(w.g.states[w.key])
	w.g.mu.Unlock()
	state.PlannedInputs = s.inputs
	state.PlannedDemand = demandMessage(p.demand)
	state.Status.ObservedGeneration = s.message.Metadata.Generation
	state.Status.Phase, state.Status.Reason, state.Status.ReasonFrom = w.preparingPhase(s), "", ""
	w.retryAt = time.Time{}
	w.g.events.add(w.key, normal, "Committed", fmt.Sprintf("label %d: %s", version.ChainLabel, describeRoutes(version, newestRoutes(version))), sourceGlobal)
	return w.g.setState(ctx, w.key, state)
}

// describeRoutes is a version's routes for people: "office > firewall@west > hq 75%".
func describeRoutes(v *control.ChainVersion, routes []*control.PlannedRoute) string {
	var parts []string
	for _, r := range routes {
		stops := []string{r.IngressSite}
		for i, site := range r.Sites {
			stops = append(stops, v.Vnfs[i].Vnf+"@"+site)
		}
		text := strings.Join(append(stops, r.EgressSite), " > ")
		if r.Fraction < carriedShare {
			text += fmt.Sprintf(" %.3g%%", 100*r.Fraction)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// reject ends planning until something changes. What the chain has goes on.
func (w *worker) reject(ctx context.Context, s situation, no *refusal) (time.Duration, error) {
	phase, event := api.ChainPhase_CHAIN_PHASE_REJECTED, "Rejected"
	if no.failed {
		phase, event = api.ChainPhase_CHAIN_PHASE_FAILED, "Failed"
	}
	w.g.mu.Lock()
	state := proto.CloneOf(w.g.states[w.key])
	w.g.mu.Unlock()
	state.PlannedInputs = s.inputs
	state.Status.Phase, state.Status.Reason, state.Status.ReasonFrom = phase, no.reason, no.from
	state.Status.ObservedGeneration = s.message.Metadata.Generation
	wait := w.g.config.RetryInterval
	if no.failed {
		wait = min(wait, 5*time.Second)
	}
	w.retryAt = time.Now().Add(wait)
	w.said = no.reason
	w.g.events.add(w.key, warning, event, no.reason, no.from)
	return wait, w.g.setState(ctx, w.key, state)
}
