package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	mirrorWindow = 4 << 20
	mirrorRetry  = 100 * time.Millisecond // first, and then twice as long up to
	mirrorMax    = 5 * time.Second
	openPatience = 10 * time.Second
	// cursorEvery is how often a moving cursor is stored; what a restart then asks again, it recognises.
	cursorEvery = 2 * time.Second
	// cursorAge is how old the stored cursor of a copy that does not change may get; well below resumeLimit.
	cursorAge = time.Hour
)

// mirror keeps this site's copy of what one other site publishes, at and below the prefixes that agents want. One
// goroutine owns it, except for want.
type mirror struct {
	site  string
	c     *Connection
	links *links
	log   *slog.Logger
	write *viewWriter
	// batches gives the messages of a session to the mirror, until its function is called.
	batches func(site, session string) (<-chan []byte, func())

	mu       sync.Mutex
	prefixes []string
	wanted   chan struct{} // holds a token while prefixes is news

	known   map[string]stamp    // keys with a value in the copy
	cursors map[string]position // of prefixes that were whole once
	partial map[string]position // of prefixes whose first copying was interrupted
	stored  map[string]position // as in the bucket
	refused map[string]bool
	taken   bool // the last session brought something
}

// want replaces the prefixes; none empties the copy.
func (m *mirror) want(prefixes []string) {
	m.mu.Lock()
	same := slices.Equal(m.prefixes, prefixes)
	m.prefixes = prefixes
	m.mu.Unlock()
	if !same {
		select {
		case m.wanted <- struct{}{}:
		default:
		}
	}
}

func (m *mirror) wants() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.prefixes
}

// run keeps the copy until life ends.
func (m *mirror) run(life context.Context) {
	if m.load(life) != nil {
		return // life has ended
	}
	wait := mirrorRetry
	for life.Err() == nil {
		prefixes := m.wants()
		if err := m.prune(life, prefixes); err != nil {
			m.log.Warn("copy of another site", "of", m.site, "error", err)
		}
		l, changed := m.links.state(m.site)
		if l == nil || len(prefixes) == 0 {
			select {
			case <-life.Done():
			case <-m.wanted:
			case <-changed:
			}
			continue
		}
		m.taken = false
		err := m.follow(life, l, prefixes)
		m.write.pending = nil
		if err == nil {
			wait = mirrorRetry
			continue // the prefixes changed
		}
		if life.Err() == nil {
			m.log.Debug("subscription to be opened again", "of", m.site, "reason", err)
		}
		if m.taken {
			wait = mirrorRetry
		}
		sleep(life, jittered(wait))
		wait = min(2*wait, mirrorMax)
	}
	m.storeCursors(context.WithoutCancel(life), 0)
}

// load reads the copy as the last run left it.
func (m *mirror) load(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	whole := false
	f := &feed{store: m.c.store(viewBucket), prefixes: []string{m.site, "_.cursor." + m.site}}
	f.synchronised = func() { whole = true; cancel() }
	f.changed = func(c change) {
		key, ok := strings.CutPrefix(c.key, m.site+".")
		if c.deleted {
			delete(m.known, key)
			return
		}
		if ok {
			m.known[key] = storedStamp(c)
			return
		}
		var stored cursor
		if json.Unmarshal(c.value, &stored) == nil && stored.Boot == bootID && stored.Refused == "" {
			at := position{stored.Epoch, stored.Revision, stored.AsOf}
			m.cursors[stored.Prefix], m.stored[stored.Prefix] = at, at
		}
	}
	f.run(ctx)
	if !whole {
		return ErrClosed
	}
	return nil
}

func storedStamp(c change) stamp {
	epoch, _ := strconv.ParseUint(c.header.Get(epochHeader), 10, 64) // 0, which no bucket has, if not written here
	revision, _ := publisherStamp(c.header)
	return stamp{epoch, revision}
}

