package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// change is one message of a bucket: a value, or the marker of a deletion.
type change struct {
	key      string
	value    []byte
	header   nats.Header
	revision uint64
	time     time.Time
	deleted  bool
}

// feed follows a bucket's keys below some prefixes: the state, then every change, last value per key, across the
// server's restarts and lost connections. Its functions are called from one goroutine at a time.
type feed struct {
	store    *Store
	prefixes []string // "" means all
	// changed takes every change.
	changed func(change)
	// tombstones asks also for the markers of keys that were deleted before they were seen here.
	tombstones bool
	// synchronised is called once, when the state at the beginning has been given.
	synchronised func()

	done    bool              // synchronised was called
	created time.Time         // of the bucket
	last    uint64            // the bucket's last revision when reading of the whole began
	heard   time.Time         // when the reading was last interrupted
	next    uint64            // first revision not yet seen; 0 before any state
	known   map[string]uint64 // keys with a value
}

const (
	feedHeartbeat = 20 * time.Second
	feedSilence   = 50 * time.Second
)

var errFeedGap = errors.New("messages are missing")

// run follows until ctx or the connection ends.
func (f *feed) run(ctx context.Context) {
	f.known = map[string]uint64{}
	for {
		err := f.follow(ctx)
		if ctx.Err() != nil || f.store.c.life.Err() != nil {
			return
		}
		f.store.c.log.Debug("bucket feed starts again", "bucket", f.store.bucket, "reason", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryWait):
		}
	}
}

// follow reads until the server-side consumer can no longer be trusted to be whole.
func (f *feed) follow(ctx context.Context) error {
	c := f.store.c
	if err := f.store.ensure(ctx); err != nil {
		return err
	}
	if err := c.awaitServer(ctx); err != nil {
		return err
	}
	disturbed := c.disturbance()
	messages := make(chan *nats.Msg, 1024)
	// Not NewRespInbox: the client's request multiplexer hears that too, and would take a delivered value, whose subject is
	// the key's, for the answer to whichever request is alone in hand.
	inbox := c.nc.NewInbox()
	sub, err := c.nc.ChanSubscribe(inbox, messages)
	if err != nil {
		return err
	}
	defer sub.Unsubscribe()
	whole, pending, err := f.consume(ctx, inbox)
	if err != nil {
		return err
	}
	defer func() { f.heard = time.Now() }()
	var seen map[string]bool
	if whole {
		seen = map[string]bool{}
	}
	order := uint64(0)
	silence := time.NewTimer(feedSilence)
	defer silence.Stop()
	for {
		if pending == 0 && (!f.done || seen != nil) {
			f.finish(seen)
			seen = nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.life.Done():
			return ErrClosed
		case <-disturbed:
			return nats.ErrDisconnected
		case <-silence.C:
			return errFeedGap
		case m := <-messages:
			silence.Reset(feedSilence)
			if m.Header.Get("Status") != "" { // heartbeat: nothing is on its way
				if m.Header.Get("Nats-Last-Consumer") != strconv.FormatUint(order, 10) {
					return errFeedGap
				}
				pending = 0
				continue
			}
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			if order++; meta.Sequence.Consumer != order {
				return errFeedGap
			}
			pending = meta.NumPending
			f.take(m, meta, seen)
		}
	}
}

// consume makes the server-side consumer: of everything where there is nothing to continue from (whole), else of what
// is new. It returns how many messages make up the state at this moment.
func (f *feed) consume(ctx context.Context, inbox string) (whole bool, pending uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	js, stream := f.store.c.js, f.store.stream()
	s, err := js.Stream(ctx, stream)
	if err != nil {
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			f.store.mu.Lock()
			f.store.ready = false
			f.store.mu.Unlock()
		}
		return false, 0, err
	}
	info := s.CachedInfo()
	whole = f.next == 0 || !info.Created.Equal(f.created) || info.State.LastSeq+1 < f.next ||
		time.Since(f.heard) > resumeLimit // deletions' markers may be gone
	config := jetstream.ConsumerConfig{
		DeliverSubject:    inbox,
		DeliverPolicy:     jetstream.DeliverLastPerSubjectPolicy,
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		IdleHeartbeat:     feedHeartbeat,
		InactiveThreshold: 30 * time.Second,
		FilterSubjects:    f.filters(),
	}
	if !whole {
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, f.next
	}
	consumer, err := js.CreatePushConsumer(ctx, stream, config)
	if err != nil {
		return false, 0, fmt.Errorf("consumer of %s: %w", stream, err)
	}
	f.created = info.Created
	if whole {
		f.next, f.last = 1, info.State.LastSeq
	}
	return whole, consumer.CachedInfo().NumPending + consumer.CachedInfo().Delivered.Consumer, nil
}

// filters turns prefixes into subjects: the key itself and all below it.
func (f *feed) filters() []string {
	var subjects []string
	for _, prefix := range f.prefixes {
		if prefix == "" {
			return []string{f.store.subject(">")}
		}
		subjects = append(subjects, f.store.subject(prefix), f.store.subject(prefix+".>"))
	}
	return subjects
}

func (f *feed) take(m *nats.Msg, meta *nats.MsgMetadata, seen map[string]bool) {
	c := change{
		key:      m.Subject[len(f.store.subject("")):],
		value:    m.Data,
		header:   m.Header,
		revision: meta.Sequence.Stream,
		time:     meta.Timestamp,
		deleted:  deleted(m.Header),
	}
	if c.revision >= f.next {
		f.next = c.revision + 1
	}
	if seen != nil {
		seen[c.key] = true
	}
	if f.known[c.key] == c.revision {
		return // a whole reading after an interruption repeats what did not change
	}
	if _, had := f.known[c.key]; c.deleted && !had && !f.tombstones {
		return
	}
	if c.deleted {
		delete(f.known, c.key)
	} else {
		f.known[c.key] = c.revision
	}
	f.changed(c)
}

// finish ends a reading of the whole state: what was known before and is not there any more has been deleted.
func (f *feed) finish(seen map[string]bool) {
	if seen != nil {
		for key := range f.known {
			if !seen[key] {
				delete(f.known, key)
				f.changed(change{key: key, deleted: true, revision: f.next - 1, time: time.Now()})
			}
		}
	}
	if !f.done {
		f.done = true
		f.synchronised()
	}
}
