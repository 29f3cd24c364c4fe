package global

import (
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
	// keptEvents bounds the log; the oldest give way.
	keptEvents = 2000

	normal  = "Normal"
	warning = "Warning"

	sourceAPI    = "api"
	sourceGlobal = "global-switchboard"
	sourceTE     = "traffic-engineering"
)

// eventLog keeps what happened. It is written behind: an event is told at once and durable a moment later.
type eventLog struct {
	store *bus.Store
	now   func() time.Time
	told  func()

	mu     sync.Mutex
	all    []*api.Event // oldest first
	number uint64
	more   chan numbered
}

type numbered struct {
	slot  uint64
	event *api.Event
}

func openEventLog(ctx context.Context, store *bus.Store, now func() time.Time, told func()) (*eventLog, error) {
	entries, err := store.List(ctx, "")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b bus.Entry) int { return int(int64(a.Revision) - int64(b.Revision)) })
	l := &eventLog{store: store, now: now, told: told, more: make(chan numbered, keptEvents)}
	for _, e := range entries {
		event := &api.Event{}
		if err := proto.Unmarshal(e.Value, event); err != nil {
			continue // an event is not worth refusing to start for
		}
		l.all = append(l.all, event)
		var slot uint64
		if _, err := fmt.Sscanf(e.Key, "event.%d", &slot); err == nil {
			l.number = slot + 1
		}
	}
	return l, nil
}

// add notes what happened to a resource.
func (l *eventLog) add(key chain.Key, severity, reason, message, source string) {
	event := &api.Event{Time: timestamppb.New(l.now()), Kind: string(key.Kind), Customer: string(key.Customer), Name: key.Name,
		Severity: severity, Reason: reason, Message: message, Source: source}
	slog.Debug("event", "resource", key.String(), "reason", reason, "message", message)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, event)
	if len(l.all) > keptEvents {
		l.all = slices.Delete(l.all, 0, len(l.all)-keptEvents)
	}
	select {
	case l.more <- numbered{l.number % keptEvents, event}:
	default: // the store is away; the log in memory goes on
	}
	l.number++
	l.told()
}

// keep stores events until ctx ends.
func (l *eventLog) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-l.more:
			if err := put(ctx, l.store, fmt.Sprintf("event.%d", n.slot), n.event); err != nil && ctx.Err() == nil {
				slog.Warn("an event could not be stored", "error", err)
			}
		}
	}
}

// find lists events of a resource, newest first; empty parts match all.
func (l *eventLog) find(kind, customer, name string, limit int) []*api.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []*api.Event
	for i := len(l.all) - 1; i >= 0 && len(found) < limit; i-- {
		e := l.all[i]
		if (kind == "" || e.Kind == kind) && (customer == "" || e.Customer == customer) && (name == "" || strings.EqualFold(e.Name, name)) {
			found = append(found, e)
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
