package global

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// worker leads one chain through its life, one step at a time. Each step is chosen from durable state alone.
type worker struct {
	g    *Global
	key  chain.Key
	wake chan struct{}
	// retry asks for a rejected chain to be planned again.
	retry atomic.Bool
	// gone: the chain has ended.
	gone bool
	// wantedMove is one to carry out.
	wantedMove atomic.Pointer[plannedMove]
	// retryAt is when a rejected chain is planned again without being asked.
	retryAt time.Time
	// unconfirmed is since when participants owe a confirmation.
	unconfirmed time.Time
	// checked is the change of desired resources, plus 1, up to which the routes were found sound.
	checked uint64
	// said is the last problem told as an event.
	said string
	// spare is the label of a version that was refused; the next attempt at that version takes it, also after a restart.
	spare spareLabel
	// quiet is, for versions of a chain that is deleted, since when they carry no packets.
	quiet map[uint32]stillness
}

// spareLabel is a label that is held for a version with these VNFs; 0 is none.
type spareLabel struct {
	label chain.Label
	uses  []chain.Use
}

// newWorker makes a chain's worker. g.mu is held.
func newWorker(g *Global, key chain.Key) *worker {
	w := &worker{g: g, key: key, wake: make(chan struct{}, 1), quiet: map[uint32]stillness{}, spare: g.spares[key]}
	delete(g.spares, key)
	return w
}

// kick makes the worker look again.
func (w *worker) kick() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

const (
	// idleLook is how often a worker looks without being told to.
	idleLook = 10 * time.Second
	// busyLook is how often it looks while it waits for something that nobody tells.
	busyLook = 200 * time.Millisecond
	// failureWait follows an error of the worker's own store.
	failureWait = time.Second
)

func (w *worker) run(ctx context.Context) {
	for {
		wait, err := w.step(ctx)
		if ctx.Err() != nil || w.gone {
			return
		}
		if err != nil {
			w.g.log.Warn("a chain's step failed", "chain", w.key.Path(), "error", err)
			wait = failureWait
		}
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-time.After(wait):
		}
	}
}

// situation is all that a step is chosen from.
type situation struct {
	wanted   bool
	inputs   string
	message  *api.Resource
	state    *control.ChainState
	record   *control.ChainRecord
	measured *replacement
}

func (w *worker) situation() situation {
	g := w.g
	g.mu.Lock()
	defer g.mu.Unlock()
	s := situation{message: g.messages[w.key], inputs: g.inputs(w.key), record: g.records[w.key]}
	if g.states[w.key] == nil {
		g.states[w.key] = g.newState(w.key)
	}
	s.state = proto.CloneOf(g.states[w.key])
	s.wanted = s.message != nil && !s.state.Deleting
	if s.record != nil {
		s.record = proto.CloneOf(s.record)
	}
	if m := g.measure[w.key]; m != nil && s.wanted {
		s.measured = m.replaces(g.config, demandOf(s.message.GetChain().GetSpec().GetDemand()), demandOf(s.state.PlannedDemand))
	}
	return s
}

// step does what comes next and says when to look again.
func (w *worker) step(ctx context.Context) (time.Duration, error) {
	s := w.situation()
	if !s.wanted && !stopped(s.record) {
		return 0, w.stop(ctx, s)
	}
	if waiting := w.g.coordinate.unfinished(w.key); len(waiting) > 0 {
		return w.awaitConfirmation(ctx, waiting)
	}
	w.unconfirmed = time.Time{}
	switch {
	case !s.wanted:
		return w.end(ctx, s)
	case s.state.PlannedInputs != s.inputs:
		return w.plan(ctx, s, w.wantedDemand(s), "")
	case w.retryDue(s):
		return w.plan(ctx, s, w.wantedDemand(s), "")
	case preparing(s.record) != nil:
		return w.activate(ctx, s)
	}
	if !refused(s.state) {
		if why := w.broken(); why != "" {
			return w.plan(ctx, s, w.wantedDemand(s), why)
		}
		if s.measured != nil {
			return w.plan(ctx, s, s.measured.demand, s.measured.why(w.g.config.Measure))
		}
		if m := w.wantedMove.Swap(nil); m != nil {
			return w.move(ctx, s, m)
		}
	}
	return w.drain(ctx, s)
}

