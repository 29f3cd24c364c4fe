package site

import (
	"slices"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// candidate is a target at one end of a stage before its weight is known.
type candidate struct {
	local  *rules.LocalTarget
	remote *rules.RemoteTarget
	share  float64 // of what comes from this site
	floor  uint32  // relative weight that it must have however small its share: packets from tunnels need it
}

// end makes one end of a stage for a forwarder: position is where packets go, from where they come from.
func (c *computation) end(p *path, forwarder string, position, from uint32, remotes bool) *rules.StageEnd {
	var candidates []candidate
	if p.isEdge(position) {
		candidates = c.edgeCandidates(p, forwarder, position, from, remotes)
	} else {
		candidates = c.instanceCandidates(p, forwarder, position, from, remotes)
	}
	return weigh(candidates)
}

// weigh gives candidates integers: by share; at least the floor where packets from tunnels have no other target.
func weigh(candidates []candidate) *rules.StageEnd {
	shares := make([]float64, len(candidates))
	floors := make([]uint32, len(candidates))
	shared := false
	for i, c := range candidates {
		shares[i], floors[i] = c.share, c.floor
		shared = shared || c.share > 0
	}
	if !shared { // nothing comes from here: only proportions among local targets count
		for i, f := range floors {
			shares[i] = float64(f)
		}
	}
	weights, floors := chain.Weights(shares), chain.SmallestWeights(floors)
	end := &rules.StageEnd{}
	for i, c := range candidates {
		weight := max(weights[i], floors[i])
		if c.local != nil {
			c.local.Weight = weight
			end.Local = append(end.Local, c.local)
		} else {
			c.remote.Weight = weight
			end.Remote = append(end.Remote, c.remote)
		}
	}
	return end
}

// instanceCandidates are the attachments of a VNF here and the forwarders that serve its instances elsewhere.
func (c *computation) instanceCandidates(p *path, forwarder string, position, from uint32, remotes bool) []candidate {
	here := c.attachmentsAt(p, position)
	perForwarder := map[string]float64{}
	total := 0.0
	for _, a := range here {
		perForwarder[a.Forwarder] += float64(a.Weight)
		total += float64(a.Weight)
	}
	wanted := slices.Contains(p.sitesAt(position), c.in.Site)
	shares := p.shares(from, c.in.Site, position)
	part := func(weight float64) float64 {
		if total == 0 {
			return 0
		}
		return shares[c.in.Site] * weight / total
	}
	var all []candidate
	for _, a := range here {
		visits := c.in.Visitors[Thing{Instance: a.Instance}][forwarder].serves()
		if a.Forwarder != forwarder && !visits {
			continue
		}
		target := candidate{local: &rules.LocalTarget{Target: &rules.LocalTarget_Attachment{Attachment: a.ID}}}
		if wanted && a.State == vnf.Active {
			target.floor = a.Weight
			if a.Forwarder == forwarder {
				target.share = part(float64(a.Weight))
			}
		}
		all = append(all, target)
	}
	if !remotes {
		return all
	}
	for _, other := range sortedKeys(perForwarder) {
		if other != forwarder {
			remote := &rules.RemoteTarget{Peer: c.in.Site + "/" + other}
			all = append(all, candidate{remote: remote, share: part(perForwarder[other])})
		}
	}
	for _, site := range p.sitesAt(position) {
		if site != c.in.Site {
			all = append(all, c.remoteInstances(p, site, position, shares[site])...)
		}
	}
	return all
}

// remoteInstances are the forwarders of another site that have instances of a VNF. A forwarder without any at a site that has some
// is none of these: it may have handed its own over, and passes on what comes for them.
func (c *computation) remoteInstances(p *path, site string, position uint32, share float64) []candidate {
	name := p.vnfAt(position)
	total := 0.0
	var all []candidate
	var weights []float64
	for _, f := range c.forwarders[site] { // in order of their names
		weight, has := f.VnfWeights[name]
		withdrawn := c.withdrawn(p, f, position)
		if !has && !withdrawn {
			continue
		}
		if withdrawn {
			weight = 0
		}
		all = append(all, candidate{remote: &rules.RemoteTarget{Peer: peerID(f), Withdrawn: withdrawn}})
		weights = append(weights, float64(weight))
		total += float64(weight)
	}
	for i, weight := range weights {
		if total > 0 {
			all[i].share = share * weight / total
		}
	}
	return all
}

// edgeCandidates are the edges at an end of the path. All take part whatever the routes' shares: the destination chooses
// among them by their prefixes, and a user who joined at a new site must get answers from every first VNF.
func (c *computation) edgeCandidates(p *path, forwarder string, position, from uint32, remotes bool) []candidate {
	var all []candidate
	prefixes := map[string][]string{} // by peer
	shares := p.shares(from, c.in.Site, position)
	peerShares := map[string]float64{}
	for _, e := range p.edgesAt(position) {
		if e.site == c.in.Site && (c.in.UsableEdges[e.EdgeKey] == forwarder || c.edgeRole(e.EdgeKey, forwarder).serves()) {
			target := candidate{local: &rules.LocalTarget{Target: &rules.LocalTarget_Edge{Edge: e.String()}, Prefixes: e.prefixes}}
			if !e.ambiguous { // otherwise only connections that know their VLAN
				target.share, target.floor = shares[e.site], 1
			}
			all = append(all, target)
			continue
		}
		if !remotes {
			continue
		}
		peer := c.servingEdge(e)
		if peer == "" {
			continue
		}
		if known, seen := prefixes[peer]; seen && (len(known) == 0 || len(e.prefixes) == 0) {
			prefixes[peer] = nil // one of its edges takes every destination
		} else {
			prefixes[peer] = slices.Clone(known)
			for _, prefix := range e.prefixes {
				if !slices.Contains(known, prefix) { // VLANs of one edge have the same
					prefixes[peer] = append(prefixes[peer], prefix)
				}
			}
		}
		peerShares[peer] = shares[e.site]
	}
	for _, peer := range sortedKeys(prefixes) {
		all = append(all, candidate{remote: &rules.RemoteTarget{Peer: peer, Prefixes: prefixes[peer]}, share: peerShares[peer], floor: 1})
	}
	return all
}

// servingEdge is the peer that has an edge, "" while none says so.
func (c *computation) servingEdge(e pathEdge) string {
	if e.site == c.in.Site {
		if forwarder := c.in.UsableEdges[e.EdgeKey]; forwarder != "" {
			return c.in.Site + "/" + forwarder
		}
		return ""
	}
	for _, f := range c.forwardersOf(e.site, func(f *control.ForwarderRecord) bool { return slices.Contains(f.Edges, e.String()) }) {
		return peerID(f)
	}
	return ""
}

func (c *computation) forwardersOf(site string, which func(*control.ForwarderRecord) bool) []*control.ForwarderRecord {
	var found []*control.ForwarderRecord
	for _, f := range c.forwarders[site] { // in order of their names
		if which(f) {
			found = append(found, f)
		}
	}
	return found
}

func (c *computation) attachmentsAt(p *path, position uint32) []*vnf.Attachment {
	return c.attached[placeKey{p.version.ChainLabel, p.egressLabel, position}]
}

func peerID(f *control.ForwarderRecord) string { return f.Site + "/" + f.Forwarder }
