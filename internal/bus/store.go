package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The site's buckets that the bus itself knows.
const (
	pubBucket    = "pub"    // what other sites may subscribe to
	viewBucket   = "view"   // what other sites published, keys <site>.<key>
	rulesBucket  = "rules"  // forwarders' rules, keys <forwarder>.>
	statusBucket = "status" // forwarders' reports, keys <forwarder>.>
	globalBucket = "global" // the Global Switchboard's own
)

// ModelBucket is what optimisers work on: a bucket of the site that no other site sees. The Global Switchboard writes it.
const ModelBucket = "model"

const (
	// tombstoneLife is how long a deleted key's marker stays. A watcher or site that was away longer compares everything.
	tombstoneLife = 24 * time.Hour
	// requestPatience bounds one attempt at an operation; the next follows while the caller's context lasts.
	requestPatience = 5 * time.Second
	retryWait       = 50 * time.Millisecond
)

// Entry is a key's last value.
type Entry struct {
	Key   string
	Value []byte
	// Revision orders all changes of a bucket; it grows with every change.
	Revision uint64
	// Time is when the server stored it.
	Time time.Time
}

// Store is one durable bucket of the site: the last value of every key. What a write acknowledged is on disk.
// Writes wait for the server until their context ends, then fail with ErrUnavailable.
type Store struct {
	c      *Connection
	bucket string

	mu    sync.Mutex
	ready bool
}

// Published is the bucket of what this site tells others: a site that subscribes sees its keys and no other bucket's.
func (c *Connection) Published() *Store { return c.store(pubBucket) }

// Local is a bucket that no other site sees, made at first use. Its name is one plain token, not "pub" or "view".
func (c *Connection) Local(name string) *Store {
	if name == pubBucket || name == viewBucket {
		name = "" // every operation reports it
	}
	return c.store(name)
}

func (c *Connection) store(bucket string) *Store {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stores[bucket]
	if s == nil {
		s = &Store{c: c, bucket: bucket}
		c.stores[bucket] = s
	}
	return s
}

func (s *Store) stream() string            { return "KV_" + s.bucket }
func (s *Store) subject(key string) string { return "$KV." + s.bucket + "." + key }

// configuration is a NATS key-value bucket with history 1, as every client library knows it.
func (s *Store) configuration() jetstream.StreamConfig {
	config := jetstream.StreamConfig{
		Name:              s.stream(),
		Subjects:          []string{s.subject(">")},
		MaxMsgsPerSubject: 1,
		Discard:           jetstream.DiscardNew,
		DenyDelete:        true,
		AllowRollup:       true,
		AllowDirect:       true,
		AllowMsgTTL:       true,
		Duplicates:        time.Second,
		MaxMsgs:           -1, MaxBytes: -1, MaxMsgSize: -1, MaxConsumers: -1,
	}
	if s.bucket == viewBucket || s.bucket == statusBucket || s.bucket == ModelBucket {
		// What the view loses in a crash its publishers still have (see mirror); forwarders report again within seconds; the
		// Global Switchboard notices by the revision that the model was set back, and writes it anew.
		config.PersistMode = jetstream.AsyncPersistMode
	}
	return config
}

// ensure makes the bucket unless it is there.
func (s *Store) ensure(ctx context.Context) error {
	if err := validName("bucket", s.bucket); err != nil {
		return err
	}
	s.mu.Lock()
	ready := s.ready
	s.mu.Unlock()
	if ready {
		return nil
	}
	return s.attempt(ctx, func(ctx context.Context) error {
		_, err := s.c.js.Stream(ctx, s.stream())
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			_, err = s.c.js.CreateOrUpdateStream(ctx, s.configuration())
		}
		if err == nil {
			s.mu.Lock()
			s.ready = true
			s.mu.Unlock()
		}
		return err
	})
}

