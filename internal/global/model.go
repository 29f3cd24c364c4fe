package global

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// problem is one chain to be routed, and what that depends on beside the model.
type problem struct {
	g      *Global
	key    chain.Key
	spec   chain.ChainSpec
	demand chain.Demand
	world  chain.World
	// down are deployments that no new routes may use, and why; resting those that are used where nothing else has room.
	down, resting map[chain.Placement]string
	// own are those of down that other chains may use.
	own map[chain.Placement]string
	// limits are what participants said is available for this chain.
	limits map[chain.Placement]chain.Load
	// planned are loads of other chains' plans beyond what those chains hold.
	planned map[chain.Placement]chain.Load
	// pairs are the chain's ends, each with an equal share of the traffic.
	pairs []pair
}

// pair is an ingress site and the egress sites that lead to the same destinations: any of them will do.
type pair struct {
	ingress  chain.SiteName
	egresses []chain.SiteName
}

// String names both for people.
func (p pair) String() string {
	names := make([]string, len(p.egresses))
	for i, e := range p.egresses {
		names[i] = string(e)
	}
	return string(p.ingress) + " to " + strings.Join(names, " or ")
}

// has reports whether a route joins the pair.
func (p pair) has(r modelRoute) bool {
	return string(p.ingress) == r.Ingress && slices.Contains(p.egresses, chain.SiteName(r.Egress))
}

// problem collects what a chain's routes depend on.
func (g *Global) problem(key chain.Key, demand chain.Demand, limits map[chain.Placement]chain.Load) *problem {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := &problem{g: g, key: key, demand: demand, world: maps.Clone(g.world), down: maps.Clone(g.outages.down),
		resting: maps.Clone(g.outages.resting), own: g.outages.downFor[key], limits: limits, planned: map[chain.Placement]chain.Load{}}
	maps.Copy(p.down, p.own)
	p.spec, _ = p.world[key].Spec.(chain.ChainSpec)
	for other, loads := range g.planned {
		if other == key {
			continue
		}
		held := g.reserved(other)
		for at, load := range loads {
			if more := load - held[at]; more > 0 {
				p.planned[at] += more
			}
		}
	}
	p.pairs = pairsOf(endsOf(p.world, key.Customer, p.spec.Ingress), g.outages.withoutAway(endsOf(p.world, key.Customer, p.spec.Egress)))
	return p
}

// end is a site at one end of a chain and the destinations behind its edges there.
type end struct {
	site     chain.SiteName
	prefixes []netip.Prefix
}

// endsOf lists the sites of edges, each once, in order.
func endsOf(world chain.World, customer chain.CustomerName, names []string) []end {
	var ends []end
	for _, name := range names {
		if _, edge, ok := world.Edge(customer, name); ok {
			ends = withEdge(ends, edge.Site, edge.Prefixes)
		}
	}
	return ends
}

func withEdge(ends []end, site chain.SiteName, prefixes []netip.Prefix) []end {
	for i := range ends {
		if ends[i].site == site {
			ends[i].prefixes = append(ends[i].prefixes, prefixes...)
			return ends
		}
	}
	return append(ends, end{site, slices.Clone(prefixes)})
}

// pairsOf joins every ingress with the egress sites: with all of them where they lead to the same destinations, else with
// each.
func pairsOf(ingress, egress []end) []pair {
	var groups [][]chain.SiteName
	for _, e := range egress {
		if len(groups) > 0 && chain.SamePrefixes(egress[0].prefixes, e.prefixes) {
			groups[0] = append(groups[0], e.site)
		} else {
			groups = append(groups, []chain.SiteName{e.site})
		}
	}
	var pairs []pair
	for _, i := range ingress {
		for _, group := range groups {
			pairs = append(pairs, pair{i.site, group})
		}
	}
	return pairs
}

// pairsOfVersion are the pairs of a version that was agreed.
func pairsOfVersion(v *control.ChainVersion) []pair {
	ends := func(edges []*control.PlannedEdge) (ends []end) {
		for _, e := range edges {
			var prefixes []netip.Prefix
			for _, text := range e.Prefixes {
				if p, err := netip.ParsePrefix(text); err == nil {
					prefixes = append(prefixes, p)
				}
			}
			ends = withEdge(ends, chain.SiteName(e.Site), prefixes)
		}
		return ends
	}
	return pairsOf(ends(v.Ingress), ends(v.Egress))
}

