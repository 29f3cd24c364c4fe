package global

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchboard-project/switchboard/internal/chain"
)

// script is a program that stands for switchboard-te.
func script(t *testing.T, body string) Command {
	t.Helper()
	path := filepath.Join(t.TempDir(), "te")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return Command{Path: path, TimeLimit: 5 * time.Second}
}

func TestFailuresOfTrafficEngineeringAreTold(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"bad input":  {"echo 'switchboard-te: /links/0: wrong' >&2; exit 2", "traffic engineering refused the model: switchboard-te: /links/0: wrong"},
		"infeasible": {"echo 'no path from a to b' >&2; exit 3", "no routes exist: no path from a to b"},
		"crash":      {"kill -9 $$", "ended with signal: killed"},
		"no JSON":    {"echo hello", "answered what is no result"},
		"no program": {"", "no such file"},
	} {
		command := script(t, c.body)
		if name == "no program" {
			command.Path += "-gone"
		}
		_, err := command.Solve(context.Background(), &Model{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if name == "infeasible" && !errors.Is(err, ErrInfeasible) {
			t.Errorf("%s: %v is no ErrInfeasible", name, err)
		}
	}
	slow := script(t, "exec sleep 20")
	slow.TimeLimit = 50 * time.Millisecond
	if _, err := slow.Solve(context.Background(), &Model{}); err == nil || !strings.Contains(err.Error(), "gave no answer within 50ms") {
		t.Errorf("slow: %v", err)
	}
}

// problemOf is the topology's web chain with what others hold.
func problemOf(t *testing.T, reserved, limits map[chain.Placement]chain.Load) *problem {
	g := withTopology(t)
	p := &problem{key: chain.Key{Kind: chain.KindChain, Customer: "acme", Name: "web"}, world: g.world, demand: chain.Demand{Forward: 50, Reverse: 50},
		reserved: reserved, limits: limits, traffic: map[chain.DirectedLink]chain.Mbps{{Link: "west-hq", Reversed: true}: 2000}, pairs: []pair{{"office", "hq"}}}
	p.spec = g.world[p.key].Spec.(chain.ChainSpec)
	return p
}

func TestModelHasWhatIsLeft(t *testing.T) {
	p := problemOf(t, map[chain.Placement]chain.Load{{Vnf: "firewall", Site: "west"}: 150, {Vnf: "nat", Site: "hq"}: 1000},
		map[chain.Placement]chain.Load{{Vnf: "firewall", Site: "west"}: 30})
	m := p.model()
	if len(m.Sites) != 1 || m.Sites[0].ID != "west" || m.Sites[0].Capacity != 850 {
		t.Errorf("sites %v, want 850 of west's 1000 and nothing of hq", m.Sites)
	}
	if d := m.Vnfs[0].Deployments; len(d) != 1 || d[0].Site != "west" || d[0].Capacity != 30 {
		t.Errorf("deployments %v, want 30 at west, as a participant said", d)
	}
	for _, l := range m.Links {
		want := 0.0
		if l.ID == "west-hq<" {
			want = 1000 // never more than the bandwidth
		}
		if l.Background != want {
			t.Errorf("link %s has background %v, want %v", l.ID, l.Background, want)
		}
	}
	if c := m.Chains[0]; c.Ingress != "office" || c.Egress != "hq" || c.Forward != 50 || c.Vnfs[0] != "firewall" {
		t.Errorf("chain %+v", c)
	}
}

func TestShortageSaysWhatIsMissing(t *testing.T) {
	p := problemOf(t, map[chain.Placement]chain.Load{{Vnf: "firewall", Site: "west"}: 300, {Vnf: "firewall", Site: "hq"}: 350}, nil)
	s := &Solution{Routes: []SolutionRoute{{Chain: "office to hq", Fraction: 0.75, Sites: []string{"west"}}}}
	routes, shortage := p.routes(s, func(chain.SiteName) chain.Label { return 16 })
	const want = "75 of 100 Mbit/s from office to hq can be carried: VNF firewall needs 200 load units, 150 are free (hq 50, west 100)"
	if routes != nil || shortage != want {
		t.Errorf("shortage %q, want %q", shortage, want)
	}
}

func TestRoutesOfEveryPairShareTheDemand(t *testing.T) {
	p := problemOf(t, nil, nil)
	p.pairs = []pair{{"office", "hq"}, {"west", "hq"}}
	s := &Solution{Routes: []SolutionRoute{{"office to hq", 0.6, []string{"west"}}, {"office to hq", 0.39999, []string{"hq"}},
		{"office to hq", 1e-9, []string{"hq"}}, {"west to hq", 1, []string{"west"}}}}
	routes, shortage := p.routes(s, func(chain.SiteName) chain.Label { return 16 })
	sum := 0.0
	for _, r := range routes {
		sum += r.Fraction
	}
	if shortage != "" || len(routes) != 3 || sum < 1-1e-12 || sum > 1+1e-12 || routes[2].Fraction != 0.5 || routes[0].Latency != 9 {
		t.Errorf("routes %+v (sum %v), shortage %q", routes, sum, shortage)
	}
}
