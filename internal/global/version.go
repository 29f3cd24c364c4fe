package global

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// version is the chain version that new routes belong to: the present one where the VNFs are the same, else a new one
// with a label of its own (fresh).
func (w *worker) version(ctx context.Context, s situation, routes []chain.Route) (version *control.ChainVersion, fresh bool, err error) {
	spec := s.message.GetChain().GetSpec()
	wanted := &control.ChainVersion{Match: spec.GetIngress().GetMatch()}
	for _, v := range spec.GetVnfs() {
		wanted.Vnfs = append(wanted.Vnfs, &control.PlannedVnf{Vnf: v.Vnf, Options: v.Options})
	}
	wanted.Ingress = w.plannedEdges(spec.GetIngress().GetEdges(), false)
	wanted.Egress = w.plannedEdges(spec.GetEgress().GetEdges(), true)
	for _, old := range s.record.GetVersions() {
		if old.State == draining || !chain.SameVnfs(usesOf(old), usesOf(wanted)) || !keepsEgress(old, routes) {
			continue
		}
		wanted.ChainLabel, wanted.State = old.ChainLabel, old.State
		wanted.NshNumbers = nshNumbers(old.NshNumbers, wanted.Egress)
		if old.State == control.VersionState_VERSION_STATE_PREPARING {
			wanted.Routes = plannedRoutes(routes)
		} else {
			wanted.Routes, wanted.NextRoutes = old.Routes, plannedRoutes(routes)
		}
		numberRoutes(wanted, old)
		return wanted, false, nil
	}
	label, err := w.versionLabel(ctx, usesOf(wanted))
	if err != nil {
		return nil, false, err
	}
	wanted.ChainLabel, wanted.State = uint32(label), control.VersionState_VERSION_STATE_PREPARING
	wanted.Routes = plannedRoutes(routes)
	wanted.NshNumbers = nshNumbers(nil, wanted.Egress)
	numberRoutes(wanted, nil)
	return wanted, true, nil
}

// versionLabel is a label for a version with these VNFs: the one of the attempt before, else a new one.
func (w *worker) versionLabel(ctx context.Context, uses []chain.Use) (chain.Label, error) {
	spare := w.spare
	switch {
	case spare.label == 0:
	case chain.SameVnfs(spare.uses, uses):
		return spare.label, nil
	default:
		if err := w.g.releaseLabel(ctx, spare.label); err != nil {
			return 0, err
		}
		w.spare = spareLabel{}
	}
	return w.g.takeChainLabel(ctx, w.key, uses)
}

// nshNumbers numbers the egress sites; those that have a number keep it.
func nshNumbers(old map[uint32]uint32, egress []*control.PlannedEdge) map[uint32]uint32 {
	numbers := map[uint32]uint32{}
	maps.Copy(numbers, old)
	for _, e := range egress {
		if next := uint32(len(numbers) + 1); numbers[e.EgressLabel] == 0 && next <= chain.MostNshEgressSites {
			numbers[e.EgressLabel] = next
		}
	}
	return numbers
}

// keepsEgress reports whether routes still lead to every egress site that a version's connections leave at. Otherwise the
// rules of those connections would go with their service path, which is named by its egress; a version that drains keeps them.
func keepsEgress(old *control.ChainVersion, routes []chain.Route) bool {
	return old.State == control.VersionState_VERSION_STATE_PREPARING || !slices.ContainsFunc(old.Routes, func(r *control.PlannedRoute) bool {
		return !slices.ContainsFunc(routes, func(n chain.Route) bool { return string(n.Egress) == r.EgressSite })
	})
}

func (w *worker) plannedEdges(names []string, egress bool) []*control.PlannedEdge {
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	var planned []*control.PlannedEdge
	for _, name := range names {
		key, edge, ok := w.g.world.Edge(w.key.Customer, name)
		if !ok {
			continue // a chain's edges cannot be deleted
		}
		p := &control.PlannedEdge{Site: string(edge.Site), Edge: key.Name, Customer: string(key.Customer),
			Prefixes: w.g.messages[key].GetEdge().GetSpec().GetPrefixes()}
		if egress {
			p.EgressLabel = uint32(w.g.labels.sites[edge.Site])
		}
		planned = append(planned, p)
	}
	return planned
}

// nextRecord is the record that a transaction will publish: the version first, the active one kept, others draining.
func (w *worker) nextRecord(s situation, version *control.ChainVersion) *control.ChainRecord {
	record := &control.ChainRecord{Customer: string(w.key.Customer), Chain: w.key.Name, Revision: w.g.nextRevision(s.record),
		Phase: w.preparingPhase(s), FixedIngress: s.message.GetChain().GetSpec().GetIngress().GetFixed(),
		Versions: []*control.ChainVersion{version}}
	for _, old := range s.record.GetVersions() {
		if old.ChainLabel == version.ChainLabel {
			continue
		}
		old = proto.CloneOf(old)
		if old.State == control.VersionState_VERSION_STATE_PREPARING {
			old.State = control.VersionState_VERSION_STATE_DRAINING // never carried anything
		}
		record.Versions = append(record.Versions, old)
	}
	return record
}

