package bus

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// startAgentServer starts the server that the site's own agents use: JetStream with every acknowledged write synced,
// plain TCP on loopback, one account, a password per agent.
func startAgentServer(config ServerConfig, mint *mint, log *slog.Logger) (*server.Server, error) {
	host, port, err := splitListen("LocalListen", config.LocalListen)
	if err != nil {
		return nil, err
	}
	return startNATS(&server.Options{
		ServerName:                 config.Site + "-agents",
		Host:                       host,
		Port:                       port,
		JetStream:                  true,
		JetStreamDomain:            config.Site,
		StoreDir:                   filepath.Join(config.StoreDirectory, "state"),
		SyncAlways:                 true,
		DisableJetStreamBanner:     true,
		NoSystemAccount:            true,
		CustomClientAuthentication: agentAuthentication{mint},
		// A stopped agent keeps its connection; presence notices it long before this does.
		PingInterval: 20 * time.Second,
	}, log)
}

// agentAuthentication admits agents by password.
type agentAuthentication struct{ mint *mint }

// Check implements server.Authentication.
func (a agentAuthentication) Check(c server.ClientAuthentication) bool {
	options := c.GetOpts()
	kind, name, ok := a.mint.check(options.Username, options.Password)
	if !ok {
		return false
	}
	c.RegisterUser(&server.User{Username: options.Username, Permissions: permissions(kind, name)})
	return true
}

// startNATS starts a NATS server inside this process and waits until it takes connections.
func startNATS(options *server.Options, log *slog.Logger) (*server.Server, error) {
	if err := awaitAddress(options.Host, options.Port); err != nil {
		return nil, fmt.Errorf("bus: server %s: %w", options.ServerName, err)
	}
	options.NoSigs = true
	options.MaxPayload = maximumPayload
	options.MaxPending = 64 << 20
	if options.Port == 0 {
		options.Port = server.RANDOM_PORT
	}
	s, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("bus: server %s: %w", options.ServerName, err)
	}
	fatal := make(chan string, 1)
	s.SetLoggerV2(natsLog{log.With("server", options.ServerName), fatal}, false, false, false)
	go s.Start()
	deadline := time.Now().Add(startPatience)
	for !s.ReadyForConnections(startPoll) {
		reason := "it is not ready in time"
		select {
		case reason = <-fatal:
		default:
			if time.Now().Before(deadline) {
				continue
			}
		}
		s.Shutdown()
		return nil, fmt.Errorf("bus: server %s on %s does not start: %s", options.ServerName,
			net.JoinHostPort(options.Host, strconv.Itoa(options.Port)), reason)
	}
	return s, nil
}

// awaitAddress waits a moment for an address to be free: a process that was here before may still be ending, and a
// connection that leaves this machine may happen to use the port.
func awaitAddress(host string, port int) error {
	deadline := time.Now().Add(addressPatience)
	for {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			return l.Close()
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(retryWait)
	}
}

func splitListen(field, address string) (string, int, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("bus: server configuration: %s: %w; give host:port", field, err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("bus: server configuration: %s: port %q is not a number up to 65535", field, text)
	}
	return host, int(port), nil
}

// natsLog passes the NATS server's log on: its notices are this process's debugging.
type natsLog struct {
	log   *slog.Logger
	fatal chan<- string // takes why the server cannot go on
}

// Noticef tells of what goes as it should.
func (l natsLog) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }

// Warnf tells of what may need somebody.
func (l natsLog) Warnf(format string, v ...any) { l.log.Warn(fmt.Sprintf(format, v...)) }

// Errorf tells of what went wrong, which clients notice themselves.
func (l natsLog) Errorf(format string, v ...any) { l.log.Warn(fmt.Sprintf(format, v...)) }

// Fatalf does not end the process, which is not this server's alone.
func (l natsLog) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.log.Error(text)
	select {
	case l.fatal <- text:
	default:
	}
}

// Debugf leaves out what only those who write the server want to know.
func (l natsLog) Debugf(string, ...any) {}

// Tracef leaves out every message.
func (l natsLog) Tracef(string, ...any) {}

// indentedJSON encodes a value that cannot fail to encode, for a file.
func indentedJSON(value any) []byte {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		panic(err)
	}
	return append(text, '\n')
}
