package chain

// Quantities. Every one has one unit in the whole project.
type (
	// Mbps is traffic or bandwidth in Mbit/s.
	Mbps float64
	// Load is compute in load units: load per Mbit/s times traffic sent plus received.
	Load float64
	// Milliseconds is latency, one way.
	Milliseconds float64
)

// Demand is a chain's traffic in both directions.
type Demand struct {
	Forward, Reverse Mbps
}

// Total is the sum of both directions.
func (d Demand) Total() Mbps { return d.Forward + d.Reverse }

// Load is what a VNF spends on a demand that passes it: it receives and sends every packet once (paper section 4.1).
func (d Demand) Load(perMbps float64) Load { return Load(perMbps * 2 * float64(d.Total())) }
