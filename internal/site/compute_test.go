package site

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

const (
	lan      = api.EdgeKind_EDGE_KIND_LAN
	internet = api.EdgeKind_EDGE_KIND_INTERNET
)

// office has a customer's LAN at the first site and the Internet at the last.
func office(sites ...string) *network {
	n := line(sites...)
	n.edge("acme", "lan", sites[0], lan, "10.1.0.0/24")
	n.edge("", "inet", sites[len(sites)-1], internet, "0.0.0.0/0", "::/0")
	return n
}

func TestTwoSitesOneFirewall(t *testing.T) {
	n := office("office", "cloud")
	n.instance("cloud", "firewall", "fw-1", 100)
	n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "1: office cloud cloud")
	n.golden(t)
}

func TestTwoVnfsAtOneSite(t *testing.T) {
	n := office("office", "edge", "core")
	n.instance("edge", "firewall", "fw-1", 100)
	n.instance("edge", "nat", "nat-1", 100)
	n.instance("edge", "nat", "nat-2", 100)
	n.chain("acme", "web", 16, []string{"firewall", "nat"}, []string{"lan"}, []string{"inet"}, "1: office edge edge core")
	n.golden(t)
}

func TestReturnToASiteItLeft(t *testing.T) {
	n := office("office", "a", "b", "core")
	n.instance("a", "firewall", "fw-1", 100)
	n.instance("b", "cache", "cache-1", 100)
	n.instance("a", "nat", "nat-1", 100)
	n.chain("acme", "web", 16, []string{"firewall", "cache", "nat"}, []string{"lan"}, []string{"inet"}, "1: office a b a core")
	n.golden(t)
}

func TestOverlappingCustomersShareAnInstance(t *testing.T) {
	n := office("office", "cloud")
	n.edge("umbra", "branch", "office", lan, "10.1.0.0/24")
	n.instance("cloud", "firewall", "fw-1", 100)
	n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "1: office cloud cloud")
	n.chain("umbra", "web", 18, []string{"firewall"}, []string{"branch"}, []string{"inet"}, "1: office cloud cloud")
	n.golden(t)
}

func TestWeightsAreShareTimesInstanceWeight(t *testing.T) {
	n := office("office", "a", "b", "core")
	n.instance("office", "firewall", "fw-0", 50)
	n.instance("a", "firewall", "fw-1", 100)
	n.instance("a", "firewall", "fw-2", 50)
	n.instance("b", "firewall", "fw-3", 100)
	n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"},
		"0.2: office office core", "0.6: office a core", "0.2: office b core")
	n.golden(t)
}

// Two chains of one edge that differ by VLAN only, and one that takes what is left of both: each has its classifier at its VLANs'
// edge instances. Nothing that begins at the Internet may go to a trunk, and only connections that know their VLAN leave by one of several.
func TestChainsDifferByVlan(t *testing.T) {
	n := office("office", "cloud")
	n.edge("acme", "trunk", "office", api.EdgeKind_EDGE_KIND_VLAN, "10.5.0.0/24")
	n.edges[len(n.edges)-1].Spec.Vlans = []uint32{20, 30, 40}
	n.edge("acme", "tagged", "cloud", api.EdgeKind_EDGE_KIND_VLAN, "10.6.0.0/24")
	n.edges[len(n.edges)-1].Spec.Vlan = 20
	n.instance("cloud", "firewall", "fw-1", 100)
	for label, vlans := range map[uint32][]uint32{16: {20}, 18: {30}, 20: nil} {
		v := n.chain("acme", fmt.Sprintf("vlan-%d", label), label, []string{"firewall"}, []string{"trunk"}, []string{"inet"}, "1: office cloud cloud")
		v.Match = &api.Match{Vlans: vlans, Protocols: []string{"tcp"}}
	}
	n.golden(t)
}

func TestDrainingVersionHasNoClassifiers(t *testing.T) {
	n := office("office", "cloud")
	n.instance("cloud", "firewall", "fw-1", 100)
	n.instance("cloud", "nat", "nat-1", 100)
	old := n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "1: office cloud cloud")
	old.State = control.VersionState_VERSION_STATE_DRAINING
	fresh := n.chain("acme", "web", 18, []string{"firewall", "nat"}, []string{"lan"}, []string{"inet"}, "1: office cloud cloud cloud")
	n.chains = []*control.ChainRecord{{Customer: "acme", Chain: "web", Versions: []*control.ChainVersion{fresh, old}}}
	n.golden(t)
}

