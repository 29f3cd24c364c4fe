package bus

import (
	"context"
	"sort"
	"sync"
	"time"
)

const (
	// sessionBeat is how often a publisher says that nothing happened; a subscriber that hears nothing for
	// sessionSilence opens a new session.
	sessionBeat    = 20 * time.Second
	sessionSilence = 45 * time.Second
	// batchBytes bounds a batch, unless one value is larger.
	batchBytes = 32 << 10
	// changeOverhead is about what a change takes in a batch beside key and value.
	changeOverhead = 24
)

// session is one peer's subscription to this site's published state. It holds no queue of messages: only which keys the
// peer has not got, first come first served. However fast keys change, and however slow the peer, a key waits once, and
// what is sent is its last value at that moment. How much may be on its way is bounded by pace.
type session struct {
	index    *index
	link     *link
	id       string
	prefixes map[string]position // where the peer's copy began
	stopped  chan struct{}
	once     sync.Once
	started  bool // guarded by publisher.mu

	// Guarded by index.mu.
	waiting map[string]bool
	order   []string // the keys that wait

	wake chan struct{} // holds one token while there may be something to do

	mu   sync.Mutex // guards pace
	pace *pace
}

func newSession(x *index, l *link, request openRequest) *session {
	return &session{
		index: x, link: l, id: request.session, prefixes: map[string]position{}, stopped: make(chan struct{}),
		waiting: map[string]bool{}, wake: make(chan struct{}, 1),
		pace: newPace(int(min(request.window, maximumWindow))),
	}
}

// stop ends the session.
func (s *session) stop() { s.once.Do(func() { close(s.stopped) }); s.end() }

// wants reports whether the peer asked for a key.
func (s *session) wants(key string) bool {
	return ancestors(key, func(prefix string) bool { _, ok := s.prefixes[prefix]; return ok })
}

// lacks reports whether the peer asked for a key and its copy is older than the item.
func (s *session) lacks(key string, i *item) bool {
	return ancestors(key, func(prefix string) bool {
		at, ok := s.prefixes[prefix]
		return ok && i.revision > at.revision && (!i.deleted || at.revision > 0)
	})
}

// mark says that the peer lacks a key. The index's lock is held.
func (s *session) mark(key string) {
	if !s.waiting[key] {
		s.waiting[key] = true
		s.order = append(s.order, key)
	}
	s.poke()
}

func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// begin marks what the peer lacks at the opening and joins the index, in one step.
func (s *session) begin() {
	x := s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	for key, i := range x.items {
		if s.lacks(key, i) {
			s.waiting[key] = true
			s.order = append(s.order, key)
		}
	}
	// Oldest first, so that a first copying that is interrupted has come somewhere.
	sort.Slice(s.order, func(i, j int) bool { return x.items[s.order[i]].revision < x.items[s.order[j]].revision })
	x.sessions[s] = struct{}{}
}

func (s *session) end() {
	s.index.mu.Lock()
	delete(s.index.sessions, s)
	s.index.mu.Unlock()
}

// take makes the next batch of at most so many bytes, and reports its size; a batch has at least one change if there is
// one.
func (s *session) take(limit int) (batch, int) {
	x := s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	b := batch{asOf: uint64(time.Now().UnixNano())}
	size, n := 0, 0
	for _, key := range s.order {
		i := x.items[key]
		cost := len(key) + len(i.value) + changeOverhead
		if size > 0 && size+cost > limit {
			break
		}
		n++
		size += cost
		delete(s.waiting, key)
		b.changes = append(b.changes, batchChange{i.deleted, key, i.revision, uint64(i.time.UnixNano()), i.value})
	}
	s.order = s.order[n:]
	// The peer holds every change before the oldest that waits.
	b.revision = x.revision
	for key := range s.waiting {
		b.revision = min(b.revision, x.items[key].revision-1)
	}
	if b.complete = len(s.waiting) == 0; b.complete {
		s.order = nil
	}
	return b, size
}

// serve sends batches until the peer, the link or the site process is gone. The first one says where the peer stands,
// even if it lacks nothing.
func (s *session) serve(ctx context.Context) {
	defer s.end()
	beat := time.NewTimer(sessionBeat)
	defer beat.Stop()
	due := true
	for {
		for {
			limit := s.limit()
			if limit <= 0 || !due && !s.lacking() {
				break
			}
			due = false
			b, size := s.take(limit)
			b.number = s.sent(size)
			if s.link.say(verbBatch, s.id, b.encode()) != nil {
				return
			}
			beat.Reset(sessionBeat)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.stopped:
			return
		case <-s.link.lost:
			return
		case <-beat.C:
			if s.stalled() {
				return // the peer has taken nothing for a whole beat: it will open another session
			}
			due = true
			beat.Reset(sessionBeat)
		case <-s.wake:
		}
	}
}

func (s *session) lacking() bool {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	return len(s.waiting) > 0
}

func (s *session) limit() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pace.batch()
}

func (s *session) sent(size int) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pace.sent(size, time.Now())
}

// credit takes the peer's word that it has a batch.
func (s *session) credit(number uint64) {
	s.mu.Lock()
	s.pace.credit(number, time.Now())
	s.mu.Unlock()
	s.poke()
}

func (s *session) stalled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pace.oldest(time.Now()) > sessionBeat
}
