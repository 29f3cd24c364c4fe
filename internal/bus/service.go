package bus

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// Request is what a handler is asked.
type Request struct {
	// Site is whence the request comes; for another site, as its certificate proves.
	Site string
	// Agent is who asked, as that site says.
	Agent string
	// Service is the name asked for.
	Service string
	// Payload is the caller's.
	Payload []byte
}

// Handler answers requests. An *Error gives the refusal its code; any other error travels as CodeInternal. Its context
// ends at the caller's deadline.
type Handler func(ctx context.Context, request Request) ([]byte, error)

const (
	defaultRequestTimeout = 30 * time.Second
	// concurrentRequests bounds what one service has in hand; more are refused with ErrBusy.
	concurrentRequests = 256
	serviceGroup       = "agents"

	siteHeader    = "Switchboard-Site"
	agentHeader   = "Switchboard-Agent"
	timeoutHeader = "Switchboard-Timeout-Ms"
	codeHeader    = "Switchboard-Code" // absent from a reply that is no refusal
)

// Serve answers requests for a service until Unserve or Close. A service's name is a key; where several connections of a
// site serve the same one, each request goes to one of them. Handlers run concurrently.
func (c *Connection) Serve(service string, handler func(ctx context.Context, request Request) ([]byte, error)) error {
	if err := validKey(service); err != nil {
		return fmt.Errorf("service name: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return ErrClosed
	}
	if c.services[service] != nil {
		return fmt.Errorf("%w: this connection serves %s already", ErrConflict, service)
	}
	slots := make(chan struct{}, concurrentRequests)
	sub, err := c.nc.QueueSubscribe("serve."+service, serviceGroup, func(m *nats.Msg) {
		select {
		case slots <- struct{}{}:
		default:
			respond(m, nil, fmt.Errorf("%w: %s has %d requests in hand", ErrBusy, service, concurrentRequests))
			return
		}
		go func() {
			defer func() { <-slots }()
			c.answer(m, service, handler)
		}()
	})
	if err != nil {
		return fmt.Errorf("%w: serve %s: %v", ErrUnavailable, service, err)
	}
	c.services[service] = sub
	// Whoever is told about the service after this can reach it. Without a server the subscription follows the connection.
	_ = c.nc.FlushTimeout(requestPatience)
	return nil
}

// Unserve ends what Serve began; requests that have arrived are still answered.
func (c *Connection) Unserve(service string) {
	c.mu.Lock()
	sub := c.services[service]
	delete(c.services, service)
	c.mu.Unlock()
	if sub != nil && sub.Drain() == nil { // fails only on a closed connection, which has no subscriptions
		_ = c.nc.FlushTimeout(requestPatience) // without a server there is nobody to tell
	}
}

func (c *Connection) answer(m *nats.Msg, service string, handler Handler) {
	request := Request{Site: m.Header.Get(siteHeader), Agent: m.Header.Get(agentHeader), Service: service, Payload: m.Data}
	if request.Site == "" {
		request.Site = c.Site()
	}
	ctx, cancel := context.WithTimeout(c.life, headerTimeout(m.Header))
	defer cancel()
	reply, err := guarded(ctx, handler, request)
	respond(m, reply, err)
}

// guarded calls the handler; a panic is the handler's failure, not the agent's end.
func guarded(ctx context.Context, handler Handler, request Request) (reply []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			reply, err = nil, &Error{CodePanic, fmt.Sprintf("%v\n%s", p, debug.Stack())}
		}
	}()
	reply, err = handler(ctx, request)
	if err == nil {
		return reply, fits("reply", reply)
	}
	return nil, refusal(err)
}

// refusal makes a handler's error one that its caller cannot mistake for the bus's own about this request.
func refusal(err error) error {
	var coded *Error
	if errors.As(err, &coded) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &Error{CodeInternal, err.Error()}
}

func respond(m *nats.Msg, payload []byte, err error) {
	reply := nats.NewMsg(m.Reply)
	reply.Data = payload
	if err != nil {
		code, message := errorCode(err)
		reply.Header.Set(codeHeader, string(code))
		reply.Data = []byte(message)
	}
	_ = m.RespondMsg(reply) // a caller whose reply cannot be sent sees its deadline pass
}

func headerTimeout(h nats.Header) time.Duration {
	ms, err := strconv.ParseUint(h.Get(timeoutHeader), 10, 31)
	if err != nil || ms == 0 {
		return defaultRequestTimeout
	}
	return time.Duration(ms) * time.Millisecond
}

// Request asks a service of a site, this one or another, and waits for its reply; without a deadline in ctx, 30 s. It is
// sent at most once. Its errors are *RemoteError (the service's own refusal), ErrNoSuchService, ErrSiteUnreachable,
// ErrBusy, ErrDenied, ErrTimeout, ErrTooLarge, and ErrUnavailable if the own server did not answer.
func (c *Connection) Request(ctx context.Context, site, service string, payload []byte) ([]byte, error) {
	if err := errors.Join(validSite(site), validKey(service), fits("request", payload)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeoutOf(ctx))
	defer cancel()
	if err := c.awaitServer(ctx); err != nil {
		return nil, err
	}
	m := nats.NewMsg("serve." + service)
	if site != c.Site() {
		m.Subject = "call." + site + "." + service
	}
	m.Data = payload
	m.Header.Set(agentHeader, c.Agent())
	m.Header.Set(timeoutHeader, strconv.FormatInt(max(1, timeoutOf(ctx).Milliseconds()), 10))
	release := c.denials.watch(cancel, `"`+m.Subject+`"`)
	reply, err := requestOver(ctx, c.nc, m, c.disturbance())
	switch denied := release(); {
	case denied:
		return nil, fmt.Errorf("%w: %s at site %s", ErrDenied, service, site)
	case err == nil:
	case errors.Is(err, nats.ErrNoResponders) && site == c.Site():
		return nil, fmt.Errorf("%w: %s at site %s", ErrNoSuchService, service, site)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("%w: %s at site %s", ErrTimeout, service, site)
	case errors.Is(err, context.Canceled):
		return nil, err
	default:
		return nil, fmt.Errorf("%w: %s at site %s: %v", ErrUnavailable, service, site, err)
	}
	if code := reply.Header.Get(codeHeader); code != "" {
		return nil, remoteError(site, service, Code(code), string(reply.Data))
	}
	return reply.Data, nil
}

// requestOver sends a request and waits for the reply, the context's end, or the transport's.
func requestOver(ctx context.Context, nc *nats.Conn, m *nats.Msg, broken <-chan struct{}) (*nats.Msg, error) {
	attempt, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-broken:
			cancel(nats.ErrDisconnected)
		case <-attempt.Done():
		}
	}()
	reply, err := nc.RequestMsgWithContext(attempt, m)
	if err != nil && ctx.Err() == nil && context.Cause(attempt) == nats.ErrDisconnected {
		return nil, nats.ErrDisconnected
	}
	return reply, err
}

func timeoutOf(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline)
	}
	return defaultRequestTimeout
}
