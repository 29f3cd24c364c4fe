package edge

import (
	"strings"
	"testing"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
)

func binding(name, owner string, match *api.Match) *control.EdgeBinding {
	return &control.EdgeBinding{Edge: name, EdgeCustomer: owner, Ingress: true, Match: match}
}

func asks(customer, chain string, edges ...*control.EdgeBinding) *control.Prepare {
	return &control.Prepare{Customer: customer, Chain: chain, ChainLabel: 16, Edges: edges}
}

func TestEdgesAreGrantedToTheirCustomers(t *testing.T) {
	c := &Controller{site: "office", look: func(customer, name string) (Status, bool) {
		s, ok := map[string]Status{"acme/lan": {Customer: "acme", Up: true, Prefixes: []string{"10.1.0.0/24"}}, "acme/dead": {Customer: "acme", Reason: "no carrier"},
			"acme/trunk": {Customer: "acme", Up: true, Vlans: []uint32{20, 30}},
			"/inet":      {Up: true}}[customer+"/"+name]
		return s, ok
	}}
	port80 := &api.Match{DestinationPorts: []string{"80"}, Protocols: []string{"tcp"}}
	vlan := func(vlans ...uint32) *api.Match { return &api.Match{Vlans: vlans, Protocols: []string{"tcp"}} }
	held := []*control.Prepare{asks("acme", "voice", binding("trunk", "acme", vlan(20))),
		asks("acme", "web", binding("lan", "acme", port80)),
		asks("umbra", "all", binding("inet", "", &api.Match{SourcePrefixes: []string{"10.1.0.0/16"}}))}
	for _, test := range []struct {
		name    string
		request *control.Prepare
		reason  string // "": accepted
	}{
		{"own edge", asks("acme", "mail", binding("lan", "acme", &api.Match{DestinationPorts: []string{"25"}})), ""},
		{"shared edge", asks("acme", "mail", binding("inet", "", &api.Match{SourcePrefixes: []string{"10.2.0.0/16"}})), ""},
		{"unknown", asks("acme", "mail", binding("wan", "acme", nil)), "edges[0]: edge acme/wan: site office has no such edge"},
		{"another's", asks("umbra", "mail", binding("lan", "acme", nil)), "belongs to customer acme, not umbra"},
		{"down", asks("acme", "mail", binding("dead", "acme", nil)), "is down: no carrier"},
		{"the same match", asks("acme", "mail", binding("lan", "acme", port80)), "the match equals that of chain acme/web"},
		{"wider", asks("acme", "mail", binding("lan", "acme", &api.Match{})), ""},
		{"narrower", asks("acme", "mail", binding("lan", "acme", &api.Match{DestinationPorts: []string{"80"}, Protocols: []string{"tcp"},
			DestinationPrefixes: []string{"198.51.100.0/24"}})), ""},
		{"crossing", asks("acme", "mail", binding("lan", "acme", &api.Match{DestinationPrefixes: []string{"198.51.100.0/24"}})),
			"the match crosses that of chain acme/web"},
		{"the same on a shared edge", asks("acme", "mail", binding("inet", "", &api.Match{SourcePrefixes: []string{"10.1.0.0/16"}})),
			"the match equals that of chain umbra/all"},
		{"another version of the chain", asks("acme", "web", binding("lan", "acme", port80)), ""},
		{"unreadable", asks("acme", "mail", binding("lan", "acme", &api.Match{DestinationPorts: []string{"http"}})),
			`match.destinationPorts[0]: "http" is no port or range of ports; write "80" or "8000-8080"`},
		{"from elsewhere", asks("acme", "mail", binding("lan", "acme", &api.Match{SourcePrefixes: []string{"10.2.0.0/16", "10.3.0.0/16"}})),
			"match.sourcePrefixes: none of 10.2.0.0/16, 10.3.0.0/16 lies behind the edge, which has 10.1.0.0/24; correct one or the other"},
		{"another VLAN", asks("acme", "guests", binding("trunk", "acme", vlan(30))), ""},
		{"all its VLANs", asks("acme", "rest", binding("trunk", "acme", &api.Match{})), ""},
		{"the same VLAN", asks("acme", "guests", binding("trunk", "acme", vlan(20))), "the match equals that of chain acme/voice"},
		{"the VLAN, crossing", asks("acme", "guests", binding("trunk", "acme", &api.Match{Vlans: []uint32{20}, DestinationPorts: []string{"80"}})),
			"the match crosses that of chain acme/voice"},
		{"a VLAN it has not", asks("acme", "guests", binding("trunk", "acme", vlan(40))), "match.vlans: none of [40] is the edge's, which has [20 30]"},
		{"a VLAN of an edge without", asks("acme", "guests", binding("lan", "acme", vlan(20))), "match.vlans: none of [20] is the edge's, which has []"},
		{"no VLAN at all", asks("acme", "guests", binding("trunk", "acme", vlan(0))), "match.vlans[0]: 0 is no VLAN identifier; write 1 to 4094"},
		{"the second of two", asks("acme", "mail", binding("lan", "acme", &api.Match{Protocols: []string{"udp"}}), binding("wan", "acme", nil)),
			"edges[1]: edge acme/wan"},
	} {
		t.Run(test.name, func(t *testing.T) {
			rejection := c.admit(test.request, held)
			switch {
			case test.reason == "" && rejection != nil:
				t.Errorf("rejected: %s", rejection.Reason)
			case test.reason != "" && (rejection == nil || !strings.Contains(rejection.Reason, test.reason)):
				t.Errorf("got %v, want a rejection with %q", rejection, test.reason)
			}
		})
	}
}
