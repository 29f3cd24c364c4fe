package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ConnectConfig says how an agent reaches its own site's server.
type ConnectConfig struct {
	// Site is the agent's own site. "" takes the credentials' site.
	Site string
	// Agent names the agent in logs and in Request.Agent; one plain token.
	Agent string
	// URL overrides the credentials' URL; "" takes it.
	URL string
	// CredentialsFile is a file that Server.WriteCredentials wrote.
	CredentialsFile string
	// Logger takes notices; nil means slog.Default.
	Logger *slog.Logger
}

// Connection is an agent's connection to its own site's server. It reconnects for ever; operations on state wait for the
// server until their context ends. Safe for concurrent use.
type Connection struct {
	config ConnectConfig
	log    *slog.Logger
	nc     *nats.Conn
	js     jetstream.JetStream

	life   context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu       sync.Mutex
	stores   map[string]*Store
	services map[string]*nats.Subscription
	broken   chan struct{} // closed and replaced when the transport breaks
	restored chan struct{} // closed and replaced when it is back
	wanted   *wantedSet

	denials denials
}

const reconnectWait = 100 * time.Millisecond

// Connect connects an agent to its site's server, waiting until it answers or ctx ends. Wrong credentials fail at once
// with ErrDenied.
func Connect(ctx context.Context, config ConnectConfig) (*Connection, error) {
	credentials, err := ReadCredentials(config.CredentialsFile)
	if err != nil {
		return nil, err
	}
	if config.URL == "" {
		config.URL = credentials.URL
	}
	if config.Site == "" {
		config.Site = credentials.Site
	}
	if config.Site != credentials.Site {
		return nil, fmt.Errorf("bus: connect: credentials %s are for site %q, not %q", config.CredentialsFile,
			credentials.Site, config.Site)
	}
	return connect(ctx, config, credentials)
}

func connect(ctx context.Context, config ConnectConfig, credentials Credentials, more ...nats.Option) (*Connection, error) {
	if err := validName("agent", config.Agent); err != nil {
		return nil, err
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	c := &Connection{
		config:   config,
		log:      config.Logger.With("site", config.Site, "agent", config.Agent),
		stores:   map[string]*Store{},
		services: map[string]*nats.Subscription{},
		broken:   make(chan struct{}),
		restored: make(chan struct{}),
	}
	c.life, c.cancel = context.WithCancel(context.Background())
	options := append([]nats.Option{
		nats.Name(config.Agent),
		nats.UserInfo(credentials.User, credentials.Password),
		nats.CustomInboxPrefix(credentials.InboxPrefix),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectWait, reconnectWait),
		nats.ReconnectBufSize(-1), // what cannot be sent fails at once and is retried where that is safe
		nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(20 * time.Second),
		nats.ReconnectHandler(func(*nats.Conn) { c.signal(&c.restored) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { c.disconnected(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.failed(err) }),
	}, more...)
	if err := c.dial(ctx, options); err != nil {
		return nil, err
	}
	var err error
	if c.js, err = jetstream.New(c.nc); err != nil {
		return nil, fmt.Errorf("bus: connect: %w", err)
	}
	c.wanted = newWantedSet(c)
	return c, nil
}

func (c *Connection) dial(ctx context.Context, options []nats.Option) error {
	for {
		nc, err := nats.Connect(c.config.URL, options...)
		if err == nil {
			c.nc = nc
			return nil
		}
		if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) {
			return fmt.Errorf("%w: server %s refused the credentials: %v", ErrDenied, c.config.URL, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s: %v (%w)", ErrUnavailable, c.config.URL, err, ctx.Err())
		case <-time.After(reconnectWait):
		}
	}
}

// Site is the connection's own site.
func (c *Connection) Site() string { return c.config.Site }

// Agent is the name that Connect was given.
func (c *Connection) Agent() string { return c.config.Agent }

// Close ends every watch, subscription, registration and service of the connection.
func (c *Connection) Close() {
	c.mu.Lock()
	c.cancel()
	c.mu.Unlock()
	c.tasks.Wait()
	c.nc.Close()
}

// run starts a task that Close waits for; it must end with c.life. It reports false, and starts nothing, after Close.
func (c *Connection) run(task func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return false
	}
	c.tasks.Add(1)
	go func() {
		defer c.tasks.Done()
		task()
	}()
	return true
}

func (c *Connection) disconnected(err error) {
	if err != nil && c.life.Err() == nil {
		c.log.Info("bus connection lost", "error", err)
	}
	c.signal(&c.broken)
}

// failed hears of errors that no call returned.
func (c *Connection) failed(err error) {
	if errors.Is(err, nats.ErrPermissionViolation) {
		c.denials.tell(err.Error())
	}
	c.log.Warn("bus connection", "error", err)
}

// signal wakes all that wait for one of the two channels.
func (c *Connection) signal(what *chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(*what)
	*what = make(chan struct{})
}

// disturbance returns a channel that is closed when the transport next breaks, and what the server held for it is gone.
func (c *Connection) disturbance() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// awaitServer waits until the transport is up.
func (c *Connection) awaitServer(ctx context.Context) error {
	for {
		c.mu.Lock()
		restored := c.restored
		c.mu.Unlock()
		if c.nc.IsConnected() {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", ErrUnavailable, ctx.Err())
		case <-c.life.Done():
			return ErrClosed
		case <-restored:
		}
	}
}
