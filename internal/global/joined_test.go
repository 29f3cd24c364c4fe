package global

import (
	"testing"

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