// vnfParticipant is where a VNF's controller answers. g.mu is held.
func (g *Global) vnfParticipant(name chain.VnfName) *control.Participant {
	vnf, _ := g.world.Vnf(name)
	return &control.Participant{Site: string(vnf.ControllerSite), Service: bus.Key("vnf", string(name))}
}

// participants lists who must agree to a version: the controller of every VNF, and the edge controllers of its ends.
func (w *worker) participants(p *problem, s situation, version *control.ChainVersion, routes []chain.Route) []*control.Participant {
	g := w.g
	g.mu.Lock()
	defer g.mu.Unlock()
	byVnf := map[string]*control.Participant{}
	for i, planned := range version.Vnfs {
		participant := byVnf[planned.Vnf]
		if participant == nil {
			participant = g.vnfParticipant(chain.VnfName(planned.Vnf))
			participant.Prepare = w.prepare(version.ChainLabel)
			byVnf[planned.Vnf] = participant
		}
		allocation := &control.Allocation{Position: uint32(i + 1), Options: planned.Options}
		loads := chain.PositionLoads(routes, i+1, p.loadPerMbps(chain.VnfName(planned.Vnf)), p.demand)
		for _, site := range slices.Sorted(maps.Keys(loads)) {
			allocation.Loads = append(allocation.Loads, &control.SiteLoad{Site: string(site), Load: float64(loads[site])})
		}
		participant.Prepare.Allocations = append(participant.Prepare.Allocations, allocation)
	}
	all := slices.Collect(maps.Values(byVnf))
	for site, participant := range w.edgeParticipants(version) {
		// An edge controller that cannot be asked, and keeps what it has, need not be.
		if old := versionOf(s.record, version.ChainLabel); old == nil || g.outages.away[chain.SiteName(site)] == "" || !w.sameEdges(site, old, participant) {
			all = append(all, participant)
		}
	}
	slices.SortFunc(all, func(a, b *control.Participant) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Site, b.Site))
	})
	return all
}

// sameEdges reports whether a site's edge controller is asked for nothing but what it has agreed to for a version.
func (w *worker) sameEdges(site string, old *control.ChainVersion, now *control.Participant) bool {
	was := w.edgeParticipants(old)[site]
	return was != nil && slices.EqualFunc(was.Prepare.Edges, now.Prepare.Edges, func(a, b *control.EdgeBinding) bool { return proto.Equal(a, b) })
}

// edgeParticipants are the edge controllers of a version's ends, by site.
func (w *worker) edgeParticipants(version *control.ChainVersion) map[string]*control.Participant {
	bySite := map[string]*control.Participant{}
	bind := func(e *control.PlannedEdge, ingress bool) {
		if bySite[e.Site] == nil {
			bySite[e.Site] = &control.Participant{Site: e.Site, Service: edgeService, Prepare: w.prepare(version.ChainLabel)}
		}
		binding := &control.EdgeBinding{Edge: e.Edge, EdgeCustomer: e.Customer, Ingress: ingress}
		if ingress {
			binding.Match = version.Match
		}
		bySite[e.Site].Prepare.Edges = append(bySite[e.Site].Prepare.Edges, binding)
	}
	for _, e := range version.Ingress {
		bind(e, true)
	}
	for _, e := range version.Egress {
		bind(e, false)
	}
	return bySite
}

// edgeService is every site's edge controller.
const edgeService = "edge"

func (w *worker) prepare(label uint32) *control.Prepare {
	return &control.Prepare{Customer: string(w.key.Customer), Chain: w.key.Name, ChainLabel: label,
		DeadlineUnixMs: w.g.config.Now().Add(prepareLife).UnixMilli(), CoordinatorSite: w.g.connection.Site()}
}

// letGo lists the participants that a version's label must be released at: those of its VNFs and of all its edges' sites.
func (w *worker) letGo(version *control.ChainVersion) []*control.Participant {
	g := w.g
	g.mu.Lock()
	defer g.mu.Unlock()
	seen := map[string]bool{}
	var all []*control.Participant
	add := func(p *control.Participant) {
		if at := p.Service + "@" + p.Site; !seen[at] && p.Site != "" {
			seen[at] = true
			p.Prepare = w.prepare(version.ChainLabel)
			all = append(all, p)
		}
	}
	for _, v := range version.Vnfs {
		add(g.vnfParticipant(chain.VnfName(v.Vnf)))
	}
	for _, e := range slices.Concat(version.Ingress, version.Egress) {
		add(&control.Participant{Site: e.Site, Service: edgeService})
	}
	return all
}
