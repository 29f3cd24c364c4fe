package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// ServerConfig describes one site's server.
type ServerConfig struct {
	// Site names the site: 1 to 63 of a–z, 0–9 and '-'.
	Site string
	// StoreDirectory keeps buckets, secrets and credentials; it is made with mode 0700 where absent.
	StoreDirectory string
	// Listen is the host:port where other sites reach this one over TLS; "" for a site that only dials.
	Listen string
	// LocalListen is the host:port for the site's own agents, not encrypted and so on loopback; "" means
	// 127.0.0.1:4222, port 0 picks a free one.
	LocalListen string
	// Identity proves to other sites who this one is and names whom it trusts. Needed with Listen or Peers.
	Identity *Identity `json:"-"`
	// Peers are the sites to keep a link with. A site that is only dialled needs no entry.
	Peers []Peer
	// Authorise says whether another site may do something here; nil lets every enrolled site read all that this site
	// publishes and call all its services. It is called for every subscription and request.
	Authorise func(peer string, access Access) error `json:"-"`
	// PresenceLease is how long a silent agent stays present; 0 means 900 ms.
	PresenceLease time.Duration
	// Logger takes the server's notices; nil means slog.Default.
	Logger *slog.Logger `json:"-"`
}

// Peer is another site to keep a link with.
type Peer struct {
	// Site is its name, which its certificate must bear.
	Site string
	// Address is its Listen host:port; "" where only it can dial.
	Address string
	// Dial says who opens the link.
	Dial DialPolicy
}

// DialPolicy says which side of a pair of sites opens their link.
type DialPolicy int

const (
	// DialAuto lets the site whose name sorts first dial, and the other where no link came up for a while.
	DialAuto DialPolicy = iota
	// DialAlways dials at once.
	DialAlways
	// DialNever waits to be dialled.
	DialNever
)

// Access is what a peer asks of this site.
type Access struct {
	// Prefix is what it wants to subscribe to; nil for a request.
	Prefix *string
	// Service is what it wants to call; "" for a subscription.
	Service string
}

const (
	defaultLocalListen = "127.0.0.1:4222"
	// maximumPayload bounds one message in bytes: a value, and what goes with it.
	maximumPayload = 2 * MaximumValue
	startPatience  = 20 * time.Second
	startPoll      = 100 * time.Millisecond
	// addressPatience is how long a listening address may still be somebody else's.
	addressPatience = 3 * time.Second
)

// Server is one site's message bus: a NATS server with JetStream (domain = site, every write synced) for the site's
// agents, another without JetStream for other sites, and between them the code that carries subscriptions and requests.
type Server struct {
	config  ServerConfig
	log     *slog.Logger
	mint    *mint
	agents  *server.Server
	nc      *nats.Conn // in-process connection to agents, as the site itself
	core    *Connection
	links   *links
	mirrors *mirrors
	cancel  context.CancelFunc
	tasks   sync.WaitGroup
	once    sync.Once
}