func TestDrainingInstanceKeepsWhatItHas(t *testing.T) {
	n := office("office", "cloud")
	n.instance("cloud", "firewall", "fw-1", 0)
	n.instance("cloud", "firewall", "fw-2", 100)
	n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "1: office cloud cloud")
	n.golden(t)
}

func TestUserAtANewEdgeTakesTheNearestRoute(t *testing.T) {
	n := office("office", "a", "cafe", "b", "core")
	n.edge("acme", "mobile", "cafe", lan, "10.9.0.0/24")
	n.instance("a", "firewall", "fw-1", 100)
	n.instance("b", "firewall", "fw-2", 100)
	n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "0.9: office a core", "0.1: office b core")
	n.golden(t)
	nearest := n.compute("cafe").Chains[ChainKey{"acme", "web"}].Joined
	if len(nearest) != 1 || nearest[0].Edge != "mobile" || nearest[0].Site != "cafe" || nearest[0].EgressSite != "core" ||
		!slices.Equal(nearest[0].Vnfs, []string{"firewall"}) || len(nearest[0].Sites) != 1 || nearest[0].EgressLabel == 0 {
		t.Errorf("joined %v", nearest)
	}
	for _, other := range []string{"office", "a", "core"} {
		if joined := n.compute(other).Chains[ChainKey{"acme", "web"}].Joined; len(joined) > 0 {
			t.Errorf("site %s says that %v joined", other, joined)
		}
	}
}

// An edge with IPv4 users only has no part in a chain for IPv6: it is not shown as joined, nothing is classified there and
// no forwarder of the chain expects its users.
func TestEdgeJoinsOnlyChainsThatItsUsersCanUse(t *testing.T) {
	n := office("office", "cafe", "core")
	n.edge("acme", "mobile", "cafe", lan, "10.9.0.0/24")
	v6 := n.chain("acme", "web6", 16, nil, []string{"lan"}, []string{"inet"}, "1: office core")
	v6.Match = &api.Match{DestinationPrefixes: []string{"::/0"}}
	v4 := n.chain("acme", "web4", 18, nil, []string{"lan"}, []string{"inet"}, "1: office core")
	v4.Match = &api.Match{DestinationPrefixes: []string{"0.0.0.0/0"}}
	got := n.compute("cafe")
	if joined := got.Chains[ChainKey{"acme", "web6"}].Joined; len(joined) > 0 {
		t.Errorf("an edge with IPv4 prefixes joined a chain for IPv6: %v", joined)
	}
	if joined := got.Chains[ChainKey{"acme", "web4"}].Joined; len(joined) != 1 || joined[0].Edge != "mobile" {
		t.Errorf("joined to the chain for IPv4: %v", joined)
	}
	for _, site := range []string{"cafe", "core"} {
		for _, path := range n.compute(site).Rules["f1"].Paths {
			if path.ChainLabel == 16 && (site == "cafe" || strings.Contains(path.String(), "mobile") || strings.Contains(path.String(), "cafe/")) {
				t.Errorf("site %s has rules of the chain for IPv6 for the edge: %v", site, path)
			}
		}
	}
	if classifiers := got.Rules["f1"].Edges[0].Classifiers; len(classifiers) != 1 || classifiers[0].ChainLabel != 18 {
		t.Errorf("classifiers %v, want one onto the chain for IPv4", classifiers)
	}
}

func TestFixedIngressLetsNobodyJoin(t *testing.T) {
	n := office("office", "cafe", "core")
	n.edge("acme", "mobile", "cafe", lan, "10.9.0.0/24")
	n.chain("acme", "web", 16, nil, []string{"lan"}, []string{"inet"}, "1: office core")
	n.chains[0].FixedIngress = true
	if got := n.compute("cafe").Rules["f1"]; len(got.Paths) > 0 || len(got.Edges[0].Classifiers) > 0 {
		t.Errorf("the edge at the café joins a chain with fixed ingress: %v", got)
	}
}

