package global

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// problem is one chain to be routed, and what the world has left for it.
type problem struct {
	key    chain.Key
	spec   chain.ChainSpec
	demand chain.Demand
	world  chain.World
	// reserved are the loads of other chains, limits what participants said is available for this one.
	reserved, limits map[chain.Placement]chain.Load
	// traffic is that of other chains on the underlay.
	traffic map[chain.DirectedLink]chain.Mbps
	// pairs are the chain's ingress and egress sites, each pair with an equal share.
	pairs []pair
}

type pair struct{ ingress, egress chain.SiteName }

func (p pair) id() string { return string(p.ingress) + " to " + string(p.egress) }

// problem collects what a chain's routes depend on.
func (g *Global) problem(key chain.Key, demand chain.Demand, limits map[chain.Placement]chain.Load) *problem {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := &problem{key: key, demand: demand, world: maps.Clone(g.world), limits: limits,
		reserved: map[chain.Placement]chain.Load{}, traffic: map[chain.DirectedLink]chain.Mbps{}}
	p.spec, _ = p.world[key].Spec.(chain.ChainSpec)
	underlay := chain.NewUnderlay(p.world)
	for other := range g.states {
		if other == key {
			continue
		}
		for at, load := range chain.MaxLoads(g.reserved(other), g.planned[other]) {
			p.reserved[at] += load
		}
		underlay.AddTraffic(g.carrying(other), demandOf(g.states[other].GetPlannedDemand()), p.traffic)
	}
	for _, i := range sitesOfEdges(p.world, key.Customer, p.spec.Ingress) {
		for _, e := range sitesOfEdges(p.world, key.Customer, p.spec.Egress) {
			p.pairs = append(p.pairs, pair{i, e})
		}
	}
	return p
}

