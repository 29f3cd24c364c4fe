package global

import (
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
)

// instance reports a firewall instance at the site.
func (s *fakeSite) instance(name string, state api.VnfInstanceState, reason string) {
	s.p.t.Helper()
	record := &control.InstanceRecord{Site: s.name, Vnf: "firewall", Instance: name, Deployment: "firewall-" + s.name,
		Observed: &api.VnfInstance{State: state, Reason: reason}}
	if err := put(testContext(s.p.t), s.connection.Published(), bus.Key("instance", "firewall", name), record); err != nil {
		s.p.t.Fatal(err)
	}
}

// forwarder reports that the site's forwarder is there or away.
func (s *fakeSite) forwarder(alive bool) {
	s.p.t.Helper()
	record := &control.ForwarderRecord{Site: s.name, Forwarder: "f1", Alive: alive}
	if err := put(testContext(s.p.t), s.connection.Published(), bus.Key("forwarder", "f1"), record); err != nil {
		s.p.t.Fatal(err)
	}
}

// outagePlatform has short limits, firewalls at work at both sites, and the chain web on one of them.
func outagePlatform(t *testing.T) (p *platform, used, other *fakeSite) {
	p = newPlatform(t, "hq", "office", "west")
	p.config.Outages = OutagePolicy{Instances: time.Second, Forwarders: 200 * time.Millisecond, Site: 400 * time.Millisecond,
		Recovered: 3 * time.Second}
	p.config.RetryInterval = 300 * time.Millisecond
	p.startAgents()
	p.startGlobal()
	p.apply(topology)
	for _, s := range []*fakeSite{p.hq, p.sites["west"]} {
		s.forwarder(true)
		s.instance(s.name+"-1", api.VnfInstanceState_VNF_INSTANCE_STATE_HEALTHY, "")
		s.instance(s.name+"-2", api.VnfInstanceState_VNF_INSTANCE_STATE_HEALTHY, "")
	}
	p.apply(webChain)
	p.awaitPhase("acme", "web", active)
	if p.servedBy("west") {
		return p, p.sites["west"], p.hq
	}
	return p, p.hq, p.sites["west"]
}

// servedBy reports whether all connections of the chain web go to the firewall of a site, and it is active.
func (p *platform) servedBy(site string) bool {
	status := p.chain("acme", "web").GetStatus()
	return status.GetPhase() == active && len(status.Routes) > 0 && !slices.ContainsFunc(status.Routes, func(r *api.RouteStatus) bool {
		return r.State != api.RouteState_ROUTE_STATE_ACTIVE || r.Sites[0] != site
	})
}

func (p *platform) said(reason, text string) bool {
	return slices.ContainsFunc(p.g.Events("", "", "", 2000), func(e *api.Event) bool {
		return e.Reason == reason && strings.Contains(e.Message, text)
	})
}

const dead, healthy = api.VnfInstanceState_VNF_INSTANCE_STATE_DEAD, api.VnfInstanceState_VNF_INSTANCE_STATE_HEALTHY

func TestADeploymentWithoutAWorkingInstanceLosesItsRoutes(t *testing.T) {
	p, used, other := outagePlatform(t)
	label := p.chain("acme", "web").Status.Routes[0].ChainLabel
	used.instance(used.name+"-1", dead, "no answer to 3 probes")
	time.Sleep(300 * time.Millisecond)
	if !p.servedBy(used.name) {
		t.Fatal("one of two instances is dead, and the routes have moved")
	}
	used.instance(used.name+"-2", dead, "no answer to 3 probes")
	p.await("the other site serves the chain", func() bool { return p.servedBy(other.name) })
	if got := p.chain("acme", "web").Status.Routes[0].ChainLabel; got != label {
		t.Errorf("label %d instead of %d: connections that still live would lose their rules", got, label)
	}
	if !p.said("Replanning", "none of its instances works (2 dead; no answer to 3 probes)") || !p.said("DeploymentDown", "at site "+used.name) {
		t.Error("no event says why")
	}
	// It returns: usable after a while, but the chain stays.
	used.instance(used.name+"-1", healthy, "")
	p.await("the deployment is usable", func() bool { return p.said("DeploymentUsable", used.name) })
	time.Sleep(300 * time.Millisecond)
	if !p.servedBy(other.name) {
		t.Error("the chain moved back by itself")
	}
}

// A deployment whose instances all fail one chain loses the routes of that chain alone, and may be used for it again when one is well.
func TestADeploymentThatFailsOneChainLosesItsRoutes(t *testing.T) {
	p, used, other := outagePlatform(t)
	fails := func(name string, chains ...string) {
		t.Helper()
		record := &control.InstanceRecord{Site: used.name, Vnf: "firewall", Instance: name, Deployment: "firewall-" + used.name,
			Observed: &api.VnfInstance{State: healthy, FailedChains: chains, Reason: "a place is out of use"}}
		if err := put(testContext(t), used.connection.Published(), bus.Key("instance", "firewall", name), record); err != nil {
			t.Fatal(err)
		}
	}
	fails(used.name+"-1", "acme/web")
	fails(used.name+"-2", "acme/another")
	time.Sleep(2 * time.Second) // longer than instances may be dead
	if !p.servedBy(used.name) {
		t.Fatal("one of two instances fails the chain, and the routes have moved")
	}
	fails(used.name+"-2", "acme/web")
	p.await("the other site serves the chain", func() bool { return p.servedBy(other.name) })
	if !p.said("Replanning", "none of its instances works for the chain (a place is out of use)") {
		t.Error("no event says why")
	}
	if p.said("DeploymentDown", used.name) {
		t.Error("the deployment counts as down for every chain")
	}
	other.instance(other.name+"-1", dead, "probe")
	other.instance(other.name+"-2", dead, "probe")
	fails(used.name + "-1")
	p.await("the first site serves the chain again", func() bool { return p.servedBy(used.name) })
}

