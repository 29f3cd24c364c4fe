package global

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/switchboard-project/switchboard/internal/bus"
)

// EngineeringConfig says who finds routes: optimisers, which are programs `switchboard-te serve` on the bus of the global
// site. Zero values take the defaults.
type EngineeringConfig struct {
	// Workers are optimisers that this process starts, restarts and ends. None where only others' are used.
	Workers WorkersConfig
	// TimeLimit bounds the search for one chain's routes, over all attempts. Default 10 s.
	TimeLimit time.Duration
	// Attempt is how long one optimiser may take for it before another is asked. Default 2 s.
	Attempt time.Duration
}

func (c *EngineeringConfig) defaults() {
	if c.TimeLimit == 0 {
		c.TimeLimit = 10 * time.Second
	}
	if c.Attempt == 0 {
		c.Attempt = 2 * time.Second
	}
}

// Services of an optimiser and the codes it refuses with.
const (
	routeService = "te.route"
	movesService = "te.moves"

	codeBehind     bus.Code = "behind"
	codeInfeasible bus.Code = "infeasible"
	codeInvalid    bus.Code = "invalid"
)

// optimiserKind is that of an optimiser's presence.
const optimiserKind = "optimiser"

// ErrInfeasible reports that no routes exist at all; the text says which constraint proves it.
var ErrInfeasible = errors.New("no routes exist")

// errNoOptimiser reports that nobody answered.
var errNoOptimiser = errors.New("traffic engineering: no optimiser answered")

// routeRequest asks for one chain's routes at the loads of all others.
type routeRequest struct {
	// Revision is that of the model the answer must take into account.
	Revision uint64     `json:"revision"`
	Chain    modelChain `json:"chain"`
	// Limits are what VNFs offer this chain at sites, where participants said less than the model does.
	Limits []modelLoad `json:"limits,omitempty"`
	// Planned are loads of plans of other chains that are being agreed.
	Planned []modelLoad `json:"planned,omitempty"`
}

// routeAnswer is an optimiser's proposal.
type routeAnswer struct {
	Worker string `json:"worker"`
	// Admitted says that all of the demand fits; Share is how much does.
	Admitted bool    `json:"admitted"`
	Share    float64 `json:"share"`
	// Scarce names what ran out: "link x>", "site s", "VNF f at site s".
	Scarce []string `json:"scarce"`
	// Excluded says which of the chain's limits, and links without room, leave it no route at all.
	Excluded []string     `json:"excluded"`
	Routes   []modelRoute `json:"routes"`
}

// engineering asks optimisers. Requests change nothing at an optimiser, so one that gets no answer is made again: another
// worker takes it, or the same after its restart. Which revision of the model they are made from goes with them.
type engineering struct {
	config     EngineeringConfig
	connection *bus.Connection
	board      *modelBoard
	// lost is told when an optimiser has vanished: whoever waits for its answer asks again.
	lost *broadcast
}

func newEngineering(config EngineeringConfig, connection *bus.Connection, board *modelBoard) *engineering {
	return &engineering{config: config, connection: connection, board: board, lost: newBroadcast()}
}

// route finds one chain's routes.
func (e *engineering) route(ctx context.Context, request routeRequest) (*routeAnswer, error) {
	limited, cancel := context.WithTimeout(ctx, e.config.TimeLimit)
	defer cancel()
	answer := &routeAnswer{}
	err := e.ask(limited, routeService, e.config.Attempt, func(revision uint64) any {
		request.Revision = revision
		return request
	}, answer)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return answer, err
}

const (
	// nobodyPause and refusedPause are waits before another attempt: nobody serves, or the model was not understood.
	nobodyPause  = 20 * time.Millisecond
	refusedPause = 50 * time.Millisecond
	// refusalsBelieved is how often an optimiser may say that a request is wrong before it is believed. A model is written
	// entry by entry, and what one of them sees may be between two.
	refusalsBelieved = 3
)

// ask makes a request until it is answered or ctx ends. make builds it for a revision of the model.
func (e *engineering) ask(ctx context.Context, service string, patience time.Duration, make func(revision uint64) any, answer any) error {
	refusals := 0
	last := error(errNoOptimiser)
	for ctx.Err() == nil {
		revision, err := e.board.sync(ctx)
		if err != nil {
			return fmt.Errorf("traffic engineering: %w", err)
		}
		payload, err := json.Marshal(make(revision))
		if err != nil {
			return fmt.Errorf("traffic engineering: encode a request: %w", err)
		}
		reply, err := e.attempt(ctx, service, patience, payload)
		if err == nil {
			if err = json.Unmarshal(reply, answer); err == nil {
				return nil
			}
			return fmt.Errorf("traffic engineering: %s answered what is no answer: %w", service, err)
		}
		var refused *bus.RemoteError
		switch {
		case errors.As(err, &refused) && refused.Code == codeInfeasible:
			return fmt.Errorf("%w: %s", ErrInfeasible, refused.Message)
		case errors.As(err, &refused) && refused.Code == codeBehind:
			e.board.doubt()
		case errors.As(err, &refused):
			if refusals++; refusals == refusalsBelieved {
				return fmt.Errorf("traffic engineering refused the request: %s", refused.Message)
			}
			sleep(ctx, refusedPause)
		case errors.Is(err, bus.ErrNoSuchService):
			sleep(ctx, nobodyPause)
		case errors.Is(err, bus.ErrTooLarge):
			return fmt.Errorf("traffic engineering: %w", err)
		}
		if ctx.Err() == nil {
			last = err
		}
	}
	return fmt.Errorf("%w in time: %v", errNoOptimiser, last)
}

// attempt makes a request once. It ends early when an optimiser vanishes: that one may have had it.
func (e *engineering) attempt(ctx context.Context, service string, patience time.Duration, payload []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	lost, stop := e.lost.listen()
	defer stop()
	go func() {
		select {
		case <-lost:
			cancel()
		case <-ctx.Done():
		}
	}()
	return e.connection.Request(ctx, e.connection.Site(), service, payload)
}
