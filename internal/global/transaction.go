package global

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/fault"
)

// transactionService answers participants in doubt.
const transactionService = "transactions"

// prepareLife is how long a participant holds a reservation before it asks for the outcome.
const prepareLife = 10 * time.Second

// coordinator runs two-phase commit. Its log is one TransactionRecord for each open transaction; a transaction without
// one was aborted, or is committed at every participant.
type coordinator struct {
	g *Global

	mu     sync.Mutex
	open   map[string]*control.TransactionRecord
	number uint64
}

func newCoordinator(g *Global) *coordinator {
	return &coordinator{g: g, open: map[string]*control.TransactionRecord{}}
}

func transactionKey(id string) string { return bus.Key(transactionPrefix, id) }

// read reads the transactions that were open when the process ended.
func (c *coordinator) read(ctx context.Context) error {
	entries, err := c.g.store.List(ctx, transactionPrefix)
	if err != nil {
		return err
	}
	for _, e := range entries {
		record := &control.TransactionRecord{}
		if err := proto.Unmarshal(e.Value, record); err != nil {
			return fmt.Errorf("transaction %s is damaged: %w", e.Key, err)
		}
		c.open[record.Transaction] = record
	}
	return nil
}

// labels are those that open transactions are about.
func (c *coordinator) labels() map[chain.Label]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	used := map[chain.Label]bool{}
	for _, record := range c.open {
		for _, p := range record.Participants {
			used[chain.Label(p.Prepare.ChainLabel)] = true
		}
	}
	return used
}

// recover decides and finishes every open transaction: what was committed is carried out, all else is aborted.
func (c *coordinator) recover(ctx context.Context) {
	c.mu.Lock()
	records := slices.Collect(maps.Values(c.open))
	c.mu.Unlock()
	for _, record := range records {
		c.g.log.Info("an open transaction is recovered", "transaction", record.Transaction, "state", word(record.State))
		c.g.run.Add(1)
		go func() {
			defer c.g.run.Done()
			if record.State == control.TransactionState_TRANSACTION_STATE_PREPARING {
				if !c.decideUntilStored(ctx, record, control.TransactionState_TRANSACTION_STATE_ABORTED) {
					return
				}
			}
			c.finish(ctx, record)
		}()
	}
}

// decideUntilStored is decide that tries until the store takes it; false when ctx ended first.
func (c *coordinator) decideUntilStored(ctx context.Context, record *control.TransactionRecord, state control.TransactionState) bool {
	for c.decide(ctx, record, state) != nil {
		if !sleep(ctx, time.Second) {
			return false
		}
	}
	return true
}

// verdict is how a transaction ended.
type verdict struct {
	committed bool
	// rejections are the participants' refusals; unreachable names those that gave no answer, and why.
	rejections  []*control.Rejection
	unreachable []string
}

// newID names a transaction uniquely over restarts.
func (c *coordinator) newID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.number++
	return "t" + strconv.FormatInt(c.g.config.Now().UnixMicro(), 36) + "-" + strconv.FormatUint(c.number, 36)
}

// commit asks every participant to hold what a chain needs, and makes result the chain's record if all do. An error
// means that the transaction was not begun, or that the store failed before its outcome: then it is aborted.
func (c *coordinator) commit(ctx context.Context, key chain.Key, participants []*control.Participant, result *control.ChainRecord) (verdict, error) {
	record := &control.TransactionRecord{Transaction: c.newID(), State: control.TransactionState_TRANSACTION_STATE_PREPARING,
		Customer: string(key.Customer), Chain: key.Name, Participants: participants, Result: result}
	fault.Point("coordinator-before-preparing")
	if err := c.keep(ctx, record); err != nil {
		return verdict{}, err
	}
	fault.Point("coordinator-after-preparing")
	v := c.prepareAll(ctx, record)
	fault.Point("coordinator-before-decision")
	state := control.TransactionState_TRANSACTION_STATE_ABORTED
	if v.committed = len(v.rejections)+len(v.unreachable) == 0 && ctx.Err() == nil; v.committed {
		state = control.TransactionState_TRANSACTION_STATE_COMMITTED
	}
	if err := c.decide(ctx, record, state); err != nil {
		// Not known to be decided: whether it was stored is told at the next start, or by the next attempt.
		if !c.decideUntilStored(ctx, record, state) {
			return verdict{}, err
		}
	}
	fault.Point("coordinator-after-decision")
	c.g.run.Add(1)
	done := make(chan struct{})
	go func() {
		defer c.g.run.Done()
		c.finishNotifying(ctx, record, done)
	}()
	select {
	case <-done:
	case <-time.After(c.g.config.PrepareTimeout):
	}
	return v, ctx.Err()
}

