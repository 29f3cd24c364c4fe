package chain

import (
	"fmt"
	"net/netip"
)

// DeploymentSpec offers a VNF at a site.
type DeploymentSpec struct {
	Vnf  VnfName
	Site SiteName
	// Capacity is shared by the instances.
	Capacity  Load
	Instances uint32
	// Weights are relative, 0 to 65535, in the order of the instances.
	Weights []uint32
	// AddressPool are addresses a NAT may use.
	AddressPool []netip.Prefix
}

const (
	maximumInstances = 64
	maximumWeight    = 65535
)

// Kind is KindDeployment.
func (DeploymentSpec) Kind() Kind { return KindDeployment }

func (d DeploymentSpec) check(f *Findings) {
	required(f, "spec.vnf", string(d.Vnf), "name a VNF")
	required(f, "spec.site", string(d.Site), "name a site")
	f.atLeastZero("spec.capacity", float64(d.Capacity))
	if d.Instances > maximumInstances {
		f.Add("spec.instances", fmt.Sprintf("%d instances", d.Instances), fmt.Sprintf("write at most %d", maximumInstances))
	}
	if len(d.Weights) > int(d.Instances) {
		f.Add("spec.weights", fmt.Sprintf("%d weights for %d instances", len(d.Weights), d.Instances),
			"write at most one weight for each instance")
	}
	for i, w := range d.Weights {
		if w > maximumWeight {
			f.Add(fmt.Sprintf("spec.weights[%d]", i), fmt.Sprintf("%d is too large", w), fmt.Sprintf("write 0 to %d", maximumWeight))
		}
	}
	overlaps(f, "spec.addressPool", d.AddressPool)
}

// overlaps reports prefixes of a list that hold the same addresses.
func overlaps(f *Findings, field string, prefixes []netip.Prefix) {
	for i, p := range prefixes {
		for j := range i {
			if p.IsValid() && prefixes[j].IsValid() && p.Overlaps(prefixes[j]) {
				f.Add(fmt.Sprintf("%s[%d]", field, i), fmt.Sprintf("%s overlaps %s", p, prefixes[j]), "remove one of them")
				break
			}
		}
	}
}