// modelEnds writes pairs as the ends of a chain in the model.
func modelEnds(pairs []pair) (ingress, egress any) {
	var sources []chain.SiteName
	var sinks [][]chain.SiteName
	for _, p := range pairs {
		if !slices.Contains(sources, p.ingress) {
			sources = append(sources, p.ingress)
		}
		if p.ingress == sources[0] {
			sinks = append(sinks, p.egresses)
		}
	}
	var groups []chain.SiteName
	for _, sink := range sinks {
		groups = append(groups, sink[0])
	}
	switch {
	case len(sinks) == 1 && len(sinks[0]) > 1:
		return shared(sources), sinks[0]
	default:
		return shared(sources), shared(groups)
	}
}

// shared is a list of ends with equal shares.
func shared(sites []chain.SiteName) any {
	if len(sites) == 1 {
		return string(sites[0])
	}
	shares := make([]modelShare, len(sites))
	for i, site := range sites {
		shares[i] = modelShare{string(site), 1 / float64(len(sites))}
	}
	return shares
}

// reserved are the loads that a chain's versions hold, the largest of them counting. g.mu is held.
func (g *Global) reserved(key chain.Key) map[chain.Placement]chain.Load {
	loads := map[chain.Placement]chain.Load{}
	demand := demandOf(g.states[key].GetPlannedDemand())
	for _, v := range g.records[key].GetVersions() {
		loads = chain.MaxLoads(loads, chain.Loads(routesOf(newestRoutes(v)), vnfNames(v), g.loadPerMbps, demand))
	}
	return loads
}

// carrying are the routes that a chain's new connections take, or soon will. g.mu is held.
func (g *Global) carrying(key chain.Key) []chain.Route {
	for _, v := range g.records[key].GetVersions() {
		if v.State != draining {
			return routesOf(newestRoutes(v))
		}
	}
	return nil
}

func (g *Global) loadPerMbps(name chain.VnfName) float64 {
	vnf, _ := g.world.Vnf(name)
	return vnf.LoadPerMbps
}

func (p *problem) loadPerMbps(name chain.VnfName) float64 {
	vnf, _ := p.world.Vnf(name)
	return vnf.LoadPerMbps
}

// request is the problem in traffic engineering's terms.
func (p *problem) request() routeRequest {
	r := routeRequest{Chain: modelChain{ID: modelID(p.key), Vnfs: []string{}, Forward: float64(p.demand.Forward),
		Reverse: float64(p.demand.Reverse), MaximumLatency: float64(p.spec.MaximumLatency)}}
	r.Chain.Ingress, r.Chain.Egress = modelEnds(p.pairs)
	for _, use := range p.spec.Vnfs {
		r.Chain.Vnfs = append(r.Chain.Vnfs, string(use.Vnf))
	}
	list := func(loads map[chain.Placement]chain.Load) (all []modelLoad) {
		for _, at := range slices.SortedFunc(maps.Keys(loads), comparePlacements) {
			all = append(all, modelLoad{string(at.Vnf), string(at.Site), float64(loads[at])})
		}
		return all
	}
	limits := maps.Clone(p.limits)
	if limits == nil {
		limits = map[chain.Placement]chain.Load{}
	}
	for _, unused := range []map[chain.Placement]string{p.resting, p.own} {
		for at := range unused {
			limits[at] = 0
		}
	}
	r.Limits, r.Planned = list(limits), list(p.planned)
	return r
}

func uniqueVnfs(uses []chain.Use) []chain.VnfName {
	var names []chain.VnfName
	for _, u := range uses {
		if !slices.Contains(names, u.Vnf) {
			names = append(names, u.Vnf)
		}
	}
	return names
}

const (
	// smallestShare of a chain is not worth a route.
	smallestShare = 1e-6
	// carriedShare is what counts as all of a chain's traffic.
	carriedShare = 1 - 1e-4
)

// oneEgress keeps to one egress site where an answer sends an ingress site's traffic to several that lead to the same
// destinations: a classifier sends all of it one way. The sites to try, the most used first; none where nothing is split.
func (p *problem) oneEgress(a *routeAnswer) []chain.SiteName {
	used, split := map[chain.SiteName]float64{}, false
	for _, pair := range p.pairs {
		first := ""
		for _, r := range a.Routes {
			if !pair.has(r) || r.Fraction < smallestShare || len(pair.egresses) == 1 {
				continue
			}
			used[chain.SiteName(r.Egress)] += r.Fraction
			split = split || first != "" && first != r.Egress
			first = r.Egress
		}
	}
	if !split {
		return nil
	}
	// Also those that are not used: one of them may have room for all of it.
	all := slices.Clone(p.pairs[0].egresses)
	slices.SortStableFunc(all, func(a, b chain.SiteName) int { return cmp.Compare(used[b], used[a]) })
	return all
}

