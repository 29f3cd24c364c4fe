package global

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/switchboard-project/switchboard/internal/chain"
)

// farFirewall is a site 20 ms from everything, with a firewall.
const farFirewall = `
---
kind: Site
metadata: {name: east}
spec: {kind: edge-cloud, capacity: 1000}
---
kind: Link
metadata: {name: east-hq}
spec: {from: east, to: hq, latencyMs: 20, bandwidthMbps: 1000}
---
kind: VnfDeployment
metadata: {name: firewall-east}
spec: {vnf: firewall, site: east, capacity: 400, instances: 1}
`

// detour is a platform where the chain web had to go over the far site, and need not any more.
func detour(t *testing.T, policy MovePolicy) *platform {
	p := newPlatform(t, "hq", "office", "west", "east")
	p.config.Moves = policy
	for _, s := range p.sites {
		s.followChains()
		s.participate("edge", nil)
	}
	p.hq.participate("vnf.firewall", map[string]float64{"west": 400, "hq": 400, "east": 400})
	p.startGlobal()
	p.apply(strings.ReplaceAll(topology, "capacity: 400", "capacity: 0") + farFirewall)
	p.apply(webChain)
	p.awaitPhase("acme", "web", active)
	if !p.servedBy("east") {
		t.Fatal("the chain is not at the far site")
	}
	p.apply(topology)
	return p
}

func TestMovesAreShownAndNotCarriedOut(t *testing.T) {
	p := detour(t, MovePolicy{Interval: 50 * time.Millisecond})
	p.await("a move is shown", func() bool { return len(p.g.List(chain.KindMove, "acme", "web")) == 1 })
	m := p.g.List(chain.KindMove, "", "")[0].GetMove()
	if m.LatencyMsNow != 49 || m.LatencyMsThen != 9 || m.Gain < 0.5 || m.From[0].Sites[0] != "east" || m.To[0].Sites[0] == "east" {
		t.Errorf("move %v, want 49 ms to 9 ms away from east", m)
	}
	time.Sleep(300 * time.Millisecond)
	if !p.servedBy("east") {
		t.Error("the chain was moved though nobody said so")
	}
}

func TestMovesAreCarriedOutWhereTold(t *testing.T) {
	p := detour(t, MovePolicy{Interval: 50 * time.Millisecond, Apply: true})
	before := p.chain("acme", "web").Status.Routes[0].ChainLabel
	p.await("the chain is moved", func() bool { return !p.servedBy("east") && p.chain("acme", "web").Status.Phase == active })
	if now := p.chain("acme", "web").Status.Routes[0].ChainLabel; now != before {
		t.Errorf("label %d instead of %d: connections would not stay where they are", now, before)
	}
	if !p.said("Moving", "latency 9 ms instead of 49 ms") {
		t.Error("no event says why")
	}
	p.await("nothing is left to gain", func() bool { return len(p.g.List(chain.KindMove, "", "")) == 0 })
	if problem := p.disagreement(); problem != "" {
		p.await("participants agree", func() bool { return p.disagreement() == "" })
	}
}

func TestAMoveThatAParticipantRefusesChangesNothing(t *testing.T) {
	p := newPlatform(t, "hq", "office", "west", "east")
	p.config.Moves = MovePolicy{Interval: 50 * time.Millisecond, Apply: true}
	for _, s := range p.sites {
		s.followChains()
		s.participate("edge", nil)
	}
	p.hq.participate("vnf.firewall", map[string]float64{"west": 10, "hq": 10, "east": 400})
	p.startGlobal()
	p.apply(topology + farFirewall)
	p.apply(webChain)
	p.awaitPhase("acme", "web", active)
	p.await("the move is refused", func() bool { return p.said("MoveRefused", "10 available") })
	p.await("the chain is where it was", func() bool { return p.servedBy("east") })
}

func TestMovesOfManyChainsAreOrderedByGain(t *testing.T) {
	p := detour(t, MovePolicy{Interval: time.Hour})
	p.apply(strings.ReplaceAll(topology, "capacity: 400", "capacity: 0"))
	for i := range 2 {
		small := strings.NewReplacer("name: web,", fmt.Sprintf("name: small%d,", i), "50", fmt.Sprint(10*(i+1))).Replace(webChain)
		p.apply(small)
		p.awaitPhase("acme", fmt.Sprintf("small%d", i), active)
	}
	p.apply(topology)
	order, err := p.g.planMoves(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, key := range order {
		got += key.Name + " "
	}
	if got != "web small1 small0 " {
		t.Errorf("order %q", got)
	}
}
