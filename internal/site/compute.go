package site

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// VNI is the VXLAN network identifier of the platform's tunnels.
const VNI = 4789

// Compute makes the rules of every forwarder of the site.
func Compute(in Inputs) Result {
	result := Result{Rules: map[string]*rules.RuleSet{}, Chains: map[ChainKey]Following{}}
	records, problems := sound(in.Chains)
	for key, problem := range problems {
		result.Chains[key] = Following{Revision: revisionOf(in.Chains, key), Missing: []string{problem}}
	}
	in.Remote = reachable(in.Remote, in.Forwarders)
	in.Chains, in.Edges = records, instancesOf(in.Edges)
	c := newComputation(&in)
	for _, record := range records {
		all := paths(&in, record)
		c.paths = append(c.paths, all...)
		for _, p := range all {
			c.served[p.version] = append(c.served[p.version], p)
		}
		if following, takesPart := c.following(record, all); takesPart {
			result.Chains[ChainKey{record.Customer, record.Chain}] = following
		}
	}
	slices.SortFunc(c.paths, byPath)
	peers := map[string]bool{}
	for _, f := range in.Forwarders {
		set := c.ruleSet(f)
		result.Rules[f.Name] = set
		for _, p := range set.Peers {
			peers[p.Id] = true
		}
	}
	result.Peers = sortedKeys(peers)
	return result
}

func revisionOf(records []*control.ChainRecord, key ChainKey) uint64 {
	for _, r := range records {
		if r.Customer == key.Customer && r.Chain == key.Chain {
			return r.Revision
		}
	}
	return 0
}

// computation is one run of Compute.
type computation struct {
	in    *Inputs
	paths []*path
	// What would be searched for again and again.
	served     map[*control.ChainVersion][]*path
	forwarders map[string][]*control.ForwarderRecord // by site
	peerOf     map[string]*control.ForwarderRecord
	attached   map[placeKey][]*vnf.Attachment
	tookOver   map[string]string  // peers by those that they took over from
	interfaces map[EdgeKey]string // of this site's edges
}

type placeKey struct{ chainLabel, egressLabel, stage uint32 }

func newComputation(in *Inputs) *computation {
	c := &computation{in: in, served: map[*control.ChainVersion][]*path{}, forwarders: map[string][]*control.ForwarderRecord{},
		peerOf: map[string]*control.ForwarderRecord{}, attached: map[placeKey][]*vnf.Attachment{},
		tookOver: map[string]string{}, interfaces: map[EdgeKey]string{}}
	for _, f := range in.Remote { // in order
		c.forwarders[f.Site] = append(c.forwarders[f.Site], f)
		c.peerOf[peerID(f)] = f
	}
	for _, f := range in.Remote {
		for _, before := range f.TookOver {
			if old := c.peerOf[f.Site+"/"+before]; old == nil || old.Leaving {
				c.tookOver[f.Site+"/"+before] = peerID(f)
			}
		}
	}
	for before, now := range in.TookOver {
		c.tookOver[in.Site+"/"+before] = in.Site + "/" + now
	}
	for _, e := range in.Edges {
		if e.GetSpec().GetSite() == in.Site {
			c.interfaces[EdgeKey{e.Customer, e.Edge}] = e.Spec.Interface
		}
	}
	for i := range in.Attachments {
		a := &in.Attachments[i]
		if a.Kind == vnf.LabelAwareNsh && !hasNsh(in.Chains, a.Place) {
			continue // a forwarder would refuse all of its rules
		}
		at := placeKey{a.ChainLabel, a.EgressLabel, a.Stage}
		c.attached[at] = append(c.attached[at], a)
	}
	for _, at := range c.attached {
		slices.SortFunc(at, func(a, b *vnf.Attachment) int { return cmp.Compare(a.ID, b.ID) })
	}
	return c
}

