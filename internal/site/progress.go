package site

import (
	"fmt"
	"maps"
	"strings"
	"time"

	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
)

// progress knows which revisions of chains the forwarders have applied.
type progress struct {
	// snapshots are the rules published and not yet applied by all, the oldest first, and the last.
	snapshots []snapshot
	applied   map[ChainKey]uint64
	// lacking is since when a chain's revision lacks something.
	lacking map[ChainKey]lack
	now     func() time.Time
}

type snapshot struct {
	generations map[string]uint64 // by forwarder
	chains      map[ChainKey]Following
}

type lack struct {
	revision uint64
	since    time.Time
	what     string
}

// lackPatience is how long what is missing may take before it is a problem: instances start, other sites follow.
const lackPatience = 2 * time.Second

const mostSnapshots = 256

func newProgress() progress {
	return progress{applied: map[ChainKey]uint64{}, lacking: map[ChainKey]lack{}, now: time.Now}
}

// remember notes which revisions the rules of these generations contain.
func (p *progress) remember(generations map[string]uint64, chains map[ChainKey]Following) {
	next := snapshot{generations, chains}
	if n := len(p.snapshots); n > 0 && maps.Equal(p.snapshots[n-1].generations, generations) {
		p.snapshots[n-1] = next // the same rules follow the newer records too
	} else {
		p.snapshots = append(p.snapshots, next)
	}
	if n := len(p.snapshots); n > mostSnapshots { // a forwarder has been away for long; it will apply the last
		p.snapshots = p.snapshots[n-mostSnapshots:]
	}
	for key, f := range chains {
		what := strings.Join(f.Missing, "; ")
		if known, lacks := p.lacking[key]; what == "" {
			delete(p.lacking, key)
		} else if !lacks || known.revision != f.Revision {
			p.lacking[key] = lack{f.Revision, p.now(), what}
		} else {
			p.lacking[key] = lack{f.Revision, known.since, what}
		}
	}
	for key := range p.applied {
		if _, takesPart := chains[key]; !takesPart {
			delete(p.applied, key)
			delete(p.lacking, key)
		}
	}
}

// without forgets a forwarder that is gone: nothing waits for it.
func (p *progress) without(forwarder string) {
	for _, s := range p.snapshots {
		delete(s.generations, forwarder)
	}
}

// advance takes what forwarders have applied.
func (p *progress) advance(statuses map[string]*rules.Status) {
	reached := -1
	for i, s := range p.snapshots {
		for forwarder, generation := range s.generations {
			if statuses[forwarder].GetAppliedGeneration() < generation {
				p.forget(reached)
				return
			}
		}
		reached = i
		for key, f := range s.chains {
			if len(f.Missing) == 0 {
				p.applied[key] = max(p.applied[key], f.Revision)
			}
		}
	}
	p.forget(reached)
}

// forget drops snapshots before the one reached; that one still counts if it is the last.
func (p *progress) forget(reached int) {
	if reached > 0 {
		p.snapshots = p.snapshots[reached:]
	}
}

// problem says why a chain's newest revision is not followed, "" while it is being worked on.
func (p *progress) problem(key ChainKey, statuses map[string]*rules.Status, desired map[string]*rules.RuleSet) (string, uint64) {
	if l, lacks := p.lacking[key]; lacks && p.now().Sub(l.since) >= lackPatience {
		return l.what, l.revision
	}
	if n := len(p.snapshots); n > 0 {
		if f := p.snapshots[n-1].chains[key]; f.Revision > p.applied[key] {
			for _, name := range sortedKeys(statuses) {
				status := statuses[name]
				if status.Refused != "" && status.RefusedGeneration == desired[name].GetGeneration() {
					return fmt.Sprintf("forwarder %s refuses its rules: %s", name, status.Refused), f.Revision
				}
			}
		}
	}
	return "", 0
}