func TestNextRoutesAreInPlaceBeforeTheyAreTaken(t *testing.T) {
	n := office("office", "a", "b", "core")
	n.instance("a", "firewall", "fw-1", 100)
	n.instance("b", "firewall", "fw-2", 100)
	v := n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "1: office a core")
	v.NextRoutes = n.routes("0.5: office a core", "0.5: office b core")
	n.golden(t)
}

func TestRoutesTakenAwayKeepTheirTargets(t *testing.T) {
	n := office("office", "a", "b", "core")
	n.instance("a", "firewall", "fw-1", 100)
	n.instance("b", "firewall", "fw-2", 100)
	v := n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "0.5: office a core", "0.5: office b core")
	for _, site := range n.order {
		n.compute(site)
	}
	v.Routes = n.routes("1: office a core")
	var b strings.Builder
	in := n.inputs("b")
	drains := attached(testInstance{vnf: "firewall", name: "fw-2"}, vnf.Place{VNF: "firewall", ChainLabel: 16, EgressLabel: 103, Stage: 1})
	in.Attachments = []vnf.Attachment{drains}
	writeResult(&b, "b", Compute(in))
	for _, want := range []string{"0 fw-2/16/103/1", "attachment fw-2/16/103/1 DRAINING", "-> core/f1", "-> office/f1"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("site b lost %q:\n%s", want, b.String())
		}
	}
	n.golden(t)
}

// A site that no route has any more is still heard of: silent about it, its forwarder would count as dead, and connections
// that pass it would choose again.
func TestSitesOfFormerRoutesAreStillHeard(t *testing.T) {
	n := office("office", "a", "b", "core")
	n.instance("a", "firewall", "fw-1", 100)
	n.instance("b", "firewall", "fw-2", 100)
	v := n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "1: office a core")
	n.compute("office")
	v.Routes = n.routes("1: office b core")
	heard := Needs(n.inputs("office"), func(string) string { return "" }).Topics
	if !slices.Contains(heard, Topic{"a", forwardersPrefix}) {
		t.Errorf("hears of %v, want a's forwarders too", heard)
	}
}

func TestMissingTargetsAreNamed(t *testing.T) {
	n := office("office", "a", "core")
	v := n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "1: office a core")
	v.State = preparing
	n.unreachable["core"] = true
	n.golden(t)
}

func TestGenerationGrowsWithChangesOnly(t *testing.T) {
	n := office("office", "cloud")
	n.instance("cloud", "firewall", "fw-1", 100)
	v := n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "1: office cloud cloud")
	first := n.compute("cloud").Rules["f1"].Generation
	n.chains[0].Revision++
	if same := n.compute("cloud").Rules["f1"].Generation; same != first {
		t.Errorf("generation %d became %d without a change of the rules", first, same)
	}
	v.Vnfs = append(v.Vnfs, &control.PlannedVnf{Vnf: "nat"})
	v.Routes = n.routes("1: office cloud cloud cloud")
	if next := n.compute("cloud").Rules["f1"].Generation; next != first+1 {
		t.Errorf("generation %d became %d with a change", first, next)
	}
}

func TestOneBadRecordHarmsItselfOnly(t *testing.T) {
	for name, damage := range map[string]struct {
		do   func(*control.ChainVersion)
		want string
	}{
		"odd label":       {func(v *control.ChainVersion) { v.ChainLabel = 19 }, "chain_label: not an even number from 16 to 1048575"},
		"reserved label":  {func(v *control.ChainVersion) { v.ChainLabel = 2 }, "chain_label: not an even number"},
		"another's label": {func(v *control.ChainVersion) { v.ChainLabel = 16 }, "label 16 is that of chain acme/mail"},
		"short route":     {func(v *control.ChainVersion) { v.Routes[0].Sites = nil }, "routes: 0 sites for 1 VNFs"},
		"egress label":    {func(v *control.ChainVersion) { v.Routes[0].EgressLabel = 1 << 20 }, "egress_label 1048576 is not from 16"},
		"share":           {func(v *control.ChainVersion) { v.Routes[0].Fraction = math.NaN() }, "fraction NaN is not from 0 to 1"},
		"prefix":          {func(v *control.ChainVersion) { v.Egress[0].Prefixes = []string{"all"} }, `edge inet: prefixes[0]: "all" is no prefix`},
	} {
		t.Run(name, func(t *testing.T) {
			n := office("office", "cloud")
			n.instance("cloud", "firewall", "fw-1", 100)
			n.chain("acme", "mail", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "1: office cloud cloud")
			alone := n.compute("cloud").Rules["f1"]
			v := n.chain("acme", "web", 18, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "1: office cloud cloud")
			damage.do(v)
			result := n.compute("cloud")
			if with := result.Rules["f1"]; with.Generation != alone.Generation {
				t.Errorf("the bad chain changes the rules: %v", with)
			}
			got := result.Chains[ChainKey{"acme", "web"}].Missing
			if len(got) != 1 || !strings.Contains(got[0], damage.want) {
				t.Errorf("said %q, want %q", got, damage.want)
			}
		})
	}
}