// sitesOfEdges lists the sites of edges, each once, in order.
func sitesOfEdges(world chain.World, customer chain.CustomerName, names []string) []chain.SiteName {
	var sites []chain.SiteName
	for _, name := range names {
		if _, edge, ok := world.Edge(customer, name); ok && !slices.Contains(sites, edge.Site) {
			sites = append(sites, edge.Site)
		}
	}
	return sites
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
		if v.State != control.VersionState_VERSION_STATE_DRAINING {
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

// left is what a VNF offers this chain at a site.
func (p *problem) left(at chain.Placement, capacity chain.Load) chain.Load {
	left := max(0, capacity-p.reserved[at])
	if limit, limited := p.limits[at]; limited {
		left = min(left, limit)
	}
	return left
}

// smallestCapacity is below any load that matters: what is smaller is left out of the model.
const smallestCapacity = 1e-9

// model is the problem in traffic engineering's terms.
func (p *problem) model() *Model {
	m := &Model{Links: []ModelLink{}, Sites: []ModelSite{}, Vnfs: []ModelVnf{}}
	used := map[chain.SiteName]chain.Load{}
	for at, load := range p.reserved {
		used[at.Site] += load
	}
	offered := map[string]bool{}
	for _, key := range p.world.Keys(chain.KindSite) {
		m.Nodes = append(m.Nodes, ModelNode{key.Name})
		site := p.world[key].Spec.(chain.SiteSpec)
		if left := site.Capacity - used[chain.SiteName(key.Name)]; left > smallestCapacity {
			m.Sites = append(m.Sites, ModelSite{key.Name, key.Name, float64(left)})
			offered[key.Name] = true
		}
	}
	for _, key := range p.world.Keys(chain.KindLink) {
		link := p.world[key].Spec.(chain.LinkSpec)
		m.Links = append(m.Links, p.link(key.Name, link, false), p.link(key.Name, link, true))
	}
	for _, name := range uniqueVnfs(p.spec.Vnfs) {
		vnf := ModelVnf{ID: string(name), LoadPerMbps: p.loadPerMbps(name), Deployments: []ModelDeployment{}}
		for _, key := range p.world.Keys(chain.KindDeployment) {
			d := p.world[key].Spec.(chain.DeploymentSpec)
			if d.Vnf != name || !offered[string(d.Site)] {
				continue
			}
			if left := p.left(chain.Placement{Vnf: name, Site: d.Site}, d.Capacity); left > smallestCapacity {
				vnf.Deployments = append(vnf.Deployments, ModelDeployment{string(d.Site), float64(left)})
			}
		}
		m.Vnfs = append(m.Vnfs, vnf)
	}
	share := 1 / float64(len(p.pairs))
	for _, pair := range p.pairs {
		c := ModelChain{ID: pair.id(), Ingress: string(pair.ingress), Egress: string(pair.egress), Vnfs: []string{},
			Forward: float64(p.demand.Forward) * share, Reverse: float64(p.demand.Reverse) * share,
			MaximumLatency: float64(p.spec.MaximumLatency)}
		for _, use := range p.spec.Vnfs {
			c.Vnfs = append(c.Vnfs, string(use.Vnf))
		}
		m.Chains = append(m.Chains, c)
	}
	return m
}

func (p *problem) link(name string, l chain.LinkSpec, reversed bool) ModelLink {
	m := ModelLink{ID: name + ">", From: string(l.From), To: string(l.To), Latency: float64(l.Latency), Bandwidth: float64(l.Bandwidth)}
	if reversed {
		m.ID, m.From, m.To = name+"<", m.To, m.From
	}
	m.Background = math.Min(float64(l.Background+p.traffic[chain.DirectedLink{Link: name, Reversed: reversed}]), m.Bandwidth)
	return m
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

// routes reads a solution; shortage says what is missing where it does not carry the demand, "" where it does.
func (p *problem) routes(s *Solution, siteLabel func(chain.SiteName) chain.Label) (routes []chain.Route, shortage string) {
	underlay := chain.NewUnderlay(p.world)
	share := 1 / float64(len(p.pairs))
	for _, pair := range p.pairs {
		var of []chain.Route
		carried := 0.0
		for _, r := range s.Routes {
			if r.Chain != pair.id() || r.Fraction < smallestShare {
				continue
			}
			route := chain.Route{Ingress: pair.ingress, Egress: pair.egress, EgressLabel: siteLabel(pair.egress), Fraction: r.Fraction}
			for _, site := range r.Sites {
				route.Sites = append(route.Sites, chain.SiteName(site))
			}
			route.Latency = underlay.RouteLatency(route)
			of = append(of, route)
			carried += r.Fraction
		}
		if carried < carriedShare {
			return nil, p.shortage(pair, carried)
		}
		for i := range of {
			of[i].Fraction *= share / carried
		}
		routes = append(routes, of...)
	}
	return routes, ""
}

// shortage explains why a pair's traffic is not carried whole: how much is, and what each VNF has and needs.
func (p *problem) shortage(of pair, carried float64) string {
	total := float64(p.demand.Total()) / float64(len(p.pairs))
	text := fmt.Sprintf("%.6g of %.6g Mbit/s from %s can be carried", carried*total, total, of.id())
	var short []string
	for _, name := range uniqueVnfs(p.spec.Vnfs) {
		if what := p.vnfShortage(name); what != "" {
			short = append(short, what)
		}
	}
	switch {
	case len(short) > 0:
		return text + ": " + strings.Join(short, "; ")
	case p.spec.MaximumLatency > 0:
		return fmt.Sprintf("%s within %.6g ms on links and sites that have room", text, float64(p.spec.MaximumLatency))
	}
	return text + ": links or sites on the way have no more room"
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
	for _, key := range p.world.Keys(chain.KindDeployment) {
		d := p.world[key].Spec.(chain.DeploymentSpec)
		if d.Vnf != name {
			continue
		}
		left := p.left(chain.Placement{Vnf: name, Site: d.Site}, d.Capacity)
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
