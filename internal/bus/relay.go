package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// concurrentCalls bounds the requests that the site process has in hand, per direction.
const concurrentCalls = 1024

// relay carries requests between this site's agents and other sites.
type relay struct {
	config   ServerConfig
	life     context.Context
	links    *links
	agents   *nats.Conn
	outgoing chan struct{}
	incoming chan struct{}
}

func newRelay(life context.Context, config ServerConfig, links *links, agents *nats.Conn) *relay {
	return &relay{config: config, life: life, links: links, agents: agents,
		outgoing: make(chan struct{}, concurrentCalls), incoming: make(chan struct{}, concurrentCalls)}
}

// start takes agents' requests to other sites, on call.<site>.<service>.
func (r *relay) start() error {
	_, err := r.agents.Subscribe("call.>", func(m *nats.Msg) {
		limited(r.outgoing, m, func() { r.call(m) })
	})
	if err != nil {
		return fmt.Errorf("bus: take requests to other sites: %w", err)
	}
	return nil
}

// serve takes other sites' requests over a trunk.
func (r *relay) serve(t *trunk) error {
	return t.listen(verbCall, func(peer, service string, m *nats.Msg) {
		limited(r.incoming, m, func() { r.answer(peer, service, m) })
	})
}

// limited runs a task beside the caller, or refuses the message.
func limited(slots chan struct{}, m *nats.Msg, task func()) {
	select {
	case slots <- struct{}{}:
		go func() {
			defer func() { <-slots }()
			task()
		}()
	default:
		respond(m, nil, fmt.Errorf("%w: %d requests in hand", ErrBusy, cap(slots)))
	}
}

// call passes an agent's request to the peer that it names and the answer back.
func (r *relay) call(m *nats.Msg) {
	site, service, _ := strings.Cut(strings.TrimPrefix(m.Subject, "call."), ".")
	ctx, cancel := context.WithTimeout(r.life, headerTimeout(m.Header))
	defer cancel()
	reply, err := r.ask(ctx, site, service, m)
	if err != nil {
		respond(m, nil, err)
		return
	}
	passOn(m, reply)
}

// passOn gives a request the answer that came from elsewhere, and of its headers only the code.
func passOn(m, reply *nats.Msg) {
	answer := nats.NewMsg(m.Reply)
	answer.Data = reply.Data
	if code := reply.Header.Get(codeHeader); code != "" {
		answer.Header.Set(codeHeader, code)
	}
	_ = m.RespondMsg(answer) // whoever has gone needs none
}

func (r *relay) ask(ctx context.Context, site, service string, m *nats.Msg) (*nats.Msg, error) {
	if err := errors.Join(validSite(site), validKey(service)); err != nil {
		return nil, err
	}
	l, err := r.links.to(site)
	if err != nil {
		return nil, err
	}
	header := nats.Header{}
	for _, name := range []string{agentHeader, timeoutHeader} {
		if value := m.Header.Get(name); value != "" {
			header.Set(name, value)
		}
	}
	return l.ask(ctx, verbCall, service, m.Data, header)
}

// answer has a peer's request answered by an agent of this site.
func (r *relay) answer(peer, service string, m *nats.Msg) {
	if err := validKey(service); err != nil {
		respond(m, nil, err)
		return
	}
	if err := r.config.Authorise(peer, Access{Service: service}); err != nil {
		respond(m, nil, fmt.Errorf("%w: %v", ErrDenied, err))
		return
	}
	ctx, cancel := context.WithTimeout(r.life, headerTimeout(m.Header))
	defer cancel()
	request := nats.NewMsg("serve." + service)
	request.Data = m.Data
	request.Header.Set(siteHeader, peer) // whatever the peer put there
	request.Header.Set(agentHeader, m.Header.Get(agentHeader))
	request.Header.Set(timeoutHeader, m.Header.Get(timeoutHeader))
	reply, err := r.agents.RequestMsgWithContext(ctx, request)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		err = &Error{Code: codeNoSuchService}
	case errors.Is(err, context.DeadlineExceeded):
		err = &Error{Code: codeTimeout}
	}
	if err != nil {
		respond(m, nil, err)
		return
	}
	passOn(m, reply)
}
