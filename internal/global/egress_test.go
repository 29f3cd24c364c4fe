package global

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/switchboard-project/switchboard/internal/chain"
)

// secondInternet is another way to the same destinations.
const secondInternet = `
---
kind: Edge
metadata: {name: internet-west}
spec: {kind: internet, site: west, interface: wan0, prefixes: ["::/0", 0.0.0.0/0]}
`

// eitherWay is the chain web that may leave at either Internet edge.
var eitherWay = strings.Replace(webChain, "edges: [internet]", "edges: [internet, internet-west]", 1)

// egressOf is the only site where the chain's connections leave, "" where there are several or none.
func (p *platform) egressOf(name string) string {
	site := ""
	for _, r := range p.g.List(chain.KindRoute, "acme", "") {
		if s := r.GetRoute().Status; r.GetRoute().Chain == name && s.State.String() == "ROUTE_STATE_ACTIVE" {
			if site != "" && site != s.EgressSite {
				return ""
			}
			site = s.EgressSite
		}
	}
	return site
}

func TestTheNearerOfTwoInternetEdgesIsUsed(t *testing.T) {
	p := standard(t)
	p.apply(topology + secondInternet)
	p.apply(eitherWay)
	status := p.awaitPhase("acme", "web", active).Status
	if len(status.Routes) != 1 || status.Routes[0].EgressSite != "west" || status.Routes[0].LatencyMs != 4 {
		t.Errorf("routes %v, want one of 4 ms that leaves at west", status.Routes)
	}
}

func TestALostEgressSiteIsReplacedByTheOther(t *testing.T) {
	p := newPlatform(t, "hq", "office", "west")
	p.config.Outages = OutagePolicy{Forwarders: 100 * time.Millisecond}
	p.config.DrainLimit = time.Hour
	p.startAgents()
	p.startGlobal()
	for _, s := range p.sites {
		s.forwarder(true)
	}
	p.apply(topology + secondInternet)
	p.apply(eitherWay)
	p.awaitPhase("acme", "web", active)
	first := p.record("acme", "web").Versions[0]
	// Connections leave at west, and stay on their label when new ones leave elsewhere.
	p.sites["office"].setFlows(p.record("acme", "web"), first.ChainLabel, 3)
	p.sites["west"].forwarder(false)
	p.await("new connections leave at hq", func() bool { return p.egressOf("web") == "hq" })
	record := p.record("acme", "web")
	if len(record.Versions) != 2 || record.Versions[0].ChainLabel == first.ChainLabel || record.Versions[1].ChainLabel != first.ChainLabel ||
		record.Versions[1].State != draining {
		t.Errorf("versions %v, want a new label beside the old one, which drains", record.Versions)
	}
}

func TestTrafficOfAnIngressIsNotSplitOverEgressSites(t *testing.T) {
	p := standard(t)
	// 60 Mbit/s can leave at west and 60 at hq, and 10 cross between them; the chain needs 100 and cannot be split.
	narrow := strings.NewReplacer("to: west, latencyMs: 4, bandwidthMbps: 1000", "to: west, latencyMs: 4, bandwidthMbps: 60",
		"to: hq, latencyMs: 20, bandwidthMbps: 1000", "to: hq, latencyMs: 4, bandwidthMbps: 60",
		"to: hq, latencyMs: 5, bandwidthMbps: 1000", "to: hq, latencyMs: 5, bandwidthMbps: 10").Replace(topology)
	p.apply(narrow + secondInternet)
	big := strings.Replace(eitherWay, "forwardMbps: 50, reverseMbps: 50", "forwardMbps: 100, reverseMbps: 1", 1)
	p.apply(big)
	if s := p.awaitPhase("acme", "web", rejected).Status; !strings.Contains(s.Reason, "of 101 Mbit/s from office to") || strings.Contains(s.Reason, " or ") {
		t.Errorf("reason %q", s.Reason)
	}
	p.apply(strings.Replace(narrow, "latencyMs: 5, bandwidthMbps: 10", "latencyMs: 5, bandwidthMbps: 100", 1))
	p.awaitPhase("acme", "web", active)
	if p.egressOf("web") == "" {
		t.Errorf("routes %v leave at several sites", p.chain("acme", "web").Status.Routes)
	}
}

func TestEgressSitesThatShareSomeDestinationsAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ second, third, want string }{
		"partly the same":     {"[0.0.0.0/0]", "", "sites west and hq both lead to 0.0.0.0/0, but not to all the same destinations"},
		"alternative and not": {`["::/0", 0.0.0.0/0]`, "[192.0.2.0/24]", "some egress sites are each other's alternative and site office is not"},
		"apart":               {"[192.0.2.0/24]", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := standard(t)
			extra := strings.Replace(secondInternet, `["::/0", 0.0.0.0/0]`, c.second, 1)
			egress := "[internet, internet-west]"
			if c.third != "" {
				egress = "[internet, internet-west, third]"
				extra += "---\nkind: Edge\nmetadata: {name: third, customer: acme}\nspec: {kind: lan, site: office, interface: lan1, prefixes: " + c.third + "}\n"
			}
			_, err := p.tryApply(topology + extra + "---" + strings.Replace(webChain, "[internet]", egress, 1))
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				p.awaitPhase("acme", "web", active)
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestTheMostUsedEgressIsTriedFirst(t *testing.T) {
	p := &problem{pairs: []pair{{"a", []chain.SiteName{"x", "y", "z"}}}}
	split := &routeAnswer{Routes: []modelRoute{{Fraction: 0.3, Ingress: "a", Egress: "x"}, {Fraction: 0.7, Ingress: "a", Egress: "y"}}}
	if got := p.oneEgress(split); !slices.Equal(got, []chain.SiteName{"y", "x", "z"}) {
		t.Errorf("%v", got)
	}
	if got := p.oneEgress(&routeAnswer{Routes: split.Routes[:1]}); got != nil {
		t.Errorf("%v for what is not split", got)
	}
}