func (c *computation) ruleSet(f Forwarder) *rules.RuleSet {
	previous := c.in.Previous[f.Name]
	stages := stagesOf(previous)
	set := &rules.RuleSet{
		Site: c.in.Site, Forwarder: f.Name,
		Underlay: &rules.Underlay{Port: f.Interface, Addresses: []string{f.TunnelAddress}, Gateways: f.Gateways, Mtu: f.MTU, Vni: VNI},
		Edges:    c.edges(f.Name), SelectionSeed: c.in.Seed,
	}
	for _, p := range c.paths {
		if served := c.servicePath(p, f.Name, stages); served != nil {
			set.Paths = append(set.Paths, served)
		}
	}
	set.Attachments = c.attachments(set)
	set.Moved = c.moved(set, previous)
	set.Peers = c.peers(set, previous)
	withoutNsh(set)
	prune(set)
	set.Ports = ports(f, set, c.in.Ports[f.Name])
	set.Generation = previous.GetGeneration()
	if previous == nil || !proto.Equal(set, previous) {
		set.Generation++
	}
	return set
}

// servicePath makes the stages of a path that a forwarder takes part in: those with a local target at one end, and those at which it
// passes on what others still send it.
func (c *computation) servicePath(p *path, forwarder string, previous map[placeKey]*rules.Stage) *rules.ServicePath {
	served := &rules.ServicePath{ChainLabel: p.version.ChainLabel, EgressLabel: p.egressLabel,
		Customer: p.record.Customer, Chain: p.record.Chain, VnfCount: p.vnfs}
	served.NshForwardPath, served.NshReversePath = nshPaths(p.version, p.egressLabel)
	for z := uint32(1); z <= p.vnfs+1; z++ {
		before := previous[placeKey{served.ChainLabel, served.EgressLabel, z}]
		down, up := c.end(p, forwarder, z, z-1, false), c.end(p, forwarder, z-1, z, false)
		nothingHere := len(down.Local)+len(up.Local) == 0
		if nothingHere && (before == nil || !c.atSibling(p, forwarder, z-1) && !c.atSibling(p, forwarder, z)) {
			continue
		}
		stage := &rules.Stage{Number: z,
			Downstream: c.end(p, forwarder, z, z-1, nothingHere || len(up.Local) > 0),
			Upstream:   c.end(p, forwarder, z-1, z, nothingHere || len(down.Local) > 0)}
		c.retain(p, stage, before)
		served.Stages = append(served.Stages, stage)
	}
	if len(served.Stages) == 0 {
		return nil
	}
	served.Routes, served.Ingresses = c.routes(p)
	return served
}

// nshPaths are a path's service path identifiers, 0 where it has none.
func nshPaths(version *control.ChainVersion, egressLabel uint32) (forward, reverse uint32) {
	number := version.NshNumbers[egressLabel]
	if number == 0 {
		return 0, 0
	}
	return version.ChainLabel<<4 | number, (version.ChainLabel+1)<<4 | number
}

// hasNsh reports whether a place's path has service path identifiers.
func hasNsh(chains []*control.ChainRecord, at vnf.Place) bool {
	for _, record := range chains {
		for _, v := range record.Versions {
			if v.ChainLabel == at.ChainLabel {
				forward, _ := nshPaths(v, at.EgressLabel)
				return forward != 0
			}
		}
	}
	return false
}

// withoutNsh lets peers use labels that a path without service path identifiers leads to. They read both.
func withoutNsh(set *rules.RuleSet) {
	named := map[string]bool{}
	for _, p := range set.Paths {
		for _, s := range p.Stages {
			for _, target := range slices.Concat(s.Downstream.Remote, s.Upstream.Remote) {
				if p.NshForwardPath == 0 {
					site, _, _ := strings.Cut(target.Peer, "/")
					named[site] = true
				}
			}
		}
	}
	for _, p := range set.Peers {
		if site, _, _ := strings.Cut(p.Id, "/"); named[site] && p.Encapsulation == rules.Encapsulation_ENCAPSULATION_VXLAN_GPE_NSH {
			p.Encapsulation = rules.Encapsulation_ENCAPSULATION_VXLAN_MPLS
		}
	}
}

