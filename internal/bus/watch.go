package bus

import (
	"context"
	"sync"
	"time"
)

// EventKind says what an Event tells.
type EventKind int

const (
	// Put tells a key's value.
	Put EventKind = iota + 1
	// Delete tells that a key has no value any more.
	Delete
	// Synchronised tells, once, that the state at the beginning has been told.
	Synchronised
	// Refused tells that the other site does not let this one read the prefix; Value is its reason. Nothing else comes
	// unless the other site changes its mind.
	Refused
)

// String names the kind.
func (k EventKind) String() string {
	switch k {
	case Put:
		return "put"
	case Delete:
		return "delete"
	case Synchronised:
		return "synchronised"
	case Refused:
		return "refused"
	}
	return "invalid"
}

// Event is one step of a watch.
type Event struct {
	Kind EventKind
	// Site is whose state it is.
	Site string
	// Key and Value are as published. Synchronised and Refused have no key, Delete and Synchronised no value.
	Key   string
	Value []byte
	// Revision is the publisher's.
	Revision uint64
	// Time is when the publisher's server stored it.
	Time time.Time
}

// Watch tells the values of every key that is the prefix or lies below it, then Synchronised, then every change, until
// ctx ends or the connection closes; then the channel is closed. Lost connections and the server's restarts are bridged:
// what changed meanwhile is told, once. A reader that falls behind gets the last value of each key and skips those
// between; it never blocks anybody.
func (s *Store) Watch(ctx context.Context, prefix string) (<-chan Event, error) {
	if err := validPrefix(prefix); err != nil {
		return nil, err
	}
	if err := validName("bucket", s.bucket); err != nil {
		return nil, err
	}
	q := newEventQueue()
	f := &feed{
		store:        s,
		prefixes:     []string{prefix},
		synchronised: func() { q.add(Event{Kind: Synchronised, Site: s.c.Site()}) },
		changed: func(c change) {
			q.add(Event{Kind: kindOf(c), Site: s.c.Site(), Key: c.key, Value: c.value, Revision: c.revision, Time: c.time})
		},
	}
	return q.serve(ctx, s.c, f.run), nil
}

func kindOf(c change) EventKind {
	if c.deleted {
		return Delete
	}
	return Put
}

// eventQueue holds what a reader has not taken yet: one event per key, the newest, in the order of their oldest.
type eventQueue struct {
	mu     sync.Mutex
	order  []eventKey
	events map[eventKey]Event
	more   chan struct{} // holds one token while there may be events
}

type eventKey struct{ site, key string }

func newEventQueue() *eventQueue {
	return &eventQueue{events: map[eventKey]Event{}, more: make(chan struct{}, 1)}
}

func (q *eventQueue) add(e Event) {
	at := eventKey{e.Site, e.Key}
	if e.Key == "" { // about the whole
		at.key = "." + e.Kind.String()
	}
	q.mu.Lock()
	if _, waiting := q.events[at]; !waiting {
		q.order = append(q.order, at)
	}
	q.events[at] = e
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
}

func (q *eventQueue) take() (Event, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.order) == 0 {
		q.order = nil
		return Event{}, false
	}
	at := q.order[0]
	q.order = q.order[1:]
	e := q.events[at]
	delete(q.events, at)
	return e, true
}

// serve runs the source and hands its events to the channel it returns, until ctx or the connection ends.
func (q *eventQueue) serve(ctx context.Context, c *Connection, source func(context.Context)) <-chan Event {
	ctx, cancel := context.WithCancel(ctx)
	out := make(chan Event)
	started := c.run(func() { source(ctx) }) && c.run(func() {
		defer close(out)
		defer cancel()
		for {
			e, ok := q.take()
			if !ok {
				select {
				case <-q.more:
					continue
				case <-ctx.Done():
				case <-c.life.Done():
				}
				return
			}
			select {
			case out <- e:
				continue
			case <-ctx.Done():
			case <-c.life.Done():
			}
			return
		}
	})
	if !started {
		cancel()
		close(out)
	}
	return out
}
