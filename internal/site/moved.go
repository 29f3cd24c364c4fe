package site

import (
	"cmp"
	"slices"
	"strings"

	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// moved says of hops that a forwarder's connections may have, and that are elsewhere now, where: attachments and edges that it
// had before, and peers that others took over from. What it had is read from its previous rules, so it is known for as long as
// the thing exists and the path does.
func (c *computation) moved(set, previous *rules.RuleSet) []*rules.MovedHop {
	had := map[string]*rules.MovedHop{} // by kind and id
	add := func(m *rules.MovedHop) { had[movedKey(m)] = m }
	for _, m := range previous.GetMoved() {
		add(m)
	}
	for _, a := range previous.GetAttachments() {
		add(&rules.MovedHop{Hop: &rules.MovedHop_Attachment{Attachment: a.Id}})
	}
	for _, e := range previous.GetEdges() {
		add(&rules.MovedHop{Hop: &rules.MovedHop_Edge{Edge: e.Id}})
	}
	for _, p := range previous.GetPeers() {
		add(&rules.MovedHop{Hop: &rules.MovedHop_Peer{Peer: p.Id}})
	}
	own := c.in.Site + "/" + set.Forwarder
	var all []*rules.MovedHop
	for _, key := range sortedKeys(had) {
		m := had[key]
		if to := c.movedTo(set, m); to != "" && to != own {
			all = append(all, &rules.MovedHop{Hop: m.Hop, To: to})
		}
	}
	return all
}

func movedKey(m *rules.MovedHop) string {
	switch hop := m.Hop.(type) {
	case *rules.MovedHop_Attachment:
		return "attachment " + hop.Attachment
	case *rules.MovedHop_Edge:
		return "edge " + hop.Edge
	}
	return "peer " + m.GetPeer()
}

// movedTo is the peer that has a hop now, "" where the forwarder itself does or nobody.
func (c *computation) movedTo(set *rules.RuleSet, m *rules.MovedHop) string {
	home := ""
	switch hop := m.Hop.(type) {
	case *rules.MovedHop_Peer:
		return c.tookOver[hop.Peer]
	case *rules.MovedHop_Attachment:
		if slices.ContainsFunc(set.Attachments, func(a *rules.Attachment) bool { return a.Id == hop.Attachment }) {
			return ""
		}
		for _, a := range c.in.Attachments {
			if a.ID == hop.Attachment {
				home = a.Forwarder
			}
		}
	case *rules.MovedHop_Edge:
		if slices.ContainsFunc(set.Edges, func(e *rules.Edge) bool { return e.Id == hop.Edge }) {
			return ""
		}
		customer, edge, _ := strings.Cut(hop.Edge, "/")
		if customer == "-" {
			customer = ""
		}
		home = c.in.UsableEdges[EdgeKey{customer, edge}]
	}
	if home == "" || home == set.Forwarder {
		return ""
	}
	to := c.in.Site + "/" + home
	return cmp.Or(c.tookOver[to], to)
}

// atSibling reports whether something at a position is at home with another forwarder of this site.
func (c *computation) atSibling(p *path, forwarder string, position uint32) bool {
	for _, e := range p.edgesAt(position) {
		if home := c.in.UsableEdges[e.EdgeKey]; e.site == c.in.Site && home != "" && home != forwarder {
			return true
		}
	}
	return !p.isEdge(position) && slices.ContainsFunc(c.attachmentsAt(p, position), func(a *vnf.Attachment) bool { return a.Forwarder != forwarder })
}

// edgeRole is what a forwarder has to do with an edge that is at home with another.
func (c *computation) edgeRole(key EdgeKey, forwarder string) Role {
	home := c.in.UsableEdges[key]
	if home == "" || home == forwarder {
		return 0
	}
	return c.in.Visitors[Thing{Interface: c.interfaces[key]}][forwarder]
}
