package site

import (
	"fmt"
	"maps"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/edge"
)

// lookAtEdges sees how edges stand, and says whether others can be used than before. An edge whose interface has no carrier
// stays in the rules: its connections outlive the interruption.
func (s *Switchboard) lookAtEdges() bool {
	usable, edges := s.edgesNow()
	s.edgesMu.Lock()
	s.edges = edges
	s.edgesMu.Unlock()
	select {
	case <-s.edgesKnown:
	default:
		close(s.edgesKnown)
	}
	changed := !maps.Equal(usable, s.state.usableEdges)
	s.state.usableEdges = usable
	return changed
}

// edgesNow says how the site's edges stand, and which forwarders can open which.
func (s *Switchboard) edgesNow() (usable map[EdgeKey]string, edges map[EdgeKey]edge.Status) {
	usable, edges = map[EdgeKey]string{}, map[EdgeKey]edge.Status{}
	links, err := s.host.LinkStates()
	if err != nil {
		s.log.Warn("edges cannot be looked at", "error", err)
		return s.state.usableEdges, s.edges
	}
	for _, f := range s.config.Forwarders {
		for name := range f.Devices {
			links[name] = true // the kernel does not know it, and its forwarder says how it is
		}
	}
	taken := map[string]EdgeKey{} // interface and VLAN
	for _, name := range sortedKeys(s.state.directory.edges) {
		record := s.state.directory.edges[name]
		if record.Spec.Site != s.config.Site {
			continue
		}
		key := EdgeKey{record.Customer, record.Edge}
		reason := s.whyUnusable(links, record.Spec)
		instances := instancesOf([]*control.EdgeRecord{record})
		for _, one := range instances {
			if other, is := taken[placeOf(one)]; is && reason == "" {
				reason = fmt.Sprintf("%s is that of edge %s", placeOf(one), other)
			}
		}
		forwarder := s.homeOfInterface(record.Spec.Interface)
		if reason == "" {
			for _, one := range instances {
				taken[placeOf(one)] = key
				usable[EdgeKey{one.Customer, one.Edge}] = forwarder
			}
			reason = s.whyDown(links, record.Spec, forwarder)
		}
		away := reason == "" && !s.state.present[forwarder]
		if away {
			reason = fmt.Sprintf("forwarder %s does not run", forwarder)
		}
		edges[key] = edge.Status{Customer: record.Customer, Prefixes: record.GetSpec().GetPrefixes(), Vlans: tagsOf(instances),
			Up: reason == "", Reason: reason, ForwarderAway: away}
	}
	return usable, edges
}

// placeOf is where an edge instance's packets come from.
func placeOf(e *control.EdgeRecord) string {
	return fmt.Sprintf("interface %s, VLAN %d,", e.Spec.Interface, e.Spec.Vlan)
}

// tagsOf are the VLANs of an edge's instances.
func tagsOf(instances []*control.EdgeRecord) (vlans []uint32) {
	for _, one := range instances {
		if one.Spec.Vlan != 0 {
			vlans = append(vlans, one.Spec.Vlan)
		}
	}
	return vlans
}

// whyUnusable says why no forwarder can open an edge, "" where one can.
func (s *Switchboard) whyUnusable(links map[string]bool, spec *api.EdgeSpec) string {
	if problem := malformedEdge(spec); problem != "" {
		return problem
	}
	if s.forwarderOf(spec.Interface) == "" {
		return fmt.Sprintf("interface %s is not in edgeInterfaces of site %s", spec.Interface, s.config.Site)
	}
	for _, f := range s.config.Forwarders {
		if f.Interface == spec.Interface && spec.Vlan == 0 && len(spec.Vlans) == 0 {
			return fmt.Sprintf("interface %s without a VLAN is forwarder %s's on the underlay; give the edge a VLAN", spec.Interface, f.Name)
		}
	}
	if _, exists := links[spec.Interface]; !exists {
		return fmt.Sprintf("interface %s does not exist at site %s", spec.Interface, s.config.Site)
	}
	return ""
}

// whyDown says why nothing passes an edge that is open, "" where it does.
func (s *Switchboard) whyDown(links map[string]bool, spec *api.EdgeSpec, forwarder string) string {
	if !links[spec.Interface] {
		return fmt.Sprintf("interface %s at site %s is down or has no carrier", spec.Interface, s.config.Site)
	}
	for _, port := range s.state.statuses[forwarder].GetPorts() {
		if port.Name == spec.Interface && port.Error != "" {
			return fmt.Sprintf("forwarder %s cannot use interface %s: %s", forwarder, spec.Interface, port.Error)
		}
	}
	return ""
}

func (s *Switchboard) forwarderOf(name string) string {
	for _, e := range s.config.EdgeInterfaces {
		if e.Name == name {
			return e.Forwarder
		}
	}
	return ""
}
