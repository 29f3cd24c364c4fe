package global

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/resource"
)

// List shows resources of a kind with their observed state, in order of customer and name; empty parts match all.
func (g *Global) List(kind chain.Kind, customer, name string) []*api.Resource {
	var all []*api.Resource
	switch kind {
	case chain.KindInstance:
		all = g.instances()
	case chain.KindMove:
		all = g.movesShown()
	case chain.KindRoute:
		all = g.routes()
	default:
		all = g.applications(kind)
	}
	all = slices.DeleteFunc(all, func(r *api.Resource) bool {
		return customer != "" && r.Metadata.Customer != customer || name != "" && r.Metadata.Name != name
	})
	slices.SortFunc(all, func(a, b *api.Resource) int { return resource.KeyOf(a).Compare(resource.KeyOf(b)) })
	return all
}

// applications are applied resources with their status.
func (g *Global) applications(kind chain.Kind) []*api.Resource {
	g.mu.Lock()
	var all []*api.Resource
	for _, key := range g.world.Keys(kind) {
		all = append(all, proto.CloneOf(g.messages[key]))
	}
	g.mu.Unlock()
	for _, r := range all {
		key := resource.KeyOf(r)
		switch kind {
		case chain.KindSite:
			r.GetSite().Status = g.siteStatus(key)
		case chain.KindVnf:
			r.GetVnf().Status = g.vnfStatus(key, r.GetVnf().GetSpec())
		case chain.KindDeployment:
			r.GetVnfDeployment().Status = g.deploymentStatus(key, r.GetVnfDeployment().GetSpec())
		case chain.KindEdge:
			r.GetEdge().Status = g.edgeStatus(key, r.GetEdge().GetSpec())
		case chain.KindChain:
			r.GetChain().Status = g.chainStatus(key)
		}
	}
	return all
}

func (g *Global) siteStatus(key chain.Key) *api.SiteStatus {
	site := chain.SiteName(key.Name)
	g.mu.Lock()
	label := g.labels.sites[site]
	g.mu.Unlock()
	status := &api.SiteStatus{Label: uint32(label),
		Connected: g.observed.reachable(key.Name) && g.observed.present(site, "site", key.Name)}
	if seen := g.observed.lastSeen(key.Name); !seen.IsZero() {
		status.LastSeen = timestamppb.New(seen)
	}
	each(g.observed, func(at chain.SiteName, _ string, f *control.ForwarderRecord) {
		if at == site {
			status.Forwarders = append(status.Forwarders, &api.ForwarderStatus{Name: f.Forwarder, Address: f.Address,
				Alive: f.Alive, FlowEntries: f.FlowEntries, DesiredGeneration: f.DesiredGeneration,
				AppliedGeneration: f.AppliedGeneration, Drops: f.Drops,
				LatencyP50Us: f.LatencyP50Us, LatencyP99Us: f.LatencyP99Us, Leaving: f.Leaving})
		}
	})
	slices.SortFunc(status.Forwarders, func(a, b *api.ForwarderStatus) int { return cmpString(a.Name, b.Name) })
	return status
}

// countInstances counts the instances that belong, and those of them that are healthy.
func (g *Global) countInstances(belongs func(*control.InstanceRecord) bool) (all, healthy uint32) {
	each(g.observed, func(_ chain.SiteName, _ string, i *control.InstanceRecord) {
		if !belongs(i) {
			return
		}
		all++
		if i.GetObserved().GetState() == api.VnfInstanceState_VNF_INSTANCE_STATE_HEALTHY {
			healthy++
		}
	})
	return all, healthy
}

func (g *Global) vnfStatus(key chain.Key, spec *api.VnfSpec) *api.VnfStatus {
	at := chain.SiteName(spec.GetControllerSite())
	status := &api.VnfStatus{ControllerConnected: g.observed.reachable(string(at)) && g.observed.present(at, "vnf", key.Name)}
	status.Instances, status.HealthyInstances = g.countInstances(func(i *control.InstanceRecord) bool { return i.Vnf == key.Name })
	return status
}

func (g *Global) deploymentStatus(key chain.Key, spec *api.VnfDeploymentSpec) *api.VnfDeploymentStatus {
	at := chain.Placement{Vnf: chain.VnfName(spec.GetVnf()), Site: chain.SiteName(spec.GetSite())}
	status := &api.VnfDeploymentStatus{}
	g.mu.Lock()
	for k := range g.records {
		status.Reserved += float64(g.reserved(k)[at])
	}
	g.mu.Unlock()
	_, status.HealthyInstances = g.countInstances(func(i *control.InstanceRecord) bool { return i.Deployment == key.Name })
	return status
}

func (g *Global) edgeStatus(key chain.Key, spec *api.EdgeSpec) *api.EdgeStatus {
	status := &api.EdgeStatus{Reason: "site " + spec.GetSite() + " has not reported it"}
	each(g.observed, func(at chain.SiteName, _ string, e *control.EdgeObserved) {
		if string(at) == spec.GetSite() && e.Edge == key.Name && e.Customer == string(key.Customer) {
			status.Up, status.Reason = e.Up, e.Reason
		}
	})
	return status
}

