package bus

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// keeperSlack is how late a timer comes on a machine that is merely busy.
const keeperSlack = 100 * time.Millisecond

// keeper is the site process's half of presence: it hears agents' beats and keeps the keys presence.<kind>.<name> of the
// published bucket true. One goroutine owns it.
type keeper struct {
	store  *Store
	lease  time.Duration
	agents map[string]*lease // by key
}

type lease struct {
	instance string // "" where it was found in the bucket and nobody has beaten yet
	info     []byte
	until    time.Time
	stored   bool // the bucket says so
}

// startPresence reads who was present when the site process last ran and gives them a lease to be heard in.
func (s *Server) startPresence(life context.Context) error {
	k := &keeper{store: s.core.Published(), lease: s.config.PresenceLease, agents: map[string]*lease{}}
	ctx, cancel := context.WithTimeout(life, startPatience)
	defer cancel()
	present, err := k.store.List(ctx, presenceToken)
	if err != nil {
		return fmt.Errorf("read presence: %w", err)
	}
	grace := time.Now().Add(k.lease + 2*time.Second) // agents need a moment to reconnect
	for _, e := range present {
		k.agents[e.Key] = &lease{info: e.Value, until: grace, stored: true}
	}
	beats := make(chan *nats.Msg, 1024)
	sub, err := s.nc.ChanSubscribe(presenceToken+".*.*", beats)
	if err != nil {
		return fmt.Errorf("hear presence: %w", err)
	}
	s.run(func() {
		defer sub.Unsubscribe()
		k.keep(life, beats)
	})
	return nil
}

func (k *keeper) keep(ctx context.Context, beats <-chan *nats.Msg) {
	expiry := time.NewTimer(k.lease)
	defer expiry.Stop()
	due := time.Now().Add(k.lease)
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-beats:
			k.hear(ctx, m)
		case <-expiry.C:
			// A late timer says that this process was held up, and so perhaps the agents too: nobody pays for that.
			if late := time.Since(due); late > keeperSlack {
				k.extend(late)
			}
			due = k.expire(ctx, time.Now())
			expiry.Reset(time.Until(due))
		}
	}
}

func (k *keeper) extend(by time.Duration) {
	for _, l := range k.agents {
		l.until = l.until.Add(by)
	}
}

func (k *keeper) hear(ctx context.Context, m *nats.Msg) {
	key, instance := m.Subject, m.Header.Get(instanceHeader)
	if validKey(key) != nil || strings.Count(key, ".") != 2 {
		return
	}
	l := k.agents[key]
	if l != nil && l.instance != "" && l.instance != instance {
		if m.Reply != "" {
			respond(m, nil, fmt.Errorf("%w: another instance is registered as %s", ErrConflict, key))
		}
		return
	}
	if m.Header.Get(goneHeader) != "" {
		if l != nil {
			k.vanish(ctx, key)
		}
		return
	}
	if l == nil {
		l = &lease{}
		k.agents[key] = l
	}
	changed := !l.stored || !bytes.Equal(l.info, m.Data) || l.instance != instance && l.instance != ""
	l.instance, l.info, l.until = instance, m.Data, time.Now().Add(k.lease)
	if changed {
		_, err := k.store.Put(ctx, key, m.Data)
		l.stored = err == nil
	}
	if m.Reply != "" {
		respond(m, nil, nil)
	}
}

// expire lets go of those whose lease has ended, and returns when the next may end. Whoever comes after that has a whole
// lease, so nobody is missed.
func (k *keeper) expire(ctx context.Context, now time.Time) time.Time {
	next := now.Add(k.lease)
	for key, l := range k.agents {
		if !now.Before(l.until) {
			k.vanish(ctx, key)
		} else if l.until.Before(next) {
			next = l.until
		}
	}
	return next
}

func (k *keeper) vanish(ctx context.Context, key string) {
	if k.store.Delete(ctx, key) == nil {
		delete(k.agents, key)
	} else if l := k.agents[key]; l != nil {
		l.instance = "" // its name is free; the bucket is corrected when the next lease may end
	}
}
