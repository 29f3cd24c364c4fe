package site

import (
	"cmp"
	"slices"
	"strings"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// Topic is part of another site's published state.
type Topic struct{ Site, Prefix string }

// forwardersPrefix is below which a site publishes its forwarders.
const forwardersPrefix = "forwarder"

// Need is what a site needs for its part of the chains.
type Need struct {
	// Topics to subscribe to: the forwarders at the other ends of its stages, those that its forwarders still have connections
	// with from earlier routes, and what VNF controllers allotted here (paper section 5.2); nothing of other sites.
	Topics []Topic
	// Places are those that its instances must serve.
	Places []NeededPlace
}

// NeededPlace is a place with the chain it belongs to.
type NeededPlace struct {
	vnf.Place
	Record   *control.ChainRecord
	Planned  *control.PlannedVnf
	Position uint32
	// Vnfs is how many the path has, Paths are its service path identifiers (RFC 8300), forward and reverse; 0 for none.
	Vnfs  uint32
	Paths [2]uint32
}

// Needs says what the site needs. controllerSite tells where a VNF's controller publishes, "" where it is not known.
func Needs(in Inputs, controllerSite func(vnf string) string) Need {
	var need Need
	in.Chains, _ = sound(in.Chains)
	in.Edges = instancesOf(in.Edges)
	topics := map[Topic]bool{}
	for _, record := range in.Chains {
		for _, p := range paths(&in, record) {
			for _, r := range p.every() {
				for z := uint32(1); z <= p.vnfs+1; z++ {
					before, after := siteAt(r, z-1), siteAt(r, z)
					if before == in.Site {
						topics[Topic{after, forwardersPrefix}] = true
					}
					if after == in.Site {
						topics[Topic{before, forwardersPrefix}] = true
					}
				}
			}
			need.joiningTopics(&in, p, topics)
			need.places(&in, p)
		}
	}
	for _, place := range need.Places {
		if at := controllerSite(place.VNF); at != "" {
			topics[Topic{at, bus.Key("allocation", place.VNF, place.Record.Customer, place.Record.Chain)}] = true
		}
	}
	for _, set := range in.Previous {
		for _, peer := range set.GetPeers() {
			site, _, _ := strings.Cut(peer.Id, "/")
			topics[Topic{site, forwardersPrefix}] = true
		}
	}
	for topic := range topics {
		if topic.Site != in.Site || topic.Prefix != forwardersPrefix {
			need.Topics = append(need.Topics, topic)
		}
	}
	slices.SortFunc(need.Topics, func(a, b Topic) int { return cmp.Or(cmp.Compare(a.Site, b.Site), cmp.Compare(a.Prefix, b.Prefix)) })
	return need
}

// joiningTopics: every site of a first VNF sends answers to every ingress edge, also those that join.
func (n *Need) joiningTopics(in *Inputs, p *path, topics map[Topic]bool) {
	if !slices.Contains(p.sitesAt(1), in.Site) {
		return
	}
	for _, e := range p.ingress {
		topics[Topic{e.site, forwardersPrefix}] = true
	}
}

func (n *Need) places(in *Inputs, p *path) {
	forward, reverse := nshPaths(p.version, p.egressLabel)
	for position := uint32(1); position <= p.vnfs; position++ {
		if slices.Contains(p.sitesAt(position), in.Site) {
			n.Places = append(n.Places, NeededPlace{
				Place:  vnf.Place{VNF: p.vnfAt(position), ChainLabel: p.version.ChainLabel, EgressLabel: p.egressLabel, Stage: position},
				Record: p.record, Planned: p.version.Vnfs[position-1], Position: position, Vnfs: p.vnfs, Paths: [2]uint32{forward, reverse}})
		}
	}
}
