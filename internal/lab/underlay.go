package lab

import "encoding/json"

// underlayConfig is the file of switchboard-underlay.
type underlayConfig struct {
	Ports []underlayPort `json:"ports"`
	Links []underlayLink `json:"links"`
}

type underlayPort struct {
	Site      string `json:"site"`
	Interface string `json:"interface"`
}

type underlayLink struct {
	From      string  `json:"from"`
	To        string  `json:"to"`
	LatencyMS float64 `json:"latency_ms"`
	RateMbps  float64 `json:"rate_mbps"`
	MTU       int     `json:"mtu"`
}

// underlayFile is the wide area of a plan as switchboard-underlay reads it.
func (p *plan) underlayFile() ([]byte, error) {
	config := underlayConfig{Ports: []underlayPort{}, Links: []underlayLink{}}
	for _, site := range p.SitePlans {
		config.Ports = append(config.Ports, underlayPort{site.Name, site.ControlPort})
		for _, f := range site.Forwarders {
			config.Ports = append(config.Ports, underlayPort{site.Name, f.Port})
		}
	}
	for _, link := range p.Links {
		config.Links = append(config.Links, underlayLink{link.From, link.To, link.LatencyMS, link.RateMbps, p.MTU})
	}
	return json.MarshalIndent(config, "", "  ")
}
