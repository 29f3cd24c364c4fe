package chain

import (
	"slices"
)

// Route is one wide-area route of a chain and its share (RFC 7665: service function path).
type Route struct {
	Ingress SiteName
	// Sites has one entry for each VNF.
	Sites       []SiteName
	Egress      SiteName
	EgressLabel Label
	// Fraction is the share of the chain's traffic, 0 to 1.
	Fraction float64
	Latency  Milliseconds
}

// SiteAt is where a route is at a position: 0 the ingress, z the z-th VNF, n+1 the egress.
func (r Route) SiteAt(position int) SiteName {
	switch {
	case position == 0:
		return r.Ingress
	case position <= len(r.Sites):
		return r.Sites[position-1]
	}
	return r.Egress
}

// Placement is a VNF at a site.
type Placement struct {
	Vnf  VnfName
	Site SiteName
}

// Loads sums what routes spend at each placement for a demand. vnfs are the chain's, perMbps their load per Mbit/s.
func Loads(routes []Route, vnfs []VnfName, perMbps func(VnfName) float64, demand Demand) map[Placement]Load {
	sum := map[Placement]Load{}
	for _, r := range routes {
		for i, site := range r.Sites {
			sum[Placement{vnfs[i], site}] += Load(r.Fraction) * demand.Load(perMbps(vnfs[i]))
		}
	}
	return sum
}

// PositionLoads is Loads for one position of the chain, from 1, by site.
func PositionLoads(routes []Route, position int, perMbps float64, demand Demand) map[SiteName]Load {
	sum := map[SiteName]Load{}
	for _, r := range routes {
		sum[r.Sites[position-1]] += Load(r.Fraction) * demand.Load(perMbps)
	}
	return sum
}

// Crossing says what share of the traffic that reaches a site at one stage goes on to another: x_{c,z,s1,s2} of the
// paper's section 4.1, given the site it starts from.
type Crossing struct {
	Stage    Stage
	From, To SiteName
}

// Crossings derives the weights of every stage from routes to one egress: for each stage and site the shares of the next
// sites sum to 1.
func Crossings(routes []Route) map[Crossing]float64 {
	shares := map[Crossing]float64{}
	totals := map[Crossing]float64{}
	for _, r := range routes {
		for z := 1; z <= len(r.Sites)+1; z++ {
			from, to := r.SiteAt(z-1), r.SiteAt(z)
			shares[Crossing{Stage(z), from, to}] += r.Fraction
			totals[Crossing{Stage: Stage(z), From: from}] += r.Fraction
		}
	}
	for c := range shares {
		if total := totals[Crossing{Stage: c.Stage, From: c.From}]; total > 0 {
			shares[c] /= total
		}
	}
	return shares
}

// SitesOf lists the sites that have part in routes, in order.
func SitesOf(routes []Route) []SiteName {
	var sites []SiteName
	for _, r := range routes {
		sites = append(append(sites, r.Ingress, r.Egress), r.Sites...)
	}
	slices.Sort(sites)
	return slices.Compact(sites)
}

// MaxLoads is the larger of two sums at every placement: a chain that moves from one version to another sends its
// traffic once.
func MaxLoads(a, b map[Placement]Load) map[Placement]Load {
	sum := map[Placement]Load{}
	for p, l := range a {
		sum[p] = max(sum[p], l)
	}
	for p, l := range b {
		sum[p] = max(sum[p], l)
	}
	return sum
}