func TestWhatFlapsIsNotUsed(t *testing.T) {
	p, used, other := outagePlatform(t)
	used.instance(used.name+"-1", dead, "probe")
	used.instance(used.name+"-2", dead, "probe")
	p.await("the other site serves the chain", func() bool { return p.servedBy(other.name) })
	for range 6 {
		used.instance(used.name+"-1", healthy, "")
		time.Sleep(200 * time.Millisecond)
		used.instance(used.name+"-1", dead, "probe")
		time.Sleep(50 * time.Millisecond)
	}
	if p.said("DeploymentUsable", used.name) {
		t.Error("a deployment that never worked for 3 s counts as usable")
	}
	// A short fault of a sound one is none.
	other.instance(other.name+"-1", dead, "probe")
	other.instance(other.name+"-2", dead, "probe")
	time.Sleep(20 * time.Millisecond)
	other.instance(other.name+"-2", healthy, "")
	time.Sleep(1500 * time.Millisecond)
	if p.said("DeploymentDown", "at site "+other.name) {
		t.Error("20 ms without an instance moved routes")
	}
}

func TestASiteWhoseForwarderIsAwayLosesItsRoutes(t *testing.T) {
	p, used, other := outagePlatform(t)
	used.mu.Lock()
	used.deaf = true // nobody there applies rules any more
	used.mu.Unlock()
	used.forwarder(false)
	p.await("the other site serves the chain", func() bool { return p.servedBy(other.name) })
	if !p.said("SiteAway", "its forwarders are away") {
		t.Error("no event says why")
	}
	p.apply(strings.Replace(webChain, "name: web,", "name: next,", 1))
	status := p.awaitPhase("acme", "next", active).Status
	if status.Routes[0].Sites[0] != other.name {
		t.Errorf("a new chain is routed over %v", status.Routes[0].Sites)
	}
}

func TestALostControlLinkKeepsRoutesForAWhile(t *testing.T) {
	p := newPlatform(t, "hq", "office", "west")
	p.config.Outages = OutagePolicy{Site: 8 * time.Second}
	p.startAgents()
	p.startGlobal()
	p.apply(topology)
	p.apply(webChain)
	p.awaitPhase("acme", "web", active)
	// Only west has room; then hq has it too.
	p.apply(strings.Replace(topology, "name: firewall-hq}\nspec: {vnf: firewall, site: hq, capacity: 400", "name: firewall-hq}\nspec: {vnf: firewall, site: hq, capacity: 0", 1))
	p.await("west serves the chain", func() bool { return p.servedBy("west") })
	p.apply(topology)
	p.sites["west"].server.Close()
	cut := time.Now()
	p.await("the link is lost", func() bool { return !p.g.observed.reachable("west") })
	for time.Since(cut) < 3*time.Second {
		if !p.servedBy("west") {
			t.Fatalf("routes moved %v after the link was lost", time.Since(cut))
		}
		time.Sleep(20 * time.Millisecond)
	}
	p.await("the other site serves the chain", func() bool { return p.servedBy("hq") })
	if passed := time.Since(cut); passed > patience {
		t.Errorf("routes moved only %v after the link was lost", passed)
	}
}

func TestWithNothingLeftAChainKeepsItsRoutesAndSaysWhy(t *testing.T) {
	p, used, other := outagePlatform(t)
	for _, s := range []*fakeSite{used, other} {
		s.instance(s.name+"-1", dead, "probe")
		s.instance(s.name+"-2", dead, "probe")
	}
	p.await("the chain says what it lacks", func() bool {
		status := p.chain("acme", "web").Status
		return status.Phase == rejected && strings.Contains(status.Reason, "none: none of its instances works") && len(status.Routes) > 0
	})
	other.instance(other.name+"-1", healthy, "")
	p.await("it returns to what works again", func() bool { return p.servedBy(other.name) })
}

func TestAilmentsAreFollowed(t *testing.T) {
	limits := OutagePolicy{}
	limits.defaults()
	for name, c := range map[string]struct {
		way  string
		well bool
		want time.Duration
	}{
		"instances": {wayInstances, false, time.Second}, "forwarders": {wayForwarders, false, 5 * time.Second},
		"a link": {wayLink, false, 30 * time.Second}, "recovery": {wayLink, true, 10 * time.Second},
	} {
		if got := limits.limit(c.way, c.well); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	o := newOutages()
	o.away["x"] = "gone"
	ends := []end{{site: "x"}, {site: "y"}}
	if got := o.withoutAway(ends); len(got) != 1 || got[0].site != "y" {
		t.Errorf("ends %v", got)
	}
	o.away["y"] = "gone"
	if got := o.withoutAway(ends); len(got) != 2 {
		t.Errorf("with all away the ends are %v", got)
	}
}
