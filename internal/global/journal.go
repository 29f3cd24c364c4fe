package global

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/fault"
	"github.com/switchboard-project/switchboard/internal/resource"
)

// storeAll stores resources all or none: the journal decides, and carrying it out can be repeated.
func (g *Global) storeAll(ctx context.Context, messages []*api.Resource) error {
	if len(messages) == 0 {
		return nil
	}
	journal := &control.ApplyJournal{Resources: messages, TimeUnixMs: g.config.Now().UnixMilli()}
	value, err := marshal(journal)
	if err != nil {
		return err
	}
	fault.Point("apply-before-journal")
	if _, err := g.store.Create(ctx, journalKey, value); err != nil {
		if errors.Is(err, bus.ErrConflict) {
			// An earlier apply was decided, and its storing failed half-way: it comes first.
			if err := g.finishJournal(ctx); err != nil {
				return err
			}
			_, err = g.store.Create(ctx, journalKey, value)
		}
		if err != nil {
			return fmt.Errorf("store the apply: %w", err)
		}
	}
	fault.Point("apply-after-journal")
	return g.carryOut(ctx, journal)
}

func (g *Global) carryOut(ctx context.Context, journal *control.ApplyJournal) error {
	for i, message := range journal.Resources {
		if err := put(ctx, g.store, resourceKey(resource.KeyOf(message)), message); err != nil {
			return fmt.Errorf("store the apply: %w", err)
		}
		if i == 0 {
			fault.Point("apply-between-resources")
		}
	}
	fault.Point("apply-before-journal-end")
	return g.store.Delete(ctx, journalKey)
}

// finishJournal carries out an apply that was decided when the process ended.
func (g *Global) finishJournal(ctx context.Context) error {
	entry, err := g.store.Get(ctx, journalKey)
	if errors.Is(err, bus.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	journal := &control.ApplyJournal{}
	if err := proto.Unmarshal(entry.Value, journal); err != nil {
		return fmt.Errorf("the apply journal is damaged: %w", err)
	}
	g.log.Info("an apply that was cut short is finished", "resources", len(journal.Resources))
	g.mu.Lock()
	for _, message := range journal.Resources {
		g.remember(message)
	}
	g.mu.Unlock()
	return g.carryOut(ctx, journal)
}
