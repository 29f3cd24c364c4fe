package site

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"time"

	"google.golang.org/protobuf/proto"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
)

// The secret of the forwarders' weighted consistent hash is the same at every site, so that one forwarder's choice can be
// made again by another. The directory says which is in force by its digest; the secret itself is asked for, and kept in
// the rules, where only forwarders and controllers can read it.

const (
	seedService = "platform.selection-seed"
	seedTimeout = 5 * time.Second
	// seedPause is how long after a failure it is asked for again.
	seedPause = 500 * time.Millisecond
)

// seed is what is known of the selection seed.
type seed struct {
	value  []byte
	digest []byte // of the one in force; nil where the platform has none
	asking bool
	again  time.Time
}

// isCurrent reports whether the seed is the one in force.
func (s *seed) isCurrent() bool { return s.digest == nil || s.matches(s.value) }

func (s *seed) matches(value []byte) bool {
	digest := sha256.Sum256(value)
	return subtle.ConstantTimeCompare(digest[:], s.digest) == 1
}

// takeFromRules remembers the seed of the rules that were published last.
func (s *seed) takeFromRules(sets map[string]*rules.RuleSet) {
	for _, set := range sets {
		if len(set.SelectionSeed) > 0 {
			s.value = set.SelectionSeed
		}
	}
}

// askForSeed gets the seed in force in the background where this site has another.
func (s *Switchboard) askForSeed(ctx context.Context) {
	known := &s.state.seed
	if known.isCurrent() || known.asking || time.Now().Before(known.again) {
		return
	}
	known.asking = true
	go func() {
		limited, cancel := context.WithTimeout(ctx, seedTimeout)
		defer cancel()
		answer, err := s.connection.Request(limited, s.config.GlobalSite, seedService, nil)
		given := &control.SelectionSeed{}
		if err == nil {
			err = proto.Unmarshal(answer, given)
		}
		s.send(ctx, func() {
			known.asking, known.again = false, time.Now().Add(seedPause)
			if err != nil {
				s.log.Warn("the Global Switchboard gives no selection seed; it is asked again", "error", err)
			} else if known.matches(given.Seed) { // an old one is on its way out
				known.value, s.rulesDue = given.Seed, true
			}
		})
	}()
}
