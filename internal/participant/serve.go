package participant

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
)

const (
	resolveInterval = 500 * time.Millisecond
	askPatience     = 2 * time.Second
	codeInvalid     = "invalid_argument"
)

// AskOver asks coordinators through the service "transactions" of their site.
func AskOver(connection *bus.Connection) func(context.Context, string, string) (control.TransactionState, error) {
	return func(ctx context.Context, site, transaction string) (control.TransactionState, error) {
		ctx, cancel := context.WithTimeout(ctx, askPatience)
		defer cancel()
		query, err := proto.Marshal(&control.TransactionQuery{Transaction: transaction})
		if err != nil {
			return 0, err
		}
		reply, err := connection.Request(ctx, site, "transactions", query)
		if err != nil {
			return 0, err
		}
		outcome := &control.TransactionOutcome{}
		if err := proto.Unmarshal(reply, outcome); err != nil {
			return 0, err
		}
		return outcome.State, nil
	}
}

// Serve answers the service on the connection, and resolves transactions in doubt, until ctx ends.
func (p *Participant) Serve(ctx context.Context, connection *bus.Connection, service string) error {
	err := connection.Serve(service, func(ctx context.Context, r bus.Request) ([]byte, error) {
		request := &control.ParticipantRequest{}
		if err := proto.Unmarshal(r.Payload, request); err != nil {
			return nil, &bus.Error{Code: codeInvalid, Message: "not a ParticipantRequest: " + err.Error()}
		}
		reply, err := p.Handle(ctx, request)
		if err != nil {
			return nil, err
		}
		return proto.Marshal(reply)
	})
	if err != nil {
		return err
	}
	defer connection.Unserve(service)
	tick := time.NewTicker(resolveInterval)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			problem := ""
			if err := p.Resolve(ctx); err != nil && ctx.Err() == nil {
				problem = err.Error()
			}
			if problem != said && problem != "" {
				p.config.Logger.Warn("transactions in doubt", "error", problem)
			}
			said = problem
		}
	}
}
