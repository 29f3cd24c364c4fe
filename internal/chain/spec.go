package chain

import (
	"fmt"
	"reflect"
)

// ChainSpec is a customer's service chain.
type ChainSpec struct {
	Ingress []string
	Match   Match
	// FixedIngress keeps new edges of the customer out.
	FixedIngress bool
	Vnfs         []Use
	Egress       []string
	Demand       Demand
	// Priority is 0 where the customer's holds.
	Priority uint32
	// MaximumLatency limits routes one way; 0: no limit.
	MaximumLatency Milliseconds
}

// Use is one VNF of a chain with its configuration, as JSON values.
type Use struct {
	Vnf     VnfName
	Options map[string]any
}

// Kind is KindChain.
func (ChainSpec) Kind() Kind { return KindChain }

func (c ChainSpec) check(f *Findings) {
	checkEnds(f, "spec.ingress.edges", c.Ingress)
	checkEnds(f, "spec.egress.edges", c.Egress)
	c.Match.check(f, "spec.ingress.match")
	if len(c.Vnfs) > MaximumVnfs {
		f.Add("spec.vnfs", fmt.Sprintf("%d VNFs", len(c.Vnfs)), fmt.Sprintf("a chain has at most %d", MaximumVnfs))
	}
	for i, use := range c.Vnfs {
		required(f, fmt.Sprintf("spec.vnfs[%d].vnf", i), string(use.Vnf), "name a VNF of the catalogue")
	}
	f.atLeastZero("spec.demand.forwardMbps", float64(c.Demand.Forward))
	f.atLeastZero("spec.demand.reverseMbps", float64(c.Demand.Reverse))
	if c.Demand.Forward == 0 && c.Demand.Reverse == 0 {
		f.Add("spec.demand", "asks for no traffic", "write the traffic you expect as forwardMbps and reverseMbps")
	}
	f.atLeastZero("spec.maxLatencyMs", float64(c.MaximumLatency))
}

func checkEnds(f *Findings, field string, edges []string) {
	if len(edges) == 0 {
		f.Add(field, "is missing", "name at least one edge")
	}
	seen := map[string]bool{}
	for i, e := range edges {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch {
		case e == "":
			f.Add(at, "is empty", "name an edge")
		case seen[e]:
			f.Add(at, fmt.Sprintf("the edge %q is already in this list", e), "name each edge once")
		}
		seen[e] = true
	}
}

// SameVnfs reports whether two lists of VNFs are the same with the same configuration: then the chain keeps its label
// (docs/adr/0002).
func SameVnfs(a, b []Use) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Vnf != b[i].Vnf || len(a[i].Options)+len(b[i].Options) > 0 && !reflect.DeepEqual(a[i].Options, b[i].Options) {
			return false
		}
	}
	return true
}
