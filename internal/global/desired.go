package global

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/resource"
)

// Keys of the Global Switchboard's own bucket.
const (
	resourcePrefix    = "resource"    // resource.<kind>.<customer or ->.<name>: api.Resource
	statePrefix       = "state"       // state.<customer>.<chain>: ChainState
	labelPrefix       = "label"       // label.<number>: who holds it, and for which VNFs
	transactionPrefix = "transaction" // transaction.<id>: TransactionRecord
	journalKey        = "apply"       // ApplyJournal, while an apply is being stored
	seedKey           = "selection-seed"
)

func owner(customer chain.CustomerName) string {
	if customer == "" {
		return "-"
	}
	return string(customer)
}

func resourceKey(k chain.Key) string {
	return bus.Key(resourcePrefix, string(k.Kind), owner(k.Customer), k.Name)
}

func stateKey(k chain.Key) string { return bus.Key(statePrefix, string(k.Customer), k.Name) }

// recordKey is where a chain's record is published.
func recordKey(k chain.Key) string { return bus.Key("chain", string(k.Customer), k.Name) }

func chainKey(customer, name string) chain.Key {
	return chain.Key{Kind: chain.KindChain, Customer: chain.CustomerName(customer), Name: name}
}

// marshal encodes a message the same way every time.
func marshal(message proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(message)
}

func put(ctx context.Context, store *bus.Store, key string, message proto.Message) error {
	value, err := marshal(message)
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	_, err = store.Put(ctx, key, value)
	return err
}

// readResources reads what was applied.
func (g *Global) readResources(ctx context.Context) error {
	entries, err := g.store.List(ctx, resourcePrefix)
	if err != nil {
		return err
	}
	for _, e := range entries {
		message := &api.Resource{}
		if err := proto.Unmarshal(e.Value, message); err != nil {
			return fmt.Errorf("resource %s is damaged: %w", e.Key, err)
		}
		g.remember(message)
	}
	return nil
}

// remember takes a stored resource into memory. What was stored passed every check.
func (g *Global) remember(message *api.Resource) {
	parsed, ok := resource.Parse(message, &chain.Findings{})
	if !ok {
		g.log.Error("a stored resource has no kind", "name", message.GetMetadata().GetName())
		return
	}
	g.world[parsed.Key] = parsed
	g.messages[parsed.Key] = message
}

// readChains reads the chains' states and published records.
func (g *Global) readChains(ctx context.Context) error {
	states, err := g.store.List(ctx, statePrefix)
	if err != nil {
		return err
	}
	for _, e := range states {
		state := &control.ChainState{}
		if err := proto.Unmarshal(e.Value, state); err != nil {
			return fmt.Errorf("state %s is damaged: %w", e.Key, err)
		}
		g.states[chainKey(state.Customer, state.Chain)] = state
	}
	records, err := g.published.List(ctx, "chain")
	if err != nil {
		return err
	}
	for _, e := range records {
		record := &control.ChainRecord{}
		if err := proto.Unmarshal(e.Value, record); err != nil {
			return fmt.Errorf("record %s is damaged: %w", e.Key, err)
		}
		g.records[chainKey(record.Customer, record.Chain)] = record
	}
	// A chain whose state was not stored before the process ended begins anew.
	for _, key := range g.world.Keys(chain.KindChain) {
		if g.states[key] == nil {
			g.states[key] = g.newState(key)
		}
	}
	return nil
}

func (g *Global) newState(key chain.Key) *control.ChainState {
	return &control.ChainState{Customer: string(key.Customer), Chain: key.Name, RequestedUnixMs: g.config.Now().UnixMilli(),
		Status: &api.ChainStatus{Phase: api.ChainPhase_CHAIN_PHASE_REQUESTED}}
}
