package bus

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// linkPing is how often a link's ends make sure of each other; a link that stays silent for three times as long is cut.
// Cutting one that was only slow costs a new connection and no packet: see internal/site/liveness.go.
const (
	linkPing     = 500 * time.Millisecond
	linkPingsOut = 2
)

// The verbs of what crosses a link. Every subject on it is <verb>.<to>.<from>.<rest>, and the acceptor's server lets a
// peer publish only with its own name as <from> and the acceptor's as <to>, and subscribe only to the reverse.
const (
	verbHello = "hello" // request: says that the link's other end is ready
	verbCall  = "rpc"   // request to a service; rest is the service
	verbPull  = "pull"  // request for a subscription's session, and its credits
	verbBatch = "batch" // a session's changes; rest is the session
	verbReply = "reply" // answers; rest is the request's number
)

var verbs = []string{verbHello, verbCall, verbPull, verbBatch, verbReply}

// startPeerServer starts the server that other sites connect to: TLS both ways, no JetStream, and per peer only the
// subjects above.
func startPeerServer(config ServerConfig, log *slog.Logger) (*server.Server, *peerAuthentication, error) {
	host, port, err := splitListen("Listen", config.Listen)
	if err != nil {
		return nil, nil, err
	}
	auth := newPeerAuthentication(config, log)
	s, err := startNATS(&server.Options{
		ServerName:                 config.Site + "-peers",
		Host:                       host,
		Port:                       port,
		TLSConfig:                  config.Identity.serverTLS(),
		TLSTimeout:                 10,
		TLSHandshakeFirst:          true,
		CustomClientAuthentication: auth,
		PingInterval:               linkPing,
		MaxPingsOut:                linkPingsOut,
		MaxSubs:                    64,    // a peer needs five
		NoSystemAccount:            false, // over it the site process hears of connections that ended
	}, log)
	if err != nil {
		return nil, nil, err
	}
	auth.mu.Lock()
	auth.server = s
	auth.mu.Unlock()
	return s, auth, nil
}

// peerAuthentication admits peers by certificate, and the site process by a password that never leaves the process.
type peerAuthentication struct {
	site      string
	password  string
	authorise func(string, Access) error
	log       *slog.Logger

	mu     sync.Mutex
	server *server.Server
	peers  map[string]uint64 // connection of each peer
}

// Users of the site process on the peers' server.
const (
	bridgeUser = "bridge" // speaks and listens for this site
	eventsUser = "events" // hears of connections that ended
)

func newPeerAuthentication(config ServerConfig, log *slog.Logger) *peerAuthentication {
	var secret [32]byte
	rand.Read(secret[:])
	return &peerAuthentication{site: config.Site, password: base64.RawURLEncoding.EncodeToString(secret[:]),
		authorise: config.Authorise, log: log, peers: map[string]uint64{}}
}

// Check implements server.Authentication.
func (a *peerAuthentication) Check(c server.ClientAuthentication) bool {
	options := c.GetOpts()
	if subtle.ConstantTimeCompare([]byte(options.Password), []byte(a.password)) == 1 {
		return a.checkBridge(c, options.Username)
	}
	peer, err := a.peer(c)
	if err == nil {
		err = a.authorise(peer, Access{})
	}
	if err != nil {
		a.log.Warn("peer refused", "address", fmt.Sprint(c.RemoteAddress()), "error", err)
		return false
	}
	allow := &server.Permissions{Publish: &server.SubjectPermission{}, Subscribe: &server.SubjectPermission{}}
	for _, verb := range verbs {
		allow.Publish.Allow = append(allow.Publish.Allow, verb+"."+a.site+"."+peer+".>")
		allow.Subscribe.Allow = append(allow.Subscribe.Allow, verb+"."+peer+"."+a.site+".>")
	}
	c.RegisterUser(&server.User{Username: peer, Permissions: allow})
	a.admit(peer, c.GetID())
	return true
}

func (a *peerAuthentication) checkBridge(c server.ClientAuthentication, user string) bool {
	a.mu.Lock()
	s := a.server
	a.mu.Unlock()
	switch {
	case user == bridgeUser:
		c.RegisterUser(&server.User{Username: bridgeUser})
		return true
	case user == eventsUser && s != nil:
		c.RegisterUser(&server.User{Username: eventsUser, Account: s.SystemAccount()})
		return true
	}
	return false
}

// peer is the site that the connection's certificate proves.
func (a *peerAuthentication) peer(c server.ClientAuthentication) (string, error) {
	state := c.GetTLSConnectionState()
	if state == nil || len(state.VerifiedChains) == 0 {
		return "", fmt.Errorf("%w: no verified certificate", ErrDenied)
	}
	peer, err := certifiedSite(state.PeerCertificates[0])
	if err != nil {
		return "", fmt.Errorf("%w: %v", ErrDenied, err)
	}
	if peer == a.site {
		return "", fmt.Errorf("%w: certificate is this site's own", ErrDenied)
	}
	return peer, nil
}

// admit makes the connection the peer's only one: an older one is a leftover of a broken path.
func (a *peerAuthentication) admit(peer string, id uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old, ok := a.peers[peer]; ok && old != id && a.server != nil {
		s := a.server
		go s.DisconnectClientByID(old) // Check holds the server's locks
	}
	a.peers[peer] = id
}

// ended forgets a connection and returns the peer whose current one it was, or "".
func (a *peerAuthentication) ended(id uint64) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for peer, current := range a.peers {
		if current == id {
			delete(a.peers, peer)
			return peer
		}
	}
	return ""
}
