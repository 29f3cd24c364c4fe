package bus

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	defaultPresenceLease = 900 * time.Millisecond
	// presenceBeat is how often an agent says that it lives: three times in the default lease.
	presenceBeat = 300 * time.Millisecond

	presenceToken  = "presence"
	instanceHeader = "Switchboard-Instance"
	goneHeader     = "Switchboard-Gone"
)

// Presence is one step of WatchPresence.
type Presence struct {
	// Change is Put when the agent is there (or came back, or said something new), Delete when it vanished, and
	// Synchronised once all that are there at the beginning have been told.
	Change EventKind
	// Site, Kind and Name identify the agent; Name is empty with Synchronised.
	Site, Kind, Name string
	// Info is what it registered with.
	Info []byte
}

// Registration keeps an agent present until Close.
type Registration struct {
	c        *Connection
	subject  string
	instance string
	cancel   context.CancelFunc
	done     chan struct{}

	mu   sync.Mutex
	info []byte
}

// Register tells the site, and sites that subscribe to it, that an agent of a kind and name is there, until Close, the
// connection's end or the agent's death, which others notice within a second. Where another holds the name, Register
// waits for it to vanish, and fails with ErrConflict if ctx ends first. Kind and name are plain tokens.
func (c *Connection) Register(ctx context.Context, kind, name string, info []byte) (*Registration, error) {
	if err := errors.Join(validName("agent kind", kind), validName("agent name", name)); err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(c.life)
	r := &Registration{c: c, subject: presenceToken + "." + kind + "." + name, instance: newID(), cancel: cancel,
		done: make(chan struct{}), info: info}
	if err := r.acquire(ctx); err != nil {
		cancel()
		return nil, err
	}
	if !c.run(func() { r.beat(life) }) {
		cancel()
		return nil, ErrClosed
	}
	return r, nil
}

func (r *Registration) acquire(ctx context.Context) error {
	for {
		if err := r.c.awaitServer(ctx); err != nil {
			return err
		}
		attempt, cancel := context.WithTimeout(ctx, requestPatience)
		reply, err := r.c.nc.RequestMsgWithContext(attempt, r.message())
		cancel()
		if err == nil && reply.Header.Get(codeHeader) == "" {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%w: %s", ErrConflict, reply.Data)
		} else {
			err = fmt.Errorf("%w: register %s: %v", ErrUnavailable, r.subject, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		case <-r.c.life.Done():
			return ErrClosed
		case <-time.After(retryWait):
		}
	}
}

func (r *Registration) message() *nats.Msg {
	m := nats.NewMsg(r.subject)
	m.Header.Set(instanceHeader, r.instance)
	r.mu.Lock()
	m.Data = r.info
	r.mu.Unlock()
	return m
}

func (r *Registration) beat(life context.Context) {
	defer close(r.done)
	tick := time.NewTimer(untilBeat())
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			tick.Reset(untilBeat())
			_ = r.c.nc.PublishMsg(r.message()) // without a server there is nobody to tell
		case <-life.Done():
			m := r.message()
			m.Header.Set(goneHeader, "true")
			if r.c.nc.PublishMsg(m) == nil {
				_ = r.c.nc.FlushTimeout(time.Second) // untold, the lease runs out
			}
			return
		}
	}
}

// untilBeat is the time to the next beat. All agents of a machine beat together, so that an idle machine wakes once.
func untilBeat() time.Duration {
	now := time.Now()
	return now.Truncate(presenceBeat).Add(presenceBeat).Sub(now)
}

// Update replaces the information that the agent registered with; others are told at the next beat.
func (r *Registration) Update(info []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.info = info
}

// Close tells others at once that the agent is gone.
func (r *Registration) Close() {
	r.cancel()
	<-r.done
}

// WatchPresence tells which agents of a kind are at this site, and when one vanishes or returns; "" is every kind.
func (c *Connection) WatchPresence(ctx context.Context, kind string) (<-chan Presence, error) {
	return c.WatchPresenceAt(ctx, c.Site(), kind)
}

// WatchPresenceAt is WatchPresence for another site. While that site cannot be reached its agents keep their last state.
func (c *Connection) WatchPresenceAt(ctx context.Context, site, kind string) (<-chan Presence, error) {
	prefix := presenceToken
	if kind != "" {
		if err := validName("agent kind", kind); err != nil {
			return nil, err
		}
		prefix += "." + kind
	}
	sub, err := c.Subscribe(ctx, site, prefix)
	if err != nil {
		return nil, err
	}
	out := make(chan Presence)
	started := c.run(func() {
		defer close(out)
		defer sub.Close()
		for e := range sub.Events() {
			p, ok := presenceOf(e, kind)
			if !ok {
				continue
			}
			select {
			case out <- p:
			case <-ctx.Done():
				return
			case <-c.life.Done():
				return
			}
		}
	})
	if !started {
		sub.Close()
		return nil, ErrClosed
	}
	return out, nil
}

func presenceOf(e Event, kind string) (Presence, bool) {
	p := Presence{Change: e.Kind, Site: e.Site, Kind: kind, Info: e.Value}
	if e.Kind == Synchronised {
		return p, true
	}
	tokens, err := SplitKey(e.Key)
	if err != nil || len(tokens) != 3 {
		return p, false // not of this package's making
	}
	p.Kind, p.Name = tokens[1], tokens[2]
	return p, true
}

// newID makes an identifier that nobody else makes.
func newID() string {
	var raw [12]byte
	rand.Read(raw[:])
	return base64.RawURLEncoding.EncodeToString(raw[:])
}