func TestPeersThatTunnelsCannotReachAreLeftOut(t *testing.T) {
	n := office("office", "a", "b", "core")
	n.instance("a", "firewall", "fw-1", 100)
	n.instance("b", "firewall", "fw-2", 100)
	n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "0.5: office a core", "0.5: office b core")
	for name, address := range map[string]string{"another family": "2001:db8::1", "none": "", "nonsense": "here", "our own": "192.0.2.1", "a's": "192.0.2.2"} {
		in := n.inputs("office")
		for _, f := range in.Remote {
			if f.Site == "b" {
				f.Address = address
			}
		}
		set := Compute(in).Rules["f1"]
		targets := set.Paths[0].Stages[0].Downstream.Remote
		if len(set.Peers) != 1 || set.Peers[0].Id != "a/f1" || len(targets) != 1 || targets[0].Weight != 60000 {
			t.Errorf("%s: peers %v, targets %v", name, set.Peers, targets)
		}
	}
}

func TestAddressOfAForgottenPeerMayBeAnothers(t *testing.T) {
	n := office("office", "a", "b", "core")
	n.instance("a", "firewall", "fw-1", 100)
	v := n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "1: office a core")
	n.compute("office")
	n.instance("b", "firewall", "fw-2", 100)
	v.Routes = n.routes("1: office b core")
	in := n.inputs("office")
	in.Remote = slices.DeleteFunc(in.Remote, func(f *control.ForwarderRecord) bool { return f.Site == "a" })
	for _, f := range in.Remote {
		if f.Site == "b" {
			f.Address = "192.0.2.2"
		}
	}
	set := Compute(in).Rules["f1"]
	if len(set.Peers) != 1 || set.Peers[0].Id != "b/f1" || len(set.Paths[0].Stages[0].Downstream.Remote) != 1 {
		t.Errorf("peers %v, stage %v", set.Peers, set.Paths[0].Stages[0])
	}
}

func TestAddressOfAForgottenPeerMayBeOurs(t *testing.T) {
	n := office("office", "a", "core")
	n.instance("a", "firewall", "fw-1", 100)
	n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "1: office a core")
	n.compute("office")
	in := n.inputs("office")
	in.Remote = slices.DeleteFunc(in.Remote, func(f *control.ForwarderRecord) bool { return f.Site == "a" })
	forgotten := func() bool {
		return slices.ContainsFunc(Compute(in).Rules["f1"].Peers, func(p *rules.Peer) bool { return p.Address == "192.0.2.2" })
	}
	if !forgotten() {
		t.Error("the peer without a record is not remembered")
	}
	in.Forwarders[0].TunnelAddress = "192.0.2.2/24"
	if forgotten() {
		t.Error("a forwarder has itself for a peer")
	}
}

