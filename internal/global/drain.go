package global

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// drain lets go of replaced versions whose connections have ended, and otherwise rests.
func (w *worker) drain(ctx context.Context, s situation) (time.Duration, error) {
	if err := w.repair(ctx, s); err != nil {
		return 0, err
	}
	keep := map[chain.Label]bool{w.spare.label: true}
	for _, v := range s.record.GetVersions() {
		keep[chain.Label(v.ChainLabel)] = true
	}
	if err := w.g.releaseLabelsOf(ctx, w.key, keep); err != nil {
		return 0, err
	}
	wait := idleLook
	for _, v := range s.record.GetVersions() {
		if v.State != control.VersionState_VERSION_STATE_DRAINING {
			continue
		}
		done, err := w.release(ctx, s, v, drainRule{limit: w.g.config.DrainLimit})
		if done || err != nil {
			return 0, err
		}
		wait = time.Second
	}
	return wait, nil
}

// repair makes the state agree with the record where the process ended between the two.
func (w *worker) repair(ctx context.Context, s situation) error {
	if s.state.Status.ObservedGeneration != s.message.Metadata.Generation {
		// What changed needs no plan.
		state := proto.CloneOf(s.state)
		state.Status.ObservedGeneration, state.RequestedUnixMs = s.message.Metadata.Generation, 0
		return w.g.setState(ctx, w.key, state)
	}
	phase := s.state.Status.Phase
	settled := phase == api.ChainPhase_CHAIN_PHASE_ACTIVE || phase == api.ChainPhase_CHAIN_PHASE_REJECTED ||
		phase == api.ChainPhase_CHAIN_PHASE_FAILED
	if activeVersion(s.record) == nil || settled {
		return nil
	}
	return w.activated(ctx, s.record)
}

// drainRule says how long connections of a draining version are waited for: at most limit, and only while packets pass
// where idle is not 0.
type drainRule struct{ limit, idle time.Duration }

// stillness is since when a version's count of packets has not changed.
type stillness struct {
	packets uint64
	since   time.Time
}

// quietFor is how long no packet of a chain label has been seen.
func (w *worker) quietFor(label uint32) time.Duration {
	now, packets := w.g.config.Now(), w.g.observed.packets(w.key, label)
	q, known := w.quiet[label]
	if !known || q.packets != packets {
		w.quiet[label] = stillness{packets, now}
		return 0
	}
	return now.Sub(q.since)
}

// release ends a draining version if its connections have ended, or the rule lets go of them; true when it did.
func (w *worker) release(ctx context.Context, s situation, version *control.ChainVersion, rule drainRule) (bool, error) {
	label := version.ChainLabel
	since := s.state.DrainingSinceUnixMs[label]
	if since == 0 {
		state := proto.CloneOf(s.state)
		if state.DrainingSinceUnixMs == nil {
			state.DrainingSinceUnixMs = map[uint32]int64{}
		}
		state.DrainingSinceUnixMs[label] = w.g.config.Now().UnixMilli()
		return false, w.g.setState(ctx, w.key, state)
	}
	drained, flows := w.g.observed.drained(s.record, version)
	passed := w.g.config.Now().Sub(time.UnixMilli(since))
	idle := rule.idle > 0 && w.quietFor(label) >= rule.idle
	if !drained && !idle && passed < rule.limit {
		return false, nil
	}
	delete(w.quiet, label)
	record := proto.CloneOf(s.record)
	record.Revision = w.g.nextRevision(s.record)
	record.Versions = nil
	for _, v := range s.record.Versions {
		if v.ChainLabel != label {
			record.Versions = append(record.Versions, proto.CloneOf(v))
		}
	}
	if err := w.g.coordinate.release(ctx, w.key, w.letGo(version), record); err != nil {
		return false, err
	}
	text := fmt.Sprintf("label %d has no connections left", label)
	if !drained {
		text = fmt.Sprintf("label %d is ended with %d connections after %v", label, flows, passed.Round(time.Millisecond))
		if idle {
			text += fmt.Sprintf(", no packet in the last %v", rule.idle)
		}
	}
	w.g.events.add(w.key, normal, "Released", text, sourceGlobal)
	return true, w.g.forgetVersion(ctx, w.key, label)
}

// forgetVersion forgets since when a version drained. Its label is let go of when the release has reached everybody:
// see drain and vanish.
func (g *Global) forgetVersion(ctx context.Context, key chain.Key, label uint32) error {
	g.mu.Lock()
	state := proto.CloneOf(g.states[key])
	g.mu.Unlock()
	delete(state.DrainingSinceUnixMs, label)
	return g.setState(ctx, key, state)
}

// end leads a chain that is no longer wanted to its end: edges stop classifying, connections end, reservations are
// released, and nothing is left.
func (w *worker) end(ctx context.Context, s situation) (time.Duration, error) {
	if s.record == nil || len(s.record.Versions) == 0 {
		return 0, w.vanish(ctx)
	}
	rule := drainRule{limit: w.g.config.DeleteDrainLimit, idle: w.g.config.DeleteIdleLimit}
	for _, v := range s.record.Versions {
		if done, err := w.release(ctx, s, v, rule); done || err != nil {
			return 0, err
		}
	}
	return busyLook, nil
}

// stopped reports whether no edge uses the chain any more.
func stopped(record *control.ChainRecord) bool {
	if record == nil || len(record.Versions) == 0 {
		return true
	}
	for _, v := range record.Versions {
		if v.State != control.VersionState_VERSION_STATE_DRAINING {
			return false
		}
	}
	return record.Phase == api.ChainPhase_CHAIN_PHASE_DELETING
}

// stop makes edges stop classifying. It waits for nobody.
func (w *worker) stop(ctx context.Context, s situation) error {
	record := proto.CloneOf(s.record)
	record.Revision, record.Phase = w.g.nextRevision(s.record), api.ChainPhase_CHAIN_PHASE_DELETING
	for _, v := range record.Versions {
		v.State, v.NextRoutes = control.VersionState_VERSION_STATE_DRAINING, nil
	}
	return w.g.publishRecord(ctx, record)
}

// vanish removes the last traces of a chain.
func (w *worker) vanish(ctx context.Context) error {
	g := w.g
	if err := g.releaseLabelsOf(ctx, w.key, nil); err != nil {
		return err
	}
	if err := g.withdrawRecord(ctx, w.key); err != nil {
		return err
	}
	if err := g.store.Delete(ctx, resourceKey(w.key)); err != nil {
		return err
	}
	if err := g.store.Delete(ctx, stateKey(w.key)); err != nil {
		return err
	}
	g.applying.Lock()
	g.mu.Lock()
	delete(g.world, w.key)
	delete(g.messages, w.key)
	delete(g.states, w.key)
	delete(g.workers, w.key)
	delete(g.measure, w.key)
	w.gone = true
	g.mu.Unlock()
	g.applying.Unlock()
	g.events.add(w.key, normal, "Deleted", "", sourceGlobal)
	g.kickAll(nil)
	g.changes.tell()
	return nil
}

// releaseLabelsOf lets go of a chain's labels that are not kept.
func (g *Global) releaseLabelsOf(ctx context.Context, key chain.Key, keep map[chain.Label]bool) error {
	g.mu.Lock()
	var stray []chain.Label
	for label, holder := range g.labels.holder {
		if holder == key.String() && !keep[label] {
			stray = append(stray, label)
		}
	}
	g.mu.Unlock()
	for _, label := range stray {
		if err := g.releaseLabel(ctx, label); err != nil {
			return err
		}
	}
	return nil
}
