package global

import (
	"fmt"
	"strings"
	"testing"
	"time"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// routeNames are the routes of a chain by name, and the path of each.
func (p *platform) routeNames() map[string]string {
	names := map[string]string{}
	for _, r := range p.g.List(chain.KindRoute, "acme", "") {
		status := r.GetRoute().GetStatus()
		names[r.Metadata.Name] = fmt.Sprint(status.IngressSite, status.Sites, status.EgressSite, status.Vnfs)
	}
	return names
}

// A route is found by the name it is shown with, and keeps it while other routes and versions come and go.
func TestRouteKeepsItsName(t *testing.T) {
	p := standard(t)
	p.config.DrainLimit = time.Hour
	p.stop()
	p.startGlobal()
	p.apply(webChain)
	status := p.awaitPhase("acme", "web", active).Status
	first := status.Routes[0]
	label := first.ChainLabel
	if want := fmt.Sprintf("web-%d-1", label); first.Name != want {
		t.Fatalf("route %q, want %s", first.Name, want)
	}
	if found := p.g.List(chain.KindRoute, "acme", first.Name); len(found) != 1 || found[0].GetRoute().GetStatus().GetName() != first.Name {
		t.Fatalf("%s is found as %v", first.Name, found)
	}
	if found := p.g.List(chain.KindRoute, "acme", "web"); len(found) != 0 {
		t.Fatalf("the name of the chain finds %v", found)
	}
	before := p.routeNames()
	p.sites["office"].setFlows(p.record("acme", "web"), label, 3) // the old version stays
	p.apply(strings.Replace(webChain, "default: accept", "default: drop", 1))
	p.await("the new version is active", func() bool {
		r := p.record("acme", "web")
		return len(r.Versions) == 2 && r.Versions[0].State == control.VersionState_VERSION_STATE_ACTIVE
	})
	after := p.routeNames()
	if len(after) != 2 || after[first.Name] != before[first.Name] {
		t.Errorf("routes %v became %v", before, after)
	}
	p.await(first.Name+" is draining", func() bool {
		found := p.g.List(chain.KindRoute, "acme", first.Name)
		return len(found) == 1 && found[0].GetRoute().GetStatus().GetState() == api.RouteState_ROUTE_STATE_DRAINING
	})
}

// A path keeps its number over replans; a number is never given to another path.
func TestRouteNumbersAreGivenOnce(t *testing.T) {
	through := func(sites ...string) *control.PlannedRoute {
		return &control.PlannedRoute{IngressSite: "office", Sites: sites, EgressSite: "hq"}
	}
	numbers := func(routes []*control.PlannedRoute) (text string) {
		for _, r := range routes {
			text += fmt.Sprint(r.Sites[0], r.Number, " ")
		}
		return text
	}
	v := &control.ChainVersion{State: control.VersionState_VERSION_STATE_PREPARING,
		Routes: []*control.PlannedRoute{through("west"), through("east")}}
	numberRoutes(v, nil)
	for i, step := range []struct {
		next []*control.PlannedRoute
		want string
	}{
		{[]*control.PlannedRoute{through("east"), through("hq")}, "east2 hq3 "},
		{[]*control.PlannedRoute{through("east")}, "east2 "},
		{[]*control.PlannedRoute{through("west"), through("east")}, "west4 east2 "},
	} {
		next := &control.ChainVersion{State: control.VersionState_VERSION_STATE_ACTIVE, Routes: v.Routes, NextRoutes: step.next}
		numberRoutes(next, v)
		if got := numbers(next.NextRoutes); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
		next.Routes, next.NextRoutes = next.NextRoutes, nil
		v = next
	}
	old := &control.ChainVersion{State: control.VersionState_VERSION_STATE_ACTIVE, Routes: []*control.PlannedRoute{through("west"), through("east")}}
	next := &control.ChainVersion{State: old.State, Routes: old.Routes, NextRoutes: []*control.PlannedRoute{through("hq"), through("east")}}
	numberRoutes(next, old)
	if got := numbers(next.Routes) + numbers(next.NextRoutes); got != "west1 east2 hq3 east2 " {
		t.Errorf("of a release without numbers: %s", got)
	}
	shown := routeStatuses(&control.ChainRecord{Chain: "web", Versions: []*control.ChainVersion{next}})
	if len(shown) != 3 || shown[2].Name != "web-0-3" {
		t.Errorf("shown %v, want west, east once, hq", shown)
	}
}