// attempt calls until it has the server's answer, which it translates, or ctx ends.
func (s *Store) attempt(ctx context.Context, call func(context.Context) error) error {
	for {
		if err := s.c.awaitServer(ctx); err != nil {
			return err
		}
		once, cancel := context.WithTimeout(ctx, requestPatience)
		release := s.c.denials.watch(cancel, s.stream()+".", s.stream()+`"`, s.subject(""))
		err := call(once)
		cancel()
		if release() {
			return fmt.Errorf("%w: %s may not do that with bucket %s", ErrDenied, s.c.Agent(), s.bucket)
		}
		if !transient(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: bucket %s: %v (%w)", ErrUnavailable, s.bucket, err, ctx.Err())
		case <-s.c.life.Done():
			return ErrClosed
		case <-time.After(retryWait):
		}
	}
}

// transient reports whether another attempt may fare better.
func transient(err error) bool {
	var api *jetstream.APIError
	switch {
	case err == nil, errors.Is(err, ErrConflict), errors.Is(err, ErrNotFound), errors.Is(err, ErrInvalidKey):
		return false
	case errors.As(err, &api):
		return api.Code == 503 // JetStream is starting or stopping
	}
	return true
}

func (s *Store) prepare(ctx context.Context, key string) error {
	if err := validKey(key); err != nil {
		return err
	}
	return s.ensure(ctx)
}

// Put sets a key's value and returns its revision.
func (s *Store) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	return s.write(ctx, &nats.Msg{Data: value}, key, nil)
}

// Create sets the value of a key that has none; ErrConflict if it has one.
func (s *Store) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	for {
		expected := uint64(0)
		m, err := s.last(ctx, key)
		if err == nil && !deleted(m.Header) {
			return 0, fmt.Errorf("%w: %s/%s exists at revision %d", ErrConflict, s.bucket, key, m.Sequence)
		} else if err == nil {
			expected = m.Sequence
		} else if !errors.Is(err, ErrNotFound) {
			return 0, err
		}
		revision, err := s.write(ctx, &nats.Msg{Data: value}, key, &expected)
		if !errors.Is(err, ErrConflict) {
			return revision, err
		}
	}
}

// Update sets the value of a key whose revision is the one given; ErrConflict if it is not. Revision 0 stands for a key
// that was never set.
func (s *Store) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return s.write(ctx, &nats.Msg{Data: value}, key, &revision)
}

// Delete removes a key. Removing one that has no value is no error and tells nobody.
func (s *Store) Delete(ctx context.Context, key string) error {
	_, err := s.remove(ctx, key, nil)
	return err
}

// Remove is Delete that tells the revision of the change, 0 where the key has no value.
func (s *Store) Remove(ctx context.Context, key string) (uint64, error) {
	return s.remove(ctx, key, nil)
}

// DeleteRevision removes a key whose revision is the one given; ErrConflict if it is not.
func (s *Store) DeleteRevision(ctx context.Context, key string, revision uint64) error {
	_, err := s.remove(ctx, key, &revision)
	return err
}

