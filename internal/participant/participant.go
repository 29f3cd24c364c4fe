// Package participant is a participant's half of two-phase commit: it holds what a transaction asks for until the
// coordinator decides, and survives its own death at every step.
//
// Invariants: what was answered is durable; a transaction's outcome, once known, never changes; a reservation in doubt is
// held until the coordinator tells its outcome; per chain label the reservation committed last is in force.
//
// The package knows neither VNFs nor edges: what is admitted is its owner's decision (Config.Admit).
package participant

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
)

// Store is the durable bucket of a participant; *bus.Store is one.
type Store interface {
	Put(ctx context.Context, key string, value []byte) (uint64, error)
	Delete(ctx context.Context, key string) error
	List(ctx context.Context, prefix string) ([]bus.Entry, error)
}

// Config says what a participant is made of.
type Config struct {
	// Name is what rejections bear: "vnf.firewall", "edge@<site>".
	Name  string
	Store Store
	// Admit says whether a request fits beside what others hold; nil accepts. It must not keep the slices.
	Admit func(request *control.Prepare, held []*control.Prepare) *control.Rejection
	// Apply brings the world in line with the reservations in force. It is called with every change before the change is
	// answered, and at the start; an error leaves the commit unanswered, to be repeated.
	Apply func(ctx context.Context, inForce []*control.Prepare) error
	// Ask asks the coordinator for a transaction's outcome.
	Ask func(ctx context.Context, coordinatorSite, transaction string) (control.TransactionState, error)
	// Fault is called at named steps; tests end the participant there. May be nil.
	Fault  func(step string)
	Now    func() time.Time
	Logger *slog.Logger
}

// Participant answers the steps of two-phase commit. Safe for concurrent use.
type Participant struct {
	config Config

	mu       sync.Mutex
	records  map[string]*control.ReservationRecord // by transaction
	sequence uint64
}

// tombstoneLife is how long a finished transaction is remembered so that late and repeated messages are recognised.
const tombstoneLife = 24 * time.Hour

// Open reads what the participant held when it last ran.
func Open(ctx context.Context, config Config) (*Participant, error) {
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.Fault == nil {
		config.Fault = func(string) {}
	}
	p := &Participant{config: config, records: map[string]*control.ReservationRecord{}}
	entries, err := config.Store.List(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("%s: read reservations: %w", config.Name, err)
	}
	for _, e := range entries {
		record := &control.ReservationRecord{}
		if err := proto.Unmarshal(e.Value, record); err != nil || e.Key != key(record.Transaction) {
			return nil, fmt.Errorf("%s: reservation %q is damaged; remove the key to forget it", config.Name, e.Key)
		}
		p.records[record.Transaction] = record
		p.sequence = max(p.sequence, record.Sequence)
	}
	if err := p.forget(ctx); err != nil {
		return nil, err
	}
	return p, config.Apply(ctx, p.InForce())
}

func key(transaction string) string { return bus.Key(transaction) }

