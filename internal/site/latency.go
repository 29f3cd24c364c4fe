package site

import (
	"math"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
)

// leastLatency returns the least one-way latency between two sites over the underlay's links, in milliseconds: 0 within
// a site, +Inf where there is no way.
func leastLatency(links []*control.LinkRecord) func(from, to string) float64 {
	type neighbour struct {
		site    string
		latency float64
	}
	neighbours := map[string][]neighbour{}
	for _, l := range links {
		a, b, latency := l.GetSpec().GetFrom(), l.GetSpec().GetTo(), max(0, l.GetSpec().GetLatencyMs())
		neighbours[a] = append(neighbours[a], neighbour{b, latency})
		neighbours[b] = append(neighbours[b], neighbour{a, latency})
	}
	known := map[string]map[string]float64{} // by origin
	from := func(origin string) map[string]float64 {
		if distances := known[origin]; distances != nil {
			return distances
		}
		distances := map[string]float64{origin: 0}
		done := map[string]bool{}
		for {
			nearest, least := "", math.Inf(1)
			for site, d := range distances {
				if !done[site] && (d < least || d == least && site < nearest) {
					nearest, least = site, d
				}
			}
			if math.IsInf(least, 1) {
				known[origin] = distances
				return distances
			}
			done[nearest] = true
			for _, n := range neighbours[nearest] {
				if d, seen := distances[n.site]; !seen || least+n.latency < d {
					distances[n.site] = least + n.latency
				}
			}
		}
	}
	return func(a, b string) float64 {
		if d, reached := from(a)[b]; reached {
			return d
		}
		return math.Inf(1)
	}
}
