package global

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
)

// seedService gives Local Switchboards the secret of the forwarders' weighted consistent hash. The directory bears only its
// digest: agents that are no controllers, and people who use the API, see neither.
const seedService = "platform.selection-seed"

// seedLength is that of the hash's key, in bytes.
const seedLength = 16

// readSeed reads the selection seed. At the platform's first start, or where it is to be replaced, it makes one, which is
// durable before anybody hears of it.
func (g *Global) readSeed(ctx context.Context) error {
	entry, err := g.store.Get(ctx, seedKey)
	switch {
	case err == nil && len(entry.Value) != seedLength:
		return fmt.Errorf("selection seed: %d bytes are stored, not %d; start once with --new-selection-seed", len(entry.Value), seedLength)
	case err == nil && !g.config.NewSelectionSeed:
		g.seed = entry.Value
		return nil
	case err != nil && !errors.Is(err, bus.ErrNotFound):
		return err
	}
	seed := make([]byte, seedLength)
	if _, err := rand.Read(seed); err != nil {
		return fmt.Errorf("selection seed: %w", err)
	}
	if _, err := g.store.Put(ctx, seedKey, seed); err != nil {
		return err
	}
	g.seed = seed
	return nil
}

// platformRecord tells sites which seed is in force.
func (g *Global) platformRecord() *control.PlatformRecord {
	digest := sha256.Sum256(g.seed)
	return &control.PlatformRecord{SelectionSeedDigest: digest[:]}
}

// giveSeed answers a Local Switchboard. The bus lets no other agent ask.
func (g *Global) giveSeed(context.Context, bus.Request) ([]byte, error) {
	return marshal(&control.SelectionSeed{Seed: g.seed})
}
