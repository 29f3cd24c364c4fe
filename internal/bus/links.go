package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// helloVersion is the version of what crosses links; ends of different versions have no link.
const helloVersion = "1"

const helloPatience = 10 * time.Second

// links keeps the links to all peers: those that this site dials and those that it accepted.
type links struct {
	config ServerConfig
	log    *slog.Logger
	peers  *server.Server // nil where this site only dials
	auth   *peerAuthentication
	bridge *trunk // to peers, in process
	// serve is called for every trunk, to take what comes over it; way is the link back to a peer, nil before its hello.
	serve func(t *trunk, way func(peer string) *link) error
	// observe is told when the first way to a peer comes up and when the last goes down.
	observe func(peer string, up bool)

	mu      sync.Mutex
	ways    map[string]*ways
	changed chan struct{} // closed and replaced when a way comes up or goes down
}

// ways are the links to one peer: the one that it dialled, the one that this site dialled.
type ways struct{ in, out *link }

// best is the link to use; where both are up, the one dialled by the site whose name sorts first.
func (w *ways) best(site, peer string) *link {
	if w == nil {
		return nil
	}
	if w.out != nil && (w.in == nil || site < peer) {
		return w.out
	}
	return w.in
}

func newLinks(config ServerConfig, log *slog.Logger) *links {
	return &links{config: config, log: log, ways: map[string]*ways{}, changed: make(chan struct{})}
}

// start accepts and dials.
func (ls *links) start(s *Server, life context.Context) error {
	if ls.config.Listen != "" {
		if err := ls.accept(life); err != nil {
			return err
		}
	}
	for _, peer := range ls.config.Peers {
		if peer.Address != "" && peer.Dial != DialNever {
			s.run(func() { ls.keepDialled(life, peer) })
		}
	}
	return nil
}

// accept opens the server for peers and this process's place on it.
func (ls *links) accept(life context.Context) error {
	var err error
	if ls.peers, ls.auth, err = startPeerServer(ls.config, ls.log); err != nil {
		return err
	}
	inside := func(user string) (*nats.Conn, error) {
		nc, err := nats.Connect("", nats.InProcessServer(ls.peers), nats.UserInfo(user, ls.auth.password),
			nats.NoReconnect(), nats.Name(user))
		if err != nil {
			return nil, fmt.Errorf("bus: peers' server: %w", err)
		}
		context.AfterFunc(life, nc.Close)
		return nc, nil
	}
	events, err := inside(eventsUser)
	if err != nil {
		return err
	}
	_, err = events.Subscribe("$SYS.ACCOUNT.*.DISCONNECT", func(m *nats.Msg) {
		var e server.DisconnectEventMsg
		if json.Unmarshal(m.Data, &e) == nil {
			if peer := ls.auth.ended(e.Client.ID); peer != "" {
				ls.setIn(peer, nil)
			}
		}
	})
	if err == nil {
		err = events.FlushTimeout(helloPatience)
	}
	if err != nil {
		return fmt.Errorf("bus: peers' server: %w", err)
	}
	nc, err := inside(bridgeUser)
	if err != nil {
		return err
	}
	ls.bridge = newTrunk(nc, ls.config.Site, "")
	if err := ls.open(ls.bridge, ls.in); err != nil {
		return err
	}
	// A peer that connects says hello last, when it is ready to be asked.
	return ls.bridge.listen(verbHello, func(peer, version string, m *nats.Msg) {
		if version != helloVersion {
			respond(m, nil, &Error{codeInvalid, fmt.Sprintf("site %s speaks version %s, site %s version %s",
				ls.config.Site, helloVersion, peer, version)})
			return
		}
		ls.setIn(peer, newLink(ls.bridge, peer))
		respond(m, nil, nil)
	})
}

// open makes a trunk ready to ask and to be asked.
func (ls *links) open(t *trunk, way func(peer string) *link) error {
	if err := t.hear(); err != nil {
		return err
	}
	if err := ls.serve(t, way); err != nil {
		return err
	}
	if err := t.nc.FlushTimeout(helloPatience); err != nil {
		return fmt.Errorf("bus: link: %w", err)
	}
	return nil
}

func (ls *links) setIn(peer string, l *link) { ls.set(peer, func(w *ways) **link { return &w.in }, l) }
func (ls *links) setOut(peer string, l *link) {
	ls.set(peer, func(w *ways) **link { return &w.out }, l)
}

func (ls *links) set(peer string, which func(*ways) **link, l *link) {
	ls.mu.Lock()
	w := ls.ways[peer]
	if w == nil {
		w = &ways{}
		ls.ways[peer] = w
	}
	before := w.best(ls.config.Site, peer) != nil
	at := which(w)
	if *at != nil {
		(*at).lose()
	}
	*at = l
	after := w.best(ls.config.Site, peer) != nil
	close(ls.changed)
	ls.changed = make(chan struct{})
	ls.mu.Unlock()
	if before != after {
		ls.log.Info("link", "peer", peer, "up", after)
		ls.observe(peer, after)
	}
}

// to is the link to a peer that is up.
func (ls *links) to(peer string) (*link, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.ways[peer].best(ls.config.Site, peer); l != nil {
		return l, nil
	}
	return nil, fmt.Errorf("%w: no link to %s", ErrSiteUnreachable, peer)
}

// state is the link to a peer, nil while there is none, and a channel that is closed when that may have changed.
func (ls *links) state(peer string) (*link, <-chan struct{}) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.ways[peer].best(ls.config.Site, peer), ls.changed
}

// accepted reports whether the peer has dialled this site, and a channel that is closed when that may have changed.
func (ls *links) accepted(peer string) (bool, <-chan struct{}) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	w := ls.ways[peer]
	return w != nil && w.in != nil, ls.changed
}

// in is the link that a peer dialled.
func (ls *links) in(peer string) *link {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w := ls.ways[peer]; w != nil {
		return w.in
	}
	return nil
}

func (ls *links) close() {
	if ls.peers != nil {
		ls.peers.Shutdown()
		ls.peers.WaitForShutdown()
	}
}
