package global

import (
	"slices"

	"github.com/switchboard-project/switchboard/internal/chain"
)

// outages are what new routes must not use.
type outages struct {
	// down says of a deployment why it counts as having no capacity.
	down map[chain.Placement]string
	// away says the same of whole sites.
	away map[chain.SiteName]string
}

func newOutages() outages {
	return outages{down: map[chain.Placement]string{}, away: map[chain.SiteName]string{}}
}

// withoutAway leaves out ends at sites that are away, unless all are.
func (o outages) withoutAway(ends []end) []end {
	there := slices.DeleteFunc(slices.Clone(ends), func(e end) bool { return o.away[e.site] != "" })
	if len(there) == 0 {
		return ends
	}
	return there
}
