package global

import (
	"encoding/json"
	"testing"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// problemOf is the topology's web chain with what other chains are about to hold.
func problemOf(t *testing.T, planned, limits map[chain.Placement]chain.Load) *problem {
	g := withTopology(t)
	p := &problem{g: g, key: chain.Key{Kind: chain.KindChain, Customer: "acme", Name: "web"}, world: g.world,
		demand: chain.Demand{Forward: 50, Reverse: 50}, planned: planned, limits: limits,
		pairs: []pair{{"office", []chain.SiteName{"hq"}}}}
	if p.planned == nil {
		p.planned = map[chain.Placement]chain.Load{}
	}
	p.spec = g.world[p.key].Spec.(chain.ChainSpec)
	return p
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestARequestHasWhatOthersPlanAndWhatParticipantsSaid(t *testing.T) {
	at := func(site chain.SiteName) chain.Placement { return chain.Placement{Vnf: "firewall", Site: site} }
	p := problemOf(t, map[chain.Placement]chain.Load{at("west"): 150, at("hq"): 20}, map[chain.Placement]chain.Load{at("west"): 30})
	const want = `{"revision":0,"chain":{"id":"acme.web","ingress":"office","egress":"hq","vnfs":["firewall"],"forward_mbps":50,` +
		`"reverse_mbps":50},"limits":[{"vnf":"firewall","site":"west","load":30}],` +
		`"planned":[{"vnf":"firewall","site":"hq","load":20},{"vnf":"firewall","site":"west","load":150}]}`
	if got := asJSON(t, p.request()); got != want {
		t.Errorf("request\n%s, want\n%s", got, want)
	}
}

func TestEndsOfAChainInTheModel(t *testing.T) {
	for name, c := range map[string]struct {
		pairs           []pair
		ingress, egress string
	}{
		"one of each": {[]pair{{"a", []chain.SiteName{"x"}}}, `"a"`, `"x"`},
		"two ingress sites, either of two egress sites": {
			[]pair{{"a", []chain.SiteName{"x", "y"}}, {"b", []chain.SiteName{"x", "y"}}},
			`[{"node":"a","share":0.5},{"node":"b","share":0.5}]`, `["x","y"]`},
		"two egress sites with destinations of their own": {
			[]pair{{"a", []chain.SiteName{"x"}}, {"a", []chain.SiteName{"y"}}}, `"a"`, `[{"node":"x","share":0.5},{"node":"y","share":0.5}]`},
	} {
		ingress, egress := modelEnds(c.pairs)
		if asJSON(t, ingress) != c.ingress || asJSON(t, egress) != c.egress {
			t.Errorf("%s: %s and %s, want %s and %s", name, asJSON(t, ingress), asJSON(t, egress), c.ingress, c.egress)
		}
	}
}

func TestTheModelLeavesOutWhatCannotBeUsed(t *testing.T) {
	g := withTopology(t)
	g.outages = newOutages()
	g.outages.down[chain.Placement{Vnf: "firewall", Site: "hq"}] = "its instances are down"
	entries := g.modelEntries(true, nil)
	for key, want := range map[string]string{
		"vnf.firewall":      `{"id":"firewall","load_per_mbps":1,"deployments":[{"site":"west","capacity":400}]}`,
		"site.hq":           `{"id":"hq","node":"hq","capacity":1000}`,
		"node.office":       `{"id":"office"}`,
		"link.west-hq=3C":   `{"id":"west-hq\u003c","from":"hq","to":"west","latency_ms":5,"bandwidth_mbps":1000,"background_mbps":0}`,
		"link.office-hq=3E": `{"id":"office-hq\u003e","from":"office","to":"hq","latency_ms":20,"bandwidth_mbps":1000,"background_mbps":0}`,
	} {
		if string(entries[key]) != want {
			t.Errorf("%s: %s, want %s", key, entries[key], want)
		}
	}
	if entry, there := entries["site.office"]; there {
		t.Errorf("the office has no compute, but an entry %s", entry)
	}
}

func TestAChainHoldsTheLargestOfItsVersions(t *testing.T) {
	g := withTopology(t)
	key := chain.Key{Kind: chain.KindChain, Customer: "acme", Name: "web"}
	version := func(state control.VersionState, site string, vnfs ...string) *control.ChainVersion {
		v := &control.ChainVersion{State: state, Ingress: []*control.PlannedEdge{{Site: "office"}}, Egress: []*control.PlannedEdge{{Site: "hq"}}}
		route := &control.PlannedRoute{IngressSite: "office", EgressSite: "hq", Fraction: 1}
		for _, name := range vnfs {
			v.Vnfs = append(v.Vnfs, &control.PlannedVnf{Vnf: name})
			route.Sites = append(route.Sites, site)
		}
		v.Routes = []*control.PlannedRoute{route}
		return v
	}
	g.states = map[chain.Key]*control.ChainState{key: {PlannedDemand: demandMessage(chain.Demand{Forward: 50, Reverse: 50})}}
	g.records = map[chain.Key]*control.ChainRecord{key: {Versions: []*control.ChainVersion{
		version(control.VersionState_VERSION_STATE_ACTIVE, "west", "firewall"), version(draining, "west", "firewall", "firewall"),
		version(draining, "hq", "firewall")}}}
	held, ok := g.heldChain(key)
	const want = `{"id":"acme.web","ingress":"office","egress":"hq","vnfs":["firewall"],"forward_mbps":50,"reverse_mbps":50,` +
		`"routes":[{"fraction":1,"ingress":"office","sites":["west"],"egress":"hq"}],` +
		`"reserved":[{"vnf":"firewall","site":"hq","load":200},{"vnf":"firewall","site":"west","load":400}]}`
	if got := asJSON(t, held); !ok || got != want {
		t.Errorf("held\n%s, want\n%s", got, want)
	}
	delete(g.records, key)
	if held, ok := g.heldChain(key); ok {
		t.Errorf("a chain without versions holds %+v", held)
	}
}

func TestShortageSaysWhatIsMissing(t *testing.T) {
	p := problemOf(t, map[chain.Placement]chain.Load{{Vnf: "firewall", Site: "west"}: 300, {Vnf: "firewall", Site: "hq"}: 350}, nil)
	label := func(chain.SiteName) chain.Label { return 16 }
	part := func(fraction float64) *routeAnswer {
		return &routeAnswer{Routes: []modelRoute{{Ingress: "office", Egress: "hq", Fraction: fraction, Sites: []string{"west"}}},
			Scarce: []string{"link west-hq<", "site west"}}
	}
	const want = "75 of 100 Mbit/s from office to hq can be carried: VNF firewall needs 200 load units, 150 are free (hq 50, west 100)"
	if routes, shortage := p.routes(part(0.75), label); routes != nil || shortage != want {
		t.Errorf("shortage %q, want %q", shortage, want)
	}
	p.planned = map[chain.Placement]chain.Load{}
	const full = "50 of 100 Mbit/s from office to hq can be carried: link west-hq from hq to west, site west are full"
	if _, shortage := p.routes(part(0.5), label); shortage != full {
		t.Errorf("shortage %q, want %q", shortage, full)
	}
}

func TestRoutesOfEveryPairShareTheDemand(t *testing.T) {
	p := problemOf(t, nil, nil)
	p.pairs = []pair{{"office", []chain.SiteName{"hq", "west"}}, {"west", []chain.SiteName{"hq", "west"}}}
	answer := &routeAnswer{Routes: []modelRoute{
		{Fraction: 0.3, Ingress: "office", Sites: []string{"west"}, Egress: "hq"},
		{Fraction: 0.199995, Ingress: "office", Sites: []string{"hq"}, Egress: "west"},
		{Fraction: 1e-9, Ingress: "office", Sites: []string{"hq"}, Egress: "hq"},
		{Fraction: 0.5, Ingress: "west", Sites: []string{"west"}, Egress: "hq"}}}
	routes, shortage := p.routes(answer, func(site chain.SiteName) chain.Label {
		return map[chain.SiteName]chain.Label{"hq": 16, "west": 17}[site]
	})
	sum := 0.0
	for _, r := range routes {
		sum += r.Fraction
	}
	if shortage != "" || len(routes) != 3 || sum < 1-1e-12 || sum > 1+1e-12 || routes[2].Fraction != 0.5 || routes[0].Latency != 9 ||
		routes[0].EgressLabel != 16 || routes[1].EgressLabel != 17 {
		t.Errorf("routes %+v (sum %v), shortage %q", routes, sum, shortage)
	}
}
