package resource

import (
	"slices"
	"testing"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

func TestAnEdgesAddressesAreSingleHosts(t *testing.T) {
	for _, c := range []struct{ gateway, router, want string }{
		{"10.1.0.1/24", "10.1.0.9", ""},
		{"2001:db8::1/64", "2001:db8::9", ""},
		{"10.1.0.1", "10.1.0.9", `spec.gatewayAddresses[0]: "10.1.0.1" is no address with a prefix length; write for example 10.1.0.1/24`},
		{"10.1.0.0/24", "10.1.0.9", `spec.gatewayAddresses[0]: "10.1.0.0/24" is the network, not an address in it; write the forwarder's own address, for example 10.1.0.1/24`},
		{"10.1.0.255/24", "10.1.0.9", `spec.gatewayAddresses[0]: "10.1.0.255/24" is the network's broadcast address; write the forwarder's own address, for example 10.1.0.1/24`},
		{"224.0.0.1/24", "10.1.0.9", `spec.gatewayAddresses[0]: "224.0.0.1/24" is no host's address; write the forwarder's own address, for example 10.1.0.1/24`},
		{"10.1.0.1/24", "router", `spec.nextHops[0]: "router" is no address; write for example 198.51.100.1`},
		{"10.1.0.1/24", "10.1.0.1", `spec.nextHops[0]: "10.1.0.1" is no other host's address; write the router's, for example 198.51.100.1`},
		{"10.1.0.1/24", "255.255.255.255", `spec.nextHops[0]: "255.255.255.255" is no other host's address; write the router's, for example 198.51.100.1`},
		{"2001:db8::1/64", "ff02::2", `spec.nextHops[0]: "ff02::2" is no other host's address; write the router's, for example 198.51.100.1`},
	} {
		message := &api.Resource{Metadata: &api.Metadata{Name: "lan"}, Kind: &api.Resource_Edge{Edge: &api.Edge{Spec: &api.EdgeSpec{
			Kind: api.EdgeKind_EDGE_KIND_LAN, Site: "office", Interface: "lan0", Prefixes: []string{"10.1.0.0/24"}, GatewayAddresses: []string{c.gateway}, NextHops: []string{c.router}}}}}
		f := &chain.Findings{}
		Parse(message, f)
		told := slices.ContainsFunc(f.All, func(one chain.Finding) bool { return one.String() == c.want })
		if c.want == "" && len(f.All) > 0 || c.want != "" && !told {
			t.Errorf("%s and %s: %v, want %q", c.gateway, c.router, f.All, c.want)
		}
	}
}
