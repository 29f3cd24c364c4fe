package site

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
)

// joined lists this site's edges whose users joined an active version of a chain, each with the route that its new
// connections take.
func (c *computation) joined(all []*path) []*api.JoinedEdge {
	var found []*api.JoinedEdge
	for _, p := range all {
		if p.version.State != control.VersionState_VERSION_STATE_ACTIVE {
			continue
		}
		for _, e := range p.ingress {
			if !e.joined || e.site != c.in.Site || c.in.UsableEdges[e.EdgeKey] == "" {
				continue
			}
			one := &api.JoinedEdge{Edge: e.applied().Edge, Site: e.site, ChainLabel: p.version.ChainLabel, EgressLabel: p.egressLabel}
			for _, r := range p.joins { // all that join at a site take the same route
				if r.IngressSite == e.site {
					one.Sites, one.EgressSite = r.Sites, r.EgressSite
				}
			}
			for _, v := range p.version.Vnfs {
				one.Vnfs = append(one.Vnfs, v.Vnf)
			}
			found = append(found, one)
		}
	}
	slices.SortFunc(found, func(a, b *api.JoinedEdge) int {
		return cmp.Or(cmp.Compare(a.Edge, b.Edge), cmp.Compare(a.ChainLabel, b.ChainLabel), cmp.Compare(a.EgressLabel, b.EgressLabel))
	})
	return slices.CompactFunc(found, func(a, b *api.JoinedEdge) bool { return proto.Equal(a, b) }) // VLANs of one edge
}