func (g *Global) chainStatus(key chain.Key) *api.ChainStatus {
	joined := g.observed.joined(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	status := &api.ChainStatus{}
	if state := g.states[key]; state != nil && state.Status != nil {
		status = proto.CloneOf(state.Status)
		status.Planned = proto.CloneOf(state.PlannedDemand)
	}
	status.Routes = routeStatuses(g.records[key])
	if v := activeVersion(g.records[key]); v != nil { // what a site says of another version is out of date
		status.Joined = slices.DeleteFunc(joined, func(j *api.JoinedEdge) bool { return j.ChainLabel != v.ChainLabel })
	}
	if m := g.measure[key]; m != nil && !m.began.IsZero() {
		status.Measured = demandMessage(m.demand)
	}
	return status
}

// joined are the edges whose users joined a chain, as their sites report.
func (o *observed) joined(key chain.Key) []*api.JoinedEdge {
	var all []*api.JoinedEdge
	each(o, func(_ chain.SiteName, _ string, p *control.ChainProgress) {
		if chainKey(p.Customer, p.Chain) == key {
			all = append(all, p.Joined...)
		}
	})
	slices.SortFunc(all, func(a, b *api.JoinedEdge) int {
		return cmp.Or(cmpString(a.Edge, b.Edge), cmp.Compare(a.EgressLabel, b.EgressLabel))
	})
	return all
}

// routeStatuses lists the routes of a record, those of the newest version first. A route in use that stays, with another
// share, is listed once, as it is in use.
func routeStatuses(record *control.ChainRecord) []*api.RouteStatus {
	var all []*api.RouteStatus
	for _, v := range record.GetVersions() {
		state := routeState(v.State)
		for i, r := range v.Routes {
			all = append(all, routeStatus(record, v, r, i, state))
		}
		for i, r := range v.NextRoutes {
			if !slices.ContainsFunc(v.Routes, func(used *control.PlannedRoute) bool { return samePath(used, r) }) {
				all = append(all, routeStatus(record, v, r, len(v.Routes)+i, api.RouteState_ROUTE_STATE_PREPARING))
			}
		}
	}
	return all
}

// routeState is the state of the routes that a version's connections take.
func routeState(version control.VersionState) api.RouteState {
	return map[control.VersionState]api.RouteState{
		control.VersionState_VERSION_STATE_PREPARING: api.RouteState_ROUTE_STATE_PREPARING,
		control.VersionState_VERSION_STATE_ACTIVE:    api.RouteState_ROUTE_STATE_ACTIVE,
		control.VersionState_VERSION_STATE_DRAINING:  api.RouteState_ROUTE_STATE_DRAINING,
	}[version]
}

// routeStatus shows the i-th route of a version.
func routeStatus(record *control.ChainRecord, v *control.ChainVersion, r *control.PlannedRoute, i int, state api.RouteState) *api.RouteStatus {
	number := cmp.Or(r.Number, uint32(i+1)) // of a release that did not number them
	return &api.RouteStatus{Name: routeName(record.Chain, v.ChainLabel, number), ChainLabel: v.ChainLabel, EgressLabel: r.EgressLabel,
		Fraction: r.Fraction, IngressSite: r.IngressSite, Sites: r.Sites, Vnfs: vnfWords(v), EgressSite: r.EgressSite,
		LatencyMs: r.LatencyMs, State: state}
}

func vnfWords(v *control.ChainVersion) []string {
	words := make([]string, len(v.Vnfs))
	for i, p := range v.Vnfs {
		words[i] = p.Vnf
	}
	return words
}

// routes are observed resources of their own.
func (g *Global) routes() []*api.Resource {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []*api.Resource
	for key, record := range g.records {
		for _, status := range routeStatuses(record) {
			all = append(all, &api.Resource{
				Metadata: &api.Metadata{Name: status.Name, Customer: string(key.Customer)},
				Kind:     &api.Resource_Route{Route: &api.Route{Chain: key.Name, Status: status}},
			})
		}
	}
	return all
}

// instances are what sites say of VNF instances.
func (g *Global) instances() []*api.Resource {
	var all []*api.Resource
	each(g.observed, func(at chain.SiteName, _ string, i *control.InstanceRecord) {
		observed := proto.CloneOf(i.Observed)
		if observed == nil {
			observed = &api.VnfInstance{}
		}
		observed.Vnf, observed.Site, observed.Deployment = i.Vnf, i.Site, i.Deployment
		if !g.observed.reachableLocked(string(at)) {
			observed.Reason = "as last seen: the site cannot be reached"
		}
		all = append(all, &api.Resource{Metadata: &api.Metadata{Name: i.Instance},
			Kind: &api.Resource_VnfInstance{VnfInstance: observed}})
	})
	return all
}