// prune removes from the copy what is under no prefix any more.
func (m *mirror) prune(ctx context.Context, prefixes []string) error {
	kept := map[string]bool{}
	for _, prefix := range prefixes {
		kept[prefix] = true
	}
	for prefix := range m.cursors {
		if !kept[prefix] {
			delete(m.cursors, prefix)
			delete(m.stored, prefix)
			if err := m.write.deleteCursor(prefix); err != nil {
				return err
			}
		}
	}
	for key := range m.known {
		if !ancestors(key, func(prefix string) bool { return kept[prefix] }) {
			delete(m.known, key)
			if err := m.write.delete(key, 0, uint64(time.Now().UnixNano())); err != nil {
				return err
			}
		}
	}
	return m.write.flush(ctx)
}

// follow opens a session and takes its batches until the prefixes change (nil) or it fails.
func (m *mirror) follow(life context.Context, l *link, prefixes []string) error {
	id := newID()
	batches, release := m.batches(m.site, id)
	defer release()
	t, err := m.open(life, l, id, prefixes)
	if err != nil {
		return err
	}
	silence := time.NewTimer(sessionSilence)
	defer silence.Stop()
	save := time.NewTicker(cursorEvery)
	defer save.Stop()
	for {
		select {
		case <-life.Done():
			_ = l.say(verbPull, "close", encodeCredit(id, 0)) // else the publisher notices by itself
			return life.Err()
		case <-m.wanted:
			return nil
		case <-l.lost:
			return errLinkLost
		case <-silence.C:
			return fmt.Errorf("%w: nothing heard for %v", errLinkLost, sessionSilence)
		case <-save.C:
			m.storeCursors(life, cursorAge)
		case data := <-batches:
			silence.Reset(sessionSilence)
			b, err := decodeBatch(data)
			if err == nil {
				err = t.take(life, b)
			}
			if err == nil {
				err = l.say(verbPull, "credit", encodeCredit(id, b.number))
			}
			if err != nil {
				return err
			}
		}
	}
}

// taking is one session's progress.
type taking struct {
	m        *mirror
	epoch    uint64
	number   uint64
	prefixes map[string]bool // those given
	lacking  map[string]bool // those of which the copy was never whole, until the first complete batch
	anew     map[string]bool // those given from the beginning, until then
	stale    map[string]bool // keys of the copy under these that have not come yet
}

func (m *mirror) open(life context.Context, l *link, id string, prefixes []string) (*taking, error) {
	request := openRequest{session: id, window: mirrorWindow}
	for _, prefix := range prefixes {
		at, whole := m.cursors[prefix]
		if !whole {
			at = m.partial[prefix]
		}
		request.prefixes = append(request.prefixes, prefixPosition{prefix, at})
	}
	ctx, cancel := context.WithTimeout(life, openPatience)
	defer cancel()
	answer, err := l.ask(ctx, verbPull, "open", request.encode(), nil)
	if err != nil {
		return nil, err
	}
	if code := answer.Header.Get(codeHeader); code != "" {
		return nil, remoteError(m.site, verbPull, Code(code), string(answer.Data))
	}
	reply, err := decodeOpenReply(answer.Data)
	if err != nil {
		return nil, err
	}
	if len(reply.prefixes) != len(prefixes) || reply.epoch == 0 {
		return nil, fmt.Errorf("%w: %d prefixes asked, %d answered", errMalformed, len(prefixes), len(reply.prefixes))
	}
	t := &taking{m: m, epoch: reply.epoch, prefixes: map[string]bool{}, lacking: map[string]bool{},
		anew: map[string]bool{}, stale: map[string]bool{}}
	for i, p := range reply.prefixes {
		t.begin(prefixes[i], p)
	}
	for key := range m.known {
		if ancestors(key, func(prefix string) bool { return t.anew[prefix] }) {
			t.stale[key] = true
		}
	}
	return t, m.write.flush(life)
}

