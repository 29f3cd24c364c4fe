package global

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
)

const (
	eventStore = "events"
	// keptEvents bounds the log. The oldest of the resource that has most give way: a restless one does not push out what
	// happened to others.
	keptEvents = 2000

	normal  = "Normal"
	warning = "Warning"

	sourceAPI    = "api"
	sourceGlobal = "global-switchboard"
	sourceTE     = "traffic-engineering"
)

// eventLog keeps what happened. It is written behind: an event is told at once and durable a moment later. Events are
// never changed, only replaced, so that readers may hold them.
type eventLog struct {
	store *bus.Store
	now   func() time.Time
	told  func()

	mu   sync.Mutex
	all  []logged // by when it happened last, the oldest first
	free []uint64 // slots of the store that hold no event
	// unstored are the slots that differ from the store's; wake tells that there are some.
	unstored map[uint64]bool
	wake     chan struct{}
}

// logged is an event and its slot in the store.
type logged struct {
	*api.Event
	slot uint64
}

func eventKey(slot uint64) string { return fmt.Sprintf("event.%d", slot) }

func openEventLog(ctx context.Context, store *bus.Store, now func() time.Time, told func()) (*eventLog, error) {
	entries, err := store.List(ctx, "")
	if err != nil {
		return nil, err
	}
	l := &eventLog{store: store, now: now, told: told, unstored: map[uint64]bool{}, wake: make(chan struct{}, 1)}
	taken := map[uint64]bool{}
	for _, e := range entries {
		event, slot := &api.Event{}, uint64(0)
		if _, err := fmt.Sscanf(e.Key, "event.%d", &slot); err != nil || slot >= keptEvents || proto.Unmarshal(e.Value, event) != nil {
			continue // an event is not worth refusing to start for
		}
		if event.Count == 0 { // of a release that did not count
			event.Count, event.FirstTime = 1, event.Time
		}
		taken[slot] = true
		l.all = append(l.all, logged{event, slot})
	}
	slices.SortStableFunc(l.all, func(a, b logged) int {
		return cmp.Or(a.Time.AsTime().Compare(b.Time.AsTime()), cmp.Compare(a.slot, b.slot))
	})
	for slot := uint64(keptEvents); slot > 0; slot-- {
		if !taken[slot-1] {
			l.free = append(l.free, slot-1)
		}
	}
	return l, nil
}

// add notes what happened to a resource. What repeats itself is one event that counts, until something else happens.
func (l *eventLog) add(key chain.Key, severity, reason, message, source string) {
	now := timestamppb.New(l.now())
	event := &api.Event{Time: now, Kind: string(key.Kind), Customer: string(key.Customer), Name: key.Name,
		Severity: severity, Reason: reason, Message: message, Source: source, Count: 1, FirstTime: now}
	slog.Debug("event", "resource", key.String(), "reason", reason, "message", message)
	l.mu.Lock()
	defer l.mu.Unlock()
	slot := uint64(0)
	if i := l.repeated(event); i >= 0 {
		event.Count, event.FirstTime, slot = l.all[i].Count+1, l.all[i].FirstTime, l.all[i].slot
		l.all = slices.Delete(l.all, i, i+1)
	} else {
		if len(l.all) == keptEvents {
			l.giveWay()
		}
		slot, l.free = l.free[len(l.free)-1], l.free[:len(l.free)-1]
	}
	l.all = append(l.all, logged{event, slot})
	l.unstored[slot] = true
	select {
	case l.wake <- struct{}{}:
	default:
	}
	l.told()
}

// repeated finds the event that a new one repeats, -1 where there is none. A warning repeats an equal one since the
// resource was last well, whatever other warnings lie between: several parts may complain in turn. Anything else repeats
// only the resource's latest event.
func (l *eventLog) repeated(event *api.Event) int {
	for i, e := range slices.Backward(l.all) {
		switch {
		case !sameResource(e.Event, event):
		case e.Severity == event.Severity && e.Reason == event.Reason && e.Message == event.Message && e.Source == event.Source:
			return i
		case e.Severity != warning || event.Severity != warning:
			return -1
		}
	}
	return -1
}

func sameResource(a, b *api.Event) bool {
	return a.Kind == b.Kind && a.Customer == b.Customer && a.Name == b.Name
}

// giveWay drops the oldest event of the resource that has most.
func (l *eventLog) giveWay() {
	owner := func(e logged) chain.Key {
		return chain.Key{Kind: chain.Kind(e.Kind), Customer: chain.CustomerName(e.Customer), Name: e.Name}
	}
	counts, most := map[chain.Key]int{}, 0
	for _, e := range l.all {
		counts[owner(e)]++
		most = max(most, counts[owner(e)])
	}
	i := slices.IndexFunc(l.all, func(e logged) bool { return counts[owner(e)] == most })
	l.free = append(l.free, l.all[i].slot)
	l.all = slices.Delete(l.all, i, i+1)
}

// keep stores events until ctx ends.
func (l *eventLog) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		for _, e := range l.takeUnstored() {
			if err := put(ctx, l.store, eventKey(e.slot), e.Event); err != nil && ctx.Err() == nil {
				slog.Warn("an event could not be stored", "error", err)
			}
		}
	}
}

// takeUnstored lists the events to be stored. Those whose slot was given to another meanwhile are not among them.
func (l *eventLog) takeUnstored() []logged {
	l.mu.Lock()
	defer l.mu.Unlock()
	var changed []logged
	for _, e := range l.all {
		if l.unstored[e.slot] {
			changed = append(changed, e)
		}
	}
	clear(l.unstored)
	return changed
}

// find lists events of a resource, newest first; empty parts match all.
func (l *eventLog) find(kind, customer, name string, limit int) []*api.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []*api.Event
	for i := len(l.all) - 1; i >= 0 && len(found) < limit; i-- {
		e := l.all[i]
		if (kind == "" || e.Kind == kind) && (customer == "" || e.Customer == customer) && (name == "" || strings.EqualFold(e.Name, name)) {
			found = append(found, e.Event)
		}
	}
	return found
}

// defaultEvents is how many ListEvents gives where no limit is asked for.
const defaultEvents = 100

// Events lists what happened, newest first.
func (g *Global) Events(kind chain.Kind, customer, name string, limit uint32) []*api.Event {
	if limit == 0 {
		limit = defaultEvents
	}
	return g.events.find(string(kind), customer, name, int(limit))
}
