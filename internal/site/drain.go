package site

import (
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// drain watches an attachment that takes no new connections until it has none.
type drain struct {
	forwarder string
	// generation is of the first rules that said so.
	generation uint64
	// empty counts reports without connections since, each with a later time than the one before.
	empty int
	time  int64
}

// emptyReports is how many reports must agree before an attachment counts as drained.
const emptyReports = 2

// watchDrains notes attachments that drain now.
func (r *results) watchDrains(attachments []vnf.Attachment) {
	draining := map[string]bool{}
	for _, a := range attachments {
		if a.State == vnf.Active {
			continue
		}
		draining[a.ID] = true
		if d := r.drains[a.ID]; d == nil || d.forwarder != a.Forwarder {
			r.drains[a.ID] = &drain{forwarder: a.Forwarder, generation: r.rules[a.Forwarder].GetGeneration()}
		}
	}
	for id := range r.drains {
		if !draining[id] {
			delete(r.drains, id)
		}
	}
}

// advanceDrains takes what forwarders report, and says whether an attachment has become drained.
func (r *results) advanceDrains(statuses map[string]*rules.Status) bool {
	drained := map[string]bool{}
	for id, d := range r.drains {
		status := statuses[d.forwarder]
		if status.GetCountedGeneration() < d.generation || status == nil {
			continue // connections that began under the rules before may not be in its count
		}
		if status.TimeUnixMs > d.time {
			d.time = status.TimeUnixMs
			if status.AttachmentFlows[id] == 0 {
				d.empty++
			} else {
				d.empty = 0
			}
		}
		if d.empty >= emptyReports || !r.named(d.forwarder, id) {
			drained[id] = true
		}
	}
	changed := len(drained) != len(r.drained)
	for id := range drained {
		changed = changed || !r.drained[id]
	}
	r.drained = drained
	return changed
}

// named reports whether a forwarder's rules speak of an attachment: without its path it cannot have connections.
func (r *results) named(forwarder, id string) bool {
	for _, a := range r.rules[forwarder].GetAttachments() {
		if a.Id == id {
			return true
		}
	}
	return false
}
