package site

import (
	"cmp"
	"math"
	"slices"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/matches"
)

// path is a service path: a chain version to one egress site, as seen from a site.
type path struct {
	record      *control.ChainRecord
	version     *control.ChainVersion
	egressLabel uint32
	vnfs        uint32
	// routes carry new connections; next are being prepared; joins are those that new users' edges take (SB section 6).
	routes, next, joins []*control.PlannedRoute
	// ingress holds planned edges and those that join; egress those with the path's label.
	ingress, egress []pathEdge
}

// pathEdge is an edge at one end of a path.
type pathEdge struct {
	EdgeKey
	site     string
	prefixes []string
	joined   bool
	// ambiguous: other VLANs of the same trunk are in the path too.
	ambiguous bool
}

// paths lists the service paths of a chain, by version and egress label.
func paths(in *Inputs, record *control.ChainRecord) []*path {
	var all []*path
	for _, version := range record.Versions {
		for _, label := range egressLabels(version) {
			all = append(all, newPath(in, record, version, label))
		}
	}
	return all
}

func egressLabels(version *control.ChainVersion) []uint32 {
	var labels []uint32
	for _, r := range version.Routes {
		labels = append(labels, r.EgressLabel)
	}
	for _, r := range version.NextRoutes {
		labels = append(labels, r.EgressLabel)
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}

func newPath(in *Inputs, record *control.ChainRecord, version *control.ChainVersion, label uint32) *path {
	p := &path{record: record, version: version, egressLabel: label, vnfs: uint32(len(version.Vnfs))}
	for _, r := range version.Routes {
		if r.EgressLabel == label {
			p.routes = append(p.routes, r)
		}
	}
	for _, r := range version.NextRoutes {
		if r.EgressLabel == label {
			p.next = append(p.next, r)
		}
	}
	match := matches.Of(version.Match)
	for _, e := range version.Ingress {
		p.ingress = append(p.ingress, ingressOf(in, e, match)...)
	}
	for _, e := range version.Egress {
		if e.EgressLabel == label {
			p.egress = append(p.egress, pathEdge{EdgeKey: EdgeKey{e.Customer, e.Edge}, site: e.Site, prefixes: e.Prefixes})
		}
	}
	if !record.FixedIngress {
		p.join(in, match)
	}
	markAmbiguous(p.ingress)
	return p
}

// join adds the customer's edges at sites where no ingress was planned: their users take the nearest existing route. An
// edge behind which no packet can be one of the chain's stays out.
func (p *path) join(in *Inputs, match chain.Match) {
	var behind []string
	for _, e := range p.egress {
		if len(e.prefixes) == 0 {
			behind = nil // it takes every destination
			break
		}
		behind = append(behind, e.prefixes...)
	}
	for _, e := range in.Edges {
		at := e.GetSpec().GetSite()
		if e.Customer == "" || e.Customer != p.record.Customer || p.planned(EdgeKey{e.Customer, e.Edge}, at) ||
			!match.Bears(e.GetSpec().GetVlan()) || !match.JoinedBy(e.GetSpec().GetPrefixes(), behind) {
			continue
		}
		nearest := p.nearest(in, at)
		if nearest == nil {
			continue
		}
		p.ingress = append(p.ingress, pathEdge{EdgeKey: EdgeKey{e.Customer, e.Edge}, site: at, prefixes: e.Spec.Prefixes,
			joined: true})
		p.joins = append(p.joins, &control.PlannedRoute{IngressSite: at, Sites: nearest.Sites, EgressSite: nearest.EgressSite,
			EgressLabel: nearest.EgressLabel, Fraction: joinFraction})
	}
}

// joinFraction is what a joining edge's traffic counts beside planned routes: its volume is not known yet, and at its
// own ingress it is the only one.
const joinFraction = 1e-6

// planned reports whether the edge may not join: its site is a planned ingress, or it is an egress of the chain.
func (p *path) planned(key EdgeKey, at string) bool {
	for _, e := range p.version.Ingress {
		if e.Site == at {
			return true
		}
	}
	for _, e := range p.version.Egress {
		if (EdgeKey{e.Customer, e.Edge}) == key.applied() {
			return true
		}
	}
	return false
}

// nearest is the route with the least latency from a site through its VNFs to the egress; ties go to the larger share,
// then to the first.
func (p *path) nearest(in *Inputs, from string) *control.PlannedRoute {
	var best *control.PlannedRoute
	least := math.Inf(1)
	for _, r := range p.routes {
		if r.Fraction <= 0 {
			continue
		}
		latency, at := 0.0, from
		for _, next := range append(slices.Clone(r.Sites), r.EgressSite) {
			latency += in.Latency(at, next)
			at = next
		}
		if best == nil || latency < least || latency == least && r.Fraction > best.Fraction {
			best, least = r, latency
		}
	}
	return best
}

// siteAt is where a route has its position: 0 the ingress, z the z-th VNF, n+1 the egress.
func siteAt(r *control.PlannedRoute, position uint32) string {
	switch {
	case position == 0:
		return r.IngressSite
	case int(position) <= len(r.Sites):
		return r.Sites[position-1]
	}
	return r.EgressSite
}

// current are the routes new connections take; every adds those being prepared.
func (p *path) current() []*control.PlannedRoute { return slices.Concat(p.routes, p.joins) }
func (p *path) every() []*control.PlannedRoute   { return slices.Concat(p.routes, p.joins, p.next) }

// shares says how the traffic that a site sends from one position to a neighbouring one divides among the latter's
// sites. A site that no current route has at the position sends by the routes being prepared, so that it is ready before
// the first packet comes; one that no route has any more, by where the others' traffic goes.
func (p *path) shares(from uint32, site string, to uint32) map[string]float64 {
	divide := func(routes []*control.PlannedRoute, all bool) map[string]float64 {
		shares := map[string]float64{}
		for _, r := range routes {
			if r.Fraction > 0 && (all || siteAt(r, from) == site) {
				shares[siteAt(r, to)] += r.Fraction
			}
		}
		return shares
	}
	if shares := divide(p.current(), false); len(shares) > 0 {
		return shares
	}
	if shares := divide(p.next, false); len(shares) > 0 {
		return shares
	}
	return divide(p.routes, true)
}

// sitesAt lists the sites of a position over all routes.
func (p *path) sitesAt(position uint32) []string {
	var sites []string
	for _, r := range p.every() {
		sites = append(sites, siteAt(r, position))
	}
	slices.Sort(sites)
	return slices.Compact(sites)
}

// edgesAt are the edges of a position that is one of the path's two ends, nil for a VNF's.
func (p *path) edgesAt(position uint32) []pathEdge {
	switch position {
	case 0:
		return p.ingress
	case p.vnfs + 1:
		return p.egress
	}
	return nil
}

func (p *path) isEdge(position uint32) bool { return position == 0 || position == p.vnfs+1 }

// vnfAt is the VNF of a position from 1.
func (p *path) vnfAt(position uint32) string { return p.version.Vnfs[position-1].Vnf }

// involves reports whether the site has any part in the path.
func (p *path) involves(site string) bool {
	for position := uint32(0); position <= p.vnfs+1; position++ {
		if slices.Contains(p.sitesAt(position), site) {
			return true
		}
	}
	return false
}

func byPath(a, b *path) int {
	return cmp.Or(cmp.Compare(a.version.ChainLabel, b.version.ChainLabel), cmp.Compare(a.egressLabel, b.egressLabel))
}
