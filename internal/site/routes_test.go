package site

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
)

// routesAt writes what a site's forwarder is told of the first path's routes.
func routesAt(n *network, site string) (routes, ingresses []string) {
	p := n.compute(site).Rules["f1"].Paths[0]
	for _, r := range p.Routes {
		routes = append(routes, fmt.Sprintf("%d: %s", r.Weight, strings.Join(r.Sites, " ")))
	}
	for _, i := range p.Ingresses {
		ingresses = append(ingresses, fmt.Sprint(i.Site, " ", i.Prefixes))
	}
	return routes, ingresses
}

// twoByTwo has two VNFs at two sites each, and users at two sites.
func twoByTwo(routes ...string) *network {
	n := office("office", "home", "a", "b", "core")
	n.edge("acme", "vpn", "home", lan, "10.2.0.0/24", "10.1.128.0/17")
	n.edge("acme", "guests", "home", lan, "10.2.0.0/24", "10.3.0.0/24")
	for _, site := range []string{"a", "b"} {
		n.instance(site, "firewall", "fw-"+site, 100)
		n.instance(site, "cache", "cache-"+site, 100)
	}
	n.chain("acme", "web", 16, []string{"firewall", "cache"}, []string{"lan", "vpn", "guests"}, []string{"inet"}, routes...)
	return n
}

func TestEverySiteIsToldTheRoutesThatPassIt(t *testing.T) {
	n := twoByTwo("0.4: office a b core", "0.05: home b b core", "0.1: office b a core", "0.3: home a b core", "0.05: home b b core", "0: home a a core",
		"0.1: office a a core")
	all := []string{"18000: home a b core", "6000: home b b core", "6000: office a a core", "24000: office a b core", "6000: office b a core"}
	for site, want := range map[string][]string{"office": all[2:], "home": all[:2], "a": {all[0], all[2], all[3], all[4]},
		"b": {all[0], all[1], all[3], all[4]}, "core": all} {
		routes, ingresses := routesAt(n, site)
		if !slices.Equal(routes, want) {
			t.Errorf("site %s: routes %q, want %q", site, routes, want)
		}
		begin := []string{"home [10.1.128.0/17 10.2.0.0/24 10.3.0.0/24]", "office [10.1.0.0/24]"}
		switch site {
		case "office":
			begin = begin[1:]
		case "home":
			begin = begin[:1]
		}
		if !slices.Equal(ingresses, begin) {
			t.Errorf("site %s: ingresses %q, want %q", site, ingresses, begin)
		}
	}
}

// An edge of any prefixes takes what no longer prefix takes, whatever other edges are at its site.
func TestAnIngressOfAnyPrefixesHasNone(t *testing.T) {
	n := twoByTwo("0.5: office a b core", "0.5: home b a core")
	n.chains[0].Versions[0].Ingress[2].Prefixes = nil
	if _, ingresses := routesAt(n, "core"); !slices.Equal(ingresses, []string{"home []", "office [10.1.0.0/24]"}) {
		t.Errorf("ingresses %q", ingresses)
	}
}

func TestRoutesAreLeftOutWhereTheySayNothing(t *testing.T) {
	n := twoByTwo("0.7: office a b core", "0.3: home a b core")
	for _, site := range n.order {
		if routes, ingresses := routesAt(n, site); len(routes)+len(ingresses) > 0 {
			t.Errorf("site %s: routes %q, ingresses %q; each VNF is at one site", site, routes, ingresses)
		}
	}
}

// Routes that are being prepared draw nobody; once they are taken, the others do not.
func TestRoutesAreThoseOfNewConnections(t *testing.T) {
	n := twoByTwo("0.5: office a b core", "0.5: office b a core")
	v := n.chains[0].Versions[0]
	v.NextRoutes = n.routes("0.5: office a a core", "0.5: office b b core")
	if routes, _ := routesAt(n, "core"); !slices.Equal(routes, []string{"30000: office a b core", "30000: office b a core"}) {
		t.Errorf("while others are prepared: %q", routes)
	}
	v.Routes, v.NextRoutes = v.NextRoutes, nil
	if routes, _ := routesAt(n, "core"); !slices.Equal(routes, []string{"30000: office a a core", "30000: office b b core"}) {
		t.Errorf("once these are taken: %q", routes)
	}
}

// Forwarders take so many; every site leaves out the same.
func TestTheLeastOfTooManyRoutesAreLeftOut(t *testing.T) {
	var texts []string
	for i := range 33 {
		for j := range 33 {
			texts = append(texts, fmt.Sprintf("%g: office s%d s%d core", float64(1+i*33+j)/700_000, i, j))
		}
	}
	sites := []string{"office"}
	for i := range 33 {
		sites = append(sites, fmt.Sprintf("s%d", i))
	}
	n := office(append(sites, "core")...)
	n.chain("acme", "web", 16, []string{"firewall", "cache"}, []string{"lan"}, []string{"inet"}, texts...)
	p := paths(&Inputs{Site: "core"}, n.chains[0])[0]
	all := pathRoutes(p)
	least := slices.MinFunc(all, func(a, b *rules.Route) int { return int(a.Weight) - int(b.Weight) })
	if len(all) != mostRoutes || least.Weight < 6 {
		t.Errorf("%d routes, the least %v", len(all), least)
	}
}
