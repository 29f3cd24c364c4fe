package global

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/switchboard-project/switchboard/internal/chain"
)

// tolerance forgives rounding in sums of loads.
const tolerance = 1e-6

// broken says why a chain's routes cannot stay: a deployment or an egress site has failed, or a deployment has gone or become too small. Where several chains share
// one that is too small, those of higher priority, then the older, stay. "" where nothing is wrong.
func (g *Global) broken(key chain.Key) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	routes := g.carrying(key)
	if site, why := g.lostEgress(key, routes); site != "" {
		return fmt.Sprintf("egress site %s is away: %s", site, why)
	}
	for at := range chain.Loads(routes, g.carryingVnfs(key), g.loadPerMbps, demandOf(g.states[key].GetPlannedDemand())) {
		capacity, exists := g.capacity(at)
		if !exists {
			return fmt.Sprintf("VNF %s is no longer deployed at site %s", at.Vnf, at.Site)
		}
		if why := g.outages.whyDown(key, at); why != "" {
			return fmt.Sprintf("VNF %s at site %s: %s", at.Vnf, at.Site, why)
		}
		if g.crowdedOut(key, at, capacity) {
			return fmt.Sprintf("VNF %s at site %s has %.6g load units, less than its chains hold", at.Vnf, at.Site, float64(capacity))
		}
	}
	return ""
}

// lostEgress is an egress site of routes that is away while another leads to the same destinations. g.mu is held.
func (g *Global) lostEgress(key chain.Key, routes []chain.Route) (site chain.SiteName, why string) {
	spec, ok := g.world[key].Spec.(chain.ChainSpec)
	if !ok {
		return "", ""
	}
	there := g.outages.withoutAway(endsOf(g.world, key.Customer, spec.Egress))
	for _, r := range routes {
		if why := g.outages.away[r.Egress]; why != "" && !slices.ContainsFunc(there, func(e end) bool { return e.site == r.Egress }) {
			return r.Egress, why
		}
	}
	return "", ""
}

// capacity is what a VNF offers at a site. g.mu is held.
func (g *Global) capacity(at chain.Placement) (capacity chain.Load, exists bool) {
	for key, r := range g.world {
		if d, ok := r.Spec.(chain.DeploymentSpec); ok && key.Kind == chain.KindDeployment && d.Vnf == at.Vnf && d.Site == at.Site {
			return d.Capacity, true
		}
	}
	return 0, false
}

// carryingVnfs are the VNFs of the version that carrying speaks of. g.mu is held.
func (g *Global) carryingVnfs(key chain.Key) []chain.VnfName {
	for _, v := range g.records[key].GetVersions() {
		if v.State != draining {
			return vnfNames(v)
		}
	}
	return nil
}

// crowdedOut reports whether those that come before a chain leave too little at a placement. g.mu is held.
func (g *Global) crowdedOut(key chain.Key, at chain.Placement, capacity chain.Load) bool {
	var users []chain.Key
	for k := range g.records {
		if g.reserved(k)[at] > 0 {
			users = append(users, k)
		}
	}
	slices.SortFunc(users, func(a, b chain.Key) int {
		x, y := g.messages[a], g.messages[b]
		return cmp.Or(cmp.Compare(g.world.Priority(b), g.world.Priority(a)),
			x.GetMetadata().GetCreated().AsTime().Compare(y.GetMetadata().GetCreated().AsTime()), a.Compare(b))
	})
	sum := chain.Load(0)
	for _, k := range users {
		sum += g.reserved(k)[at]
		if k == key {
			return sum > capacity*(1+tolerance)+tolerance
		}
	}
	return false
}
