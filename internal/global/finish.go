package global

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/fault"
)

const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
	// abortPatience is how long an abort is told to participants that do not answer. They ask when their deadline passes.
	abortPatience = 30 * time.Second
)

func cmpString(a, b string) int { return strings.Compare(a, b) }

// word is an enumeration's value without its prefix.
func word(state control.TransactionState) string {
	return strings.ToLower(strings.TrimPrefix(state.String(), "TRANSACTION_STATE_"))
}

// sleep waits; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// finish carries out a decided transaction until every participant has confirmed it, then forgets it.
func (c *coordinator) finish(ctx context.Context, record *control.TransactionRecord) {
	c.finishNotifying(ctx, record, make(chan struct{}))
}

// finishNotifying closes told when the record is published and every participant was asked once.
func (c *coordinator) finishNotifying(ctx context.Context, record *control.TransactionRecord, told chan struct{}) {
	committed := record.State == control.TransactionState_TRANSACTION_STATE_COMMITTED
	began := time.Now()
	wait := firstRetry
	for first := true; ; first = false {
		done := c.round(ctx, record, committed)
		if first {
			close(told)
		}
		if done || !committed && time.Since(began) > abortPatience {
			break
		}
		if !sleep(ctx, wait) {
			return
		}
		wait = min(2*wait, lastRetry)
	}
	fault.Point("coordinator-before-forget")
	for c.g.store.Delete(ctx, transactionKey(record.Transaction)) != nil {
		if !sleep(ctx, lastRetry) {
			return
		}
	}
	c.mu.Lock()
	delete(c.open, record.Transaction)
	c.mu.Unlock()
	c.g.kick(chainKey(record.Customer, record.Chain))
}

// round publishes the result and tells everybody who has not confirmed; true when nothing is left to do.
func (c *coordinator) round(ctx context.Context, record *control.TransactionRecord, committed bool) bool {
	if committed {
		if err := c.g.publishRecord(ctx, record.Result); err != nil {
			c.g.log.Warn("a chain's record cannot be published", "transaction", record.Transaction, "error", err)
			return false
		}
		fault.Point("coordinator-after-publish")
	}
	results := make(chan bool, len(record.Participants))
	asked := 0
	for _, p := range record.Participants {
		c.mu.Lock()
		finished := p.Finished
		c.mu.Unlock()
		if finished {
			continue
		}
		asked++
		go func() { results <- c.tell(ctx, record, p, committed) }()
	}
	all := true
	for range asked {
		all = <-results && all
		fault.Point("coordinator-between-outcomes")
	}
	return all
}

// tell gives a participant the outcome; true when it has confirmed.
func (c *coordinator) tell(ctx context.Context, record *control.TransactionRecord, p *control.Participant, committed bool) bool {
	request := &control.ParticipantRequest{Transaction: record.Transaction, Step: &control.ParticipantRequest_Abort{Abort: &control.Abort{}}}
	if committed {
		request.Step = &control.ParticipantRequest_Commit{Commit: &control.Commit{}}
	}
	reply, err := c.ask(ctx, p, request)
	if err == nil && !reply.Accepted && committed {
		// It knows nothing of the reservation: a release that was never prepared, or it lost its state.
		prepare := &control.ParticipantRequest{Transaction: record.Transaction, Step: &control.ParticipantRequest_Prepare{Prepare: p.Prepare}}
		if reply, err = c.ask(ctx, p, prepare); err == nil && reply.Accepted {
			reply, err = c.ask(ctx, p, request)
		}
	}
	if err != nil {
		return false
	}
	if !reply.Accepted {
		c.g.events.add(chainKey(record.Customer, record.Chain), warning, "ParticipantDiverged",
			p.Service+" at site "+p.Site+" refuses the outcome "+word(record.State)+": "+reply.Rejection.GetReason(), sourceGlobal)
		if committed {
			return false
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.Finished = true
	return true
}

// publishRecord publishes a chain's record unless a newer one is: carrying out a transaction twice changes nothing.
func (g *Global) publishRecord(ctx context.Context, record *control.ChainRecord) error {
	key := chainKey(record.Customer, record.Chain)
	g.mu.Lock()
	old := g.records[key]
	g.mu.Unlock()
	if old != nil && old.Revision >= record.Revision {
		return nil
	}
	if err := put(ctx, g.published, recordKey(key), record); err != nil {
		return err
	}
	g.mu.Lock()
	if now := g.records[key]; now == nil || now.Revision < record.Revision {
		g.records[key] = proto.CloneOf(record)
	}
	delete(g.planned, key)
	g.mu.Unlock()
	g.board.changedChain(key)
	g.changes.tell()
	g.kick(key)
	return nil
}

// nextRevision grows with every change of a record, also over its deletion.
func (g *Global) nextRevision(old *control.ChainRecord) uint64 {
	return max(old.GetRevision()+1, uint64(g.config.Now().UnixMilli()))
}

// withdrawRecord removes the record of a chain that has ended.
func (g *Global) withdrawRecord(ctx context.Context, key chain.Key) error {
	if err := g.published.Delete(ctx, recordKey(key)); err != nil {
		return err
	}
	g.mu.Lock()
	delete(g.records, key)
	g.mu.Unlock()
	g.board.changedChain(key)
	return nil
}
