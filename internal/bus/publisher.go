package bus

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// maximumPrefixes bounds what one peer subscribes to.
	maximumPrefixes = 100_000
	// resumeLimit is how old a copy may be that is resumed: well before the markers of deletions it has not seen go.
	resumeLimit = tombstoneLife / 2
	// maximumWindow bounds the bytes on their way to one peer.
	maximumWindow = 4 << 20
)

// publisher serves other sites' subscriptions to this site's published state, one session per peer.
type publisher struct {
	config ServerConfig
	log    *slog.Logger
	life   context.Context
	index  *index
	store  *Store

	mu       sync.Mutex
	sessions map[string]*session // by peer
}

func newPublisher(life context.Context, config ServerConfig, log *slog.Logger) *publisher {
	return &publisher{config: config, log: log, life: life, index: newIndex(), sessions: map[string]*session{}}
}

// follow reads the published bucket.
func (p *publisher) follow(s *Server) {
	p.store = s.core.Published()
	f := &feed{store: p.store, prefixes: []string{""}, tombstones: true, changed: p.index.change}
	f.synchronised = func() { p.index.open(f.created, f.last) }
	s.run(func() { f.run(p.life) })
	s.run(func() {
		tick := time.NewTicker(time.Hour)
		defer tick.Stop()
		for {
			select {
			case <-p.life.Done():
				return
			case now := <-tick.C:
				p.index.forget(now)
			}
		}
	})
}

// serve takes what peers ask about subscriptions over a trunk; way is the link back to who asks.
func (p *publisher) serve(t *trunk, way func(peer string) *link) error {
	return t.listen(verbPull, func(peer, rest string, m *nats.Msg) {
		switch rest {
		case "open":
			reply, err := p.open(peer, way(peer), m.Data)
			respond(m, reply, err)
			p.start(peer)
		case "credit", "close":
			if err := p.credit(peer, m.Data, rest == "close"); err != nil {
				p.log.Warn("bad message", "peer", peer, "error", err)
			}
		}
	})
}

// open puts a peer's new session in place of the one before.
func (p *publisher) open(peer string, l *link, data []byte) ([]byte, error) {
	request, err := decodeOpenRequest(data)
	if err == nil {
		err = validName("session", request.session)
	}
	if err == nil && len(request.prefixes) > maximumPrefixes {
		err = fmt.Errorf("%w: %d prefixes, at most %d", errMalformed, len(request.prefixes), maximumPrefixes)
	}
	if err != nil {
		return nil, &Error{codeInvalid, err.Error()}
	}
	select {
	case <-p.index.ready:
	default:
		return nil, fmt.Errorf("%w: site %s is starting", ErrBusy, p.config.Site)
	}
	if l == nil {
		return nil, fmt.Errorf("%w: %s has not said hello", ErrSiteUnreachable, peer)
	}
	s := newSession(p.index, l, request)
	reply := openReply{epoch: p.index.epoch}
	for _, asked := range request.prefixes {
		reply.prefixes = append(reply.prefixes, p.admit(peer, s, asked))
	}
	s.begin()
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.sessions[peer]; old != nil {
		old.stop()
	}
	p.sessions[peer] = s
	return reply.encode(), nil
}

// start runs a peer's session that has just been opened; its first batch follows the reply.
func (p *publisher) start(peer string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[peer]
	if s == nil || s.started {
		return
	}
	s.started = true
	go func() {
		p.catchUp()
		s.serve(p.life)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.sessions[peer] == s {
			delete(p.sessions, peer)
		}
	}()
}

// catchUp waits until the index has what was acknowledged before the session began, so that whoever subscribes after a
// write sees it in the state at the beginning.
func (p *publisher) catchUp() {
	ctx, cancel := context.WithTimeout(p.life, requestPatience)
	defer cancel()
	stream, err := p.store.c.js.Stream(ctx, p.store.stream())
	if err != nil {
		return // the server is closing, or the state follows when it recovers
	}
	p.index.await(ctx, stream.CachedInfo().State.LastSeq)
}

func (p *publisher) credit(peer string, data []byte, closes bool) error {
	id, number, err := decodeCredit(data)
	if err != nil {
		return err
	}
	p.mu.Lock()
	s := p.sessions[peer]
	p.mu.Unlock()
	switch {
	case s == nil || s.id != id: // of a session that was replaced
	case closes:
		s.stop()
	default:
		s.credit(number)
	}
	return nil
}

// admit adds a prefix to the session, where the peer's copy of it ends if that can be continued.
func (p *publisher) admit(peer string, s *session, asked prefixPosition) prefixStatus {
	err := validPrefix(asked.prefix)
	if err == nil {
		err = p.config.Authorise(peer, Access{Prefix: &asked.prefix})
	}
	if err != nil {
		return prefixStatus{prefixRefused, err.Error()}
	}
	age := time.Since(time.Unix(0, int64(asked.at.asOf)))
	x := p.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if asked.at.revision == 0 || asked.at.epoch != x.epoch || asked.at.revision > x.revision || age > resumeLimit || age < -clockSkew {
		s.prefixes[asked.prefix] = position{}
		return prefixStatus{status: prefixWhole}
	}
	s.prefixes[asked.prefix] = asked.at
	return prefixStatus{status: prefixResumed}
}
