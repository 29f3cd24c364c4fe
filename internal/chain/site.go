package chain

import "fmt"

// SiteSpec is a place with forwarders.
type SiteSpec struct {
	// What is "customer-premises", "edge-cloud" or "data-centre".
	What                string
	Latitude, Longitude float64
	// Capacity is the compute that the site offers to VNFs; 0: none.
	Capacity Load
}

// Kind is KindSite.
func (SiteSpec) Kind() Kind { return KindSite }

func (s SiteSpec) check(f *Findings) {
	if s.What == "" {
		f.Add("spec.kind", "is missing", "write customer-premises, edge-cloud or data-centre")
	}
	degrees(f, "spec.latitude", s.Latitude, 90)
	degrees(f, "spec.longitude", s.Longitude, 180)
	f.atLeastZero("spec.capacity", float64(s.Capacity))
}

func degrees(f *Findings, field string, value, most float64) {
	if !finite(value) || value < -most || value > most {
		f.Add(field, fmt.Sprintf("%v is no degree", value), fmt.Sprintf("write a number from -%v to %v", most, most))
	}
}

// LinkSpec is an underlay connection of two sites, used in both directions.
type LinkSpec struct {
	From, To SiteName
	Latency  Milliseconds
	// Bandwidth and Background are of each direction.
	Bandwidth, Background Mbps
	// Encapsulation of the steering context: "vxlan-mpls" (also where empty), "vxlan-gpe-nsh" or "mpls-in-udp".
	Encapsulation string
}

// MostNshEgressSites is how many egress sites of a chain NSH service path identifiers can tell apart. Paths to others use
// labels everywhere.
const MostNshEgressSites = 15

// Kind is KindLink.
func (LinkSpec) Kind() Kind { return KindLink }

func (l LinkSpec) check(f *Findings) {
	required(f, "spec.from", string(l.From), "name a site")
	required(f, "spec.to", string(l.To), "name a site")
	if l.From == l.To && l.From != "" {
		f.Add("spec.to", fmt.Sprintf("the link joins site %q to itself", l.To), "name another site")
	}
	f.atLeastZero("spec.latencyMs", float64(l.Latency))
	f.positive("spec.bandwidthMbps", float64(l.Bandwidth))
	f.atLeastZero("spec.backgroundMbps", float64(l.Background))
	if finite(float64(l.Background)) && finite(float64(l.Bandwidth)) && l.Bandwidth > 0 && l.Background > l.Bandwidth {
		f.Add("spec.backgroundMbps", fmt.Sprintf("%v is more than the bandwidth %v", l.Background, l.Bandwidth),
			"write at most the bandwidth")
	}
}

func required(f *Findings, field, value, fix string) {
	if value == "" {
		f.Add(field, "is missing", fix)
	}
}
