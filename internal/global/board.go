package global

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// modelBoard keeps the bucket that optimisers follow equal to what the Global Switchboard knows: the underlay, sites,
// VNFs, customers, and of every chain what it holds. It is written entry by entry as things change, and compared as a whole when the
// process starts.
type modelBoard struct {
	g     *Global
	store *bus.Store

	// writing is held while entries are written; what it guards follows.
	writing  sync.Mutex
	written  map[string][]byte // nil until the bucket was read
	revision uint64            // of the last change of the bucket

	mu      sync.Mutex // guards what follows
	chains  map[chain.Key]bool
	all     bool
	unsure  bool          // the bucket may not hold what was written
	pending chan struct{} // holds one token while entries may differ
}

func newModelBoard(g *Global, store *bus.Store) *modelBoard {
	b := &modelBoard{g: g, store: store, chains: map[chain.Key]bool{}, all: true, pending: make(chan struct{}, 1)}
	b.tell()
	return b
}

// changedChain says that what a chain holds has changed.
func (b *modelBoard) changedChain(key chain.Key) {
	b.mu.Lock()
	b.chains[key] = true
	b.mu.Unlock()
	b.tell()
}

// changedAll says that anything may have changed.
func (b *modelBoard) changedAll() {
	b.mu.Lock()
	b.all = true
	b.mu.Unlock()
	b.tell()
}

// doubt makes the next sync read the bucket again.
func (b *modelBoard) doubt() {
	b.mu.Lock()
	b.unsure = true
	b.mu.Unlock()
	b.tell()
}

func (b *modelBoard) tell() {
	select {
	case b.pending <- struct{}{}:
	default:
	}
}

// keep writes changes behind, so that a plan rarely has to.
func (b *modelBoard) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.pending:
			if _, err := b.sync(ctx); err != nil && ctx.Err() == nil {
				b.g.log.Warn("the model of traffic engineering cannot be written", "error", err)
				sleep(ctx, failureWait)
				b.doubt()
			}
		}
	}
}

// sync makes the bucket equal to what is known now, and returns a revision that has it all.
func (b *modelBoard) sync(ctx context.Context) (uint64, error) {
	b.writing.Lock()
	defer b.writing.Unlock()
	all, unsure, chains := b.take()
	if b.written == nil || unsure {
		if err := b.read(ctx); err != nil {
			b.doubt()
			return 0, err
		}
		all = true
	}
	entries := b.g.modelEntries(all, chains)
	if all {
		for key := range b.written {
			if _, wanted := entries[key]; !wanted {
				entries[key] = nil
			}
		}
	}
	// Additions go from what is referred to, removals the other way, so that no reference ever dangles.
	keys := slices.SortedFunc(maps.Keys(entries), compareEntries)
	removed := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return entries[key] != nil })
	slices.Reverse(removed)
	keys = append(slices.DeleteFunc(keys, func(key string) bool { return entries[key] == nil }), removed...)
	for _, key := range keys {
		if err := b.write(ctx, key, entries[key]); err != nil {
			b.doubt()
			return 0, err
		}
	}
	return b.revision, nil
}

func (b *modelBoard) take() (all, unsure bool, chains map[chain.Key]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, unsure, chains = b.all, b.unsure, b.chains
	b.all, b.unsure, b.chains = false, false, map[chain.Key]bool{}
	return all, unsure, chains
}

// read reads the bucket.
func (b *modelBoard) read(ctx context.Context) error {
	entries, err := b.store.List(ctx, "")
	if err != nil {
		return err
	}
	b.written, b.revision = map[string][]byte{}, 0
	for _, e := range entries {
		b.written[e.Key] = e.Value
		b.revision = max(b.revision, e.Revision)
	}
	return nil
}

// write sets an entry, or removes it where value is nil.
func (b *modelBoard) write(ctx context.Context, key string, value []byte) error {
	old, exists := b.written[key]
	if exists == (value != nil) && bytes.Equal(old, value) {
		return nil
	}
	var revision uint64
	var err error
	if value == nil {
		revision, err = b.store.Remove(ctx, key)
	} else {
		revision, err = b.store.Put(ctx, key, value)
	}
	if err != nil {
		return err
	}
	if revision <= b.revision {
		b.doubt() // the bucket was set back, such as by a site that was restored
	}
	b.revision = max(b.revision, revision)
	if value == nil {
		delete(b.written, key)
	} else {
		b.written[key] = value
	}
	return nil
}

// entryOrder is that in which kinds refer to each other.
const entryOrder = "network node link site vnf customer chain"

// compareEntries orders the keys of entries so that each comes after those it refers to.
func compareEntries(a, b string) int {
	kind := func(key string) int {
		word, _, _ := strings.Cut(key, ".")
		return strings.Index(entryOrder, word)
	}
	if d := kind(a) - kind(b); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

// modelEntries are the entries that should be in the bucket: of the chains given, or all. What should not be there is nil.
func (g *Global) modelEntries(all bool, chains map[chain.Key]bool) map[string][]byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	entries := map[string][]byte{}
	set := func(key string, value any) {
		text, err := json.Marshal(value)
		if err != nil {
			g.log.Error("an entry of the model cannot be encoded", "key", key, "error", err)
			return
		}
		entries[key] = text
	}
	if all {
		g.topologyEntries(set)
		chains = map[chain.Key]bool{}
		for key := range g.records {
			chains[key] = true
		}
	}
	for key := range chains {
		at := bus.Key("chain", string(key.Customer), key.Name)
		if held, ok := g.heldChain(key); ok {
			set(at, held)
		} else {
			entries[at] = nil
		}
	}
	return entries
}