// retain keeps forwarders that were targets before, with weight 0, as long as the path exists: connections may still
// pass them, and nobody counts another site's connections.
func (c *computation) retain(p *path, stage, previous *rules.Stage) {
	keep := func(position uint32, end, before *rules.StageEnd) {
		for _, old := range before.GetRemote() {
			if !slices.ContainsFunc(end.Remote, func(r *rules.RemoteTarget) bool { return r.Peer == old.Peer }) {
				end.Remote = append(end.Remote, &rules.RemoteTarget{Peer: old.Peer, Prefixes: old.Prefixes,
					Withdrawn: c.left(p, old.Peer, position)})
			}
		}
		slices.SortFunc(end.Remote, func(a, b *rules.RemoteTarget) int { return cmp.Compare(a.Peer, b.Peer) })
	}
	keep(stage.Number, stage.Downstream, previous.GetDownstream())
	keep(stage.Number-1, stage.Upstream, previous.GetUpstream())
}

func stagesOf(set *rules.RuleSet) map[placeKey]*rules.Stage {
	stages := map[placeKey]*rules.Stage{}
	for _, p := range set.GetPaths() {
		for _, stage := range p.Stages {
			stages[placeKey{p.ChainLabel, p.EgressLabel, stage.Number}] = stage
		}
	}
	return stages
}

// attachments are those that the paths name.
func (c *computation) attachments(set *rules.RuleSet) []*rules.Attachment {
	named := map[string]bool{}
	for _, target := range localTargets(set) {
		named[target.GetAttachment()] = true
	}
	var all []*rules.Attachment
	for _, a := range c.in.Attachments {
		role := c.in.Visitors[Thing{Instance: a.Instance}][set.Forwarder]
		if a.Forwarder == set.Forwarder && named[a.ID] || role.serves() && named[a.ID] || role == Preparing && a.Forwarder != set.Forwarder {
			rule := attachmentRule(a)
			rule.Passive = a.Forwarder != set.Forwarder && !role.takes()
			all = append(all, rule)
		}
	}
	slices.SortFunc(all, func(a, b *rules.Attachment) int { return cmp.Compare(a.Id, b.Id) })
	return all
}

func attachmentRule(a vnf.Attachment) *rules.Attachment {
	kinds := map[vnf.Kind]rules.AttachmentKind{
		vnf.Gateway: rules.AttachmentKind_ATTACHMENT_KIND_GATEWAY, vnf.Transparent: rules.AttachmentKind_ATTACHMENT_KIND_TRANSPARENT,
		vnf.LabelAwareMpls: rules.AttachmentKind_ATTACHMENT_KIND_LABEL_AWARE_MPLS, vnf.LabelAwareNsh: rules.AttachmentKind_ATTACHMENT_KIND_LABEL_AWARE_NSH,
		vnf.Native: rules.AttachmentKind_ATTACHMENT_KIND_NATIVE}
	states := map[vnf.State]rules.AttachmentState{
		vnf.Active:   rules.AttachmentState_ATTACHMENT_STATE_ACTIVE,
		vnf.Draining: rules.AttachmentState_ATTACHMENT_STATE_DRAINING, vnf.Dead: rules.AttachmentState_ATTACHMENT_STATE_DEAD}
	rule := &rules.Attachment{
		Id: a.ID, Vnf: a.VNF, Instance: a.Instance, Kind: kinds[a.Kind], State: states[a.State],
		IngressPort: a.IngressPort, EgressPort: a.EgressPort, IngressMac: a.IngressMAC, EgressMac: a.EgressMAC,
		IngressVlan: a.IngressVLAN, EgressVlan: a.EgressVLAN, Mtu: a.MTU,
		ChainLabel: a.ChainLabel, EgressLabel: a.EgressLabel, Stage: a.Stage,
	}
	if a.Filter != nil {
		rule.Function = &rules.Attachment_Filter{Filter: filterRule(a.Filter)}
	}
	return rule
}