func (s *Store) remove(ctx context.Context, key string, revision *uint64) (uint64, error) {
	m, err := s.last(ctx, key)
	if errors.Is(err, ErrNotFound) || err == nil && deleted(m.Header) {
		if revision != nil {
			return 0, fmt.Errorf("%w: %s/%s has no value", ErrConflict, s.bucket, key)
		}
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	marker := nats.NewMsg("")
	markDeleted(marker.Header)
	return s.write(ctx, marker, key, revision)
}

// Get reads a key's value; ErrNotFound if it has none.
func (s *Store) Get(ctx context.Context, key string) (Entry, error) {
	m, err := s.last(ctx, key)
	if err != nil {
		return Entry{}, err
	}
	if deleted(m.Header) {
		return Entry{}, fmt.Errorf("%w: %s/%s", ErrNotFound, s.bucket, key)
	}
	return Entry{Key: key, Value: m.Data, Revision: m.Sequence, Time: m.Time}, nil
}

// List reads every key that is the prefix or lies below it, in the order of the keys; "" lists all.
func (s *Store) List(ctx context.Context, prefix string) ([]Entry, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := s.Watch(ctx, prefix)
	if err != nil {
		return nil, err
	}
	found := map[string]Entry{}
	for e := range events {
		switch e.Kind {
		case Put:
			found[e.Key] = Entry{Key: e.Key, Value: e.Value, Revision: e.Revision, Time: e.Time}
		case Delete:
			delete(found, e.Key)
		case Synchronised:
			list := make([]Entry, 0, len(found))
			for _, entry := range found {
				list = append(list, entry)
			}
			slices.SortFunc(list, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
			return list, nil
		}
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: list %s/%s (%w)", ErrUnavailable, s.bucket, prefix, ctx.Err())
	}
	return nil, ErrClosed
}

// last reads a key's last message, which may be a deletion's marker.
func (s *Store) last(ctx context.Context, key string) (*jetstream.RawStreamMsg, error) {
	if err := s.prepare(ctx, key); err != nil {
		return nil, err
	}
	var m *jetstream.RawStreamMsg
	err := s.attempt(ctx, func(ctx context.Context) error {
		var err error
		m, err = s.c.directGet(ctx, s.stream(), s.subject(key))
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("%w: %s/%s", ErrNotFound, s.bucket, key)
	}
	return m, err
}

// write stores one message. Every write has an identifier of its own, so that one whose acknowledgement was lost is
// recognised when it is tried again and is neither repeated nor mistaken for another's.
func (s *Store) write(ctx context.Context, m *nats.Msg, key string, expected *uint64) (uint64, error) {
	if err := fits("value of "+key, m.Data); err != nil {
		return 0, err
	}
	if err := s.prepare(ctx, key); err != nil {
		return 0, err
	}
	m.Subject = s.subject(key)
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	id := newID()
	m.Header.Set(writeHeader, id)
	if expected != nil {
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(*expected, 10))
	}
	var revision uint64
	tries := 0
	err := s.attempt(ctx, func(ctx context.Context) error {
		tries++
		ack, err := s.c.js.PublishMsg(ctx, m)
		var api *jetstream.APIError
		switch {
		case err == nil:
			revision = ack.Sequence
			return nil
		case errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
			last, e := s.c.directGet(ctx, s.stream(), m.Subject)
			if tries > 1 && e == nil && last.Header.Get(writeHeader) == id {
				revision = last.Sequence
				return nil
			}
			return fmt.Errorf("%w: %s/%s is not at revision %d", ErrConflict, s.bucket, key, *expected)
		}
		return err
	})
	return revision, err
}

// Headers of stored messages.
const (
	operationHeader = "KV-Operation" // every client library's: DEL or PURGE marks a deletion
	writeHeader     = "Switchboard-Write"
)

// markDeleted makes a message the marker of a deletion, which goes away by itself after tombstoneLife.
func markDeleted(h nats.Header) {
	h.Set(operationHeader, "PURGE")
	h.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	h.Set(jetstream.MsgTTLHeader, tombstoneLife.String())
}

func deleted(h nats.Header) bool {
	return h.Get(operationHeader) != "" || h.Get(jetstream.MarkerReasonHeader) != ""
}

// directGet reads the last message of a subject from memory or disk without the stream's queue.
func (c *Connection) directGet(ctx context.Context, stream, subject string) (*jetstream.RawStreamMsg, error) {
	reply, err := c.nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+stream+"."+subject, nil)
	if err != nil {
		return nil, err
	}
	switch reply.Header.Get("Status") {
	case "":
	case "404":
		return nil, ErrNotFound
	default:
		return nil, fmt.Errorf("read %s: status %s %s", subject, reply.Header.Get("Status"), reply.Header.Get("Description"))
	}
	sequence, err := strconv.ParseUint(reply.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read %s: sequence: %w", subject, err)
	}
	at, err := time.Parse(time.RFC3339Nano, reply.Header.Get(jetstream.TimeStampHeaer))
	if err != nil {
		return nil, fmt.Errorf("read %s: time stamp: %w", subject, err)
	}
	return &jetstream.RawStreamMsg{Subject: subject, Sequence: sequence, Header: reply.Header, Data: reply.Data, Time: at}, nil
}
