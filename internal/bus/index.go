package bus

import (
	"context"
	"strings"
	"sync"
	"time"
)

// index is the site process's copy, in memory, of what the site publishes, from which it serves other sites. Deletions
// stay in it as long as in the bucket.
type index struct {
	mu       sync.Mutex
	items    map[string]*item
	revision uint64 // of the last change
	epoch    uint64 // of the bucket; 0 until the state at the start has been read
	ready    chan struct{}
	sessions map[*session]struct{}
	grown    chan struct{} // closed and replaced at every change, where somebody awaits one
}

type item struct {
	revision uint64
	time     time.Time
	value    []byte
	deleted  bool
}

func newIndex() *index {
	return &index{items: map[string]*item{}, ready: make(chan struct{}), sessions: map[*session]struct{}{}}
}

// change takes a change of the bucket and tells the sessions that want it.
func (x *index) change(c change) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.items[c.key] = &item{revision: c.revision, time: c.time, value: c.value, deleted: c.deleted}
	x.revision = max(x.revision, c.revision)
	if x.grown != nil {
		close(x.grown)
		x.grown = nil
	}
	for s := range x.sessions {
		if s.wants(c.key) {
			s.mark(c.key)
		}
	}
}

// await waits until the index has come to a revision, or ctx ends.
func (x *index) await(ctx context.Context, revision uint64) {
	for {
		x.mu.Lock()
		if x.revision >= revision {
			x.mu.Unlock()
			return
		}
		if x.grown == nil {
			x.grown = make(chan struct{})
		}
		grown := x.grown
		x.mu.Unlock()
		select {
		case <-grown:
		case <-ctx.Done():
			return
		}
	}
}

// open marks the index as whole up to a revision, which may be that of a message that is gone. The bucket's creation is
// its epoch: revisions of another one say nothing.
func (x *index) open(created time.Time, revision uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.revision = max(x.revision, revision)
	x.epoch = uint64(created.UnixNano())
	close(x.ready)
}

// forget drops deletions older than their markers in the bucket.
func (x *index) forget(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for key, i := range x.items {
		if i.deleted && now.Sub(i.time) > tombstoneLife && !x.awaited(key) {
			delete(x.items, key)
		}
	}
}

// awaited reports whether a session has yet to send the key. The lock is held.
func (x *index) awaited(key string) bool {
	for s := range x.sessions {
		if s.waiting[key] {
			return true
		}
	}
	return false
}

// ancestors calls for the key's every prefix, shortest first, until one is accepted.
func ancestors(key string, accept func(prefix string) bool) bool {
	if accept("") {
		return true
	}
	for i := 0; ; {
		dot := strings.IndexByte(key[i:], '.')
		if dot < 0 {
			return accept(key)
		}
		if accept(key[:i+dot]) {
			return true
		}
		i += dot + 1
	}
}