// release gives back what a chain label holds at every participant: it needs no votes, so it is committed at once. The
// result becomes the chain's record.
func (c *coordinator) release(ctx context.Context, key chain.Key, participants []*control.Participant, result *control.ChainRecord) error {
	record := &control.TransactionRecord{Transaction: c.newID(), State: control.TransactionState_TRANSACTION_STATE_COMMITTED,
		Customer: string(key.Customer), Chain: key.Name, Participants: participants, Result: result}
	fault.Point("release-before-record")
	if err := c.keep(ctx, record); err != nil {
		return err
	}
	fault.Point("release-after-record")
	c.g.run.Add(1)
	go func() { defer c.g.run.Done(); c.finish(ctx, record) }()
	return nil
}

// keep makes a record durable, then known.
func (c *coordinator) keep(ctx context.Context, record *control.TransactionRecord) error {
	if err := put(ctx, c.g.store, transactionKey(record.Transaction), record); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[record.Transaction] = record
	return nil
}

func (c *coordinator) decide(ctx context.Context, record *control.TransactionRecord, state control.TransactionState) error {
	decided := proto.CloneOf(record)
	decided.State = state
	if err := put(ctx, c.g.store, transactionKey(record.Transaction), decided); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	record.State = state
	return nil
}

func (c *coordinator) prepareAll(ctx context.Context, record *control.TransactionRecord) verdict {
	type answer struct {
		participant *control.Participant
		reply       *control.ParticipantReply
		err         error
	}
	answers := make(chan answer, len(record.Participants))
	for _, p := range record.Participants {
		go func() {
			reply, err := c.ask(ctx, p, &control.ParticipantRequest{Transaction: record.Transaction,
				Step: &control.ParticipantRequest_Prepare{Prepare: p.Prepare}})
			answers <- answer{p, reply, err}
		}()
	}
	var v verdict
	for range record.Participants {
		a := <-answers
		fault.Point("coordinator-between-prepares")
		switch {
		case a.err != nil:
			v.unreachable = append(v.unreachable, fmt.Sprintf("%s at site %s: %s", a.participant.Service, a.participant.Site, plainError(a.err)))
		case !a.reply.Accepted:
			rejection := a.reply.Rejection
			if rejection == nil {
				rejection = &control.Rejection{Reason: "no reason given"}
			}
			if rejection.Participant == "" {
				rejection.Participant = a.participant.Service + "@" + a.participant.Site
			}
			v.rejections = append(v.rejections, rejection)
		}
	}
	slices.SortFunc(v.rejections, func(a, b *control.Rejection) int { return cmpString(a.Participant, b.Participant) })
	slices.Sort(v.unreachable)
	return v
}

// plainError is an error of the bus without its prefix.
func plainError(err error) string {
	for reason, text := range map[error]string{bus.ErrNoSuchService: "it does not run", bus.ErrSiteUnreachable: "the site cannot be reached",
		bus.ErrTimeout: "no answer in time", bus.ErrUnavailable: "the bus is away"} {
		if errors.Is(err, reason) {
			return text
		}
	}
	return err.Error()
}

// ask sends one step to a participant.
func (c *coordinator) ask(ctx context.Context, p *control.Participant, request *control.ParticipantRequest) (*control.ParticipantReply, error) {
	ctx, cancel := context.WithTimeout(ctx, c.g.config.PrepareTimeout)
	defer cancel()
	payload, err := marshal(request)
	if err != nil {
		return nil, err
	}
	answer, err := c.g.connection.Request(ctx, p.Site, p.Service, payload)
	if err != nil {
		return nil, err
	}
	reply := &control.ParticipantReply{}
	if err := proto.Unmarshal(answer, reply); err != nil {
		return nil, fmt.Errorf("the answer is no ParticipantReply: %w", err)
	}
	return reply, nil
}

// outcome answers a participant in doubt.
func (c *coordinator) outcome(_ context.Context, request bus.Request) ([]byte, error) {
	query := &control.TransactionQuery{}
	if err := proto.Unmarshal(request.Payload, query); err != nil {
		return nil, &bus.Error{Code: "invalid_argument", Message: "not a TransactionQuery: " + err.Error()}
	}
	c.mu.Lock()
	state := control.TransactionState_TRANSACTION_STATE_ABORTED
	if record := c.open[query.Transaction]; record != nil {
		state = record.State
	}
	c.mu.Unlock()
	return marshal(&control.TransactionOutcome{State: state})
}

// unfinished reports whether a committed transaction of the chain has not reached every participant: the next must wait
// for it, because participants keep reservations in the order of their commits.
func (c *coordinator) unfinished(key chain.Key) (waiting []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, record := range c.open {
		if record.State != control.TransactionState_TRANSACTION_STATE_COMMITTED || chainKey(record.Customer, record.Chain) != key {
			continue
		}
		for _, p := range record.Participants {
			if !p.Finished {
				waiting = append(waiting, p.Service+" at site "+p.Site)
			}
		}
		if len(waiting) == 0 {
			waiting = append(waiting, "its own store")
		}
	}
	slices.Sort(waiting)
	return slices.Compact(waiting)
}
