package participant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
)

// memory is a store that outlives participants.
type memory struct {
	mu     sync.Mutex
	values map[string][]byte
	broken error // what every write fails with
}

func (m *memory) Put(_ context.Context, key string, value []byte) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken != nil {
		return 0, m.broken
	}
	m.values[key] = slices.Clone(value)
	return 1, nil
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, key)
	return m.broken
}

func (m *memory) List(context.Context, string) ([]bus.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []bus.Entry
	for k, v := range m.values {
		all = append(all, bus.Entry{Key: k, Value: v})
	}
	return all, nil
}

// rig is a participant that guards ten units, and dies when told.
type rig struct {
	t        *testing.T
	store    *memory
	outcomes map[string]control.TransactionState // what the coordinator answers
	unheard  bool                                // the coordinator does not answer
	dieAt    string
	now      time.Time
	applied  []*control.Prepare
	p        *Participant
}

type death struct{ step string }

func newRig(t *testing.T) *rig {
	r := &rig{t: t, store: &memory{values: map[string][]byte{}}, outcomes: map[string]control.TransactionState{}, now: time.Unix(1000, 0)}
	r.restart()
	return r
}

func (r *rig) restart() {
	r.t.Helper()
	p, err := Open(context.Background(), Config{
		Name: "vnf.test", Store: r.store, Admit: r.admit,
		Apply: func(_ context.Context, inForce []*control.Prepare) error { r.applied = inForce; return nil },
		Ask: func(_ context.Context, site, transaction string) (control.TransactionState, error) {
			if r.unheard {
				return 0, errors.New("unreachable")
			}
			return r.outcomes[transaction], nil
		},
		Fault: func(step string) {
			if step == r.dieAt {
				panic(death{step})
			}
		},
		Now: func() time.Time { return r.now },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.p = p
}

func (r *rig) admit(request *control.Prepare, held []*control.Prepare) *control.Rejection {
	sum := 0.0
	for _, h := range append(held, request) {
		for _, a := range h.Allocations {
			sum += a.Loads[0].Load
		}
	}
	if sum > 10 {
		return &control.Rejection{Reason: "full", Requested: sum, Available: 10}
	}
	return nil
}

func prepare(chain string, load float64) *control.ParticipantRequest_Prepare {
	p := &control.Prepare{Customer: "acme", Chain: chain, ChainLabel: 16, CoordinatorSite: "core", DeadlineUnixMs: time.Unix(1005, 0).UnixMilli()}
	if load > 0 {
		p.Allocations = []*control.Allocation{{Position: 1, Loads: []*control.SiteLoad{{Site: "edge", Load: load}}}}
	}
	return &control.ParticipantRequest_Prepare{Prepare: p}
}

var (
	commit = &control.ParticipantRequest_Commit{Commit: &control.Commit{}}
	abort  = &control.ParticipantRequest_Abort{Abort: &control.Abort{}}
)

// do sends a step; it reports what came back, or that the participant died.
func (r *rig) do(transaction string, step any) (reply *control.ParticipantReply, died bool) {
	r.t.Helper()
	request := &control.ParticipantRequest{Transaction: transaction}
	switch s := step.(type) {
	case *control.ParticipantRequest_Prepare:
		request.Step = s
	case *control.ParticipantRequest_Commit:
		request.Step = s
	case *control.ParticipantRequest_Abort:
		request.Step = s
	}
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(death); !ok {
				panic(p)
			}
			reply, died = nil, true
		}
	}()
	reply, err := r.p.Handle(context.Background(), request)
	if err != nil {
		r.t.Fatal(err)
	}
	return reply, false
}

func (r *rig) accept(transaction string, step any) {
	r.t.Helper()
	if reply, died := r.do(transaction, step); died || !reply.Accepted {
		r.t.Fatalf("%s %T: died %v, %v", transaction, step, died, reply.GetRejection())
	}
}

func (r *rig) refuse(transaction string, step any, reason string) {
	r.t.Helper()
	reply, died := r.do(transaction, step)
	if died || reply.Accepted || !strings.Contains(reply.Rejection.Reason, reason) || reply.Rejection.Participant != "vnf.test" {
		r.t.Fatalf("%s %T: died %v, %v; want a refusal with %q", transaction, step, died, reply, reason)
	}
}

