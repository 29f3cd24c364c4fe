package bus

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
)

// Subscription is part of a site's published state, kept current.
type Subscription struct {
	site, prefix string
	events       <-chan Event
	cancel       context.CancelFunc
	release      func()
	once         sync.Once
}

// Subscribe tells what a site, this one or another, publishes at and below a prefix: the state, Synchronised, then
// changes, in the manner of Store.Watch, until Close, ctx's end or the connection's.
//
// Another site's state is read from this site's copy, the view, which the site process keeps current over one link
// however many agents subscribe; what several of them want crosses the link once. The copy outlives restarts and is read
// while the other site cannot be reached. Synchronised comes when the copy has been whole once, so for a prefix that is
// new at this site it waits for the other site. Refused comes instead where the other site does not let this one read it.
func (c *Connection) Subscribe(ctx context.Context, site, prefix string) (*Subscription, error) {
	if err := errors.Join(validSite(site), validPrefix(prefix)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &Subscription{site: site, prefix: prefix, cancel: cancel, release: func() {}}
	if site == c.Site() {
		events, err := c.Published().Watch(ctx, prefix)
		if err != nil {
			cancel()
			return nil, err
		}
		s.events = events
		return s, nil
	}
	s.release = c.wanted.add(site, prefix)
	context.AfterFunc(ctx, s.Close)
	s.events = c.watchView(ctx, site, prefix)
	return s, nil
}

// Site is whose state it is.
func (s *Subscription) Site() string { return s.site }

// Prefix is what Subscribe was given.
func (s *Subscription) Prefix() string { return s.prefix }

// Events is the channel of what happens; it is closed after Close.
func (s *Subscription) Events() <-chan Event { return s.events }

// Close ends the subscription.
func (s *Subscription) Close() {
	s.once.Do(func() {
		s.cancel()
		s.release()
	})
}

// watchView reads the site's copy of another site's state. The mirror's cursor for the prefix, stored in the same
// stream behind what it covers, tells that the copy is whole.
func (c *Connection) watchView(ctx context.Context, site, prefix string) <-chan Event {
	q := newEventQueue()
	var read, whole, told bool
	tell := func() {
		if read && whole && !told {
			told = true
			q.add(Event{Kind: Synchronised, Site: site})
		}
	}
	mine := site + "."
	below := site
	if prefix != "" {
		below = mine + prefix
	}
	f := &feed{
		store:        c.store(viewBucket),
		prefixes:     []string{below, cursorKey(site, prefix)},
		synchronised: func() { read = true; tell() },
	}
	f.changed = func(ch change) {
		if key, ok := strings.CutPrefix(ch.key, mine); ok {
			q.add(viewEvent(ch, site, key))
			return
		}
		var at cursor
		switch {
		case ch.deleted || json.Unmarshal(ch.value, &at) != nil:
		case at.Refused != "":
			q.add(Event{Kind: Refused, Site: site, Value: []byte(at.Refused)})
		default:
			whole = true
			tell()
		}
	}
	return q.serve(ctx, c, f.run)
}
