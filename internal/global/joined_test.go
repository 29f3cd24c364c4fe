package global

import (
	"fmt"
	"strings"
	"testing"
	"time"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
)

// A chain shows the edges whose users joined it, as their sites report: those on the label in use, until they are gone.
func TestChainShowsWhoJoined(t *testing.T) {
	p := standard(t)
	p.apply(webChain)
	label := p.awaitPhase("acme", "web", active).Status.Routes[0].ChainLabel
	west := p.sites["west"]
	west.mu.Lock()
	west.deaf = true // what it reports is this test's
	west.mu.Unlock()
	report := func(joined ...*api.JoinedEdge) {
		t.Helper()
		record := p.record("acme", "web")
		err := put(testContext(t), west.connection.Published(), bus.Key("progress", "acme", "web"), &control.ChainProgress{Site: "west",
			Customer: "acme", Chain: "web", AppliedRevision: record.Revision, Joined: joined})
		if err != nil {
			t.Fatal(err)
		}
	}
	report(&api.JoinedEdge{Edge: "branch", Site: "west", ChainLabel: label, Sites: []string{"west"}, EgressSite: "hq"},
		&api.JoinedEdge{Edge: "branch", Site: "west", ChainLabel: label + 2, Sites: []string{"hq"}, EgressSite: "hq"})
	p.await("the joined edge is shown", func() bool {
		joined := p.chain("acme", "web").Status.Joined
		return len(joined) == 1 && joined[0].Edge == "branch" && joined[0].ChainLabel == label
	})
	report()
	p.await("it is gone", func() bool { return len(p.chain("acme", "web").Status.Joined) == 0 })
}

// Versions of a chain are told apart in its traffic, and those that end are named.
func TestTrafficTellsVersionsApart(t *testing.T) {
	p := standard(t)
	p.config.DrainLimit = time.Hour
	p.stop()
	p.startGlobal()
	p.apply(webChain)
	old := p.awaitPhase("acme", "web", active).Status.Routes[0].ChainLabel
	office := p.sites["office"]
	office.setFlows(p.record("acme", "web"), old, 3)
	p.apply(strings.Replace(webChain, "default: accept", "default: drop", 1))
	p.await("the new version is active", func() bool {
		r := p.record("acme", "web")
		now := activeVersion(r)
		return len(r.Versions) == 2 && now != nil && now.ChainLabel != old
	})
	fresh := activeVersion(p.record("acme", "web")).ChainLabel
	err := put(testContext(t), office.connection.Published(), bus.Key("measurement", "acme", "web"), &control.Measurement{Site: "office",
		Customer: "acme", Chain: "web", Stages: []*control.StageMeasurement{{ChainLabel: old, Stage: 1, Packets: 1},
			{ChainLabel: fresh, Stage: 1, Packets: 2}, {ChainLabel: fresh | 1, Stage: 1, Reverse: true, Packets: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("2 %d ACTIVE, 1 %d DRAINING, 3 %d ACTIVE", fresh, old, fresh)
	shown := func() string {
		var rows []string
		for _, c := range p.g.Traffic("acme", "web") {
			for _, s := range c.Stages {
				rows = append(rows, fmt.Sprintf("%d %d %s", s.Packets, s.ChainLabel, strings.TrimPrefix(s.State.String(), "ROUTE_STATE_")))
			}
		}
		return strings.Join(rows, ", ")
	}
	p.await("the traffic is "+want, func() bool { return shown() == want })
}