// Handle answers one step. An error means that the outcome is not durable and the step must be repeated.
func (p *Participant) Handle(ctx context.Context, request *control.ParticipantRequest) (*control.ParticipantReply, error) {
	if request.Transaction == "" {
		return p.reject("transaction: empty; give the transaction's identifier"), nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch step := request.Step.(type) {
	case *control.ParticipantRequest_Prepare:
		return p.prepare(ctx, request.Transaction, step.Prepare)
	case *control.ParticipantRequest_Commit:
		return p.commit(ctx, request.Transaction)
	case *control.ParticipantRequest_Abort:
		return p.abort(ctx, request.Transaction)
	}
	return p.reject("step: not set; give prepare, commit or abort"), nil
}

func (p *Participant) reject(format string, a ...any) *control.ParticipantReply {
	return &control.ParticipantReply{Rejection: &control.Rejection{Participant: p.config.Name, Reason: fmt.Sprintf(format, a...)}}
}

var accepted = &control.ParticipantReply{Accepted: true}

func (p *Participant) prepare(ctx context.Context, transaction string, request *control.Prepare) (*control.ParticipantReply, error) {
	if request == nil || request.Customer == "" || request.Chain == "" {
		return p.reject("prepare: customer and chain must be given"), nil
	}
	if record := p.records[transaction]; record != nil {
		switch {
		case record.State == control.TransactionState_TRANSACTION_STATE_ABORTED:
			return p.reject("transaction %s was aborted", transaction), nil
		case record.State == control.TransactionState_TRANSACTION_STATE_PREPARING && !proto.Equal(record.Prepare, request):
			return p.reject("transaction %s was prepared with another content", transaction), nil
		}
		return accepted, nil
	}
	if rejection := p.config.Admit(request, p.heldByOthers(request)); rejection != nil {
		rejection.Participant = p.config.Name
		return &control.ParticipantReply{Rejection: rejection}, nil
	}
	p.config.Fault("prepare-before-store")
	err := p.store(ctx, &control.ReservationRecord{Transaction: transaction, Prepare: request,
		State: control.TransactionState_TRANSACTION_STATE_PREPARING})
	p.config.Fault("prepare-after-store")
	return accepted, err
}

// heldByOthers are all reservations but those for the same version of the same chain.
func (p *Participant) heldByOthers(request *control.Prepare) []*control.Prepare {
	var held []*control.Prepare
	for _, record := range p.records {
		if q := record.Prepare; q != nil && versionOf(q) != versionOf(request) {
			held = append(held, q)
		}
	}
	return held
}

type version struct {
	customer, chain string
	label           uint32
}

func versionOf(p *control.Prepare) version { return version{p.Customer, p.Chain, p.ChainLabel} }

func (p *Participant) commit(ctx context.Context, transaction string) (*control.ParticipantReply, error) {
	record := p.records[transaction]
	switch {
	case record == nil:
		return p.reject("transaction %s was never prepared here", transaction), nil
	case record.State == control.TransactionState_TRANSACTION_STATE_ABORTED:
		return p.reject("transaction %s was aborted", transaction), nil
	case record.State == control.TransactionState_TRANSACTION_STATE_PREPARING:
		p.config.Fault("commit-before-store")
		committed := proto.CloneOf(record)
		committed.State = control.TransactionState_TRANSACTION_STATE_COMMITTED
		committed.Sequence = p.sequence + 1
		if err := p.store(ctx, committed); err != nil {
			return nil, err
		}
		p.sequence++
		p.config.Fault("commit-after-store")
	}
	if err := p.config.Apply(ctx, p.inForce()); err != nil {
		return nil, err
	}
	p.config.Fault("commit-after-apply")
	return accepted, p.release(ctx)
}

func (p *Participant) abort(ctx context.Context, transaction string) (*control.ParticipantReply, error) {
	record := p.records[transaction]
	if record != nil && record.State == control.TransactionState_TRANSACTION_STATE_COMMITTED {
		return p.reject("transaction %s was committed", transaction), nil
	}
	if record != nil && record.State == control.TransactionState_TRANSACTION_STATE_ABORTED {
		return accepted, nil
	}
	p.config.Fault("abort-before-store")
	err := p.store(ctx, &control.ReservationRecord{Transaction: transaction, State: control.TransactionState_TRANSACTION_STATE_ABORTED})
	p.config.Fault("abort-after-store")
	return accepted, err
}

// store makes a record durable, then known.
func (p *Participant) store(ctx context.Context, record *control.ReservationRecord) error {
	record.TimeUnixMs = p.config.Now().UnixMilli()
	value, err := proto.Marshal(record)
	if err == nil {
		_, err = p.config.Store.Put(ctx, key(record.Transaction), value)
	}
	if err != nil {
		return fmt.Errorf("%s: keep transaction %s: %w", p.config.Name, record.Transaction, err)
	}
	p.records[record.Transaction] = record
	return nil
}

// InForce are the committed reservations: per chain version the last, where it holds anything.
func (p *Participant) InForce() []*control.Prepare {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inForce()
}

func (p *Participant) inForce() []*control.Prepare {
	var all []*control.Prepare
	for _, record := range p.newest() {
		if len(record.Prepare.Allocations)+len(record.Prepare.Edges) > 0 {
			all = append(all, record.Prepare)
		}
	}
	return all
}

func (p *Participant) newest() map[version]*control.ReservationRecord {
	newest := map[version]*control.ReservationRecord{}
	for _, record := range p.records {
		if record.State != control.TransactionState_TRANSACTION_STATE_COMMITTED || record.Prepare == nil {
			continue
		}
		v := versionOf(record.Prepare)
		if newest[v] == nil || record.Sequence > newest[v].Sequence {
			newest[v] = record
		}
	}
	return newest
}

// release empties committed reservations that a later one replaced, or that hold nothing.
func (p *Participant) release(ctx context.Context) error {
	newest := p.newest()
	for _, record := range p.records {
		if record.State != control.TransactionState_TRANSACTION_STATE_COMMITTED || record.Prepare == nil {
			continue
		}
		last := newest[versionOf(record.Prepare)]
		if record == last && len(record.Prepare.Allocations)+len(record.Prepare.Edges) > 0 {
			continue
		}
		emptied := proto.CloneOf(record)
		emptied.Prepare = nil
		// The newest is emptied last: until then it must outrank those it replaced.
		if record == last && p.replaces(record) {
			continue
		}
		if err := p.store(ctx, emptied); err != nil {
			return err
		}
	}
	return nil
}

// replaces reports whether another committed record of the same version still has content.
func (p *Participant) replaces(last *control.ReservationRecord) bool {
	for _, record := range p.records {
		if record != last && record.State == control.TransactionState_TRANSACTION_STATE_COMMITTED && record.Prepare != nil &&
			versionOf(record.Prepare) == versionOf(last.Prepare) {
			return true
		}
	}
	return false
}

// forget drops finished transactions that nobody will ask about any more.
func (p *Participant) forget(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.release(ctx); err != nil {
		return err
	}
	for transaction, record := range p.records {
		old := p.config.Now().Sub(time.UnixMilli(record.TimeUnixMs)) > tombstoneLife
		if record.Prepare == nil && record.State != control.TransactionState_TRANSACTION_STATE_PREPARING && old {
			if err := p.config.Store.Delete(ctx, key(transaction)); err != nil {
				return err
			}
			delete(p.records, transaction)
		}
	}
	return nil
}

// Resolve asks for the outcome of every transaction whose deadline has passed; those whose coordinator cannot tell are
// held on. The errors say why.
func (p *Participant) Resolve(ctx context.Context) error {
	var failures []error
	for transaction, site := range p.inDoubt() {
		state, err := p.config.Ask(ctx, site, transaction)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: outcome of transaction %s: %w", p.config.Name, transaction, err))
			continue
		}
		request := &control.ParticipantRequest{Transaction: transaction}
		switch state {
		case control.TransactionState_TRANSACTION_STATE_PREPARING:
			continue
		case control.TransactionState_TRANSACTION_STATE_COMMITTED:
			request.Step = &control.ParticipantRequest_Commit{Commit: &control.Commit{}}
		default: // a coordinator that knows nothing of it never decided to commit
			request.Step = &control.ParticipantRequest_Abort{Abort: &control.Abort{}}
		}
		if _, err := p.Handle(ctx, request); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

func (p *Participant) inDoubt() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	doubtful := map[string]string{}
	now := p.config.Now().UnixMilli()
	for transaction, record := range p.records {
		if record.State == control.TransactionState_TRANSACTION_STATE_PREPARING && now > record.Prepare.DeadlineUnixMs {
			doubtful[transaction] = record.Prepare.CoordinatorSite
		}
	}
	return doubtful
}
