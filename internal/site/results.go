package site

import (
	"time"

	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/vnf/instance"
)

// results is all that the Local Switchboard made of what it was told.
type results struct {
	rules    map[string]*rules.RuleSet // by forwarder, as published
	computed bool                      // in this run of the process
	chains   map[ChainKey]Following
	progress progress
	drains   map[string]*drain // by attachment
	drained  map[string]bool
	waitsFor map[string]bool // forwarders that connections wait for, by peer id

	wanted       instance.Wanted
	wantSequence uint64
	wantedAt     time.Time

	// published is what was published last, by key; nil until what an earlier run published has been read.
	published map[string][]byte
	countsDue bool // reports that only count may be published
	rates     rates
}

func newResults() results {
	return results{rules: map[string]*rules.RuleSet{}, progress: newProgress(), drains: map[string]*drain{},
		drained: map[string]bool{}, rates: rates{}}
}

// servedBefore reports whether the rules published last have an attachment for a place.
func (r *results) servedBefore(p NeededPlace) bool {
	for _, set := range r.rules {
		for _, a := range set.Attachments {
			if a.Vnf == p.VNF && a.ChainLabel == p.ChainLabel && a.EgressLabel == p.EgressLabel && a.Stage == p.Stage {
				return true
			}
		}
	}
	return false
}
