package global

import (
	"maps"
	"math"
	"slices"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// The model of traffic engineering as docs/traffic-engineering.md has it: every quantity in Mbit/s, milliseconds or load
// units.

// modelNode is a place in the underlay.
type modelNode struct {
	ID string `json:"id"`
}

// modelLink is one direction of a link.
type modelLink struct {
	ID         string  `json:"id"`
	From       string  `json:"from"`
	To         string  `json:"to"`
	Latency    float64 `json:"latency_ms"`
	Bandwidth  float64 `json:"bandwidth_mbps"`
	Background float64 `json:"background_mbps"`
}

// modelSite is a node with compute.
type modelSite struct {
	ID       string  `json:"id"`
	Node     string  `json:"node"`
	Capacity float64 `json:"capacity"`
}

// modelNetwork is what holds for all links.
type modelNetwork struct {
	MaximumLinkUtilization float64 `json:"max_link_utilization"`
}

// modelCustomer is a customer and the worth of its traffic.
type modelCustomer struct {
	ID       string `json:"id"`
	Priority uint32 `json:"priority"`
}

// modelVnf is a catalogue entry and where it can be used.
type modelVnf struct {
	ID          string            `json:"id"`
	LoadPerMbps float64           `json:"load_per_mbps"`
	Deployments []modelDeployment `json:"deployments"`
}

// modelDeployment is what a VNF has at a site.
type modelDeployment struct {
	Site     string  `json:"site"`
	Capacity float64 `json:"capacity"`
}

// modelChain is what a chain wants: traffic from its ingress to its egress sites through VNFs.
type modelChain struct {
	ID             string   `json:"id"`
	Ingress        any      `json:"ingress,omitempty"` // a node, or nodes with shares; without one nothing is to be routed
	Egress         any      `json:"egress,omitempty"`  // a node, nodes with shares, or nodes of which any will do
	Vnfs           []string `json:"vnfs"`
	Forward        float64  `json:"forward_mbps"`
	Reverse        float64  `json:"reverse_mbps"`
	MaximumLatency float64  `json:"max_latency_ms,omitempty"`
}

// modelShare is an end that a fixed share of the traffic uses.
type modelShare struct {
	Node  string  `json:"node"`
	Share float64 `json:"share"`
}

// modelHeld is a chain and what it holds.
type modelHeld struct {
	modelChain
	Customer string       `json:"customer,omitempty"` // where it is an entry
	Priority uint32       `json:"priority,omitempty"` // where it is not the customer's
	Routes   []modelRoute `json:"routes"`
	Reserved []modelLoad  `json:"reserved"`
}

// modelRoute is one route and its share of the chain's traffic.
type modelRoute struct {
	Fraction float64  `json:"fraction"`
	Ingress  string   `json:"ingress"`
	Sites    []string `json:"sites"`
	Egress   string   `json:"egress"`
	// Latency is what an optimiser says of a proposal.
	Latency float64 `json:"latency_ms,omitempty"`
}

// modelLoad is a load of a VNF at a site.
type modelLoad struct {
	Vnf  string  `json:"vnf"`
	Site string  `json:"site"`
	Load float64 `json:"load"`
}

// smallestCapacity is below any load that matters: what is smaller is left out of the model.
const smallestCapacity = 1e-9

// networkEntry is the key of what holds for all links.
const networkEntry = "network"

// topologyEntries sets the entries of everything but chains. g.mu is held.
func (g *Global) topologyEntries(set func(key string, value any)) {
	for _, key := range g.world.Keys(chain.KindSite) {
		set(bus.Key("node", key.Name), modelNode{key.Name})
		if site := g.world[key].Spec.(chain.SiteSpec); site.Capacity > smallestCapacity {
			set(bus.Key("site", key.Name), modelSite{key.Name, key.Name, float64(site.Capacity)})
		}
	}
	for _, key := range g.world.Keys(chain.KindLink) {
		link := g.world[key].Spec.(chain.LinkSpec)
		for _, one := range []modelLink{linkEntry(key.Name, link, false), linkEntry(key.Name, link, true)} {
			set(bus.Key("link", one.ID), one)
		}
	}
	if network, ok := g.world.Network(); ok {
		set(networkEntry, modelNetwork{network.MaximumLinkUtilization})
	}
	for _, key := range g.world.Keys(chain.KindCustomer) {
		set(bus.Key("customer", key.Name), modelCustomer{key.Name, g.world[key].Spec.(chain.CustomerSpec).Priority})
	}
	for _, key := range g.world.Keys(chain.KindVnf) {
		name := chain.VnfName(key.Name)
		vnf := modelVnf{ID: key.Name, LoadPerMbps: g.loadPerMbps(name), Deployments: []modelDeployment{}}
		offers := usable(g.world, g.outages.down, name)
		for _, site := range slices.Sorted(maps.Keys(offers)) {
			vnf.Deployments = append(vnf.Deployments, modelDeployment{string(site), float64(offers[site])})
		}
		set(bus.Key("vnf", key.Name), vnf)
	}
}

// The directions of a link in the model's names.
const (
	forwardLink  = ">"
	reversedLink = "<"
)

func linkEntry(name string, l chain.LinkSpec, reversed bool) modelLink {
	m := modelLink{ID: name + forwardLink, From: string(l.From), To: string(l.To), Latency: float64(l.Latency), Bandwidth: float64(l.Bandwidth)}
	if reversed {
		m.ID, m.From, m.To = name+reversedLink, m.To, m.From
	}
	m.Background = math.Min(float64(l.Background), m.Bandwidth)
	return m
}

// usable is the capacity of a VNF at each site where new routes may use it.
func usable(world chain.World, down map[chain.Placement]string, name chain.VnfName) map[chain.SiteName]chain.Load {
	offers := map[chain.SiteName]chain.Load{}
	for _, key := range world.Keys(chain.KindDeployment) {
		d := world[key].Spec.(chain.DeploymentSpec)
		site, _ := world.Site(d.Site)
		if d.Vnf == name && min(d.Capacity, site.Capacity) > smallestCapacity && down[chain.Placement{Vnf: name, Site: d.Site}] == "" {
			offers[d.Site] = d.Capacity
		}
	}
	return offers
}

// heldChain is a chain and what it holds; false where that is nothing. g.mu is held.
func (g *Global) heldChain(key chain.Key) (modelHeld, bool) {
	var version *control.ChainVersion
	for _, v := range g.records[key].GetVersions() {
		if v.State != draining {
			version = v
			break
		}
	}
	reserved := g.reserved(key)
	if version == nil && len(reserved) == 0 {
		return modelHeld{}, false
	}
	held := modelHeld{Routes: []modelRoute{}, Reserved: []modelLoad{}}
	held.ID = modelID(key)
	held.Vnfs = []string{}
	demand := demandOf(g.states[key].GetPlannedDemand())
	held.Forward, held.Reverse = float64(demand.Forward), float64(demand.Reverse)
	for _, at := range slices.SortedFunc(maps.Keys(reserved), comparePlacements) {
		held.Reserved = append(held.Reserved, modelLoad{string(at.Vnf), string(at.Site), float64(reserved[at])})
	}
	if version == nil {
		return held, true // no demand to be routed, only what is reserved
	}
	if demand.Total() > 0 {
		held.Ingress, held.Egress = modelEnds(pairsOfVersion(version))
	}
	for _, v := range version.Vnfs {
		held.Vnfs = append(held.Vnfs, v.Vnf)
	}
	if spec, ok := g.world[key].Spec.(chain.ChainSpec); ok {
		held.MaximumLatency = float64(spec.MaximumLatency)
		held.Priority = spec.Priority
	}
	if _, ok := g.world[chain.Key{Kind: chain.KindCustomer, Name: string(key.Customer)}]; ok {
		held.Customer = string(key.Customer)
	}
	for _, r := range newestRoutes(version) {
		held.Routes = append(held.Routes, modelRoute{Fraction: r.Fraction, Ingress: r.IngressSite, Sites: append([]string{}, r.Sites...),
			Egress: r.EgressSite})
	}
	return held, true
}

// modelID is a chain's name in the model.
func modelID(key chain.Key) string { return bus.Key(string(key.Customer), key.Name) }

func comparePlacements(a, b chain.Placement) int {
	if a.Vnf != b.Vnf {
		if a.Vnf < b.Vnf {
			return -1
		}
		return 1
	}
	switch {
	case a.Site < b.Site:
		return -1
	case a.Site > b.Site:
		return 1
	}
	return 0
}