// begin notes how the publisher takes up a prefix.
func (t *taking) begin(prefix string, p prefixStatus) {
	m := t.m
	if p.status == prefixRefused {
		if !m.refused[prefix] {
			m.log.Warn("subscription refused", "of", m.site, "prefix", prefix, "reason", p.reason)
			m.refused[prefix] = true
		}
		// Failure to store it fails the flush that follows.
		_ = m.write.putCursor(cursor{Prefix: prefix, Refused: p.reason, Boot: bootID})
		return
	}
	delete(m.refused, prefix)
	t.prefixes[prefix] = true
	if p.status == prefixWhole {
		t.anew[prefix] = true
		delete(m.cursors, prefix)
		delete(m.partial, prefix)
	}
	if _, whole := m.cursors[prefix]; !whole {
		t.lacking[prefix] = true
	}
}

// take stores a batch.
func (t *taking) take(ctx context.Context, b batch) error {
	if t.number++; b.number != t.number {
		return fmt.Errorf("%w: batch %d after %d", errMalformed, b.number, t.number-1)
	}
	for _, c := range b.changes {
		if err := t.store(c); err != nil {
			return err
		}
	}
	if b.complete {
		for key := range t.stale {
			delete(t.m.known, key)
			if err := t.m.write.delete(key, b.revision, b.asOf); err != nil {
				return err
			}
		}
		clear(t.stale)
	}
	if err := t.m.write.flush(ctx); err != nil {
		return err
	}
	t.advance(ctx, b)
	t.m.taken = true
	return nil
}

// advance moves the cursors behind a batch that is stored.
func (t *taking) advance(ctx context.Context, b batch) {
	m := t.m
	for prefix := range t.prefixes {
		switch {
		case !t.lacking[prefix]:
			m.cursors[prefix] = position{t.epoch, max(m.cursors[prefix].revision, b.revision), b.asOf}
		case b.complete:
			m.cursors[prefix] = position{t.epoch, b.revision, b.asOf}
			delete(m.partial, prefix)
		case len(t.stale) == 0: // otherwise an interrupted session would not know what is stale
			m.partial[prefix] = position{t.epoch, b.revision, b.asOf}
		}
	}
	if b.complete && len(t.lacking) > 0 {
		clear(t.lacking)
		clear(t.anew)
		m.storeCursors(ctx, 0)
	}
}

// store files one change under the site's own name, if it is news and was asked for.
func (t *taking) store(c batchChange) error {
	m := t.m
	if err := validKey(c.key); err != nil {
		return errors.Join(errMalformed, err)
	}
	if !ancestors(c.key, func(prefix string) bool { return t.prefixes[prefix] }) {
		return fmt.Errorf("%w: key %q was not asked for", errMalformed, c.key)
	}
	delete(t.stale, c.key)
	has, exists := m.known[c.key]
	if c.deleted {
		delete(m.known, c.key)
		if !exists {
			return nil
		}
		return m.write.delete(c.key, c.revision, c.time)
	}
	if exists && has.epoch == t.epoch && has.revision >= c.revision {
		return nil
	}
	m.known[c.key] = stamp{t.epoch, c.revision}
	return m.write.put(t.epoch, c)
}

// storeCursors stores the cursors that moved, or that did not but are older than so.
func (m *mirror) storeCursors(ctx context.Context, age time.Duration) {
	for prefix, at := range m.cursors {
		stored, ok := m.stored[prefix]
		if ok && stored.epoch == at.epoch && stored.revision == at.revision && at.asOf-stored.asOf <= uint64(age) {
			continue
		}
		if err := m.write.putCursor(cursor{prefix, at.epoch, at.revision, at.asOf, bootID, ""}); err != nil {
			m.log.Warn("copy of another site", "of", m.site, "error", err)
			return
		}
		m.stored[prefix] = at
	}
	if err := m.write.flush(ctx); err != nil && m.c.life.Err() == nil {
		m.log.Warn("copy of another site", "of", m.site, "error", err)
		clear(m.stored)
	}
}