// StartServer starts a site's server and returns when agents can connect. The server runs until Close; ctx bounds the
// start only.
func StartServer(ctx context.Context, config ServerConfig) (*Server, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	mint, err := openMint(config.StoreDirectory)
	if err != nil {
		return nil, err
	}
	s := &Server{config: config, mint: mint, log: config.Logger.With("site", config.Site)}
	if s.agents, err = startAgentServer(config, mint, s.log); err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	if err := s.start(ctx, life); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (c *ServerConfig) check() error {
	if err := validSite(c.Site); err != nil {
		return err
	}
	if c.StoreDirectory == "" {
		return errors.New("bus: server configuration: StoreDirectory is empty")
	}
	if c.LocalListen == "" {
		c.LocalListen = defaultLocalListen
	}
	if c.PresenceLease == 0 {
		c.PresenceLease = defaultPresenceLease
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Authorise == nil {
		c.Authorise = func(string, Access) error { return nil }
	}
	if (c.Listen != "" || len(c.Peers) > 0) && c.Identity == nil {
		return errors.New("bus: server configuration: Identity is needed with Listen or Peers")
	}
	if c.Identity != nil && c.Identity.Site != c.Site {
		return fmt.Errorf("bus: server configuration: Identity is of site %q, not %q", c.Identity.Site, c.Site)
	}
	seen := map[string]bool{c.Site: true}
	for i, p := range c.Peers {
		if err := validSite(p.Site); err != nil {
			return fmt.Errorf("bus: server configuration: Peers[%d].Site: %w", i, err)
		}
		if seen[p.Site] {
			return fmt.Errorf("bus: server configuration: Peers[%d].Site: %q is this site or named twice", i, p.Site)
		}
		seen[p.Site] = true
		if p.Dial == DialAlways && p.Address == "" {
			return fmt.Errorf("bus: server configuration: Peers[%d].Address: needed to dial %q", i, p.Site)
		}
	}
	return nil
}

// start brings up everything that runs beside the agents' server.
func (s *Server) start(ctx, life context.Context) error {
	credentials, err := s.mint.issue(s.config.Site, "", kindSite, "self")
	if err != nil {
		return err
	}
	s.core, err = connect(ctx, ConnectConfig{Site: s.config.Site, Agent: "self"}, credentials, nats.InProcessServer(s.agents))
	if err != nil {
		return err
	}
	s.nc = s.core.nc
	for _, name := range []string{pubBucket, viewBucket, rulesBucket, statusBucket, linksBucket, ModelBucket} {
		if err := s.core.store(name).ensure(ctx); err != nil {
			return err
		}
	}
	for _, kind := range []Kind{KindController, KindService, KindOptimiser} {
		if _, err := s.WriteCredentials(kind, "default"); err != nil {
			return err
		}
	}
	if err := s.startPresence(life); err != nil {
		return err
	}
	return s.startLinks(ctx, life)
}

// startLinks brings up what this site is to others: publisher, subscriber, and relay of requests.
func (s *Server) startLinks(ctx, life context.Context) error {
	s.links = newLinks(s.config, s.log)
	publisher := newPublisher(life, s.config, s.log)
	publisher.follow(s)
	relay := newRelay(life, s.config, s.links, s.nc)
	s.mirrors = newMirrors(life, s, s.links)
	board := newLinkBoard(s)
	s.links.observe = board.tell
	s.links.serve = func(t *trunk, way func(string) *link) error {
		return errors.Join(relay.serve(t), publisher.serve(t, way), s.mirrors.serve(t))
	}
	if err := board.start(ctx, life); err != nil {
		return err
	}
	if err := s.mirrors.start(ctx); err != nil {
		return err
	}
	if err := relay.start(); err != nil {
		return err
	}
	return s.links.start(s, life)
}

// LocalURL is where agents of the site connect.
func (s *Server) LocalURL() string { return s.agents.ClientURL() }

// Site is the site's name.
func (s *Server) Site() string { return s.config.Site }

// CredentialsFile is where WriteCredentials puts an agent's credentials. Those named "default" of kinds controller,
// service and optimiser are written at every start.
func (s *Server) CredentialsFile(kind Kind, name string) string {
	return filepath.Join(s.config.StoreDirectory, "credentials", userName(kind, name)+".json")
}

// WriteCredentials writes an agent's credentials (mode 0600) and returns the file's path. The same kind and name give the
// same credentials as long as the site's secret lives.
func (s *Server) WriteCredentials(kind Kind, name string) (string, error) {
	credentials, err := s.mint.issue(s.config.Site, s.LocalURL(), kind, name)
	if err != nil {
		return "", err
	}
	path := s.CredentialsFile(kind, name)
	if err := writePrivate(path, indentedJSON(credentials)); err != nil {
		return "", fmt.Errorf("bus: write credentials: %w", err)
	}
	return path, nil
}

// Close stops the server. Agents reconnect when one starts again at the same address.
func (s *Server) Close() {
	s.once.Do(func() {
		s.cancel()
		s.tasks.Wait()
		if s.links != nil {
			s.links.close()
		}
		if s.core != nil {
			s.core.Close()
		}
		s.agents.Shutdown()
		s.agents.WaitForShutdown()
	})
}

// run starts a task that Close waits for.
func (s *Server) run(task func()) {
	s.tasks.Add(1)
	go func() {
		defer s.tasks.Done()
		task()
	}()
}
