package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// trunk is one NATS connection on which links run: to the server of a peer that this site dials, or inside the process
// to this site's own server, where many peers come together.
type trunk struct {
	nc   *nats.Conn
	site string // this site
	// peer is the one peer of a dialled trunk; "" on the own server, which proves in the subject who speaks. A dialled
	// server could put any subject on what it delivers, so there the subject proves nothing.
	peer   string
	number atomic.Uint64

	mu      sync.Mutex
	waiting map[string]chan *nats.Msg // by reply subject
}

// link is a way to one peer that is up, in use until lost is closed.
type link struct {
	*trunk
	to   string
	lost chan struct{}
	once sync.Once
}

// lose says that the link is no more.
func (l *link) lose() { l.once.Do(func() { close(l.lost) }) }

// errLinkLost is wrapped by errors about links that broke.
var errLinkLost = fmt.Errorf("%w: the link broke", ErrSiteUnreachable)

func newLink(t *trunk, peer string) *link {
	return &link{trunk: t, to: peer, lost: make(chan struct{})}
}

func newTrunk(nc *nats.Conn, site, peer string) *trunk {
	return &trunk{nc: nc, site: site, peer: peer, waiting: map[string]chan *nats.Msg{}}
}

// listen takes everything of a verb that peers send here. The handler runs on one goroutine per verb and must not block.
func (t *trunk) listen(verb string, handle func(peer, rest string, m *nats.Msg)) error {
	from := t.peer
	if from == "" {
		from = "*"
	}
	sub, err := t.nc.Subscribe(verb+"."+t.site+"."+from+".>", func(m *nats.Msg) {
		if peer, rest, ok := t.sender(m); ok {
			handle(peer, rest, m)
		}
	})
	if err != nil {
		return fmt.Errorf("bus: listen for %s: %w", verb, err)
	}
	// Sessions bound what may be on its way; requests are bounded by their handlers.
	return sub.SetPendingLimits(-1, 64<<20)
}

// sender says who sent a message, and what its subject carries beyond the addresses. A reply subject that is not the
// sender's own is a forgery: such a message is dropped.
func (t *trunk) sender(m *nats.Msg) (peer, rest string, ok bool) {
	tokens := strings.SplitN(m.Subject, ".", 4)
	if len(tokens) != 4 || tokens[1] != t.site {
		return "", "", false
	}
	peer = t.peer
	if peer == "" {
		peer = tokens[2]
	}
	if m.Reply != "" && (!strings.HasPrefix(m.Reply, verbReply+"."+peer+"."+t.site+".") || strings.ContainsAny(m.Reply, "*> ")) {
		return "", "", false
	}
	return peer, tokens[3], true
}

// hear starts to take replies.
func (t *trunk) hear() error {
	return t.listen(verbReply, func(peer, rest string, m *nats.Msg) {
		subject := verbReply + "." + t.site + "." + peer + "." + rest
		t.mu.Lock()
		answer := t.waiting[subject]
		delete(t.waiting, subject)
		t.mu.Unlock()
		if answer != nil {
			answer <- m // has room for the one reply
		}
	})
}

// say sends a message to the peer.
func (l *link) say(verb, rest string, data []byte) error {
	if err := l.nc.Publish(verb+"."+l.to+"."+l.site+"."+rest, data); err != nil {
		return fmt.Errorf("%w: %s: %v", ErrSiteUnreachable, l.to, err)
	}
	return nil
}

// ask sends a request to the peer and waits for its answer.
func (l *link) ask(ctx context.Context, verb, rest string, data []byte, header nats.Header) (*nats.Msg, error) {
	m := &nats.Msg{Subject: verb + "." + l.to + "." + l.site + "." + rest, Data: data, Header: header}
	m.Reply = verbReply + "." + l.site + "." + l.to + "." + strconv.FormatUint(l.number.Add(1), 36)
	answer := make(chan *nats.Msg, 1)
	l.mu.Lock()
	l.waiting[m.Reply] = answer
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.waiting, m.Reply)
		l.mu.Unlock()
	}()
	if err := l.nc.PublishMsg(m); err != nil {
		return nil, fmt.Errorf("%w: %s: %v", ErrSiteUnreachable, l.to, err)
	}
	select {
	case reply := <-answer:
		if reply.Header.Get("Status") == "503" {
			return nil, fmt.Errorf("%w: %s is not connected", ErrSiteUnreachable, l.to)
		}
		return reply, nil
	case <-l.lost:
		return nil, fmt.Errorf("%w: %s", errLinkLost, l.to)
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, fmt.Errorf("%w: site %s", ErrTimeout, l.to)
		}
		return nil, ctx.Err()
	}
}