// broken says why the routes cannot stay; it looks where desired resources have changed since it last found nothing.
func (w *worker) broken() string {
	changed := w.g.changed.Load()
	if w.checked == changed+1 {
		return ""
	}
	why := w.g.broken(w.key)
	if why == "" {
		w.checked = changed + 1
	}
	return why
}

// refused reports whether the last plan was.
func refused(state *control.ChainState) bool {
	phase := state.Status.Phase
	return phase == api.ChainPhase_CHAIN_PHASE_REJECTED || phase == api.ChainPhase_CHAIN_PHASE_FAILED
}

// awaitConfirmation waits for participants to confirm an outcome; what lasts is shown.
func (w *worker) awaitConfirmation(ctx context.Context, waiting []string) (time.Duration, error) {
	if w.unconfirmed.IsZero() {
		w.unconfirmed = time.Now()
	}
	if time.Since(w.unconfirmed) < time.Second {
		return busyLook, nil
	}
	return idleLook, w.report(ctx, "Waiting", "waiting for "+strings.Join(waiting, ", ")+" to confirm")
}

// wantedDemand is what the chain's reservations are to be for: measured, else estimated by the customer.
func (w *worker) wantedDemand(s situation) chain.Demand {
	estimate := demandOf(s.message.GetChain().GetSpec().GetDemand())
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	if m := w.g.measure[w.key]; m != nil {
		if demand, ok := m.settled(w.g.config, estimate); ok {
			return demand
		}
	}
	return estimate
}

// retryDue reports whether a chain that was rejected should be tried again.
func (w *worker) retryDue(s situation) bool {
	asked := w.retry.Swap(false)
	if !refused(s.state) {
		return false
	}
	return asked || !w.retryAt.IsZero() && time.Now().After(w.retryAt)
}

// setState makes a chain's state durable, then known.
func (g *Global) setState(ctx context.Context, key chain.Key, state *control.ChainState) error {
	g.mu.Lock()
	same := g.states[key] != nil && proto.Equal(g.states[key], state)
	deleting := g.states[key].GetDeleting()
	g.mu.Unlock()
	if same {
		return nil
	}
	// A deletion that came meanwhile is not forgotten.
	state.Deleting = state.Deleting || deleting
	if err := put(ctx, g.store, stateKey(key), state); err != nil {
		return err
	}
	g.mu.Lock()
	g.states[key] = proto.CloneOf(state)
	g.mu.Unlock()
	g.board.changedChain(key)
	g.changes.tell()
	return nil
}

// setPhase changes the phase and the reason a chain shows.
func (w *worker) setPhase(ctx context.Context, phase api.ChainPhase, reason, from string) error {
	w.g.mu.Lock()
	state := proto.CloneOf(w.g.states[w.key])
	w.g.mu.Unlock()
	state.Status.Phase, state.Status.Reason, state.Status.ReasonFrom = phase, reason, from
	return w.g.setState(ctx, w.key, state)
}

// report shows what a chain waits for, and tells it once as an event.
func (w *worker) report(ctx context.Context, reason, text string) error {
	if w.said != text {
		w.said = text
		w.g.events.add(w.key, normal, reason, text, sourceGlobal)
	}
	w.g.mu.Lock()
	state := proto.CloneOf(w.g.states[w.key])
	w.g.mu.Unlock()
	if state == nil || state.Status.Reason == text {
		return nil
	}
	state.Status.Reason, state.Status.ReasonFrom = text, sourceGlobal
	return w.g.setState(ctx, w.key, state)
}