// inForce lists chains and loads of the reservations in force.
func (r *rig) inForce() string {
	var all []string
	for _, p := range r.p.InForce() {
		all = append(all, fmt.Sprintf("%s:%g", p.Chain, p.Allocations[0].Loads[0].Load))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (r *rig) want(inForce string) {
	r.t.Helper()
	if got := r.inForce(); got != inForce {
		r.t.Errorf("in force: %q, want %q", got, inForce)
	}
	if len(r.applied) != len(r.p.InForce()) {
		r.t.Errorf("%d reservations applied, %d in force", len(r.applied), len(r.p.InForce()))
	}
}

func TestReservationsReplaceAndRelease(t *testing.T) {
	r := newRig(t)
	r.accept("t1", prepare("web", 6))
	r.want("")
	r.accept("t1", commit)
	r.want("web:6")
	r.refuse("t2", prepare("mail", 5), "full")
	r.accept("t3", prepare("web", 8)) // replaces what the same version has
	r.want("web:6")
	r.accept("t3", commit)
	r.want("web:8")
	r.accept("t1", commit) // repeated after it was replaced
	r.want("web:8")
	r.accept("t4", prepare("web", 0))
	r.accept("t4", commit)
	r.want("")
	r.accept("t5", prepare("mail", 10))
}

func TestEveryStepMayBeRepeated(t *testing.T) {
	r := newRig(t)
	for range 2 {
		r.accept("t1", prepare("web", 6))
	}
	r.refuse("t1", prepare("web", 7), "another content")
	for range 2 {
		r.accept("t1", commit)
	}
	r.accept("t1", prepare("web", 6)) // late
	r.refuse("t1", abort, "was committed")
	for range 2 {
		r.accept("t2", abort)
	}
	r.refuse("t2", prepare("mail", 1), "was aborted")
	r.refuse("t2", commit, "was aborted")
	r.refuse("t3", commit, "never prepared")
	r.want("web:6")
}

func TestDeathAtEveryStepLosesNothing(t *testing.T) {
	for _, dieAt := range []string{"prepare-before-store", "prepare-after-store", "commit-before-store", "commit-after-store",
		"commit-after-apply", "abort-before-store", "abort-after-store"} {
		for _, outcome := range []any{commit, abort} {
			t.Run(fmt.Sprintf("%s/%T", dieAt, outcome), func(t *testing.T) {
				r := newRig(t)
				r.dieAt = dieAt
				// The coordinator sends each step again until it is answered.
				for _, step := range []any{prepare("web", 6), outcome} {
					for tries := 0; ; tries++ {
						reply, died := r.do("t1", step)
						if !died {
							if !reply.Accepted {
								t.Fatalf("%T refused: %v", step, reply.Rejection)
							}
							break
						}
						if tries == 1 {
							t.Fatal("died twice")
						}
						r.dieAt = ""
						r.restart()
					}
				}
				r.restart()
				if outcome == any(commit) {
					r.want("web:6")
				} else {
					r.want("")
					r.accept("t2", prepare("mail", 10))
				}
			})
		}
	}
}

func TestDoubtIsResolvedByTheCoordinatorAlone(t *testing.T) {
	for _, c := range []struct {
		name    string
		outcome control.TransactionState
		want    string
		held    bool
	}{
		{"committed", control.TransactionState_TRANSACTION_STATE_COMMITTED, "web:6", true},
		{"aborted", control.TransactionState_TRANSACTION_STATE_ABORTED, "", false},
		{"still preparing", control.TransactionState_TRANSACTION_STATE_PREPARING, "", true},
		{"unknown to it", control.TransactionState_TRANSACTION_STATE_UNSPECIFIED, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.outcomes["t1"] = c.outcome
			r.accept("t1", prepare("web", 6))
			if err := r.p.Resolve(context.Background()); err != nil {
				t.Fatal(err)
			}
			r.want("") // the deadline has not passed
			r.now = r.now.Add(time.Minute)
			r.unheard = true
			if err := r.p.Resolve(context.Background()); err == nil {
				t.Fatal("no error although the coordinator is silent")
			}
			r.refuse("t2", prepare("mail", 5), "full") // held while in doubt
			r.restart()
			r.unheard = false
			if err := r.p.Resolve(context.Background()); err != nil {
				t.Fatal(err)
			}
			r.want(c.want)
			if c.held {
				r.refuse("t3", prepare("mail", 5), "full")
			} else {
				r.accept("t3", prepare("mail", 5))
			}
		})
	}
}

func TestNothingIsAnsweredThatIsNotDurable(t *testing.T) {
	r := newRig(t)
	r.accept("t1", prepare("web", 6))
	r.store.broken = errors.New("disk full")
	for _, step := range []*control.ParticipantRequest{{Transaction: "t1", Step: commit}, {Transaction: "t1", Step: abort},
		{Transaction: "t2", Step: prepare("mail", 1)}} {
		if reply, err := r.p.Handle(context.Background(), step); err == nil {
			t.Errorf("%T answered %v without being durable", step.Step, reply)
		}
	}
	r.store.broken = nil
	r.want("")
	r.accept("t1", commit)
	r.want("web:6")
}

func TestFinishedTransactionsAreForgottenAfterADay(t *testing.T) {
	r := newRig(t)
	r.accept("t1", prepare("web", 6))
	r.accept("t1", commit)
	r.accept("t2", abort)
	r.now = r.now.Add(tombstoneLife + time.Minute)
	r.restart()
	if n := len(r.store.values); n != 1 {
		t.Errorf("%d records kept, want the one in force", n)
	}
	r.want("web:6")
}

func TestMalformedRequestsAreRefused(t *testing.T) {
	r := newRig(t)
	r.refuse("", prepare("web", 1), "transaction: empty")
	r.refuse("t1", nil, "step: not set")
	r.refuse("t1", &control.ParticipantRequest_Prepare{Prepare: &control.Prepare{}}, "customer and chain")
}
