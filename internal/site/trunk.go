package site

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// A trunk is an edge with several VLANs. At its forwarder each VLAN is an edge instance of its own, named by trunk and
// VLAN: a packet that enters names by its tag the instance, which the connection's flow entry keeps, so that the answers leave with that
// tag. Chains that match a VLAN have their classifiers at that one's instance, others at all.

// instancesOf are the edge instances of edges: a trunk's VLANs, and every other edge itself.
func instancesOf(edges []*control.EdgeRecord) []*control.EdgeRecord {
	var all []*control.EdgeRecord
	for _, e := range edges {
		if len(e.GetSpec().GetVlans()) == 0 {
			all = append(all, e)
			continue
		}
		for _, vlan := range e.Spec.Vlans {
			one := proto.CloneOf(e)
			one.Edge = EdgeKey{Edge: e.Edge}.instance(vlan).Edge
			one.Spec.Vlan, one.Spec.Vlans = vlan, nil
			all = append(all, one)
		}
	}
	return all
}

// instance is a trunk's edge instance for a VLAN. No edge has a dot in its name.
func (k EdgeKey) instance(vlan uint32) EdgeKey {
	return EdgeKey{k.Customer, fmt.Sprintf("%s.%d", k.Edge, vlan)}
}

// applied is the edge as it was applied, of which the key may be an instance.
func (k EdgeKey) applied() EdgeKey {
	name, _, _ := strings.Cut(k.Edge, ".")
	return EdgeKey{k.Customer, name}
}

// ingressOf are the instances of a planned ingress edge at which packets that the match takes may enter.
func ingressOf(in *Inputs, planned *control.PlannedEdge, match chain.Match) []pathEdge {
	key, known := EdgeKey{planned.Customer, planned.Edge}, false
	var found []pathEdge
	for _, e := range in.Edges {
		if one := (EdgeKey{e.Customer, e.Edge}); one.applied() == key {
			known = true
			if match.Bears(e.GetSpec().GetVlan()) {
				found = append(found, pathEdge{EdgeKey: one, site: planned.Site, prefixes: planned.Prefixes})
			}
		}
	}
	if !known { // the directory comes after the chain
		found = append(found, pathEdge{EdgeKey: key, site: planned.Site, prefixes: planned.Prefixes})
	}
	return found
}

// markAmbiguous marks ingress edges that are several VLANs of one trunk: of a connection that begins behind the egress nobody
// can say which VLAN it means.
func markAmbiguous(ingress []pathEdge) {
	count := map[EdgeKey]int{}
	for _, e := range ingress {
		count[e.applied()]++
	}
	for i := range ingress {
		ingress[i].ambiguous = count[ingress[i].applied()] > 1
	}
}
