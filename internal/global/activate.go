package global

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
)

// activate lets edges use what was prepared, once every site concerned has applied it that is not away.
func (w *worker) activate(ctx context.Context, s situation) (time.Duration, error) {
	next := preparing(s.record)
	sites := w.g.there(sitesOfVersion(next))
	if late := w.g.observed.laggards(s.record, sites); len(late) > 0 {
		return busyLook, w.waitFor(ctx, s, late)
	}
	record := proto.CloneOf(s.record)
	record.Revision = w.g.nextRevision(s.record)
	record.Phase = api.ChainPhase_CHAIN_PHASE_ACTIVE
	for _, v := range record.Versions {
		switch {
		case v.ChainLabel == next.ChainLabel:
			v.State = control.VersionState_VERSION_STATE_ACTIVE
			if len(v.NextRoutes) > 0 {
				v.Routes, v.NextRoutes = v.NextRoutes, nil
			}
		default:
			v.State = control.VersionState_VERSION_STATE_DRAINING
		}
	}
	if err := w.g.publishRecord(ctx, record); err != nil {
		return 0, err
	}
	w.untilClassified(ctx, record, sites)
	return 0, w.activated(ctx, record)
}

// classifyPatience bounds how long a chain waits to be called active after its edges were told to classify.
const classifyPatience = time.Second

// untilClassified waits until the sites have applied an active record: who sees the phase Active may send. A site that
// went away meanwhile does not hold the chain back for longer than classifyPatience.
func (w *worker) untilClassified(ctx context.Context, record *control.ChainRecord, sites []string) {
	ctx, cancel := context.WithTimeout(ctx, classifyPatience)
	defer cancel()
	for len(w.g.observed.laggards(record, sites)) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// waitFor shows which sites a chain waits for; what lags only a moment is not told.
func (w *worker) waitFor(ctx context.Context, s situation, late []string) error {
	if time.Since(time.UnixMilli(int64(s.record.Revision))) < time.Second {
		return nil
	}
	return w.report(ctx, "Waiting", "waiting for "+strings.Join(late, "; "))
}

func (w *worker) activated(ctx context.Context, record *control.ChainRecord) error {
	w.g.mu.Lock()
	state := proto.CloneOf(w.g.states[w.key])
	w.g.mu.Unlock()
	now := w.g.config.Now()
	status := state.Status
	status.Phase, status.Reason, status.ReasonFrom = api.ChainPhase_CHAIN_PHASE_ACTIVE, "", ""
	status.ActiveSince = timestamppb.New(now)
	if state.RequestedUnixMs > 0 {
		status.ActivationMs = float64(now.UnixMicro())/1000 - float64(state.RequestedUnixMs)
		state.RequestedUnixMs = 0
	}
	if state.DrainingSinceUnixMs == nil {
		state.DrainingSinceUnixMs = map[uint32]int64{}
	}
	for _, v := range record.Versions {
		if v.State == control.VersionState_VERSION_STATE_DRAINING && state.DrainingSinceUnixMs[v.ChainLabel] == 0 {
			state.DrainingSinceUnixMs[v.ChainLabel] = now.UnixMilli()
		}
	}
	w.said = ""
	active := activeVersion(record)
	w.g.events.add(w.key, normal, "Active", fmt.Sprintf("label %d: %s", active.ChainLabel, describeRoutes(active, active.Routes)), sourceGlobal)
	return w.g.setState(ctx, w.key, state)
}
