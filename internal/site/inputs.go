// Package site is the Local Switchboard (paper sections 3 and 5.2): it turns wide-area routes, instances and what other
// sites announce into the rules of a site's forwarders, and reports how far the site has followed.
//
// The rules are a pure function of their inputs (Compute); the rest of the package carries inputs to it and its results
// away. What forwarders need to keep for connections that outlive a change is read back from the rules they were given
// before, so a restart forgets nothing.
package site

import (
	"cmp"
	"slices"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// ChainKey names a chain.
type ChainKey struct{ Customer, Chain string }

// EdgeKey names an edge; Customer is empty for shared ones.
type EdgeKey struct{ Customer, Edge string }

// String is the edge's identifier in rules and forwarder records: "<customer or ->/<edge>".
func (k EdgeKey) String() string { return cmp.Or(k.Customer, "-") + "/" + k.Edge }

// Inputs is everything the rules of a site are made from.
type Inputs struct {
	Site string
	// Forwarders are the site's own.
	Forwarders []Forwarder
	// Away are forwarders of any site, by peer id, that do not live since a moment; Dead those of this site that have been away
	// for longer.
	Away, Dead map[string]bool
	// Visitors are forwarders that have something to do with things that are at home with another.
	Visitors map[Thing]map[string]Role
	// TookOver says of forwarders of this site that are gone, or have handed everything over, who has what they had.
	TookOver map[string]string
	// Edges are all that the directory knows; UsableEdges those instances of this site that can be opened, by their forwarder.
	Edges       []*control.EdgeRecord
	UsableEdges map[EdgeKey]string
	// Latency is the least one-way latency between two sites in milliseconds, +Inf where they are not connected.
	Latency func(from, to string) float64
	// Encapsulations are those of the links to other sites.
	Encapsulations map[string]api.Encapsulation
	Chains         []*control.ChainRecord
	// Attachments are the local instances' interfaces, those that drain included, each with its home.
	Attachments []vnf.Attachment
	// Waiting says of places why instances do not serve them yet, where that is known.
	Waiting map[vnf.Place]string
	// Ports are the links of local instances, by forwarder. They are opened before a path needs them: opening takes long.
	Ports map[string][]string
	// Remote are the forwarders of other sites.
	Remote []*control.ForwarderRecord
	// Seed is the secret of the forwarders' choices, 16 bytes; empty where the platform has none.
	Seed []byte
	// Previous are the rules published last, by forwarder.
	Previous map[string]*rules.RuleSet
}

// Forwarder is one of the site's own forwarders as configured.
type Forwarder struct {
	Name string `yaml:"name"`
	// TunnelAddress is its tunnel end point with the prefix length, for example "192.0.2.1/24".
	TunnelAddress string `yaml:"tunnelAddress"`
	// Gateways are next hops of the underlay for peers that are not on link.
	Gateways []string `yaml:"gateways"`
	// Interface is the Linux interface on the underlay.
	Interface string `yaml:"interface"`
	// MTU is the underlay's, in bytes.
	MTU uint32 `yaml:"mtu"`
	// Driver is af_packet or af_xdp.
	Driver string `yaml:"driver"`
	// Devices are interfaces that DPDK drives, such as network cards: the devargs by the name that Interface and edges use.
	Devices map[string]string `yaml:"devices"`
}

// Result is what follows from Inputs.
type Result struct {
	// Rules are complete; the generation is the previous one where nothing changed, else one more.
	Rules map[string]*rules.RuleSet
	// Chains says, for every chain that the site takes part in, what is missing before it can carry the routes being
	// prepared; nothing where it can.
	Chains map[ChainKey]Following
	// Peers are the forwarders that targets name, as "<site>/<forwarder>".
	Peers []string
}

// Following says how well the rules follow a chain's record.
type Following struct {
	Revision uint64
	Missing  []string
	// Joined are the site's edges whose users joined the chain.
	Joined []*api.JoinedEdge
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
