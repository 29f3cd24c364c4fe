package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// wantLinger is how long a prefix that nobody wants any more is kept: whoever comes back finds it.
	wantLinger = time.Minute
	wantSweep  = 10 * time.Second
	// batchQueue holds the batches of a session that the mirror has not taken; the window bounds them far below it.
	batchQueue = 4096
)

// mirrors knows what this site's agents want of other sites, and keeps one mirror per site.
type mirrors struct {
	life  context.Context
	s     *Server
	links *links
	log   *slog.Logger

	mu       sync.Mutex
	until    map[want]time.Time // how long each prefix is kept
	held     map[string][]want  // by connection
	sites    map[string]*mirror
	sessions map[sessionName]chan []byte
}

type sessionName struct{ site, id string }

func newMirrors(life context.Context, s *Server, links *links) *mirrors {
	return &mirrors{life: life, s: s, links: links, log: s.log, until: map[want]time.Time{}, held: map[string][]want{},
		sites: map[string]*mirror{}, sessions: map[sessionName]chan []byte{}}
}

// start takes up the prefixes of the last run, for which agents will ask again, and then hears the agents.
func (ms *mirrors) start(ctx context.Context) error {
	cursors, err := ms.s.core.store(viewBucket).List(ctx, "_.cursor")
	if err != nil {
		return fmt.Errorf("read subscriptions: %w", err)
	}
	ms.mu.Lock()
	for _, e := range cursors {
		var c cursor
		tokens := strings.Split(e.Key, ".")
		if len(tokens) == 4 && json.Unmarshal(e.Value, &c) == nil {
			ms.until[want{tokens[2], c.Prefix}] = time.Now().Add(wantLife)
		}
	}
	ms.apply()
	ms.mu.Unlock()
	_, err = ms.s.nc.Subscribe(wantSubject, func(m *nats.Msg) {
		var w wantMessage
		if err := json.Unmarshal(m.Data, &w); err != nil {
			respond(m, nil, &Error{codeInvalid, err.Error()})
			return
		}
		ms.hear(w)
		respond(m, nil, nil)
	})
	if err != nil {
		return fmt.Errorf("hear subscriptions: %w", err)
	}
	ms.s.run(ms.sweep)
	return nil
}

// hear takes what a connection wants, all of it.
func (ms *mirrors) hear(w wantMessage) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	now := time.Now()
	before := ms.held[w.Connection]
	if len(w.Wants) == 0 {
		delete(ms.held, w.Connection)
	} else {
		ms.held[w.Connection] = w.Wants
	}
	for _, at := range before {
		if !ms.isHeld(at) {
			ms.until[at] = now.Add(wantLinger)
		}
	}
	for _, at := range w.Wants {
		if validSite(at.Site) == nil && validPrefix(at.Prefix) == nil && at.Site != ms.s.Site() {
			ms.until[at] = now.Add(wantLife)
		}
	}
	ms.apply()
}

func (ms *mirrors) isHeld(at want) bool {
	for _, wants := range ms.held {
		if slices.Contains(wants, at) {
			return true
		}
	}
	return false
}

// sweep drops what nobody has wanted for long enough.
func (ms *mirrors) sweep() {
	tick := time.NewTicker(wantSweep)
	defer tick.Stop()
	for {
		select {
		case <-ms.life.Done():
			return
		case now := <-tick.C:
			ms.mu.Lock()
			for at, until := range ms.until {
				if now.After(until) {
					delete(ms.until, at)
				}
			}
			for connection, wants := range ms.held { // of agents that ended without a word
				wants = slices.DeleteFunc(wants, func(at want) bool { return ms.until[at].IsZero() })
				if ms.held[connection] = wants; len(wants) == 0 {
					delete(ms.held, connection)
				}
			}
			ms.apply()
			ms.mu.Unlock()
		}
	}
}

// apply tells every mirror its prefixes. The lock is held.
func (ms *mirrors) apply() {
	prefixes := map[string][]string{}
	for at := range ms.until {
		prefixes[at.Site] = append(prefixes[at.Site], at.Prefix)
	}
	for site := range prefixes {
		if ms.sites[site] == nil {
			ms.sites[site] = ms.begin(site)
		}
	}
	for site, m := range ms.sites {
		slices.Sort(prefixes[site])
		m.want(prefixes[site])
	}
}

func (ms *mirrors) begin(site string) *mirror {
	m := &mirror{
		site: site, c: ms.s.core, links: ms.links, log: ms.log, write: &viewWriter{c: ms.s.core, site: site},
		batches: ms.register, wanted: make(chan struct{}, 1), known: map[string]stamp{},
		cursors: map[string]position{}, partial: map[string]position{}, stored: map[string]position{}, refused: map[string]bool{},
	}
	ms.s.run(func() { m.run(ms.life) })
	return m
}

// register makes the queue of a session's batches.
func (ms *mirrors) register(site, id string) (<-chan []byte, func()) {
	name := sessionName{site, id}
	queue := make(chan []byte, batchQueue)
	ms.mu.Lock()
	ms.sessions[name] = queue
	ms.mu.Unlock()
	return queue, func() {
		ms.mu.Lock()
		delete(ms.sessions, name)
		ms.mu.Unlock()
	}
}

// serve takes batches from peers over a trunk. Those of a session that its own publisher did not send are nobody's.
func (ms *mirrors) serve(t *trunk) error {
	return t.listen(verbBatch, func(peer, session string, m *nats.Msg) {
		ms.mu.Lock()
		queue := ms.sessions[sessionName{peer, session}]
		ms.mu.Unlock()
		if queue == nil {
			return
		}
		select {
		case queue <- m.Data:
		default: // the mirror sees that one is missing
		}
	})
}