// routes reads an answer; shortage says what is missing where it does not carry the demand, "" where it does.
func (p *problem) routes(a *routeAnswer, siteLabel func(chain.SiteName) chain.Label) (routes []chain.Route, shortage string) {
	underlay := chain.NewUnderlay(p.world)
	share := 1 / float64(len(p.pairs))
	for _, pair := range p.pairs {
		var of []chain.Route
		carried := 0.0
		for _, r := range a.Routes {
			if !pair.has(r) || r.Fraction < smallestShare {
				continue
			}
			route := chain.Route{Ingress: pair.ingress, Egress: chain.SiteName(r.Egress), Fraction: r.Fraction}
			route.EgressLabel = siteLabel(route.Egress)
			for _, site := range r.Sites {
				route.Sites = append(route.Sites, chain.SiteName(site))
			}
			route.Latency = underlay.RouteLatency(route)
			of = append(of, route)
			carried += r.Fraction
		}
		if carried < carriedShare*share {
			return nil, p.shortage(pair, carried/share, a)
		}
		for i := range of {
			of[i].Fraction *= share / carried
		}
		routes = append(routes, of...)
	}
	return routes, ""
}

// shortage explains why a pair's traffic is not carried whole: how much is, and what each VNF has and needs, or else
// what ran out.
func (p *problem) shortage(of pair, carried float64, a *routeAnswer) string {
	total := float64(p.demand.Total()) / float64(len(p.pairs))
	text := fmt.Sprintf("%.6g of %.6g Mbit/s from %s can be carried", carried*total, total, of)
	var short []string
	for _, name := range uniqueVnfs(p.spec.Vnfs) {
		if what := p.vnfShortage(name); what != "" {
			short = append(short, what)
		}
	}
	if len(short) > 0 {
		return text + ": " + strings.Join(short, "; ")
	}
	if len(a.Excluded) > 0 {
		return text + ": " + strings.Join(a.Excluded, "; ")
	}
	for _, name := range a.Scarce {
		short = append(short, p.scarceName(name))
	}
	switch {
	case len(short) > 0 && p.spec.MaximumLatency > 0:
		return fmt.Sprintf("%s within %.6g ms: %s full", text, float64(p.spec.MaximumLatency), areFull(short))
	case len(short) > 0:
		return fmt.Sprintf("%s: %s full", text, areFull(short))
	case p.spec.MaximumLatency > 0:
		return fmt.Sprintf("%s within %.6g ms on links and sites that have room", text, float64(p.spec.MaximumLatency))
	}
	return text + ": links or sites on the way have no more room"
}

func areFull(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return strings.Join(names, ", ") + " are"
}

// scarceName makes a resource of the model one of the operator's: a link with the direction that is full.
func (p *problem) scarceName(name string) string {
	id, isLink := strings.CutPrefix(name, "link ")
	if !isLink {
		return name
	}
	for _, direction := range []string{forwardLink, reversedLink} {
		link, found := strings.CutSuffix(id, direction)
		spec, ok := p.world[chain.Key{Kind: chain.KindLink, Name: link}].Spec.(chain.LinkSpec)
		if !found || !ok {
			continue
		}
		from, to := spec.From, spec.To
		if direction == reversedLink {
			from, to = to, from
		}
		return fmt.Sprintf("link %s from %s to %s", link, from, to)
	}
	return name
}

// vnfShortage says how far a VNF's free capacity falls short of the chain's need, "" where it does not.
func (p *problem) vnfShortage(name chain.VnfName) string {
	times := 0
	for _, use := range p.spec.Vnfs {
		if use.Vnf == name {
			times++
		}
	}
	needed := chain.Load(times) * p.demand.Load(p.loadPerMbps(name))
	free, where := chain.Load(0), ""
	taken := p.taken()
	for _, key := range p.world.Keys(chain.KindDeployment) {
		d := p.world[key].Spec.(chain.DeploymentSpec)
		if d.Vnf != name {
			continue
		}
		at := chain.Placement{Vnf: name, Site: d.Site}
		if why := p.down[at]; why != "" {
			where += fmt.Sprintf(", %s none: %s", d.Site, why)
			continue
		}
		left := max(0, d.Capacity-taken[at])
		if limit, limited := p.limits[at]; limited {
			left = min(left, limit)
		}
		free += left
		where += fmt.Sprintf(", %s %.6g", d.Site, float64(left))
	}
	switch {
	case where == "":
		return fmt.Sprintf("VNF %s is deployed nowhere", name)
	case free >= needed:
		return ""
	}
	return fmt.Sprintf("VNF %s needs %.6g load units, %.6g are free (%s)", name, float64(needed), float64(free), where[2:])
}

// taken are the loads that other chains hold or are about to.
func (p *problem) taken() map[chain.Placement]chain.Load {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	taken := maps.Clone(p.planned)
	for other := range p.g.states {
		if other == p.key {
			continue
		}
		for at, load := range p.g.reserved(other) {
			taken[at] += load
		}
	}
	return taken
}
