package global

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// routesOf reads planned routes.
func routesOf(planned []*control.PlannedRoute) []chain.Route {
	routes := make([]chain.Route, len(planned))
	for i, r := range planned {
		routes[i] = chain.Route{Ingress: chain.SiteName(r.IngressSite), Egress: chain.SiteName(r.EgressSite),
			EgressLabel: chain.Label(r.EgressLabel), Fraction: r.Fraction, Latency: chain.Milliseconds(r.LatencyMs)}
		for _, s := range r.Sites {
			routes[i].Sites = append(routes[i].Sites, chain.SiteName(s))
		}
	}
	return routes
}

// plannedRoutes is the inverse of routesOf.
func plannedRoutes(routes []chain.Route) []*control.PlannedRoute {
	var planned []*control.PlannedRoute
	for _, r := range routes {
		p := &control.PlannedRoute{IngressSite: string(r.Ingress), EgressSite: string(r.Egress), EgressLabel: uint32(r.EgressLabel),
			Fraction: r.Fraction, LatencyMs: float64(r.Latency)}
		for _, s := range r.Sites {
			p.Sites = append(p.Sites, string(s))
		}
		planned = append(planned, p)
	}
	return planned
}

// newestRoutes are those being prepared, else those in use.
func newestRoutes(v *control.ChainVersion) []*control.PlannedRoute {
	if len(v.NextRoutes) > 0 {
		return v.NextRoutes
	}
	return v.Routes
}

func vnfNames(v *control.ChainVersion) []chain.VnfName {
	names := make([]chain.VnfName, len(v.Vnfs))
	for i, p := range v.Vnfs {
		names[i] = chain.VnfName(p.Vnf)
	}
	return names
}

func usesOf(v *control.ChainVersion) []chain.Use {
	uses := make([]chain.Use, len(v.Vnfs))
	for i, p := range v.Vnfs {
		uses[i] = chain.Use{Vnf: chain.VnfName(p.Vnf)}
		if p.Options != nil {
			uses[i].Options = p.Options.AsMap()
		}
	}
	return uses
}

func demandOf(d *api.Demand) chain.Demand {
	return chain.Demand{Forward: chain.Mbps(d.GetForwardMbps()), Reverse: chain.Mbps(d.GetReverseMbps())}
}

func demandMessage(d chain.Demand) *api.Demand {
	return &api.Demand{ForwardMbps: float64(d.Forward), ReverseMbps: float64(d.Reverse)}
}

// sitesOfVersion lists the sites that must have a version's rules before an edge may use it.
func sitesOfVersion(v *control.ChainVersion) []string {
	var sites []string
	for _, e := range slices.Concat(v.Ingress, v.Egress) {
		sites = append(sites, e.Site)
	}
	for _, r := range slices.Concat(v.Routes, v.NextRoutes) {
		sites = append(append(sites, r.IngressSite, r.EgressSite), r.Sites...)
	}
	slices.Sort(sites)
	return slices.Compact(sites)
}

// activeVersion is the one that new connections take, nil where none is.
func activeVersion(record *control.ChainRecord) *control.ChainVersion {
	return versionIn(record, control.VersionState_VERSION_STATE_ACTIVE)
}

func versionIn(record *control.ChainRecord, state control.VersionState) *control.ChainVersion {
	for _, v := range record.GetVersions() {
		if v.State == state {
			return v
		}
	}
	return nil
}

// versionOf is the version with a label, nil where there is none.
func versionOf(record *control.ChainRecord, label uint32) *control.ChainVersion {
	for _, v := range record.GetVersions() {
		if v.ChainLabel == label {
			return v
		}
	}
	return nil
}

// preparing is the version that waits for its sites: new, or with routes to come.
func preparing(record *control.ChainRecord) *control.ChainVersion {
	if v := versionIn(record, control.VersionState_VERSION_STATE_PREPARING); v != nil {
		return v
	}
	if v := activeVersion(record); v != nil && len(v.NextRoutes) > 0 {
		return v
	}
	return nil
}

// inputs is a fingerprint of what a chain's plan depends on besides capacities: equal inputs need no new plan. g.mu is
// held.
func (g *Global) inputs(key chain.Key) string {
	hash := sha256.New()
	write := func(k chain.Key, m proto.Message) {
		hash.Write([]byte(k.String() + "\x00"))
		if value, err := marshal(m); err == nil {
			hash.Write(value)
		}
	}
	message := g.messages[key]
	if message == nil {
		return ""
	}
	write(key, planInputs(message.GetChain().GetSpec()))
	for _, reference := range g.world.References(key) {
		switch m := g.messages[reference]; reference.Kind {
		case chain.KindEdge:
			spec := m.GetEdge().GetSpec()
			write(reference, &api.EdgeSpec{Site: spec.GetSite(), Prefixes: spec.GetPrefixes()})
		case chain.KindVnf:
			spec := m.GetVnf().GetSpec()
			write(reference, &api.VnfSpec{LoadPerMbps: spec.GetLoadPerMbps(), ControllerSite: spec.GetControllerSite(),
				Attachment: spec.GetAttachment(), Driver: spec.GetDriver()})
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:16])
}

// planInputs leaves out what no plan depends on.
func planInputs(spec *api.ChainSpec) *api.ChainSpec {
	copied := proto.CloneOf(spec)
	if copied != nil {
		copied.Priority = 0
	}
	return copied
}

// draining is the state of a version that gets no new connections.
const draining = control.VersionState_VERSION_STATE_DRAINING