func localTargets(set *rules.RuleSet) []*rules.LocalTarget {
	var all []*rules.LocalTarget
	for _, p := range set.Paths {
		for _, s := range p.Stages {
			all = append(append(all, s.Downstream.Local...), s.Upstream.Local...)
		}
	}
	return all
}

// peers are the forwarders that targets name, and all others of their sites: a connection may move to one of those, and packets come
// from it at once. One whose record is gone keeps its last address, as dead.
func (c *computation) peers(set, previous *rules.RuleSet) []*rules.Peer {
	named := map[string]bool{}
	for _, p := range set.Paths {
		for _, s := range p.Stages {
			for _, target := range slices.Concat(s.Downstream.Remote, s.Upstream.Remote) {
				named[target.Peer] = true
			}
		}
	}
	for _, m := range set.Moved {
		named[m.To] = true
	}
	for id := range maps.Clone(named) {
		site, _, _ := strings.Cut(id, "/")
		for _, f := range c.forwarders[site] {
			named[peerID(f)] = true
		}
	}
	for _, f := range c.in.Forwarders {
		if f.Name != set.Forwarder {
			named[c.in.Site+"/"+f.Name] = true
		}
	}
	// A forwarder is no peer of its own, also where a record that is gone had its address.
	delete(named, c.in.Site+"/"+set.Forwarder)
	known := map[string]bool{}
	for _, own := range set.Underlay.Addresses {
		known[hostAddress(own)] = true
	}
	var all []*rules.Peer
	add := func(id string, old bool) {
		peer, remembered := c.peer(id, previous)
		if peer != nil && remembered == old && !known[peer.Address] {
			known[peer.Address] = true
			all = append(all, peer)
		}
	}
	for _, id := range sortedKeys(named) {
		add(id, false)
	}
	for _, id := range sortedKeys(named) { // an address that another peer has now is that one's
		add(id, true)
	}
	slices.SortFunc(all, func(a, b *rules.Peer) int { return cmp.Compare(a.Id, b.Id) })
	return all
}

// peer finds a forwarder; remembered says that only the previous rules know it.
func (c *computation) peer(id string, previous *rules.RuleSet) (peer *rules.Peer, remembered bool) {
	peer = &rules.Peer{Id: id, Encapsulation: c.encapsulation(id)}
	peer.Away = c.in.Away[id]
	if f := c.peerOf[id]; f != nil {
		peer.Address, peer.Alive = f.Address, f.Alive || peer.Away
		return peer, false
	}
	for _, f := range c.in.Forwarders {
		if c.in.Site+"/"+f.Name == id {
			peer.Address, peer.Alive = hostAddress(f.TunnelAddress), !c.in.Dead[id]
			return peer, false
		}
	}
	peer.Away = false
	for _, old := range previous.GetPeers() {
		if old.Id == id {
			peer.Address = old.Address
			return peer, true
		}
	}
	return nil, false
}

// encapsulation is what the link to a peer's site says; labels in VXLAN where there is no link.
func (c *computation) encapsulation(peer string) rules.Encapsulation {
	site, _, _ := strings.Cut(peer, "/")
	switch c.in.Encapsulations[site] {
	case api.Encapsulation_ENCAPSULATION_VXLAN_GPE_NSH:
		return rules.Encapsulation_ENCAPSULATION_VXLAN_GPE_NSH
	case api.Encapsulation_ENCAPSULATION_MPLS_IN_UDP:
		return rules.Encapsulation_ENCAPSULATION_MPLS_IN_UDP
	}
	return rules.Encapsulation_ENCAPSULATION_VXLAN_MPLS
}