func TestForwardersOfOneSiteShareItsInstances(t *testing.T) {
	n := office("office", "cloud")
	n.instance("cloud", "firewall", "fw-1", 100)
	n.instance("cloud", "firewall", "fw-2", 300)
	n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "1: office cloud cloud")
	in := n.inputs("cloud")
	second := in.Forwarders[0]
	second.Name, second.TunnelAddress = "f2", "192.0.2.102/24"
	in.Forwarders = append(in.Forwarders, second)
	in.Attachments[1].Forwarder = "f2"
	result := Compute(in)
	var b strings.Builder
	for _, name := range []string{"f1", "f2"} {
		for _, s := range result.Rules[name].Paths[0].Stages {
			fmt.Fprintf(&b, "%s stage %d\n", name, s.Number)
			writeEnd(&b, "downstream", s.Downstream)
			writeEnd(&b, "upstream", s.Upstream)
		}
	}
	const want = `f1 stage 1
      downstream 60000 fw-1/16/101/1 []
      upstream   60000 -> office/f1 [10.1.0.0/24]
f1 stage 2
      downstream 60000 -/inet [0.0.0.0/0 ::/0]
      upstream   15000 fw-1/16/101/1 []
      upstream   45000 -> cloud/f2 []
f2 stage 1
      downstream 60000 fw-2/16/101/1 []
      upstream   60000 -> office/f1 [10.1.0.0/24]
f2 stage 2
      downstream 60000 -> cloud/f1 [0.0.0.0/0 ::/0]
      upstream   60000 fw-2/16/101/1 []
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

// BenchmarkCompute is a site's rules for a thousand chains of different customers that share instances and the Internet
// edge.
func BenchmarkCompute(b *testing.B) {
	n := line("office", "cloud")
	n.edge("", "inet", "cloud", internet, "0.0.0.0/0", "::/0")
	for _, name := range []string{"fw-1", "fw-2"} {
		n.instance("cloud", "firewall", name, 100)
	}
	for i := range 1000 {
		customer, edge := fmt.Sprintf("c%d", i), fmt.Sprintf("lan%d", i)
		n.edge(customer, edge, "office", lan, fmt.Sprintf("10.%d.%d.0/24", i/250, i%250))
		n.chain(customer, "web", uint32(16+2*i), []string{"firewall"}, []string{edge}, []string{"inet"}, "1: office cloud cloud")
	}
	in := n.inputs("cloud")
	for b.Loop() {
		Compute(in)
	}
}

// Each link has its encapsulation; a path without service path identifiers makes its peers use labels.
func TestPeersUseTheirLinksEncapsulation(t *testing.T) {
	peers := func(numbers map[uint32]uint32) map[string]rules.Encapsulation {
		n := line("office", "west", "dc")
		n.edge("acme", "lan", "office", api.EdgeKind_EDGE_KIND_LAN, "10.1.0.0/24")
		n.edge("", "internet", "dc", api.EdgeKind_EDGE_KIND_INTERNET, "0.0.0.0/0")
		n.instance("west", "fw", "fw-1", 100)
		n.chain("acme", "web", 65536, []string{"fw"}, []string{"lan"}, []string{"internet"}, "1: office west dc").NshNumbers = numbers
		in := n.inputs("west")
		in.Encapsulations = map[string]api.Encapsulation{"office": api.Encapsulation_ENCAPSULATION_VXLAN_GPE_NSH,
			"dc": api.Encapsulation_ENCAPSULATION_MPLS_IN_UDP}
		set := Compute(in).Rules["f1"]
		if forward, reverse := set.Paths[0].NshForwardPath, set.Paths[0].NshReversePath; len(numbers) > 0 &&
			(forward != 65536<<4|3 || reverse != 65537<<4|3) {
			t.Errorf("service path identifiers %d and %d", forward, reverse)
		}
		found := map[string]rules.Encapsulation{}
		for _, p := range set.Peers {
			found[p.Id] = p.Encapsulation
		}
		return found
	}
	dc := uint32(102)
	want := map[string]rules.Encapsulation{"office/f1": rules.Encapsulation_ENCAPSULATION_VXLAN_GPE_NSH,
		"dc/f1": rules.Encapsulation_ENCAPSULATION_MPLS_IN_UDP}
	if got := peers(map[uint32]uint32{dc: 3}); !maps.Equal(got, want) {
		t.Errorf("with identifiers: %v", got)
	}
	want["office/f1"] = rules.Encapsulation_ENCAPSULATION_VXLAN_MPLS
	if got := peers(nil); !maps.Equal(got, want) {
		t.Errorf("without: %v", got)
	}
}
