package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	apiv1 "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
)

// patient bounds how long a server may take to answer, and names it in errors of the way to it: one that is away, and one
// that has stopped and takes calls without ever answering them.
type patient struct {
	server string
	limit  time.Duration
}

// noAnswer is the error of a server that said nothing for so long.
type noAnswer struct {
	server string
	waited time.Duration
}

// Error names the server and what can be done.
func (e *noAnswer) Error() string {
	return fmt.Sprintf("server %s: no answer within %v; is its Global Switchboard running and not stopped (in a laboratory: `switchboard lab status`)? "+
		"--request-timeout waits longer", e.server, e.waited.Round(100*time.Millisecond))
}

// WrapUnary bounds and explains calls with one answer. A trace takes as long as it was asked to, besides.
func (p *patient) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		limit := p.limit
		if trace, ok := r.Any().(*apiv1.TraceRequest); ok {
			limit += time.Duration(trace.DurationMs) * time.Millisecond
		}
		bounded, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		begun := time.Now()
		response, err := next(bounded, r)
		switch code := connect.CodeOf(err); {
		case err == nil || errors.Is(ctx.Err(), context.Canceled):
			return response, err
		case bounded.Err() != nil:
			return nil, &noAnswer{p.server, time.Since(begun)}
		case code == connect.CodeDeadlineExceeded:
			return nil, fmt.Errorf("server %s: gave up after %v: %w", p.server, time.Since(begun).Round(time.Millisecond), plain(err))
		case code == connect.CodeUnavailable:
			return nil, fmt.Errorf("server %s: %w", p.server, plain(err))
		}
		return response, err
	}
}

// WrapStreamingClient ends a stream on which nothing comes at all, not even what is there already; see Watch of the API.
func (p *patient) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		bounded, cancel := context.WithCancelCause(ctx)
		stream := &patientStream{StreamingClientConn: next(bounded, spec), server: p.server, ctx: bounded, begun: time.Now(), end: cancel}
		stream.timer = time.AfterFunc(p.limit, func() { cancel(context.DeadlineExceeded) })
		return stream
	}
}

// WrapStreamingHandler changes nothing: this is a client.
func (p *patient) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// patientStream is a stream with a timer that runs until its first message.
type patientStream struct {
	connect.StreamingClientConn
	server string
	ctx    context.Context
	begun  time.Time
	heard  bool
	timer  *time.Timer
	end    context.CancelCauseFunc
}

// Send sends the request; it may last until the answer begins.
func (s *patientStream) Send(message any) error {
	return s.explain(s.StreamingClientConn.Send(message))
}

// CloseRequest ends the request; it may last as Send.
func (s *patientStream) CloseRequest() error { return s.explain(s.StreamingClientConn.CloseRequest()) }

// Receive waits for a message.
func (s *patientStream) Receive(message any) error {
	err := s.StreamingClientConn.Receive(message)
	s.timer.Stop()
	s.heard = s.heard || err == nil
	return s.explain(err)
}

// explain says of an error whether it is that no message came in time.
func (s *patientStream) explain(err error) error {
	if err != nil && !s.heard && errors.Is(context.Cause(s.ctx), context.DeadlineExceeded) {
		return &noAnswer{s.server, time.Since(s.begun)}
	}
	return err
}

// CloseResponse ends the stream.
func (s *patientStream) CloseResponse() error {
	s.timer.Stop()
	err := s.StreamingClientConn.CloseResponse()
	s.end(nil)
	return err
}
