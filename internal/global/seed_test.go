package global

import (
	"bytes"
	"crypto/sha256"
	"testing"

	"google.golang.org/protobuf/proto"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
)

// TestSelectionSeedIsDurable: the first start makes it, the next keep it, and one that shall make a new one does.
func TestSelectionSeedIsDurable(t *testing.T) {
	p := newPlatform(t, "hq", "office")
	given := func() []byte {
		t.Helper()
		answer, err := p.sites["office"].connection.Request(testContext(t), "hq", seedService, nil)
		if err != nil {
			t.Fatal(err)
		}
		seed, record := &control.SelectionSeed{}, &control.PlatformRecord{}
		if err := proto.Unmarshal(answer, seed); err != nil {
			t.Fatal(err)
		}
		entry, err := p.hq.connection.Published().Get(testContext(t), "directory.platform")
		if err == nil {
			err = proto.Unmarshal(entry.Value, record)
		}
		if digest := sha256.Sum256(seed.Seed); err != nil || !bytes.Equal(record.SelectionSeedDigest, digest[:]) {
			t.Fatalf("the directory's digest is %x, %v; the seed's is %x", record.SelectionSeedDigest, err, digest)
		}
		if bytes.Contains(entry.Value, seed.Seed) || len(seed.Seed) != seedLength {
			t.Fatalf("%d bytes of seed; published: %v", len(seed.Seed), bytes.Contains(entry.Value, seed.Seed))
		}
		return seed.Seed
	}
	p.startGlobal()
	first := given()
	p.stop()
	p.startGlobal()
	if again := given(); !bytes.Equal(first, again) {
		t.Errorf("a restart changed the seed")
	}
	p.stop()
	p.config.NewSelectionSeed = true
	p.startGlobal()
	if renewed := given(); bytes.Equal(first, renewed) {
		t.Errorf("the seed was to be replaced")
	}
}