// ports are the underlay's, then those of edges and instances.
func ports(f Forwarder, set *rules.RuleSet, instances []string) []*rules.Port {
	names := map[string]bool{}
	for _, name := range instances {
		names[name] = true
	}
	for _, e := range set.Edges {
		names[e.Port] = true
	}
	for _, a := range set.Attachments {
		names[a.IngressPort], names[a.EgressPort] = true, true
	}
	delete(names, f.Interface)
	var all []*rules.Port
	for _, name := range append([]string{f.Interface}, sortedKeys(names)...) {
		port := &rules.Port{Name: name, Device: &rules.Port_AfPacket{AfPacket: name}}
		devargs := f.Devices[name]
		switch {
		case devargs != "":
			port.Device = &rules.Port_Devargs{Devargs: devargs}
		case vnf.IsNativePort(name):
			port.Device = &rules.Port_Native{Native: &rules.NativePort{}}
		case f.Driver == DriverAFXDP:
			port.Device = &rules.Port_AfXdp{AfXdp: name}
		}
		all = append(all, port)
	}
	return all
}

// following says whether the site takes part in a chain and what the rules lack for the routes being prepared.
func (c *computation) following(record *control.ChainRecord, all []*path) (Following, bool) {
	f := Following{Revision: record.Revision, Joined: c.joined(all)}
	takesPart := slices.ContainsFunc(record.Versions, func(v *control.ChainVersion) bool {
		return slices.ContainsFunc(slices.Concat(v.Ingress, v.Egress), func(e *control.PlannedEdge) bool { return e.Site == c.in.Site })
	})
	for _, p := range all {
		takesPart = takesPart || p.involves(c.in.Site) || c.hasAttachments(p)
		prepared := p.next
		if p.version.State == control.VersionState_VERSION_STATE_PREPARING {
			prepared = slices.Concat(p.routes, p.next)
		}
		for _, r := range prepared {
			f.Missing = append(f.Missing, c.missing(p, r)...)
		}
	}
	slices.Sort(f.Missing)
	f.Missing = slices.Compact(f.Missing)
	return f, takesPart
}

func (c *computation) hasAttachments(p *path) bool {
	for position := uint32(1); position <= p.vnfs; position++ {
		if len(c.attachmentsAt(p, position)) > 0 {
			return true
		}
	}
	return false
}

// missing lists what this site lacks to carry a route: its own targets, and those of the stages' other ends.
func (c *computation) missing(p *path, r *control.PlannedRoute) []string {
	var lacks []string
	for z := uint32(1); z <= p.vnfs+1; z++ {
		if siteAt(r, z-1) != c.in.Site && siteAt(r, z) != c.in.Site {
			continue
		}
		for _, position := range []uint32{z - 1, z} {
			if why := c.lacking(p, position, siteAt(r, position)); why != "" {
				lacks = append(lacks, why)
			}
		}
	}
	return lacks
}

// lacking says why a position cannot be reached at a site, "" where it can.
func (c *computation) lacking(p *path, position uint32, site string) string {
	if p.isEdge(position) {
		for _, e := range p.edgesAt(position) {
			if e.site == site && c.servingEdge(e) == "" {
				return fmt.Sprintf("edge %s is not up at site %s", e, site)
			}
		}
		return ""
	}
	name := p.vnfAt(position)
	if site != c.in.Site {
		serving := c.forwardersOf(site, func(f *control.ForwarderRecord) bool { return f.VnfWeights[name] > 0 })
		if len(serving) == 0 {
			return fmt.Sprintf("site %s announces no forwarder with instances of VNF %s", site, name)
		}
		return ""
	}
	for _, a := range c.attachmentsAt(p, position) {
		if a.State == vnf.Active && a.Weight > 0 {
			return ""
		}
	}
	why := fmt.Sprintf("no healthy instance of VNF %s is attached at site %s", name, site)
	place := vnf.Place{VNF: name, ChainLabel: p.version.ChainLabel, EgressLabel: p.egressLabel, Stage: position}
	if reason := c.in.Waiting[place]; reason != "" {
		why += ": " + reason
	}
	return why
}
