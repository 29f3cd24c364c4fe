package site

import (
	"flag"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

var update = flag.Bool("update", false, "write golden files anew")

// network is a small wide area for golden tests: sites on a line, 10 ms apart, and what is in them.
type network struct {
	order       []string // sites on the line
	edges       []*control.EdgeRecord
	chains      []*control.ChainRecord
	instances   map[string][]testInstance // by site
	unreachable map[string]bool           // sites that have announced nothing
	previous    map[string]*rules.RuleSet // by site
}

type testInstance struct {
	vnf, name string
	weight    uint32
	dead      bool
	outOfUse  []vnf.Place
}

func line(sites ...string) *network {
	return &network{order: sites, instances: map[string][]testInstance{}, unreachable: map[string]bool{}, previous: map[string]*rules.RuleSet{}}
}

func (n *network) number(site string) int {
	for i, s := range n.order {
		if s == site {
			return i
		}
	}
	panic("no site " + site)
}

func (n *network) edge(customer, name, site string, kind api.EdgeKind, prefixes ...string) {
	n.edges = append(n.edges, &control.EdgeRecord{Edge: name, Customer: customer, Spec: &api.EdgeSpec{Kind: kind, Site: site,
		Interface: name + "0", Prefixes: prefixes, GatewayAddresses: []string{"10.0.0.1/24"}}})
}

func (n *network) instance(site, vnf, name string, weight uint32) {
	n.instances[site] = append(n.instances[site], testInstance{vnf: vnf, name: name, weight: weight})
}

// planned is an edge as chain records name it.
func (n *network) planned(name string, label uint32) *control.PlannedEdge {
	for _, e := range n.edges {
		if e.Edge == name {
			return &control.PlannedEdge{Site: e.Spec.Site, Edge: e.Edge, Customer: e.Customer, EgressLabel: label, Prefixes: e.Spec.Prefixes}
		}
	}
	panic("no edge " + name)
}

// chain adds a chain; a route is "share: site site … site", from ingress to egress.
func (n *network) chain(customer, name string, label uint32, vnfs []string, ingress, egress []string, routes ...string) *control.ChainVersion {
	v := &control.ChainVersion{ChainLabel: label, State: active, Match: &api.Match{}}
	for _, f := range vnfs {
		v.Vnfs = append(v.Vnfs, &control.PlannedVnf{Vnf: f})
	}
	for _, e := range ingress {
		v.Ingress = append(v.Ingress, n.planned(e, 0))
	}
	for _, e := range egress {
		planned := n.planned(e, 0)
		planned.EgressLabel = n.label(planned.Site)
		v.Egress = append(v.Egress, planned)
	}
	v.Routes = n.routes(routes...)
	n.chains = append(n.chains, &control.ChainRecord{Customer: customer, Chain: name, Revision: 7, Versions: []*control.ChainVersion{v}})
	return v
}

func (n *network) label(site string) uint32 { return uint32(100 + n.number(site)) }

func (n *network) routes(texts ...string) []*control.PlannedRoute {
	var all []*control.PlannedRoute
	for _, text := range texts {
		share, path, _ := strings.Cut(text, ": ")
		sites := strings.Fields(path)
		r := &control.PlannedRoute{IngressSite: sites[0], Sites: sites[1 : len(sites)-1], EgressSite: sites[len(sites)-1]}
		r.EgressLabel = n.label(r.EgressSite)
		if _, err := fmt.Sscanf(share, "%g", &r.Fraction); err != nil {
			panic(err)
		}
		all = append(all, r)
	}
	return all
}

// inputs is the network as a site sees it, its instances attached at every place they have.
func (n *network) inputs(site string) Inputs {
	in := Inputs{Site: site, Edges: n.edges, UsableEdges: map[EdgeKey]string{}, Chains: n.chains,
		Forwarders: []Forwarder{{Name: "f1", TunnelAddress: n.address(site) + "/24", Interface: "wan0", MTU: 1600, Driver: DriverAFPacket}},
		Latency:    n.latency(),
		Previous:   map[string]*rules.RuleSet{}}
	if set := n.previous[site]; set != nil {
		in.Previous["f1"] = set
	}
	for _, e := range instancesOf(n.edges) {
		if e.Spec.Site == site {
			in.UsableEdges[EdgeKey{e.Customer, e.Edge}] = "f1"
		}
	}
	for _, other := range n.order {
		if other != site && !n.unreachable[other] {
			in.Remote = append(in.Remote, n.forwarder(other))
		}
	}
	in.Attachments = n.attachments(site)
	return in
}

func (n *network) latency() func(a, b string) float64 {
	return func(a, b string) float64 { return 10 * math.Abs(float64(n.number(a)-n.number(b))) }
}

func (n *network) attachments(site string) []vnf.Attachment {
	var all []vnf.Attachment
	in := Inputs{Site: site, Edges: n.edges, Chains: n.chains, Latency: n.latency()}
	for _, place := range Needs(in, func(string) string { return "" }).Places {
		for _, i := range n.instances[site] {
			if i.vnf == place.VNF {
				all = append(all, attached(i, place.Place))
			}
		}
	}
	return all
}

func attached(i testInstance, place vnf.Place) vnf.Attachment {
	a := vnf.Attachment{ID: fmt.Sprintf("%s/%d/%d/%d", i.name, place.ChainLabel, place.EgressLabel, place.Stage), Instance: i.name,
		Forwarder: "f1", Place: place, Kind: vnf.Gateway, State: vnf.Active, Weight: i.weight, IngressPort: "veth-" + i.name,
		EgressPort: "veth-" + i.name, MTU: 1500, IngressMAC: net.HardwareAddr{2, 0, 0, 0, byte(place.ChainLabel), 1},
		EgressMAC: net.HardwareAddr{2, 0, 0, 0, byte(place.ChainLabel), 2}}
	if i.weight == 0 {
		a.State = vnf.Draining
	}
	if i.dead || slices.Contains(i.outOfUse, place) {
		a.State, a.Weight = vnf.Dead, 0
	}
	return a
}

func (n *network) address(site string) string { return fmt.Sprintf("192.0.2.%d", n.number(site)+1) }

func (n *network) forwarder(site string) *control.ForwarderRecord {
	f := &control.ForwarderRecord{Site: site, Forwarder: "f1", Address: n.address(site), Alive: true, VnfWeights: map[string]uint32{}}
	for _, i := range n.instances[site] {
		f.VnfWeights[i.vnf] += i.weight
		if !i.dead && !slices.Contains(f.Serves, i.vnf) {
			f.Serves = append(f.Serves, i.vnf)
		}
	}
	f.OutOfUse = outOfUse(n.attachments(site), "f1", f.Serves)
	for _, e := range instancesOf(n.edges) {
		if e.Spec.Site == site {
			f.Edges = append(f.Edges, EdgeKey{e.Customer, e.Edge}.String())
		}
	}
	return f
}

// compute makes a site's rules and remembers them as the previous ones.
func (n *network) compute(site string) Result {
	result := Compute(n.inputs(site))
	n.previous[site] = result.Rules["f1"]
	return result
}

// golden compares the rules of all sites with a file.
func (n *network) golden(t *testing.T) {
	t.Helper()
	var b strings.Builder
	for _, site := range n.order {
		writeResult(&b, site, n.compute(site))
	}
	path := filepath.Join("testdata", strings.TrimPrefix(t.Name(), "Test")+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("rules differ from %s (go test -update writes it anew):\n%s", path, b.String())
	}
}

// writeResult writes rules so that people can check them.
func writeResult(b *strings.Builder, site string, result Result) {
	set := result.Rules["f1"]
	fmt.Fprintf(b, "site %s\n", site)
	for _, p := range set.Peers {
		fmt.Fprintf(b, "  peer %s %s alive=%v\n", p.Id, p.Address, p.Alive)
	}
	for _, a := range set.Attachments {
		fmt.Fprintf(b, "  attachment %s %s\n", a.Id, strings.TrimPrefix(a.State.String(), "ATTACHMENT_STATE_"))
	}
	for _, e := range set.Edges {
		fmt.Fprintf(b, "  edge %s\n", e.Id)
		for _, c := range e.Classifiers {
			fmt.Fprintf(b, "    from %v to %v dports %v -> label %d %s by", c.Match.SourcePrefixes, c.Match.DestinationPrefixes,
				c.Match.DestinationPorts, c.ChainLabel, strings.TrimPrefix(c.Direction.String(), "DIRECTION_"))
			for _, r := range c.EgressRoutes {
				fmt.Fprintf(b, " %s=%d", r.Destination, r.EgressLabel)
			}
			fmt.Fprintln(b)
		}
	}
	for _, p := range set.Paths {
		fmt.Fprintf(b, "  path %d/%d %s/%s\n", p.ChainLabel, p.EgressLabel, p.Customer, p.Chain)
		for _, r := range p.Routes {
			fmt.Fprintf(b, "    route %5d %s\n", r.Weight, strings.Join(r.Sites, " "))
		}
		for _, i := range p.Ingresses {
			fmt.Fprintf(b, "    ingress %s %v\n", i.Site, i.Prefixes)
		}
		for _, s := range p.Stages {
			fmt.Fprintf(b, "    stage %d\n", s.Number)
			writeEnd(b, "downstream", s.Downstream)
			writeEnd(b, "upstream", s.Upstream)
		}
	}
	for _, f := range result.Chains {
		for _, m := range f.Missing {
			fmt.Fprintf(b, "  missing: %s\n", m)
		}
	}
}

func writeEnd(b *strings.Builder, name string, end *rules.StageEnd) {
	for _, l := range end.Local {
		fmt.Fprintf(b, "      %-10s %5d %s%s %v\n", name, l.Weight, l.GetAttachment(), l.GetEdge(), l.Prefixes)
	}
	for _, r := range end.Remote {
		fmt.Fprintf(b, "      %-10s %5d -> %s %v", name, r.Weight, r.Peer, r.Prefixes)
		if r.Withdrawn {
			b.WriteString(" withdrawn")
		}
		b.WriteByte('\n')
	}
}
