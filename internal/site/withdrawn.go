package site

import (
	"cmp"
	"slices"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// A forwarder is withdrawn at a place where connections may not stay with it: those of other sites that have it there choose again
// (docs/adr/0051).

// outOfUse are the places, of VNFs that a forwarder serves, at which none of its attachments works.
func outOfUse(attachments []vnf.Attachment, forwarder string, serves []string) []*control.ServedPlace {
	works := map[placeKey]bool{}
	for _, a := range attachments {
		if a.Forwarder == forwarder && slices.Contains(serves, a.VNF) {
			at := placeKey{a.ChainLabel, a.EgressLabel, a.Stage}
			works[at] = works[at] || a.State != vnf.Dead
		}
	}
	var all []*control.ServedPlace
	for at, one := range works {
		if !one {
			all = append(all, &control.ServedPlace{ChainLabel: at.chainLabel, EgressLabel: at.egressLabel, Stage: at.stage})
		}
	}
	slices.SortFunc(all, func(a, b *control.ServedPlace) int {
		return cmp.Or(cmp.Compare(a.ChainLabel, b.ChainLabel), cmp.Compare(a.EgressLabel, b.EgressLabel), cmp.Compare(a.Stage, b.Stage))
	})
	return all
}

// withdrawn reports whether connections may not stay with another site's forwarder at a VNF's place: its instances are dead or out of
// use there, or it has none and nobody else at the site serves the place, not even what drains.
func (c *computation) withdrawn(p *path, f *control.ForwarderRecord, position uint32) bool {
	serves := func(one *control.ForwarderRecord) bool { return servesPlace(one, p, position) }
	_, has := f.VnfWeights[p.vnfAt(position)]
	return !serves(f) && (has || !slices.ContainsFunc(c.forwarders[f.Site], serves))
}

// servesPlace reports whether a forwarder has an instance that works for a place. Of a VNF that takes new connections one does, also
// where a site's version does not say what it serves.
func servesPlace(f *control.ForwarderRecord, p *path, position uint32) bool {
	name := p.vnfAt(position)
	if f.VnfWeights[name] == 0 && !slices.Contains(f.Serves, name) {
		return false
	}
	return !slices.ContainsFunc(f.OutOfUse, func(at *control.ServedPlace) bool {
		return at.ChainLabel == p.version.ChainLabel && at.EgressLabel == p.egressLabel && at.Stage == position
	})
}

// left reports whether connections may not stay with a forwarder that no route leads to any more. One of this site is not withdrawn: it
// gives back what it has nobody for, and may be on the way of connections that moved (docs/adr/0054).
func (c *computation) left(p *path, peer string, position uint32) bool {
	f := c.peerOf[peer]
	return f != nil && !p.isEdge(position) && c.withdrawn(p, f, position)
}
