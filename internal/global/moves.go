package global

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// MovePolicy says how the plan of moves is made and whether it is carried out. Zero values take the defaults.
type MovePolicy struct {
	// Interval is the least time between two plans; one is made only where something has changed. Default 30 s.
	Interval time.Duration
	// Least is the gain below which a move is not worth it, as a share of what the chain costs now. Default 0.05.
	Least float64
	// Apply carries moves out, one at a time. Otherwise they are shown.
	Apply bool
	// Rest is how long a chain that was moved stays where it is. Default 5 min.
	Rest time.Duration
}

func (p *MovePolicy) defaults() {
	if p.Interval == 0 {
		p.Interval = 30 * time.Second
	}
	if p.Least == 0 {
		p.Least = 0.05
	}
	if p.Rest == 0 {
		p.Rest = 5 * time.Minute
	}
}

const (
	// movesListed bounds a plan.
	movesListed = 1000
	// optimumLimit bounds the search for an optimum.
	optimumLimit = 2 * time.Minute
)

// movesRequest asks for the optimum and the way there.
type movesRequest struct {
	Revision  uint64  `json:"revision"`
	Objective string  `json:"objective"`
	Least     float64 `json:"least_gain"`
	Moves     int     `json:"moves"`
}

// movesAnswer is the way to an optimum: who gains most first, as far as each fits after those before it.
type movesAnswer struct {
	Moves []struct {
		Chain       string       `json:"chain"`
		Relative    float64      `json:"relative_gain"`
		LatencyNow  float64      `json:"latency_ms_now"`
		LatencyThen float64      `json:"latency_ms_then"`
		Routes      []modelRoute `json:"routes"`
		// Full names what has no room for the move.
		Full []string `json:"full"`
	} `json:"moves"`
}

// plannedMove is how one chain would be re-routed.
type plannedMove struct {
	shown *api.Move
	// from are the routes it was planned for, to what it would have.
	from []*control.PlannedRoute
	to   []modelRoute
}

// keepMoves plans moves in the background until ctx ends.
func (g *Global) keepMoves(ctx context.Context) {
	planned := uint64(0)
	rested := map[chain.Key]time.Time{}
	for sleep(ctx, g.config.Moves.Interval) {
		revision, err := g.board.sync(ctx)
		if err != nil || revision == planned && !g.config.Moves.Apply {
			continue
		}
		order, err := g.planMoves(ctx)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, ErrInfeasible) {
				g.log.Warn("moves cannot be planned", "error", err)
			}
			continue
		}
		planned = revision
		if g.config.Moves.Apply {
			g.startMove(order, rested)
		}
	}
}

// planMoves asks for the optimum, notes the moves toward it and returns those that fit, in their order. Where not all demand can be carried there
// is no optimum and nobody is moved.
func (g *Global) planMoves(ctx context.Context) ([]chain.Key, error) {
	limited, cancel := context.WithTimeout(ctx, optimumLimit)
	defer cancel()
	answer := &movesAnswer{}
	err := g.engineering.ask(limited, movesService, optimumLimit, func(revision uint64) any {
		return movesRequest{revision, "latency", g.config.Moves.Least, movesListed}
	}, answer)
	if err != nil && !errors.Is(err, ErrInfeasible) {
		return nil, err
	}
	now := timestamppb.New(g.config.Now())
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.changes.tell()
	g.moves = map[chain.Key]*plannedMove{}
	keys := map[string]chain.Key{}
	for key := range g.records {
		keys[modelID(key)] = key
	}
	var order []chain.Key
	for _, m := range answer.Moves {
		key, known := keys[m.Chain]
		version := activeVersion(g.records[key])
		if !known || version == nil || len(version.NextRoutes) > 0 {
			continue
		}
		shown := &api.Move{Gain: m.Relative, LatencyMsNow: m.LatencyNow, LatencyMsThen: m.LatencyThen, Planned: now}
		for _, r := range version.Routes {
			shown.From = append(shown.From, &api.RouteStatus{Fraction: r.Fraction, IngressSite: r.IngressSite, Sites: r.Sites,
				EgressSite: r.EgressSite, LatencyMs: r.LatencyMs})
		}
		for _, r := range m.Routes {
			if r.Fraction >= smallestShare {
				shown.To = append(shown.To, &api.RouteStatus{Fraction: r.Fraction, IngressSite: r.Ingress, Sites: r.Sites, EgressSite: r.Egress,
					LatencyMs: r.Latency})
			}
		}
		g.moves[key] = &plannedMove{shown, version.Routes, m.Routes}
		if len(m.Full) == 0 {
			order = append(order, key)
		}
	}
	return order, err
}

// startMove hands the best move of a chain that has rested to its worker.
func (g *Global) startMove(order []chain.Key, rested map[chain.Key]time.Time) {
	now := g.config.Now()
	for _, key := range order {
		if now.Before(rested[key]) {
			continue
		}
		rested[key] = now.Add(g.config.Moves.Rest)
		g.mu.Lock()
		if w := g.workers[key]; w != nil {
			w.wantedMove.Store(g.moves[key])
			w.kick()
		}
		g.mu.Unlock()
		return
	}
}

// movesShown are the moves planned last, as resources named after their chains.
func (g *Global) movesShown() []*api.Resource {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []*api.Resource
	for key, m := range g.moves {
		if g.records[key] == nil || !sameRoutes(activeVersion(g.records[key]).GetRoutes(), m.from) {
			continue // moved meanwhile, or gone
		}
		all = append(all, &api.Resource{Metadata: &api.Metadata{Name: key.Name, Customer: string(key.Customer)},
			Kind: &api.Resource_Move{Move: proto.CloneOf(m.shown)}})
	}
	return all
}

func sameRoutes(a, b []*control.PlannedRoute) bool {
	return slices.EqualFunc(a, b, func(x, y *control.PlannedRoute) bool { return proto.Equal(x, y) })
}

// move takes a chain to routes that the plan of moves has for it, with the consent of all concerned. Who refuses keeps the
// chain where it is.
func (w *worker) move(ctx context.Context, s situation, m *plannedMove) (time.Duration, error) {
	version := activeVersion(s.record)
	if version == nil || !sameRoutes(version.Routes, m.from) {
		return 0, nil // it was planned for routes that the chain no longer has
	}
	p := w.g.problem(w.key, demandOf(s.state.PlannedDemand), nil)
	answer := &routeAnswer{Routes: m.to}
	if p.oneEgress(answer) != nil {
		return 0, nil // the optimum splits what a classifier cannot
	}
	routes, no, err := w.labelled(ctx, p, answer)
	if no != nil || err != nil {
		return 0, err
	}
	w.g.events.add(w.key, normal, "Moving", fmt.Sprintf("to routes that cost %.3g%% less; latency %.4g ms instead of %.4g ms",
		100*m.shown.Gain, m.shown.LatencyMsThen, m.shown.LatencyMsNow), sourceTE)
	verdict, err := w.agree(ctx, s, p, routes)
	if err != nil || verdict.committed {
		return 0, err
	}
	for _, r := range verdict.rejections {
		w.g.events.add(w.key, normal, "MoveRefused", r.Reason, r.Participant)
	}
	for _, who := range verdict.unreachable {
		w.g.events.add(w.key, normal, "MoveRefused", who, sourceGlobal)
	}
	return 0, w.setPhase(ctx, api.ChainPhase_CHAIN_PHASE_ACTIVE, "", "")
}
