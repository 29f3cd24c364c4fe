package site

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
)

// TestSelectionSeedIsTheSameEverywhere: sites get the platform's secret, keep it over a restart without the Global
// Switchboard, and take a new one. A service of the same site gets neither the secret nor the rules that have it.
func TestSelectionSeedIsTheSameEverywhere(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	w := newWorld(t, "office", "cloud")
	var current atomic.Pointer[[]byte]
	global := w.sites[globalSite].connection
	give := func(seed []byte) {
		current.Store(&seed)
		digest := sha256.Sum256(seed)
		w.tell("directory.platform", &control.PlatformRecord{SelectionSeedDigest: digest[:]})
	}
	err := global.Serve(seedService, func(context.Context, bus.Request) ([]byte, error) {
		return proto.Marshal(&control.SelectionSeed{Seed: *current.Load()})
	})
	if err != nil {
		t.Fatal(err)
	}
	everywhere := func(what string, seed []byte) {
		t.Helper()
		w.eventually(what, func() bool {
			for _, s := range w.sites {
				if set := s.forwarder.current(); set == nil || !bytes.Equal(set.SelectionSeed, seed) {
					return false
				}
			}
			return true
		})
	}
	first, second := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	give(first)
	everywhere("the seed is in the rules of all sites", first)
	give(second)
	everywhere("a new seed replaces it", second)

	for name, s := range w.sites {
		service := s.connect("nosy", bus.KindService)
		if _, err := service.Request(w.ctx, globalSite, seedService, nil); !errors.Is(err, bus.ErrDenied) {
			t.Errorf("a service of %s asks for the seed: %v, want a denial", name, err)
		}
		if _, err := service.Local(rulesBucket).Get(w.ctx, "f1"); !errors.Is(err, bus.ErrDenied) {
			t.Errorf("a service of %s reads a forwarder's rules: %v, want a denial", name, err)
		}
		service.Close()
	}

	global.Unserve(seedService)
	office := w.sites["office"]
	before := office.forwarder.current()
	office.stop()
	office.start()
	w.tell("directory.platform", &control.PlatformRecord{SelectionSeedDigest: []byte("of a seed that nobody gives")})
	w.tellDirectory()
	w.eventually("rules follow changes while nobody gives the new seed", func() bool {
		return len(office.forwarder.current().Edges) == 1
	})
	if after := office.forwarder.current(); !bytes.Equal(after.SelectionSeed, before.SelectionSeed) {
		t.Errorf("the seed is %x after a restart and was %x", after.SelectionSeed, before.SelectionSeed)
	}
}
