package bus

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	dialTimeout = 10 * time.Second
	dialWait    = 100 * time.Millisecond // first, and then twice as long up to
	dialWaitMax = 300 * time.Millisecond
	// fallbackWait is how long a site that should be dialled waits before it dials itself.
	fallbackWait = 5 * time.Second
)

// keepDialled keeps a link to a peer by dialling, as the peer's policy says, until life ends.
func (ls *links) keepDialled(life context.Context, peer Peer) {
	waits := peer.Dial == DialAuto && ls.config.Site > peer.Site
	wait := dialWait
	for life.Err() == nil {
		if waits && !ls.missing(life, peer.Site) {
			return
		}
		began := time.Now()
		err := ls.dialOnce(life, peer, waits)
		if life.Err() != nil {
			return
		}
		ls.log.Debug("link to be dialled again", "peer", peer.Site, "address", peer.Address, "reason", err)
		if time.Since(began) > 2*dialTimeout {
			wait = dialWait
		}
		sleep(life, jittered(wait))
		wait = min(2*wait, dialWaitMax)
	}
}

// missing waits until the peer has not been connected for a while; false when life ends first.
func (ls *links) missing(life context.Context, peer string) bool {
	for {
		up, changed := ls.accepted(peer)
		var patience <-chan time.Time
		if !up {
			patience = time.After(jittered(fallbackWait))
		}
		select {
		case <-life.Done():
			return false
		case <-changed:
		case <-patience:
			return true
		}
	}
}

// dialOnce connects to a peer's server and keeps the link until it breaks, or, where it only stands in for the peer's
// own, until the peer has dialled.
func (ls *links) dialOnce(life context.Context, peer Peer, standsIn bool) error {
	closed := make(chan struct{})
	nc, err := nats.Connect("tls://"+peer.Address,
		nats.Name(ls.config.Site),
		nats.Secure(ls.config.Identity.clientTLS(peer.Site)),
		nats.TLSHandshakeFirst(),
		nats.NoReconnect(), // a trunk lives as long as its connection
		nats.Timeout(dialTimeout),
		nats.PingInterval(linkPing),
		nats.MaxPingsOutstanding(linkPingsOut),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			ls.log.Warn("link", "peer", peer.Site, "error", err)
		}),
	)
	if err != nil {
		return fmt.Errorf("bus: dial %s at %s: %w", peer.Site, peer.Address, err)
	}
	defer nc.Close()
	t := newTrunk(nc, ls.config.Site, peer.Site)
	l := newLink(t, peer.Site)
	defer l.lose()
	if err := ls.open(t, func(string) *link { return l }); err != nil {
		return err
	}
	hello, cancel := context.WithTimeout(life, helloPatience)
	reply, err := l.ask(hello, verbHello, helloVersion, nil, nil)
	cancel()
	if err != nil {
		return err
	}
	if code := reply.Header.Get(codeHeader); code != "" {
		return remoteError(peer.Site, verbHello, Code(code), string(reply.Data))
	}
	ls.setOut(peer.Site, l)
	defer ls.setOut(peer.Site, nil)
	for {
		up, changed := ls.accepted(peer.Site)
		if up && standsIn {
			return nil
		}
		select {
		case <-life.Done():
			return nil
		case <-closed:
			return fmt.Errorf("%w: %s: %v", errLinkLost, peer.Site, nc.LastError())
		case <-changed:
		}
	}
}

func jittered(d time.Duration) time.Duration { return d + rand.N(d/2) }

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
